from typing import Any

import msgspec
import pytest

from isthmus.domain.exporter import tallies, unseen
from isthmus.domain.exporter.folding import Limits
from isthmus.domain.exporter.jobledger import Ending, JobLedger
from isthmus.domain.exporter.tallies import Tally
from isthmus.model.slurm import Job, Number

NOW = 1_000_000.0
WHOSE = ("main", "physics", "normal")


def job(state: str = "PENDING", *flags: str, **changes: Any) -> Job:
    times = {name: Number.of(value) for name, value in changes.items() if name.endswith("_time")}
    record = Job(
        job_id=7,
        job_state=(state, *flags),
        partition="main,other",
        account="physics",
        qos="normal",
        submit_time=Number.of(NOW),
    )
    return msgspec.structs.replace(record, **changes | times)


def running(**changes: Any) -> Job:
    return job("RUNNING", nodes="n1", **{"start_time": NOW + 10, **changes})


def ended(state: str = "COMPLETED", **changes: Any) -> Job:
    return running(**{"end_time": NOW + 70, **changes, "job_state": (state,)})


@pytest.fixture
def ledger() -> JobLedger:
    made = JobLedger(Limits())
    made.since = NOW
    return made


def count(tally: Tally) -> float:
    return sum(tally.rows.values())


def numbers(ledger: JobLedger) -> tuple[float, ...]:
    return tuple(map(count, (ledger.submitted, ledger.started, ledger.ended, ledger.requeued, ledger.preempted)))


def test_a_job_that_came_and_went_between_two_looks_counts_in_full(ledger: JobLedger) -> None:
    ledger.see(ended("FAILED"), now=NOW)
    assert ledger.submitted.rows == {WHOSE: 1}
    assert ledger.started.rows == {WHOSE: 1}
    assert ledger.ended.rows == {(*WHOSE, "failed"): 1}
    assert ledger.wait.rows[WHOSE][1] == 10
    assert ledger.run.rows[WHOSE][1] == 60


def test_what_was_there_before_counts_only_what_it_does_later(ledger: JobLedger) -> None:
    ledger.see(running(), now=NOW, before=True)
    ledger.see(running(job_id=8), now=NOW, before=True)
    assert numbers(ledger) == (0, 0, 0, 0, 0)
    ledger.see(ended(), now=NOW)
    assert numbers(ledger) == (0, 0, 1, 0, 0)
    assert ledger.run.rows[WHOSE][1] == 60


def test_a_job_whose_nodes_are_being_powered_on_has_not_started(ledger: JobLedger) -> None:
    ledger.see(running(job_state=("RUNNING", "CONFIGURING")), now=NOW)
    assert count(ledger.started) == 0
    ledger.see(running(start_time=NOW + 100), now=NOW)
    assert ledger.wait.rows[WHOSE][1] == 100


def test_a_run_that_is_cancelled_while_the_one_before_it_completes_has_not_started(ledger: JobLedger) -> None:
    ledger.see(running(), now=NOW)
    ledger.see(running(job_state=("PENDING", "COMPLETING", "REQUEUE_HOLD"), restarts=1), now=NOW)
    assert numbers(ledger) == (1, 1, 0, 1, 0)
    ledger.see(ended("CANCELLED", restarts=1, end_time=NOW + 12), now=NOW)
    assert numbers(ledger) == (1, 1, 1, 1, 0)
    assert not ledger.run.rows


def test_suspension_is_no_second_start_and_no_run_time(ledger: JobLedger) -> None:
    ledger.see(running(), now=NOW)
    ledger.see(running(job_state=("SUSPENDED",), suspend_time=NOW + 20), now=NOW)
    ledger.see(running(suspend_time=NOW + 50), now=NOW)
    ledger.see(ended(suspend_time=NOW + 50, ran_before_suspension=Number.of(10)), now=NOW)
    assert numbers(ledger) == (1, 1, 1, 0, 0)
    assert ledger.run.rows[WHOSE][1] == 30


def test_a_requeue_is_a_new_run_although_its_submit_time_comes_late(ledger: JobLedger) -> None:
    ledger.see(running(), now=NOW)
    superseded = ledger.see(job("PENDING", "COMPLETING", nodes="n1", restarts=1), now=NOW)
    assert superseded is not None
    assert superseded.submit == NOW
    assert ledger.see(job(restarts=1, submit_time=NOW + 40), now=NOW) is None
    ledger.see(ended(restarts=1, submit_time=NOW + 40, start_time=NOW + 45), now=NOW)
    assert numbers(ledger) == (1, 2, 1, 1, 0)
    assert ledger.wait.rows[WHOSE][1] == 15


def test_a_preempted_run_counts_once_whether_it_is_requeued_or_ends(ledger: JobLedger) -> None:
    ledger.see(running(preempt_time=NOW + 30), now=NOW)
    ledger.see(job(restarts=1, submit_time=NOW + 40, preempt_time=NOW + 30), now=NOW)
    assert count(ledger.preempted) == 1
    ledger.see(
        ended("PREEMPTED", restarts=1, submit_time=NOW + 40, start_time=NOW + 45, preempt_time=NOW + 30), now=NOW
    )
    assert count(ledger.preempted) == 2


