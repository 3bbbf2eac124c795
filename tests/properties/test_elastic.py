"""Whatever jobs, people, outages and crashes do to an elastic NodeSet: no job is lost, and it comes to rest.

A small Slurm stands in the place of slurmctld: it gives nodes that are off to jobs, starts them, stops idle ones,
and gives up those that do not come, as its power saving does (tests/flows/operator/test_elastic.py shows that the
real one does so). The operator may see what was so before, and may end between any two of its actions.
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.domain.elastic.decision import (
    CAPACITY_S,
    FENCED,
    HELD,
    PowerDecision,
    PowerView,
    Request,
    Slot,
    decide,
)
from isthmus.domain.elastic.policy import effective
from isthmus.domain.operator.nodeset.drains import is_free
from isthmus.model.elastic import Autoscale
from isthmus.model.slurm import Node as Record
from isthmus.model.slurm import Number

if TYPE_CHECKING:
    from isthmus.domain.elastic.decision import PodState
    from isthmus.model.powerstate import CapacityHold, NodePower

SIZE = 6
IDLE_S = 300.0
RESUME_TIMEOUT_S = 1800.0
SUSPEND_TIMEOUT_S = 60.0
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ORDINALS = st.integers(0, SIZE - 1)
ADMIN = "an administrator's reason"


class Node:
    """A node, as slurmctld has it."""

    def __init__(self) -> None:
        self.base = "IDLE"
        self.power = "POWERED_DOWN"
        self.flags: set[str] = set()
        self.reason = ""
        self.jobs: set[int] = set()
        self.asked_at = self.stopped_at = self.last_busy = BEGIN

    @property
    def usable(self) -> bool:
        """Whether Slurm gives it to jobs."""
        return (
            self.base == "IDLE"
            and not self.flags & {"DRAIN", "POWER_DOWN"}
            and self.power in {"", "POWERED_DOWN", "POWERING_UP"}
        )

    def record(self, name: str) -> Record:
        base = "ALLOCATED" if self.jobs and self.base == "IDLE" else self.base
        states = [base, "CLOUD", *([self.power] if self.power else []), *sorted(self.flags)]
        busy = Number(set=True, number=int(self.last_busy.timestamp()))
        return Record(name=name, state=tuple(states), reason=self.reason, last_busy=busy)


class Pod:
    """A worker pod."""

    def __init__(self, now: datetime) -> None:
        self.state: PodState = "pending"
        self.booted = now


class Job:
    """A job, which begins when all of its nodes are up."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.nodes: tuple[int, ...] = ()
        self.began = False


