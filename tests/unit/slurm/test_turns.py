from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from isthmus.model.slurm import Job
from isthmus.slurm.turns import Kind, Turns, kind_of


def begun(*jobs: tuple[int, str]) -> Turns:
    turns = Turns()
    turns.begin((job_id, (kind,)) for job_id, kind in jobs)
    return turns


def taken(turns: Turns, count: int) -> list[int]:
    return [turns.take() for _ in range(count)]


def test_kinds_take_turns_and_the_first_jobs_come_first() -> None:
    turns = begun((1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "c"), (6, "b"))
    assert taken(turns, 6) == [1, 4, 5, 2, 6, 3]
    assert not turns


def test_when_one_has_changed_all_others_of_its_kind_come_next() -> None:
    turns = begun((1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "b"))
    assert taken(turns, 2) == [1, 3]
    turns.hurry(("b",))
    turns.hurry(("b",))
    turns.hurry(("gone",))
    assert taken(turns, 3) == [4, 5, 2]


def test_what_jobs_wait_for_is_of_their_kind() -> None:
    job = Job(job_id=1, user_id=7, account="a", partition="p", qos="q", state_reason="Priority")
    assert kind_of(job) == kind_of(
        Job(job_id=2, user_id=7, account="a", partition="p", qos="q", state_reason="Priority")
    )
    assert kind_of(job) != kind_of(
        Job(job_id=1, user_id=7, account="a", partition="p", qos="q", state_reason="Resources")
    )


@given(st.dictionaries(st.integers(1, 60), st.sampled_from("abc")), st.lists(st.sampled_from("abcd")))
def test_each_has_one_turn_whatever_hurries(jobs: Mapping[int, str], hurried: list[str]) -> None:
    turns = begun(*jobs.items())
    seen = []
    while turns:
        seen.append(turns.take())
        if hurried:
            kind: Kind = (hurried.pop(),)
            turns.hurry(kind)
    assert sorted(seen) == sorted(jobs)
