"""How the books of a very large Slurm are kept."""

from isthmus.model.slurm import Job, Number
from isthmus.slurm.crowd import SLICE, Sweep, Unread, slices
from isthmus.slurm.submission import JOB_IDS


def job(job_id: int, *, submitted: int) -> Job:
    return Job(job_id, submit_time=Number.of(submitted))


def test_the_newest_is_read_first_and_whoever_left_is_not() -> None:
    unread = Unread()
    unread.begin({1, 2, 3, 4})
    assert unread.take(2, among={1, 2, 4}) == {4, 2}
    assert unread.take(2, among={1, 2, 4}) == {1}
    assert not unread


def test_the_newest_is_read_first_when_ids_have_begun_again() -> None:
    unread = Unread()
    ids = {JOB_IDS - 2, JOB_IDS - 1, 1, 2}
    unread.begin(ids)
    assert [unread.take(1, among=ids) for _ in ids] == [{2}, {1}, {JOB_IDS - 1}, {JOB_IDS - 2}]


def test_all_jobs_since_the_oldest_that_was_read_are_known() -> None:
    unread = Unread()
    assert not unread.knows_since(1e12), "nothing has been read"
    unread.begin({1, 2, 3})
    for job_id, submitted in ((3, 5000), (2, 4000)):
        assert unread.take(1, among={1, 2, 3}) == {job_id}
        unread.have_read([job(job_id, submitted=submitted)])
        assert unread.knows_since(submitted + 61)
        assert not unread.knows_since(submitted + 59), "clocks differ"
    unread.take(1, among={1, 2, 3})
    unread.have_read([job(1, submitted=3000)])
    assert unread.knows_since(0)


def test_what_could_not_be_read_is_next() -> None:
    unread = Unread()
    unread.begin({1, 2, 3})
    failed = unread.take(2, among={1, 2, 3})
    unread.put_back(failed)
    assert unread.take(1, among={1, 2, 3}) == {3}


def test_a_sweep_asks_about_those_to_come_and_then_about_all() -> None:
    sweep = Sweep()
    for job_id in (7, 5):
        sweep.note(job_id)
    sweep.begin({5, 7})
    assert sweep.take() == tuple(range(8, 8 + SLICE))
    sweep.note(9)
    sweep.go_on()
    assert sweep.take() == tuple(range(10, 10 + SLICE))
    assert sweep.take() == (5, 7)
    assert sweep.is_over


def test_ids_are_cut_into_slices() -> None:
    assert slices(range(SLICE, -1, -1)) == [tuple(range(SLICE)), (SLICE,)]