class World(RuleBasedStateMachine):
    """Slurm, Kubernetes, people, and the operator in between."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN
        self.nodes = [Node() for _ in range(SIZE)]
        self.pods: dict[int, Pod] = {}
        self.jobs: dict[int, Job] = {}
        self.serial = 0
        self.lost: list[int] = []
        self.capacity = True
        self.answers = True
        self.policy = Autoscale()
        # What the API server has.
        self.active: frozenset[int] = frozenset()
        self.written: frozenset[int] = frozenset()
        self.states: tuple[NodePower, ...] = ()
        self.hold: CapacityHold | None = None
        # What the operator has read.
        self.seen: dict[int, Record] = {}
        self.fresh = False

    # People

    @rule(size=st.integers(1, SIZE))
    def submit(self, size: int) -> None:
        self.serial += 1
        self.jobs[self.serial] = Job(size)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def end_job(self, data: st.DataObject) -> None:
        self._end(data.draw(st.sampled_from(sorted(self.jobs))))

    @rule(least=st.integers(0, 2), most=st.none() | st.integers(2, SIZE), warm=st.integers(0, 2))
    def change_policy(self, least: int, most: int | None, warm: int) -> None:
        self.policy = Autoscale(min=least, max=most, warm=warm)

    @rule(ordinal=ORDINALS, wanted=st.booleans())
    def ask_for_node(self, ordinal: int, *, wanted: bool) -> None:
        self.active = self.active | {ordinal} if wanted else self.active - {ordinal}

    @rule(ordinal=ORDINALS, drained=st.booleans())
    def administrate(self, ordinal: int, *, drained: bool) -> None:
        node = self.nodes[ordinal]
        if drained and "DRAIN" not in node.flags:
            if node.power in {"POWERED_DOWN", "POWERING_UP"}:
                self._requeue(ordinal)
            node.flags.add("DRAIN")
            node.reason = ADMIN
        elif not drained and node.reason == ADMIN:
            node.flags.discard("DRAIN")
            node.reason = ""

    # Machines

    @rule(works=st.booleans())
    def capacity_changes(self, *, works: bool) -> None:
        self.capacity = works

    @rule()
    def slurm_goes(self) -> None:
        self.answers = self.fresh = False

    @rule()
    def slurm_comes(self) -> None:
        self.answers = True

    @rule(seconds=st.sampled_from([1, 20, 70, 310, 1900]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def kubelets_work(self) -> None:
        for ordinal, pod in list(self.pods.items()):
            node = self.nodes[ordinal]
            if pod.state == "leaving":
                del self.pods[ordinal]
            elif pod.state == "pending" and self.capacity:
                pod.state, pod.booted = "running", self.now
            elif pod.state == "running":
                self._register(node, pod)
                if not node.power:
                    pod.state = "ready"

    def _register(self, node: Node, pod: Pod) -> None:
        if node.power == "POWERING_UP" and pod.booted >= node.asked_at:
            node.power = ""
            node.last_busy = self.now
            if node.base == "DOWN":
                node.base, node.reason = "IDLE", ""

    # Slurm

    @rule()
    def slurm_works(self) -> None:
        """Schedule, and let power saving have its turn."""
        if not self.answers:
            return
        for node in self.nodes:
            self._save_power(node)
        for job in self.jobs.values():
            self._place(job)
        for ordinal, node in enumerate(self.nodes):
            if node.jobs and node.power == "POWERED_DOWN":
                node.power, node.asked_at = "POWERING_UP", self.now
            late = (self.now - node.asked_at).total_seconds() > RESUME_TIMEOUT_S
            if node.power == "POWERING_UP" and late:
                node.power, node.base, node.reason = "POWERED_DOWN", "DOWN", "ResumeTimeout reached"
                node.flags -= {"DRAIN", "POWER_DOWN"}
                self._requeue(ordinal)
        for job in self.jobs.values():
            up = [not self.nodes[it].power and self.nodes[it].base == "IDLE" for it in job.nodes]
            if job.nodes and all(up):
                job.began = True

    def _save_power(self, node: Node) -> None:
        if "POWER_UP" in node.flags and node.power == "POWERED_DOWN":
            node.flags.discard("POWER_UP")
            node.power, node.asked_at = "POWERING_UP", self.now
        idle = (self.now - node.last_busy).total_seconds() > IDLE_S
        rests = idle and node.base == "IDLE" and "DRAIN" not in node.flags and not node.power
        if not node.jobs and node.power in {"", "POWERED_DOWN"} and ("POWER_DOWN" in node.flags or rests):
            node.power, node.base, node.stopped_at = "POWERING_DOWN", "IDLE", self.now
            node.flags -= {"POWER_DOWN", "DRAIN"}
        if node.power == "POWERING_DOWN" and (self.now - node.stopped_at).total_seconds() > SUSPEND_TIMEOUT_S:
            node.power = "POWERED_DOWN"

    def _place(self, job: Job) -> None:
        if job.nodes:
            return
        usable = [it for it, node in enumerate(self.nodes) if node.usable and not node.jobs]
        usable.sort(key=lambda it: (["", "POWERING_UP", "POWERED_DOWN"].index(self.nodes[it].power), it))
        if len(usable) >= job.size:
            job.nodes = tuple(usable[: job.size])
            number = next(key for key, value in self.jobs.items() if value is job)
            for it in job.nodes:
                self.nodes[it].jobs.add(number)

    def _requeue(self, ordinal: int) -> None:
        for number in list(self.nodes[ordinal].jobs):
            job = self.jobs[number]
            assert not job.began, f"job {number} ran on node {ordinal}, which was set down"
            self._free(number)
            job.nodes = ()

    def _end(self, number: int) -> None:
        self._free(number)
        del self.jobs[number]

    def _free(self, number: int) -> None:
        for it in self.jobs[number].nodes:
            self.nodes[it].jobs.discard(number)
            self.nodes[it].last_busy = self.now

    # The operator

    @rule()
    def operator_reads(self) -> None:
        if self.answers:
            self.seen = {it: node.record(f"w-{it}") for it, node in enumerate(self.nodes)}
            self.fresh = True

    @rule(acts=st.none() | st.integers(0, 5))
    def operator_works(self, acts: int | None = None) -> None:
        """Decide and act; it may end after some of its actions."""
        self._act(self._decide(), acts)

    def _decide(self) -> PowerDecision:
        slots = tuple(
            Slot(
                ordinal=it,
                name=f"w-{it}",
                record=self.seen.get(it),
                pod=self.pods[it].state if it in self.pods else "none",
                trouble="" if self.capacity else "no machine",
            )
            for it in range(SIZE)
        )
        return decide(
            PowerView(
                slots=slots,
                active=self.active,
                written=self.written,
                limits=effective(self.policy, size=SIZE, now=self.now, default_idle=IDLE_S),
                now=self.now,
                in_touch=self.answers and self.fresh,
                states=self.states,
                hold=self.hold,
                idle_in_slurm=IDLE_S,
            )
        )

    def _act(self, decided: PowerDecision, acts: int | None) -> None:
        left = 99 if acts is None else acts
        for request in decided.requests:
            if not left:
                return
            left -= 1
            self._ask(request)
        if not left:
            return
        self.active, self.written = decided.active, decided.written
        if left > 1:
            self.states, self.hold = decided.states, decided.hold
        if left > 2:
            self._follow(decided)

    def _follow(self, decided: PowerDecision) -> None:
        """Make and delete pods, as the NodeSet's own decision does; before a pod goes, Slurm is asked once more."""
        for it in decided.startable - self.pods.keys():
            self.pods[it] = Pod(self.now)
        for it, pod in self.pods.items():
            node = self.nodes[it]
            record = node.record("")
            if pod.state == "leaving" or not self.answers:
                continue
            behind = pod.state == "ready" and node.power == "POWERING_UP"
            unused = pod.state == "pending"
            if (it not in decided.active and (unused or is_free(record))) or (it in decided.active and behind):
                self.lost += [number for number in node.jobs if self.jobs[number].began]
                pod.state = "leaving"

    def _ask(self, request: Request) -> None:  # noqa: C901 - one for each verb
        if not self.answers:
            return
        self.fresh = False
        for name in request.names:
            ordinal = int(name.removeprefix("w-"))
            node = self.nodes[ordinal]
            match request.verb:
                case "PowerUp" if node.power == "POWERED_DOWN":
                    node.flags.add("POWER_UP")
                case "PowerDown":
                    if node.base == "DOWN":
                        node.power = "POWERED_DOWN" if node.power == "POWERING_UP" else node.power
                    node.flags.add("POWER_DOWN")
                case "Settle" if node.power == "POWERING_DOWN":
                    node.power = "POWERED_DOWN"
                case "KeepAwake" if not node.power:
                    node.last_busy = self.now
                case "SetDown":
                    self._requeue(ordinal)
                    node.base, node.reason = "DOWN", request.why
                case "Fence" if node.reason != ADMIN:
                    if node.power in {"POWERED_DOWN", "POWERING_UP"}:
                        self._requeue(ordinal)
                    node.flags.add("DRAIN")
                    node.reason = request.why
                case "Unfence" if node.reason != ADMIN:
                    node.flags.discard("DRAIN")
                    node.reason = ""

    # What holds

    @invariant()
    def no_running_job_is_lost(self) -> None:
        assert not self.lost

    def teardown(self) -> None:
        """Whatever happened: with capacity, contact and time, every job runs and ends, and all comes to rest."""
        self.capacity = self.answers = True
        self.policy = Autoscale(min=1, warm=1)
        for ordinal in range(SIZE):
            self.administrate(ordinal, drained=False)
        self._run(rounds=400, until=lambda: all(job.began for job in self.jobs.values()))
        for number in [it for it, job in self.jobs.items() if not job.began]:
            raise AssertionError(f"job {number} of {self.jobs[number].size} nodes never began: {self._shown()}")
        for number in list(self.jobs):
            self._end(number)
        self._run(rounds=120)
        on = {it for it, node in enumerate(self.nodes) if not node.power}
        assert len(on) == 1, f"one node is to stay on: {self._shown()}"
        assert on == set(self.pods) == self.active == self.written, self._shown()
        assert all("DRAIN" not in node.flags and node.base == "IDLE" for node in self.nodes), self._shown()
        assert self.hold is None
        before = self._shown()
        self._run(rounds=60)
        assert self._shown() == before, "it does not stand still"

    def _run(self, *, rounds: int, until: object = None) -> None:
        for _ in range(rounds):
            if callable(until) and until():
                return
            self.now += timedelta(seconds=10)
            self.slurm_works()
            self.kubelets_work()
            self.operator_reads()
            self.operator_works(None)
            for job in [it for it, job in self.jobs.items() if job.began]:
                self._end(job)

    def _shown(self) -> list[tuple[str, str, tuple[str, ...], str]]:
        return [
            (node.base, node.power, tuple(sorted(node.flags)), self.pods[it].state if it in self.pods else "")
            for it, node in enumerate(self.nodes)
        ]


TestElastic = World.TestCase
TestElastic.settings = settings(stateful_step_count=40, deadline=None)


def test_a_gang_that_gets_no_capacity_is_not_half_started_for_longer_than_its_time() -> None:
    world = World()
    world.jobs[1] = Job(3)
    world.capacity = False
    for _ in range(int(CAPACITY_S) // 10 + 6):
        world.now += timedelta(seconds=10)
        world.slurm_works()
        world.kubelets_work()
        world.operator_reads()
        world.operator_works(None)
    assert not world.jobs[1].nodes, "Slurm has it back, for another NodeSet"
    assert world.hold is not None
    assert world.hold.cause == "no machine"
    assert not world.active
    assert {node.reason.partition("no machine")[0] for node in world.nodes} == {HELD, FENCED}
