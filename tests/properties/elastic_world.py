"""A small world for elastic nodes: Slurm's power saving, pods, jobs and people, with the operator's real decisions.

A small Slurm stands in the place of slurmctld: it gives nodes that are off to jobs, starts them, stops idle ones,
and gives up those that do not come, as its power saving does (tests/flows/operator/test_elastic.py shows that the
real one does so). The operator may see what was so before, and may end between any two of its actions.
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from isthmus.domain.elastic.decision import CAPACITY_S, PowerDecision, PowerView, Request, Slot, decide, in_turn
from isthmus.domain.elastic.policy import Effective, effective, longest_idle
from isthmus.domain.operator.nodeset.drains import is_free
from isthmus.model.elastic import Autoscale
from isthmus.model.slurm import Node as Record
from isthmus.model.slurm import Number

if TYPE_CHECKING:
    from isthmus.domain.elastic.decision import PodState
    from isthmus.model.powerstate import CapacityHold, NodePower

SIZE: Final = 6
IDLE_S: Final = 300.0
TICK_S: Final = 10
RESUME_TIMEOUT_S: Final = 1800.0
SUSPEND_TIMEOUT_S: Final = 60.0
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
ADMIN: Final = "an administrator's reason"
GOES: Final = "slurm-operator: its machine is being removed"


class Node:
    """A node, as slurmctld has it."""

    def __init__(self) -> None:
        self.base = "IDLE"
        self.power = "POWERED_DOWN"
        self.flags: set[str] = set()
        self.reason = ""
        self.jobs: set[int] = set()
        self.asked_at = self.stopped_at = self.last_busy = self.idle_since = BEGIN
        self.starts = 0

    def start(self, now: datetime) -> None:
        self.power, self.asked_at = "POWERING_UP", now
        self.starts += 1

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
        self.waits_s = 0.0
        """For how long it has had nodes that are not all up, while nothing was in anybody's way."""
        self.patience_s = CAPACITY_S
        """For how long it may: nodes whose slurmd hangs are Slurm's to give up."""


