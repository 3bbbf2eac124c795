from datetime import UTC, datetime
from typing import Literal

import pytest

from isthmus.domain.health.activechecks.results import CheckResult
from isthmus.health.gatherer import Checked, unseen_claims

AT = datetime(2026, 3, 4, tzinfo=UTC)


def said(result: Literal["Passed", "Failed"], wants: Literal["", "comment", "drain", "undrain"]) -> Checked:
    checked = Checked()
    given = CheckResult(check="gpu", node="n1", result=result, at=AT, wants=wants, reason="[x] gpu", test=True)
    checked.add(given, in_slurm=True)
    return checked


@pytest.mark.parametrize("wants", ["drain", "comment"])
def test_a_success_that_asks_for_a_reaction_is_a_finding_without_a_test(wants: Literal["drain", "comment"]) -> None:
    checked = said("Passed", wants)
    (seen,) = checked.found
    assert (seen.wants, seen.reason, seen.test) == (wants, "[x] gpu", False)
    assert not checked.passed


def test_any_other_success_proves_that_a_node_is_well() -> None:
    assert said("Passed", "").passed == {"gpu": AT}
    assert said("Passed", "undrain").passed == {"gpu": AT, "[x] gpu": AT}
    assert not said("Passed", "undrain").found


def test_a_failure_is_a_finding_that_its_check_can_disprove() -> None:
    (seen,) = said("Failed", "drain").found
    assert (seen.wants, seen.test) == ("drain", True)


def test_a_reboot_that_was_decided_counts_until_it_is_shown_or_for_a_minute() -> None:
    claims = {"m1": 60.0, "m2": 61.0}
    assert unseen_claims(claims, set(), now=59.0) == claims
    assert unseen_claims(claims, {"m1"}, now=59.0) == {"m2": 61.0}, "its end is shown as well: the next may follow"
    assert unseen_claims(claims, set(), now=60.0) == {"m2": 61.0}
