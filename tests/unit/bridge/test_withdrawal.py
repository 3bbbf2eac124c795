"""Whose word it was that a job should not run."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.world import World
from isthmus.bridge.withdrawal import Withdrawals, is_withdrawn
from isthmus.domain.bridge import marker, outcome
from isthmus.domain.bridge.groups import GroupKey
from isthmus.domain.bridge.marker import Marker
from isthmus.domain.bridge.outcome import Outcome, Result
from isthmus.errors import Retry
from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.model.slurm import Job, Number
from isthmus.slurm.auth import FileToken
from isthmus.slurm.client import connect
from isthmus.slurm.submission import with_key

NOWHERE = "http://127.0.0.1:1"
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


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Caches with nobody behind them: whoever asks Slurm gets `Retry`."""
    (tmp_path / "token").write_text("e30.e30.e30")
    async with connect([NOWHERE], FileToken(tmp_path / "token")) as slurm:
        yield World(Client(Config(server=NOWHERE, credentials=Fixed())), slurm, cluster="c")


async def test_a_job_of_which_nothing_is_told_is_of_use(world: World) -> None:
    assert not await Withdrawals(world).covers(job(7, "RUNNING"))


@pytest.mark.parametrize("result", [Result.SUCCEEDED, Result.FAILED, Result.DELETED])
async def test_a_job_whose_pods_have_ended_is_of_no_use_and_left_alone(world: World, result: Result) -> None:
    ours = job(7, "RUNNING")
    said = outcome.in_admin_comment(marker.write(MARKER), Outcome(result, "as its pods did"))
    ended = OurJob(msgspec.structs.replace(ours.job, admin_comment=said), MARKER)
    # To cancel it would take an answer, and would hide how its pods ended.
    assert await Withdrawals(world).covers(ended)


async def test_a_job_that_was_being_taken_back_is_told_to_end_again(world: World) -> None:
    ours = job(7, "RUNNING")
    told = Outcome(Result.DELETED, "it is too large")
    said = outcome.in_admin_comment(marker.write(MARKER), told, taken_back=True)
    half = OurJob(msgspec.structs.replace(ours.job, admin_comment=said), MARKER)
    with pytest.raises(Retry):
        await Withdrawals(world).covers(half)


async def test_a_job_whose_withdrawal_was_not_answered_is_told_to_end_again(world: World) -> None:
    withdrawals, ours = Withdrawals(world), job(7, "RUNNING")
    world.poller.jobs.put(7, ours.job)
    with pytest.raises(Retry):
        await withdrawals.take_back(7, "it is too large")
    with pytest.raises(Retry):
        await withdrawals.covers(ours)
