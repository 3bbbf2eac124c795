"""The search for the guilty nodes of a failed job, played against made-up faults."""

from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.domain.health.activechecks.bisection import Blame, Group, blame, group

if TYPE_CHECKING:
    from isthmus.domain.health.activechecks.outcomes import Outcome


def search(nodes: Group, bad: set[frozenset[str]], *, least: int = 1) -> tuple[Blame, int]:
    """Run a search to its end, on nodes of which these sets fail; count the jobs."""
    results: dict[Group, Outcome] = {}
    while (found := blame(nodes, results, least=least)).pending:
        for it in found.pending:
            results[it] = "failed" if any(fault <= set(it) for fault in bad) else "passed"
    return found, len(results)


def names(count: int) -> Group:
    return group(f"n{it}" for it in range(count))


def test_a_job_that_passes_blames_nobody() -> None:
    assert blame(names(4), {names(4): "passed"}) == Blame()


def test_one_bad_node_is_found_with_few_jobs() -> None:
    found, jobs = search(names(64), {frozenset({"n17"})})
    assert found.culprits == (("n17",),)
    assert jobs <= 1 + 2 * 6


def test_several_bad_nodes_are_all_found() -> None:
    found, _ = search(names(16), {frozenset({"n1"}), frozenset({"n2"}), frozenset({"n13"})})
    assert set(found.culprits) == {("n1",), ("n2",), ("n13",)}


@pytest.mark.parametrize("pair", list(combinations(names(5), 2)))
def test_a_failing_pair_is_found_wherever_it_is(pair: tuple[str, str]) -> None:
    found, _ = search(names(5), {frozenset(pair)})
    assert found.culprits == (group(pair),)


def test_a_fault_that_is_gone_blames_nobody() -> None:
    nodes = names(4)
    results: dict[Group, Outcome] = {nodes: "failed"}
    while (found := blame(nodes, results)).pending:
        results |= dict.fromkeys(found.pending, "passed")
    assert found == Blame(cleared=(nodes,))


def test_an_error_on_the_way_is_not_a_pass() -> None:
    nodes = names(4)
    results: dict[Group, Outcome] = {nodes: "failed", ("n0", "n1"): "passed", ("n2", "n3"): "error"}
    assert blame(nodes, results) == Blame(unknown=(("n2", "n3"),))


def test_a_check_that_needs_two_nodes_is_not_run_on_one() -> None:
    found, _ = search(names(8), {frozenset({"n5"})}, least=2)
    assert found.culprits == (("n4", "n5"),)


@given(st.integers(2, 24), st.data())
def test_every_culprit_is_guilty_and_something_is_found(count: int, data: st.DataObject) -> None:
    nodes = names(count)
    fault = st.frozensets(st.sampled_from(nodes), min_size=1, max_size=2)
    bad = set(data.draw(st.lists(fault, min_size=1, max_size=3)))
    found, jobs = search(nodes, bad)
    assert found.culprits
    assert all(any(it <= set(culprit) for it in bad) for culprit in found.culprits)
    assert all(len(culprit) <= 2 for culprit in found.culprits)
    assert jobs <= 16 * count
