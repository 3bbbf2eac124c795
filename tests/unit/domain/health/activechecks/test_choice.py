"""Which nodes a run goes to."""

import pytest

from isthmus.domain.health.activechecks import choice
from tests.unit.domain.health.activechecks.values import node


@pytest.mark.parametrize(
    "state", ["DOWN", "DRAIN", "RESERVED", "NOT_RESPONDING", "POWERED_DOWN", "EXTERNAL", "MAINTENANCE"]
)
def test_a_node_that_would_not_start_a_job_is_passed_by(state: str) -> None:
    assert not choice.is_usable(node("n1", "IDLE", state))
    assert choice.is_usable(node("n1", "MIXED", "DYNAMIC_NORM"))


def test_partition_and_gpus_restrict_it() -> None:
    nodes = [
        node("n10"),
        node("n2", gres="gpu:h100:8(S:0)"),
        node("n3", partitions=("other",), gres="shard:2,gpu:1"),
    ]
    assert choice.candidates(nodes, partition="", gpus=False) == ["n2", "n3", "n10"]
    assert choice.candidates(nodes, partition="main", gpus=False) == ["n2", "n10"]
    assert choice.candidates(nodes, partition="", gpus=True) == ["n2", "n3"]


def test_a_bounded_choice_is_the_same_for_one_run_and_another_for_the_next() -> None:
    names = [f"n{it}" for it in range(100)]
    first = choice.chosen(names, limit=10, seed="one")
    assert first == choice.chosen(reversed(names), limit=10, seed="one")
    assert len(first) == 10
    assert first != choice.chosen(names, limit=10, seed="two")
    assert choice.chosen(names, limit=0, seed="one") == names


def test_over_many_runs_every_node_has_its_turn() -> None:
    names = [f"n{it}" for it in range(20)]
    seen = {it for seed in range(40) for it in choice.chosen(names, limit=4, seed=str(seed))}
    assert seen == set(names)


def test_no_run_has_more_jobs_than_its_plan_can_hold() -> None:
    names = [f"n{it}" for it in range(choice.MAX_JOBS + 7)]
    assert len(choice.chosen(names, limit=0, seed="x")) == choice.MAX_JOBS


def test_jitter_spreads_jobs_over_the_whole_span() -> None:
    delays = {choice.delay("run", f"n{it}", jitter=9) for it in range(200)}
    assert delays == set(range(10))
    assert choice.delay("run", "n1", jitter=0) == 0
