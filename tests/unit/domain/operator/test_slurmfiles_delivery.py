"""Whether everybody runs with the files and keys as they are now."""

from typing import Any

import pytest

from isthmus.domain.operator.authkeys import AuthKey, KeySet
from isthmus.domain.operator.slurmfiles.delivery import (
    DROP_SETTLE,
    KEYS_SETTLE,
    Delivery,
    Progress,
    Verdict,
    advance,
    counting_since,
    judge,
    settle,
)
from isthmus.model.slurm import Node, Number, Statistics

CHANGED = 1000.4


def node(name: str, *, started: float, state: tuple[str, ...] = ("IDLE",)) -> Node:
    return Node(name=name, state=state, slurmd_start_time=Number.of(started))


def seen(**more: Any) -> Delivery:
    facts: dict[str, Any] = {
        "revision": "a b",
        "now": CHANGED + 2,
        "changed_at": CHANGED,
        "due": CHANGED,
        "counting_since": 1001.0,
    }
    return Delivery(**{**facts, **more})


def test_it_is_applied_when_slurmctld_and_all_nodes_have_read_since() -> None:
    verdict = judge(seen(nodes=(node("w-0", started=1001), node("w-1", started=1000))))
    assert verdict.state == "applied"
    assert "2 nodes" in verdict.message


def test_a_slurmctld_that_has_not_read_since_is_waited_for() -> None:
    assert judge(seen(counting_since=999.0)) == Verdict("delivering", "slurmctld has not read it yet")


def test_a_slurmd_that_started_before_slurmctld_read_it_was_given_what_was_before() -> None:
    early = node("w-0", started=1003)
    assert judge(seen(counting_since=1005.0, nodes=(early,))).state == "delivering"
    # slurmctld begins to count a second after it has told nodes to read.
    assert judge(seen(counting_since=1005.0, nodes=(node("w-0", started=1004),))).state == "applied"


def test_a_slurmctld_that_reads_once_more_does_not_make_nodes_late() -> None:
    first = seen(counting_since=1005.0, nodes=(node("w-0", started=1005),))
    known = advance(Progress(), first)
    again = seen(counting_since=1050.0, now=1051.0, nodes=first.nodes)
    assert judge(again, known).state == "applied"
    # Of another revision, nothing is known.
    assert judge(seen(revision="c d", counting_since=1050.0, nodes=first.nodes), known).state == "delivering"


def test_a_reading_in_the_very_second_of_the_change_is_one_of_what_was_before() -> None:
    """Two changes at once: the second may be refused, and must not count as taken when the first was."""
    same = {"counting_since": 1000.0, "nodes": (node("w-0", started=1000),)}
    assert judge(seen(**same)) == Verdict("delivering", "slurmctld has not read it yet")
    # Clocks may differ: after a while everybody reads once more.
    assert judge(seen(**same, now=CHANGED + 15)).push
    # Another reading than the one that we found has to be one of the change.
    found = advance(Progress(), seen(counting_since=999.0, began=5999.0))
    assert judge(seen(**same, began=6000.0), found).state == "applied"


def test_a_reading_that_we_asked_for_is_no_proof_until_the_side_car_had_its_time() -> None:
    """Files of a JailedConfig are read while new settings are on their way, which may yet be refused."""
    ours = {"asked_at": CHANGED + 1, "counting_since": 1003.0, "nodes": (node("w-0", started=1003),)}
    assert judge(seen(**ours)) == Verdict("delivering", "slurmctld has not read it yet")
    assert judge(seen(**ours, now=CHANGED + 15)).state == "applied"
    known = advance(Progress(), seen(counting_since=1001.0))
    assert judge(seen(**ours), known).state == "applied", "it had read it before"


def test_counters_that_begin_at_midnight_are_no_proof_of_a_reading() -> None:
    """slurmctld restarts them with the date; nodes that start then are given what was there before."""
    midnight = 3 * 86400.0
    late: dict[str, Any] = {
        "changed_at": midnight - 2,
        "due": midnight - 2,
        "nodes": (node("w-0", started=midnight + 1),),
    }
    known = advance(Progress(), seen(**late, now=midnight - 1, began=midnight - 900, counting_since=midnight - 900))
    reset: dict[str, Any] = {**late, "began": midnight + 1, "counting_since": midnight + 1}
    for before in (
        known,
        Progress(),
    ):  # with what was seen before midnight, and by an operator that starts after it
        assert judge(seen(**reset, now=midnight + 2), before) == Verdict(
            "delivering", "slurmctld has not read it yet"
        )
        assert judge(seen(**reset, now=midnight + 15), before).push, "so it reads once more, and then it is known"
        after = advance(before, seen(**reset, now=midnight + 2))
        again = midnight + 16
        read: dict[str, Any] = {**reset, "began": again, "counting_since": again, "now": again + 5}
        assert judge(seen(**read), after).state == "delivering", "the node was given what was there before"
        assert judge(seen(**{**read, "nodes": (node("w-0", started=again),)}), after).state == "applied"


