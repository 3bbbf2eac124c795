"""Whose word it was that a job should not run."""

import msgspec
import pytest

from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.withdrawal import is_withdrawn
from isthmus.domain.bridge import marker, outcome
from isthmus.domain.bridge.grouping import GroupKey
from isthmus.domain.bridge.marker import Marker
from isthmus.domain.bridge.outcome import Outcome, Result
from isthmus.model.slurm import Job, Number
from isthmus.slurm.submission import with_key

MARKER = Marker("c", "Pod", "team", "web", "uid", ("team/web",), ("uid",))


def job(job_id: int = 7, *states: str, key: str = "", marked: Marker = MARKER, told: str = "") -> OurJob:
    text = marker.write(marked)
    text = outcome.in_admin_comment(text, Outcome(Result.DELETED, told)) if told else text
    comment = with_key("team/web", key or f"c:uid:{job_id}")
    return OurJob(Job(job_id, states or ("CANCELLED",), comment=comment, admin_comment=text), marked)


def test_a_job_that_somebody_cancelled_is_withdrawn() -> None:
    assert is_withdrawn(job(), [job()])


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"])
def test_a_job_that_nobody_cancelled_is_not(state: str) -> None:
    assert not is_withdrawn(job(7, state), [job(7, state)])


def test_a_job_that_we_cancelled_says_so() -> None:
    assert not is_withdrawn(job(told="it is larger than its gang is now"), [])


def test_one_of_two_with_the_same_key_was_one_too_many() -> None:
    kept = job(6, "RUNNING", key="k")
    assert not is_withdrawn(job(7, key="k"), [kept, job(7, key="k")])


def test_only_the_last_word_counts() -> None:
    assert not is_withdrawn(job(7), [job(7), job(8, "PENDING")])
    assert is_withdrawn(job(8), [job(7, "FAILED"), job(8)])


def test_a_gang_made_anew_under_the_same_name_is_another() -> None:
    group = GroupKey("Job", "team", "train")
    old, new = (Marker("c", *group, uid, ("team/a",), ("a",)) for uid in ("old", "new"))
    assert is_withdrawn(job(7, marked=old), [job(7, marked=old), job(8, "PENDING", marked=new)])


def test_what_is_no_admin_comment_of_ours_tells_nothing() -> None:
    assert not outcome.is_told(None)
    assert not outcome.is_told("[1, 2]")
    assert not outcome.is_told('{"outcome"')


def test_a_job_says_whether_it_is_taken_back_or_its_pods_have_ended() -> None:
    ended = outcome.in_admin_comment("{}", Outcome(Result.SUCCEEDED, "Succeeded"))
    back = outcome.in_admin_comment("{}", Outcome(Result.DELETED, "it is too large"), taken_back=True)
    assert (outcome.is_told(ended), outcome.is_taken_back(ended)) == (True, False)
    assert (outcome.is_told(back), outcome.is_taken_back(back)) == (True, True)
    assert not outcome.is_taken_back("[1, 2]")


def test_components_of_one_job_are_withdrawn_together() -> None:
    def component(job_id: int, *states: str) -> OurJob:
        made = job(job_id, *states, key="k")
        return OurJob(msgspec.structs.replace(made.job, het_job_id=Number.of(7)), made.marker)

    both = [component(7), component(8)]
    assert all(is_withdrawn(it, both) for it in both)
    assert not is_withdrawn(both[0], [*both, job(9, "PENDING", key="k")])
