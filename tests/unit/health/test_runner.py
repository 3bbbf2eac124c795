"""In which order actions are carried out, and what waits for what."""

import asyncio
from typing import Any

import pytest

from isthmus.domain.health.actions import Action, Drain, Record, Release, Reserve, RunTest, SetCondition, Unreserve
from isthmus.errors import Retry, Wait
from isthmus.health import runner
from isthmus.health.gatherer import Memory
from isthmus.health.runner import ActionRunner, Batch, nodes_of
from isthmus.model.health import NodeHealthStatus
from tests.unit.domain.health.scene import look


def a_test(node: str) -> RunTest:
    return RunTest(node, "gpu", "check", f"test-{node}")


class Noted(ActionRunner):
    """Notes what it would do; each action takes so long."""

    def __init__(self, *, takes: float = 0.0) -> None:
        self.begun: list[Action] = []
        self.fails: dict[Action, Exception] = {}
        self.most = self._now = 0
        self._takes = takes

    async def carry_out(self, batch: Batch, action: Action) -> None:
        del batch
        self.begun.append(action)
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(self._takes)
        self._now -= 1
        if action in self.fails:
            raise self.fails[action]

    def of(self, node: str) -> list[Action]:
        return [it for it in self.begun if node in nodes_of(it)]


def batch() -> Batch:
    return Batch(look(), None, Memory(), None, run=None)  # type: ignore[arg-type] # nothing is run


async def test_nodes_go_side_by_side_and_each_in_its_order() -> None:
    noted = Noted(takes=0.001)
    chains: dict[str, list[Action]] = {it: [Reserve(it), a_test(it), Unreserve(it)] for it in ("n1", "n2", "n3")}
    mixed = [action for step in zip(*chains.values(), strict=True) for action in step]
    await noted.run(batch(), mixed)
    assert {it: noted.of(it) for it in chains} == chains
    assert noted.most == len(chains)


async def test_drains_come_before_what_is_done_to_single_nodes_and_releases_of_many_after_it() -> None:
    noted = Noted(takes=0.001)
    first, last = Drain(("n1", "n2"), "bad"), Release(("n5", "n6"), "")
    await noted.run(batch(), [Record("n1", NodeHealthStatus()), first, Reserve("n3"), Reserve("n4"), last])
    assert noted.begun[1] == first
    assert noted.begun[-1] == last


async def test_what_fails_for_a_node_is_not_continued_for_it_alone() -> None:
    noted = Noted()
    noted.fails = {Reserve("n1"): Retry("slurmctld does not answer")}
    with pytest.raises(Retry):
        await noted.run(
            batch(), [Reserve("n1"), a_test("n1"), Reserve("n2"), a_test("n2"), Release(("n1", "n2"), "")]
        )
    assert noted.of("n1") == [Reserve("n1")]
    assert noted.of("n2") == [Reserve("n2"), a_test("n2"), Release(("n2",), "")]


async def test_what_takes_long_is_decided_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_NODES_S", 0.02)
    noted = Noted(takes=0.05)
    shown = SetCondition("m1", "Bad", "True", "Drained", "")
    many: list[Any] = [a_test(f"n{number}") for number in range(3 * runner._NODES_AT_ONCE)]
    with pytest.raises(Wait) as waits:
        await noted.run(batch(), [*many, shown, Release(("n1", "n23"), "")])
    assert waits.value.after == 0.0
    assert noted.begun == [*many[: runner._NODES_AT_ONCE], shown, Release(("n1",), "")]
