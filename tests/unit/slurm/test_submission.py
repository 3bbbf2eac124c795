import pytest

from isthmus.errors import Terminal
from isthmus.model.slurm import Job
from isthmus.slurm.submission import base_id, duplicates, key_of, newer, with_key


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
    with pytest.raises(Terminal, match="no submission key"):
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


@pytest.mark.parametrize(
    ("text", "job_id"), [("17", 17), ("12_3", 12), ("9+1", 9), ("12_[4-9]", 12), ("", 0), ("x", 0)]
)
def test_an_entry_of_the_queue_belongs_to_a_job(text: str, job_id: int) -> None:
    assert base_id(text) == job_id
