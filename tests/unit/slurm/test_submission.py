import pytest
from msgspec.structs import replace

from isthmus.errors import Terminal
from isthmus.model.slurm import Job, Number
from isthmus.slurm.submission import base_id, duplicates, key_of, newer, with_hold, with_key


@pytest.mark.parametrize("comment", [None, "", "night shift", "isthmus-key=old", "a isthmus-key=b c"])
def test_the_key_comes_back_from_behind_any_comment(comment: str | None) -> None:
    marked = with_key(comment, "cluster/ns.pod:1")
    assert key_of(marked) == "cluster/ns.pod:1"
    assert marked.startswith(comment or "")


@pytest.mark.parametrize("comment", [None, "", "night shift", "isthmus-key=a b", "xisthmus-key=a", "isthmus-key="])
def test_other_comments_have_no_key(comment: str | None) -> None:
    assert key_of(comment) is None


@pytest.mark.parametrize("key", ["", "a b", "a\nb", "ä", "x" * 201])
def test_what_would_not_come_back_is_refused(key: str) -> None:
    with pytest.raises(Terminal, match="not a valid submission key"):
        with_key(None, key)


def test_ids_begin_again_after_the_last() -> None:
    assert newer(5, 4)
    assert not newer(4, 4)
    assert not newer(4, 5)
    assert newer(1, 67_043_327)
    assert not newer(67_043_327, 1)


@pytest.mark.parametrize(
    ("order", "surplus"), [((9, 7, 8), {8, 9}), ((7, 8, 9), {8, 9}), ((8, 9, 7), {8, 9}), ((7,), set())]
)
def test_of_several_jobs_with_one_key_the_oldest_is_the_job(order: tuple[int, ...], surplus: set[int]) -> None:
    jobs = [Job(job_id=job_id, comment=with_key("x", "k")) for job_id in order]
    others = [Job(job_id=1), Job(job_id=2, comment="x"), Job(job_id=3, comment=with_key(None, "other"))]
    assert {job.job_id for job in duplicates([*jobs, *others])} == surplus


def test_everybody_chooses_the_same_of_several() -> None:
    late_first = Job(job_id=9, job_state=("PENDING",), comment=with_key("x", "k"))
    held = Job(job_id=8, job_state=("PENDING",), comment=with_key(with_hold("x"), "k"))
    freed = replace(held, comment=with_key("x", "k"))
    withdrawn = replace(held, job_state=("CANCELLED",), start_time=Number.of(5))

    def begun(job: Job) -> Job:
        return replace(job, job_state=("RUNNING",), nodes="n1", start_time=Number.of(100 - job.job_id))

    assert duplicates([held, late_first]) == [held], "which cannot have begun"
    assert duplicates([held, begun(late_first)]) == [held]
    assert duplicates([freed, late_first]) == [late_first], "whoever submitted was told of the other"
    assert duplicates([begun(held), late_first]) == [late_first]
    assert duplicates([begun(freed), begun(late_first)]) == [begun(freed)], "which began later"
    assert duplicates([withdrawn, late_first]) == []
    assert duplicates([begun(freed), replace(late_first, job_state=("CANCELLED",))]) == []


def test_what_was_cancelled_is_not_replaced_by_its_duplicate() -> None:
    cancelled = Job(job_id=7, job_state=("CANCELLED",), comment=with_key(None, "k"))
    late = Job(job_id=8, job_state=("PENDING",), comment=with_key(None, "k"))
    assert duplicates([late, cancelled]) == [late]


def test_the_tasks_of_an_array_are_one_job() -> None:
    tasks = [Job(job_id=it, array_job_id=Number.of(9), comment=with_key(None, "k")) for it in (7, 8, 9)]
    assert duplicates(tasks) == []
    assert duplicates([*tasks, Job(job_id=6, comment=with_key(None, "k"))]) == tasks


@pytest.mark.parametrize("comment", [None, "night shift"])
def test_a_mark_leaves_the_key_readable(comment: str | None) -> None:
    assert key_of(with_key(with_hold(comment), "k")) == "k"


@pytest.mark.parametrize(
    ("text", "job_id"),
    [("17", 17), ("12_3", 12), ("9+0", 9), ("10+1", 9), ("3+7", 0), ("12_[4-9]", 12), ("", 0), ("x", 0)],
)
def test_an_entry_of_the_queue_belongs_to_a_job(text: str, job_id: int) -> None:
    assert base_id(text) == job_id