class World:
    """Slurm, Kubernetes, people, and the operator in between."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.nodes = [Node() for _ in range(SIZE)]
        self.pods: dict[int, Pod] = {}
        self.doomed: set[int] = set()
        """Those whose machine is about to go."""
        self.jobs: dict[int, Job] = {}
        self.serial = 0
        self.lost: list[int] = []
        self.capacity = True
        self.boots = True
        """Whether a slurmd that starts gets as far as to register."""
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
        self.asked: Request | None = None
        self.skew = timedelta(0)
        """By how much the operator's clock differs from Slurm's."""

    # People

    def submit(self, size: int) -> None:
        self.serial += 1
        self.jobs[self.serial] = Job(size)

    def ask_for_node(self, ordinal: int, *, wanted: bool) -> None:
        self.active = self.active | {ordinal} if wanted else self.active - {ordinal}

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

    def slurm_goes(self) -> None:
        self.answers = self.fresh = False

    def set_clock(self, seconds: int) -> None:
        """Set the operator's clock; it is right with 0."""
        self.skew = timedelta(seconds=seconds)
        for job in self.jobs.values():
            job.waits_s = 0.0

    def machine_goes(self, ordinal: int, *, goes: bool) -> None:
        """Announce that the machine of a pod goes, or that it stays after all."""
        if goes and ordinal in self.pods and self.pods[ordinal].state != "pending":
            self.doomed.add(ordinal)
        elif not goes:
            self.doomed.discard(ordinal)

    def kubelets_work(self) -> None:
        for ordinal, pod in list(self.pods.items()):
            node = self.nodes[ordinal]
            if pod.state == "leaving":
                del self.pods[ordinal]
                self.doomed.discard(ordinal)
            elif pod.state == "pending" and self.capacity:
                pod.state, pod.booted = "running", self.now
            elif pod.state == "running" and (self.boots or not node.power):
                self._register(node, pod)
                if not node.power:
                    pod.state = "ready"

    def _register(self, node: Node, pod: Pod) -> None:
        if node.power == "POWERING_UP" and pod.booted >= node.asked_at:
            node.power = ""
            node.last_busy = node.idle_since = self.now
            if node.base == "DOWN":
                # Slurm keeps the reason of a drain.
                node.base, node.reason = "IDLE", node.reason if "DRAIN" in node.flags else ""

    # Slurm

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
                node.start(self.now)
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
            node.start(self.now)
        idle = (self.now - node.last_busy).total_seconds() > self.suspend_s
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

    def end(self, number: int) -> None:
        self._free(number)
        del self.jobs[number]

    def _free(self, number: int) -> None:
        for it in self.jobs[number].nodes:
            self.nodes[it].jobs.discard(number)
            self.nodes[it].last_busy = self.nodes[it].idle_since = self.now

    # The operator

    def operator_reads(self) -> None:
        if self.answers:
            self.seen = {it: node.record(f"w-{it}") for it, node in enumerate(self.nodes)}
            self.fresh = True

    def operator_works(self, acts: int | None = None) -> None:
        """Decide and act; it may end after some of its actions."""
        self._act(self._decide(), acts)

    @property
    def suspend_s(self) -> float:
        """SuspendTime, as slurm.conf has it."""
        return longest_idle(self.policy, default=IDLE_S)

    @property
    def limits(self) -> Effective:
        return effective(self.policy, size=SIZE, now=self.now, default_idle=IDLE_S)

    def _decide(self) -> PowerDecision:
        slots = tuple(
            Slot(
                ordinal=it,
                name=f"w-{it}",
                record=self.seen.get(it),
                pod=self.pods[it].state if it in self.pods else "none",
                placed=it in self.pods and self.pods[it].state != "pending",
                doomed=it in self.doomed,
                trouble="no machine" if it in self.pods and self.pods[it].state == "pending" else "",
            )
            for it in range(SIZE)
        )
        return decide(
            PowerView(
                slots=slots,
                active=self.active,
                written=self.written,
                limits=self.limits,
                now=self.now + self.skew,
                in_touch=self.answers and self.fresh,
                states=self.states,
                hold=self.hold,
                idle_in_slurm=self.suspend_s,
            )
        )

    def _act(self, decided: PowerDecision, acts: int | None) -> None:
        left = 99 if acts is None else acts
        for request in in_turn(decided.requests, self.asked, size=SIZE):
            if not left:
                return
            left -= 1
            self._ask(request)
            self.asked = request
            break
        else:
            self.asked = None
        if not left:
            return
        self.active, self.written = decided.active, decided.written
        if left > 1:
            self.states, self.hold = decided.states, decided.hold
        if left > 2:
            self._follow(decided)

    def _drain_doomed(self) -> None:
        """Drain nodes whose machine goes, and take them back if it stays, as the NodeSet's own decision does."""
        for it in self.pods if self.answers else ():
            node = self.nodes[it]
            if it in self.doomed and node.base == "IDLE" and "DRAIN" not in node.flags:
                if node.power in {"POWERED_DOWN", "POWERING_UP"}:
                    self._requeue(it)
                node.flags.add("DRAIN")
                node.reason = GOES
            elif it not in self.doomed and node.reason == GOES:
                node.flags.discard("DRAIN")
                node.reason = ""

    def _follow(self, decided: PowerDecision) -> None:
        """Make and delete pods, as the NodeSet's own decision does; before a pod goes, Slurm is asked once more."""
        self._drain_doomed()
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

    # Time

    def heal(self) -> None:
        """Let all faults be over, and take back what people said of nodes."""
        self.capacity = self.boots = self.answers = True
        self.doomed.clear()
        self.set_clock(0)
        for ordinal in range(SIZE):
            self.administrate(ordinal, drained=False)

    def tick(self, *, acts: int | None = None, works: bool = True) -> None:
        """Ten seconds; the operator may end after some of its actions, or be away."""
        self.now += timedelta(seconds=TICK_S)
        self.slurm_works()
        self.kubelets_work()
        if works:
            self.operator_reads()
            self.operator_works(acts)
        for job in self.jobs.values():
            calm = works and acts is None and self.answers
            if job.began or not job.nodes:
                job.waits_s, job.patience_s = 0.0, CAPACITY_S
            else:
                job.waits_s += TICK_S * calm
                job.patience_s = job.patience_s if self.boots else RESUME_TIMEOUT_S

    def shown(self) -> list[tuple[str, str, tuple[str, ...], str]]:
        return [
            (node.base, node.power, tuple(sorted(node.flags)), self.pods[it].state if it in self.pods else "")
            for it, node in enumerate(self.nodes)
        ]

    # What holds at rest

    @property
    def on(self) -> set[int]:
        return {it for it, node in enumerate(self.nodes) if not node.power}

    def agrees(self) -> bool:
        """Whether Slurm's power states, pods and activeNodes say the same, and nothing is held back."""
        opened = all("DRAIN" not in node.flags and node.base == "IDLE" for node in self.nodes)
        return self.on == set(self.pods) == self.active == self.written and opened and self.hold is None
