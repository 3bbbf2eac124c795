import pytest

from isthmus.errors import Terminal
from isthmus.model.slurm import Job
from isthmus.slurm.submission import duplicates, first_with, key_of, newer, with_key


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


def test_the_older_of_two_jobs_with_one_key_is_the_job() -> None:
    jobs = [Job(job_id=9, comment=with_key(None, "k")), Job(job_id=7, comment=with_key("x", "k")), Job(job_id=3)]
    first = first_with(jobs, "k")
    assert first is not None
    assert first.job_id == 7
    assert [job.job_id for job in duplicates(jobs, "k")] == [9]
    assert first_with(jobs, "other") is None
    assert duplicates(jobs, "other") == []