def test_an_id_that_slurmctld_gives_again_is_another_job(ledger: JobLedger) -> None:
    ledger.see(running(), now=NOW)
    ledger.see(job(submit_time=NOW + 500), now=NOW + 500)
    assert numbers(ledger) == (2, 1, 0, 0, 0)
    assert [(name, it.run.submit) for name, it in ledger.missing()] == [("7", NOW)]


def test_a_run_that_vanished_ends_as_unknown_when_nobody_tells(ledger: JobLedger) -> None:
    ledger.see(running(), now=NOW)
    ledger.gone(running(), now=NOW)
    assert unseen.give_up(ledger, patience=60, now=NOW + 59) == []
    given_up = unseen.give_up(ledger, patience=60, now=NOW + 61)
    assert [(run.key, run.state, run.end) for run in given_up] == [((7, NOW), "unknown", NOW + 61)]
    assert ledger.ended.rows == {(*WHOSE, "unknown"): 1}
    assert not list(ledger.missing())


def test_a_run_that_comes_back_was_never_gone(ledger: JobLedger) -> None:
    ledger.see(running(), now=NOW)
    ledger.gone(running(), now=NOW)
    ledger.see(running(), now=NOW)
    assert numbers(ledger) == (1, 1, 0, 0, 0)
    assert not list(ledger.missing())


def array(tasks: str, **changes: Any) -> Job:
    return job(array_job_id=Number.of(7), array_tasks=tasks, **changes)


def task(number: int, job_id: int, **changes: Any) -> Job:
    return running(job_id=job_id, array_job_id=Number.of(7), array_task_id=Number.of(number), **changes)


def test_each_task_of_an_array_counts_once_while_the_record_splits(ledger: JobLedger) -> None:
    ledger.see(array("1-5:2%2"), now=NOW)
    assert count(ledger.submitted) == 3
    ledger.see(array("3,5"), now=NOW)
    assert [name for name, _ in ledger.missing()] == ["7_1"]
    ledger.see(task(1, 8), now=NOW)
    ledger.see(task(5, 7), now=NOW)
    ledger.see(task(3, 9), now=NOW)
    assert numbers(ledger) == (3, 3, 0, 0, 0)
    assert not list(ledger.missing())


def test_a_task_whose_end_the_accounts_told_before_its_record_came_counts_once(ledger: JobLedger) -> None:
    ledger.see(array("1,3"), now=NOW)
    ledger.see(array("3"), now=NOW)
    (missing,) = [it.run for _, it in ledger.missing()]
    assert ledger.settle("7_1", missing, Ending("completed", int(NOW) + 10, 60))
    assert numbers(ledger) == (2, 1, 1, 0, 0)
    again = JobLedger(Limits())
    again.load(ledger.save())
    late = running(
        job_id=8,
        array_job_id=Number.of(7),
        array_task_id=Number.of(1),
        job_state=("COMPLETED",),
        end_time=NOW + 70,
    )
    ledger.see(late, now=NOW)
    assert numbers(ledger) == (2, 1, 1, 0, 0)
    again.see(late, now=NOW)
    assert numbers(again) == (0, 0, 0, 0, 0), "tallies are saved apart, so nothing is counted here"


def test_an_array_that_is_cancelled_while_it_waits_ends_task_by_task(ledger: JobLedger) -> None:
    ledger.see(array("0-9"), now=NOW)
    ledger.see(array("0-9", job_state=("CANCELLED",)), now=NOW)
    ledger.see(array("0-9", job_state=("CANCELLED",)), now=NOW)
    assert ledger.ended.rows == {(*WHOSE, "cancelled"): 10}
    assert count(ledger.started) == 0


def test_tasks_behind_the_cut_of_a_long_text_are_neither_lost_nor_counted_twice(ledger: JobLedger) -> None:
    ledger.see(array("1-4,6-9"), now=NOW)
    ledger.see(array("1-4,6..."), now=NOW)
    assert not list(ledger.missing())
    ledger.see(array("6-9,11"), now=NOW)
    assert count(ledger.submitted) == 9
    assert [name for name, _ in ledger.missing()] == ["7_1", "7_2", "7_3", "7_4"]


def test_new_label_sets_are_folded_for_good_when_a_family_is_full() -> None:
    ledger = JobLedger(Limits(series=2))
    for account in ("a", "b", "c", "d", "c", "a"):
        ledger.see(ended(job_id=ord(account), account=account, submit_time=NOW + ord(account)), now=NOW)
    assert {labels[1]: value for labels, value in ledger.submitted.rows.items()} == {"a": 1, "b": 1, "other": 2}
    assert set(ledger.ended.rows) >= {("other", "other", "other", "completed")}
    assert ledger.submitted.folded == 2
    again = JobLedger(Limits(series=2))
    tallies.load(again.tallies, tallies.save(ledger.tallies))
    assert again.submitted.rows == ledger.submitted.rows
    assert again.wait.rows == ledger.wait.rows
