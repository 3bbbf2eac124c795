"""Whatever happens to jobs, and whenever somebody looks: each run is counted once, as it was.

A small Slurm plays random lives of jobs. The exporter looks at random moments, is killed and goes on from what it
saved. Where there are accounts, every number comes out as it was in truth, also of jobs that nobody ever saw.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from isthmus.domain.exporter import jobrun, tallies, unseen
from isthmus.domain.exporter.arraytasks import key
from isthmus.domain.exporter.folding import Limits
from isthmus.domain.exporter.jobledger import JobLedger
from isthmus.model.slurm import Job, Number

if TYPE_CHECKING:
    from isthmus.domain.exporter.jobrun import JobRun

ENDS = st.sampled_from(["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED"])
PICK = st.integers(0, 99)
ACCOUNTS = st.sampled_from(["physics", "biology"])
LIMITS = Limits()


class Life:
    """A job or a task of an array, as Slurm has it."""

    def __init__(self, job_id: int, account: str, submit: int, *, array: int = 0, task: int | None = None) -> None:
        self.job_id, self.account, self.submit, self.array, self.task = job_id, account, submit, array, task
        self.state: tuple[str, ...] = ("PENDING",)
        self.restarts = self.start = self.end = 0
        self.nodes = ""
        self.tasks: set[int] = set()

    def record(self) -> Job:
        return Job(
            job_id=self.job_id,
            job_state=self.state,
            account=self.account,
            partition="main",
            nodes=self.nodes,
            array_job_id=Number.of(self.array),
            array_tasks=",".join(map(str, sorted(self.tasks))),
            array_task_id=Number() if self.task is None else Number.of(self.task),
            submit_time=Number.of(self.submit),
            start_time=Number.of(self.start),
            end_time=Number.of(self.end),
            restarts=self.restarts,
        )


class Slurm(RuleBasedStateMachine):
    """slurmctld, slurmdbd, and the exporter that looks at them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000
        self.next_id = 1
        self.lives: list[Life] = []
        self.waiting: dict[int, Life] = {}
        """Tasks of arrays that have not begun, by the id of the array."""
        self.truth: Counter[tuple[str, ...]] = Counter()
        self.waits: Counter[str] = Counter()
        self.accounts: dict[tuple[int, int], JobRun] = {}
        # What the exporter has.
        self.ledger = JobLedger(LIMITS)
        self.seen: dict[int, Job] = {}
        self.compared = True
        self.counted: set[tuple[int, int]] = set()
        self.saved: tuple[bytes, bytes, frozenset[tuple[int, int]]] | None = None
        self.look(first=True)

    # Lives

    def note(self, what: str, life: Life, *more: str) -> None:
        self.truth[what, life.account, *more] += 1

    @rule(account=ACCOUNTS)
    def submit(self, account: str) -> None:
        self.lives.append(Life(self.next_id, account, self.now))
        self.next_id += 1
        self.note("submitted", self.lives[-1])

    @rule(account=ACCOUNTS, tasks=st.sets(st.integers(0, 40), min_size=1, max_size=6))
    def submit_array(self, account: str, tasks: set[int]) -> None:
        array = Life(self.next_id, account, self.now, array=self.next_id)
        array.tasks = set(tasks)
        self.waiting[self.next_id] = array
        self.next_id += 1
        for _ in tasks:
            self.note("submitted", array)

    @rule(seconds=st.sampled_from([1, 7, 90, 4000]))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    @precondition(lambda self: self.waiting)
    @rule(pick=PICK)
    def begin_task(self, pick: int) -> None:
        array_id = sorted(self.waiting)[pick % len(self.waiting)]
        array = self.waiting[array_id]
        tasks = array.tasks
        task = sorted(tasks)[pick % len(tasks)]
        tasks.remove(task)
        # The last one takes the record that all have shared.
        job_id = self.next_id if tasks else array_id
        self.next_id += bool(tasks)
        life = Life(job_id, array.account, array.submit, array=array_id, task=task)
        self.lives.append(life)
        if not tasks:
            del self.waiting[array_id]
        self.begin(life)

    @precondition(lambda self: self.waiting)
    @rule(pick=PICK)
    def cancel_tasks(self, pick: int) -> None:
        """Cancel an array while tasks wait: they stay one record."""
        array_id = sorted(self.waiting)[pick % len(self.waiting)]
        array = self.waiting.pop(array_id)
        self.lives.append(array)
        array.state, array.start, array.end = ("CANCELLED",), self.now, self.now
        for _ in array.tasks:
            self.note("ended", array, "cancelled")

    def having(self, *states: str) -> list[Life]:
        return [life for life in self.lives if life.state[0] in states]

    def begin(self, life: Life) -> None:
        life.state, life.start, life.nodes = ("RUNNING",), self.now, "n1"
        self.note("started", life)
        self.waits[life.account] += life.start - life.submit

    @precondition(lambda self: self.having("PENDING"))
    @rule(pick=PICK)
    def begin_any(self, pick: int) -> None:
        there = self.having("PENDING")
        self.begin(there[pick % len(there)])

    def end(self, life: Life, state: str) -> None:
        life.state, life.end = (state,), self.now
        if not life.nodes:
            life.start = self.now  # Slurm does so for a job that is cancelled while it waits
        self.note("ended", life, state.lower())
        if state == "PREEMPTED":
            self.note("preempted", life)
        self.account(life)

    @precondition(lambda self: self.having("RUNNING"))
    @rule(pick=PICK, state=ENDS)
    def end_any(self, pick: int, state: str) -> None:
        there = self.having("RUNNING")
        self.end(there[pick % len(there)], state)

    @precondition(lambda self: self.having("PENDING"))
    @rule(pick=PICK)
    def cancel_any(self, pick: int) -> None:
        there = self.having("PENDING")
        self.end(there[pick % len(there)], "CANCELLED")

    @precondition(lambda self: self.having("RUNNING"))
    @rule(pick=PICK, at_once=st.booleans())
    def requeue(self, pick: int, *, at_once: bool) -> None:
        """The counter grows at once, the time of submission after the epilog."""
        there = self.having("RUNNING")
        life = there[pick % len(there)]
        life.end = self.now
        self.account(life, state=jobrun.REQUEUED)
        self.note("requeued", life)
        life.restarts += 1
        life.state, life.nodes, life.start, life.end = ("PENDING", "COMPLETING"), "", 0, 0
        if not at_once:
            self.look()
        self.now += 1
        life.state, life.submit = ("PENDING",), self.now

    def account(self, life: Life, **changes: str) -> None:
        run = msgspec.structs.replace(jobrun.of_record(life.record(), cluster="bed"), **changes)
        self.accounts[run.key] = run

    @rule()
    def purge(self) -> None:
        """slurmctld forgets jobs that ended a while ago. The accounts do not list arrays that never began."""
        self.lives = [
            life for life in self.lives if not life.record().has_ended or life.end > self.now - 300 or life.tasks
        ]

    # The exporter

    def records(self) -> dict[int, Job]:
        return {life.job_id: life.record() for life in (*self.lives, *self.waiting.values())}

    @rule()
    def look(self, *, first: bool = False) -> None:
        records = self.records()
        for job_id, old in list(self.seen.items()):
            if job_id not in records:
                self.ledger.gone(old, now=self.now)
        if not self.compared:
            self.ledger.keep_only(records.values(), now=self.now)
            self.compared = True
        if first:
            self.ledger.since = self.now
        for job_id, job in records.items():
            if self.seen.get(job_id) != job:
                ended = job.has_ended and not self.ledger.has_ended(job)
                superseded = self.ledger.see(job, now=self.now, before=first)
                if superseded:
                    self.counted.add((superseded.job_id, superseded.submit))
                if ended:
                    self.counted.add((job.job_id, int(job.submit_time.number)))
        self.seen = records

    @rule()
    def read_accounts(self) -> None:
        self.look()
        rows = [
            (run, any(it[0] == run.job_id and it[1] > run.submit for it in self.accounts))
            for run in self.accounts.values()
            if run.key not in self.counted
        ]
        listed = set(self.records())
        done = unseen.settle(self.ledger, rows, listed=lambda run: run.job_id in listed, now=self.now)
        self.counted |= {run.key for run in done}

    @rule()
    def save(self) -> None:
        self.saved = (self.ledger.save(), tallies.save(self.ledger.tallies), frozenset(self.counted))

    @precondition(lambda self: self.saved)
    @rule(in_order=st.booleans())
    def restart(self, *, in_order: bool) -> None:
        """Go on from what was saved: just now, or some time ago if the exporter was killed."""
        if in_order:
            self.save()
        assert self.saved
        self.ledger = JobLedger(LIMITS)
        self.ledger.load(self.saved[0])
        tallies.load(self.ledger.tallies, self.saved[1])
        self.counted = set(self.saved[2])
        self.seen = {}
        self.compared = False

    @rule()
    def check(self) -> None:
        self.read_accounts()
        self.now += 1000
        self.read_accounts()
        assert not list(self.ledger.missing())
        assert self.found() == +self.truth
        for family in (self.ledger.wait, self.ledger.run):
            for counts, _ in family.rows.values():
                assert min(counts) >= 0
        sums = {labels[1]: total for labels, (_, total) in self.ledger.wait.rows.items()}
        assert sums == {account: waited for account, waited in self.waits.items() if account in sums}
        for (what, account, *_), count in self.truth.items():
            if what == "started":
                rows = self.ledger.wait.rows
                assert sum(sum(counts) for labels, (counts, _) in rows.items() if labels[1] == account) == count

    def found(self) -> Counter[tuple[str, ...]]:
        ledger = self.ledger
        by_name: dict[str, Any] = {
            "submitted": ledger.submitted,
            "started": ledger.started,
            "ended": ledger.ended,
            "requeued": ledger.requeued,
            "preempted": ledger.preempted,
        }
        return Counter(
            {
                (name, labels[1], *labels[3:]): int(value)
                for name, tally in by_name.items()
                for labels, value in tally.rows.items()
            }
        )

    def teardown(self) -> None:
        self.check()


TestJobHistory = Slurm.TestCase
TestJobHistory.settings = settings(max_examples=150, stateful_step_count=50)


def test_keys_of_tasks_are_those_of_sacct() -> None:
    life = Life(14, "physics", 1, array=12, task=3)
    assert key(life.record()) == "12_3"
    assert key(Life(17, "physics", 1).record()) == "17"