def test_slurmctld_is_not_told_again_before_it_can_have_answered() -> None:
    keys: dict[str, Any] = {"due": CHANGED + KEYS_SETTLE, "asked_at": CHANGED + KEYS_SETTLE}
    assert not judge(seen(**keys, now=CHANGED + KEYS_SETTLE + 1)).push
    assert judge(seen(**keys, now=CHANGED + KEYS_SETTLE + 6)).push


def test_nodes_that_lag_are_named_and_after_a_while_told_again() -> None:
    nodes = (node("w-0", started=900), node("w-1", started=900), node("w-2", started=1001))
    verdict = judge(seen(nodes=nodes))
    assert verdict == Verdict("delivering", "2 of 3 nodes have not loaded it yet: w-[0-1]", read=True)
    assert judge(seen(nodes=nodes, now=1001 + 15)).push


def test_a_node_that_is_down_is_not_waited_for_unless_its_pod_runs() -> None:
    away = node("w-0", started=900, state=("DOWN", "NOT_RESPONDING"))
    assert judge(seen(nodes=(away,))).state == "applied"
    assert judge(seen(nodes=(away,), with_pod=frozenset({"w-0"}))).state == "delivering"


@pytest.mark.parametrize("state", [("IDLE", "NOT_RESPONDING"), ("UNKNOWN",)])
def test_a_node_that_says_nothing_is_waited_for_a_little(state: tuple[str, ...]) -> None:
    silent = node("w-0", started=900, state=state)
    assert judge(seen(nodes=(silent,))).state == "delivering"
    assert judge(seen(nodes=(silent,), now=1001 + 30)).state == "applied"


def test_nodes_without_a_slurmd_have_nothing_to_read() -> None:
    external = node("k8s-0", started=0, state=("IDLE", "EXTERNAL"))
    assert judge(seen(nodes=(external,))).state == "applied"


def test_a_node_that_starts_reads_when_it_is_there() -> None:
    """Else slurmctld would be reconfigured again and again while nodes boot."""
    starting = node("w-0", started=0, state=("ALLOCATED", "CLOUD", "POWERING_UP"))
    soon, later = seen(now=CHANGED + 20, nodes=(starting,)), seen(now=CHANGED + 60, nodes=(starting,))
    assert (judge(soon).state, judge(soon).push) == ("delivering", False)
    assert judge(later).state == "applied"
    # Beside one that runs, which is told again.
    assert judge(seen(now=CHANGED + 20, nodes=(starting, node("w-1", started=900)))).push


def test_that_slurmctld_has_read_is_told_before_nodes_have() -> None:
    late = (node("w-0", started=900),)
    assert judge(seen(nodes=late)).read
    assert not judge(seen(counting_since=999.0, nodes=late)).read
    assert not judge(seen(counting_since=None)).read


def test_a_refusal_counts_only_for_the_revision_it_is_about() -> None:
    verdict = judge(seen(refusals={"ctl-0": "a b \nfatal: no such node\nerror"}))
    assert verdict == Verdict("rejected", "slurmctld in ctl-0 rejects it: fatal: no such node error")
    assert judge(seen(refusals={"ctl-0": "a older \nfatal: no such node"})).state == "applied"


def test_while_nobody_can_be_asked_nobody_knows() -> None:
    assert judge(seen(counting_since=None)).state == "unknown"


def test_new_keys_are_read_once_more_when_they_are_mounted_everywhere() -> None:
    keys: dict[str, Any] = {"due": CHANGED + KEYS_SETTLE}
    assert judge(seen(**keys)) == Verdict("delivering", "new keys are being mounted in all pods", read=True)
    assert judge(seen(**keys, now=CHANGED + KEYS_SETTLE)).push
    late = CHANGED + KEYS_SETTLE + 1
    assert (
        judge(seen(**keys, now=late, counting_since=late, nodes=(node("w-0", started=1001),))).state == "delivering"
    )
    assert judge(seen(**keys, now=late, counting_since=late, nodes=(node("w-0", started=late),))).state == "applied"


def test_a_key_that_is_only_dropped_need_not_be_gone_everywhere_before_it_is_read() -> None:
    old, new = (AuthKey.of(bytes([it]) * 32, where="the test") for it in (1, 2))
    assert settle(KeySet((old, new), old.kid)) == settle(KeySet((old, new), new.kid)) == KEYS_SETTLE
    assert settle(KeySet.only(new)) == DROP_SETTLE
    assert settle(None) == KEYS_SETTLE


def test_when_slurmctld_took_keys_is_known_before_all_pods_have_them() -> None:
    keys: dict[str, Any] = {"due": CHANGED + KEYS_SETTLE}
    known = advance(Progress(), seen(**keys))
    later = CHANGED + KEYS_SETTLE + 1
    assert advance(known, seen(**keys, now=later, counting_since=later)).taken_at == 1001.0


def test_the_clock_of_slurmctld_may_be_wrong() -> None:
    told = Statistics(now=Number.of(5000), since=Number.of(4990))
    assert counting_since(told, now=1010.0) == 1000
    assert counting_since(Statistics(now=Number.of(1010), since=Number.of(1000)), now=1010.9) == 1000
    assert counting_since(Statistics(now=Number.of(1010), since=Number.of(0)), now=1010.9) is None
