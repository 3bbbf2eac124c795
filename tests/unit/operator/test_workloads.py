"""An upgrade of the operator restarts no pods, whatever the annotations of the version before were called."""

import pytest

from isthmus import names
from isthmus.operator.workloads import Hashes, hashes_on, made_otherwise

HELD = Hashes(spec="s1", template="t1")
OLD = {names.SPEC_HASH_ANNOTATION_OLD: "s1", names.TEMPLATE_HASH_ANNOTATION_OLD: "t1"}


@pytest.mark.parametrize("annotations", [HELD.annotations(), OLD], ids=["today's names", "the names before 0.2.0"])
def test_hashes_are_read_under_both_names(annotations: dict[str, str]) -> None:
    held = hashes_on(annotations)
    assert held == HELD
    assert made_otherwise(held, Hashes(spec="s1", template="t2")), "another operator: its template stays"
    assert not made_otherwise(held, Hashes(spec="s2", template="t2")), "another specification: new pods"
    assert not made_otherwise(held, HELD)


def test_the_name_of_today_counts_where_both_are_there() -> None:
    assert hashes_on({**OLD, **Hashes(spec="s2", template="t2").annotations()}) == Hashes(spec="s2", template="t2")


def test_only_the_names_of_today_are_written() -> None:
    assert HELD.annotations() == {"isthmus.dev/spec-hash": "s1", "isthmus.dev/template-hash": "t1"}


@pytest.mark.parametrize("gone", list(OLD))
def test_a_workload_without_both_hashes_is_made_anew(gone: str) -> None:
    assert hashes_on({name: value for name, value in OLD.items() if name != gone}) is None
