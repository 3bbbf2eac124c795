"""Plays a trace of jobs against a way of starting and releasing nodes. Only events take time, so days take seconds.

    submit ─► queue ─► nodes given ─► all of them on ─► job runs ─► nodes idle ─► released ─► off
                 wait in queue   wait for boot

The scheduler is Slurm's in outline. Jobs wait in the order of priority and time; what fits starts at once, in that
order; every 30 s EASY backfill lets later jobs start where they do not delay the first one by its and their time
limits. A job gets whole nodes, all at once: idle ones first, then those that are starting, then those that are off.
It starts when the last of them is on (sbatch_wait_nodes). Not modelled: several partitions, features, fair share
that changes while a job waits, nodes that fail.

Who starts and releases nodes is a `Scaler` (`domain.elastic.scalers`).
"""

import heapq
import math
from bisect import insort
from enum import IntEnum
from typing import Final, Protocol

import msgspec

from isthmus.domain.elastic.traces import Job, Trace

BACKFILL_S: Final = 30.0
"""Slurm's bf_interval."""
BACKFILL_DEPTH: Final = 500
"""How many waiting jobs backfill looks at: Slurm's bf_max_job_test."""

_STUCK_S: Final = 8 * 86400.0
"""When no job has come or ended for longer than any schedule repeats, none will start any more."""


class Machine(msgspec.Struct, frozen=True):
    """How long nodes take to come and go."""

    boots: tuple[float, ...] = (20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 60.0, 90.0, 180.0)
    """Times from the request to a node that takes jobs, in seconds, each as likely as the others."""
    stop: float = 30.0
    """From the release of a node until it costs nothing."""

    def boot(self, count: int) -> float:
        """How long the nth boot of a run takes: spread evenly, and the same in every run."""
        return self.boots[(count * 2654435761 >> 7) % len(self.boots)]


class State(IntEnum):
    """Of a node."""

    OFF = 0
    STARTING = 1
    IDLE = 2
    ALLOCATED = 3
    """It is on, and waits for other nodes of its job."""
    BUSY = 4
    STOPPING = 5


class Record(msgspec.Struct, gc=False):
    """What became of a job."""

    job: Job
    allocated: float
    start: float
    end: float

    @property
    def queued(self) -> float:
        return self.allocated - self.job.submit

    @property
    def booted(self) -> float:
        """How long it waited for nodes that it had been given."""
        return self.start - self.allocated


class Spent(msgspec.Struct):
    """Node-seconds by what they were spent on."""

    busy: float = 0.0
    idle: float = 0.0
    starting: float = 0.0
    stopping: float = 0.0
    partial: float = 0.0
    """On, and waiting for other nodes of the same job."""
    unused: float = 0.0
    """Everything of nodes that were started and released without a job."""

    def add(self, other: "Spent") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def total(self) -> float:
        return self.busy + self.idle + self.starting + self.stopping + self.partial + self.unused


class Outcome(msgspec.Struct, frozen=True):
    """What came of a run."""

    records: tuple[Record, ...]
    unstarted: tuple[Job, ...]
    """Jobs that never got their nodes."""
    spent: Spent
    boots: int
    thrashed: int
    """Nodes that were started and released without a job."""
    peak: int
    """Most nodes that were on at a time."""
    begin: float
    end: float
    levels: tuple[tuple[float, int, int], ...]
    """When the number of nodes changed: the time, nodes that are on, nodes that run jobs."""


class Scaler(Protocol):
    """Who starts and releases nodes."""

    announced: bool
    """Whether Slurm knows nodes that are not on, and gives them to jobs."""

    def begin(self, cluster: "Cluster") -> None:
        """Bring the cluster into the state in which it is before the first job."""

    def room(self, cluster: "Cluster") -> int:
        """How many nodes that are off jobs may be given now."""

    def settle(self, cluster: "Cluster") -> float | None:
        """Start and release nodes; return when to be asked again, though nothing happens."""


class Node:
    """A node, and what it has cost since it was started."""

    __slots__ = ("episode", "job", "number", "ready", "since", "state", "used")

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = State.OFF
        self.since = 0.0
        self.ready = 0.0
        """When it is on, or off, if it is on its way."""
        self.used = False
        self.episode = Spent()
        self.job: _Running | None = None


class _Running:
    """A job that has nodes."""

    __slots__ = ("expected", "job", "missing", "nodes", "record")

    def __init__(self, job: Job, nodes: list[Node], record: Record, missing: int, expected: float) -> None:
        self.job = job
        self.nodes = nodes
        self.record = record
        self.missing = missing
        self.expected = expected
        """When it ends, by its time limit."""


class _Event(IntEnum):
    """In the order in which those of one moment happen: ends before starts, so that nodes are free."""

    END = 0
    STOPPED = 1
    READY = 2
    SUBMIT = 3
    WAKE = 4
    BACKFILL = 5


_What = Job | Node | _Running | None
_Waiting = tuple[float, float, int, Job]


class Cluster:
    """A run of a trace: nodes, queue and clock. Scalers look at it, and start and release nodes."""

    def __init__(self, trace: Trace, size: int, machine: Machine, scaler: Scaler) -> None:
        self.now = trace.jobs[0].submit if trace.jobs else 0.0
        self.size = size
        self.machine = machine
        self.nodes = [Node(number) for number in range(size)]
        self.idle: dict[int, Node] = {}
        """Oldest first."""
        self.starting: dict[int, Node] = {}
        """Started for no job in particular."""
        self.off: list[int] = list(range(size))
        self.busy = 0
        """Nodes that belong to a job."""
        self.on = 0
        """Nodes that cost something, from the request to start until they have stopped."""
        self.queue: list[_Waiting] = []
        self.node_seconds = 0.0
        self._running: set[_Running] = set()
        self._stopping: set[Node] = set()
        self._scaler = scaler
        self._begin = self.now
        self._events: list[tuple[float, int, int, _What]] = []
        self._sequence = 0
        self._backfill_at = self._passed = 0.0
        self._free_then = -1
        self._wake_at = -1.0
        self._records: list[Record] = []
        self._spent = Spent()
        self._boots = self._thrashed = self._peak = 0
        self._levels: list[tuple[float, int, int]] = []
        self._unstarted = [job for job in trace.jobs if job.nodes > size]
        self._left = 0
        self._active = self._progressed = self.now
        for job in trace.jobs:
            if job.nodes <= size:
                self._push(job.submit, _Event.SUBMIT, job)
                self._left += 1

    # What scalers see and do

    def wanted(self) -> int:
        """Nodes of all jobs that wait; no more than there are."""
        found = 0
        for waiting in self.queue:
            found += waiting[3].nodes
            if found >= self.size:
                break
        return min(found, self.size)

    def start(self, count: int) -> int:
        """Start nodes that are off, for any job; return how many there were."""
        started = 0
        while started < count and self.off:
            node = self.nodes[heapq.heappop(self.off)]
            self._boot(node)
            self.starting[node.number] = node
            started += 1
        return started

    def start_at_once(self, count: int) -> None:
        """Have nodes that were on before the trace begins."""
        for _ in range(count):
            node = self.nodes[heapq.heappop(self.off)]
            self.on += 1
            self._become(node, State.IDLE)
            self.idle[node.number] = node

    def release(self, node: Node) -> None:
        del self.idle[node.number]
        self._become(node, State.STOPPING)
        node.ready = self.now + self.machine.stop
        self._stopping.add(node)
        self._push(node.ready, _Event.STOPPED, node)

    # The run

    def run(self) -> Outcome:
        """Play the trace to its end, or until nothing that could still happen would start another job."""
        self._scaler.begin(self)
        self._note()
        self._settle()
        while self._events and self._left:
            time, kind, _, what = heapq.heappop(self._events)
            self.node_seconds += self.on * (time - self.now)
            self.now = time
            self._handle(kind, what)
            while self._events and self._events[0][0] == time and self._events[0][1] <= _Event.SUBMIT:
                _, kind, _, what = heapq.heappop(self._events)
                self._handle(kind, what)
            self._settle()
            self._start_in_order()
            self._settle()
            self._note()
            if self.now > self._progressed + _STUCK_S and not self._running:
                break
        return self._outcome()

    def _handle(self, kind: int, what: _What) -> None:
        if kind <= _Event.SUBMIT:
            self._active = self.now
        if kind in {_Event.SUBMIT, _Event.END}:
            self._progressed = self.now
        match what:
            case Job():
                self._sequence += 1
                insort(self.queue, (-what.priority, what.submit, self._sequence, what))
            case _Running():
                self._ended(what)
            case Node() if kind == _Event.READY:
                self._ready(what)
            case Node():
                self._stopped(what)
            case None if kind == _Event.BACKFILL:
                self._backfill()
            case None:
                self._wake_at = -1.0

    def _ended(self, done: _Running) -> None:
        self._running.discard(done)
        self._left -= 1
        for node in done.nodes:
            node.job = None
            self._become(node, State.IDLE)
            self.idle[node.number] = node
        self.busy -= len(done.nodes)

    def _ready(self, node: Node) -> None:
        if node.job is None:
            del self.starting[node.number]
            self._become(node, State.IDLE)
            self.idle[node.number] = node
            return
        self._become(node, State.ALLOCATED)
        node.job.missing -= 1
        if not node.job.missing:
            self._begin_job(node.job)

    def _stopped(self, node: Node) -> None:
        self._become(node, State.OFF)
        self._stopping.discard(node)
        self.on -= 1
        spent = node.episode
        if node.used:
            self._spent.add(spent)
        else:
            self._spent.unused += spent.total
            self._thrashed += 1
        node.episode = Spent()
        node.used = False
        heapq.heappush(self.off, node.number)

    def _settle(self) -> None:
        wake = self._scaler.settle(self)
        if wake is not None and (self._wake_at < 0 or wake < self._wake_at):
            self._wake_at = max(wake, self.now)
            self._push(self._wake_at, _Event.WAKE, None)

    # The scheduler

    def free(self) -> int:
        """Nodes that a job could have now."""
        if not self._scaler.announced:
            return len(self.idle)
        return len(self.idle) + len(self.starting) + min(len(self.off), self._scaler.room(self))

    def _start_in_order(self) -> None:
        free = self.free()
        while self.queue and self.queue[0][3].nodes <= free:
            self._allocate(self.queue.pop(0)[3])
            free = self.free()
        # A pass that started nothing would start nothing again, unless something has changed.
        fresh = self._active >= self._passed or free != self._free_then
        if self.queue and fresh and self._backfill_at <= self.now:
            self._backfill_at = (self.now // BACKFILL_S + 1) * BACKFILL_S
            self._push(self._backfill_at, _Event.BACKFILL, None)

    def _backfill(self) -> None:
        """Start jobs that do not delay the first one."""
        free = self._free_then = self.free()
        self._passed = self.now + 1e-6
        if len(self.queue) < 2 or not free:  # noqa: PLR2004 - the first one, and another
            return
        shadow, spare = self._reservation(self.queue[0][3].nodes, free)
        left: list[_Waiting] = [self.queue[0]]
        started = False
        for place, waiting in enumerate(self.queue[1:], 1):
            if place >= BACKFILL_DEPTH or not free:
                left += self.queue[place:]
                break
            job = waiting[3]
            in_time = self.now + job.limit <= shadow
            if job.nodes > free or not (in_time or job.nodes <= spare):
                left.append(waiting)
                continue
            self._allocate(job)
            started = True
            free -= job.nodes
            spare -= 0 if in_time else job.nodes
        if started:
            self.queue = left

    def _reservation(self, nodes: int, free: int) -> tuple[float, int]:
        """When the first job can start at the latest, and how many nodes it leaves over then."""
        coming = [(it.expected, len(it.nodes)) for it in self._running]
        if self._scaler.announced:
            coming += [(it.ready, 1) for it in self._stopping]
        for when, count in sorted(coming):
            free += count
            if free >= nodes:
                return when, free - nodes
        return math.inf, free

    def _allocate(self, job: Job) -> None:
        chosen = self._choose(job.nodes)
        record = Record(job, self.now, self.now, self.now)
        expected = self.now + job.limit
        missing = [it for it in chosen if it.state == State.STARTING]
        running = _Running(job, chosen, record, len(missing), expected)
        self._running.add(running)
        self._records.append(record)
        self.busy += len(chosen)
        for node in chosen:
            node.job = running
            node.used = True
            if node.state == State.IDLE:
                self._become(node, State.ALLOCATED)
        if not missing:
            self._begin_job(running)

    def _choose(self, count: int) -> list[Node]:
        chosen = [self.idle.pop(it) for it in heapq.nsmallest(count, self.idle)]
        if len(chosen) < count and self.starting:
            soonest = sorted(self.starting.values(), key=lambda it: (it.ready, it.number))[: count - len(chosen)]
            for node in soonest:
                del self.starting[node.number]
            chosen += soonest
        while len(chosen) < count:
            node = self.nodes[heapq.heappop(self.off)]
            self._boot(node)
            chosen.append(node)
        return chosen

    def _begin_job(self, running: _Running) -> None:
        for node in running.nodes:
            self._become(node, State.BUSY)
        running.record.start = self.now
        running.record.end = self.now + running.job.runtime
        running.expected = self.now + running.job.limit
        self._push(running.record.end, _Event.END, running)

    # Nodes and books

    def _boot(self, node: Node) -> None:
        self._boots += 1
        self.on += 1
        self._become(node, State.STARTING)
        node.ready = self.now + self.machine.boot(self._boots)
        self._push(node.ready, _Event.READY, node)

    def _become(self, node: Node, state: State) -> None:
        spent = self.now - node.since
        match node.state:
            case State.STARTING:
                node.episode.starting += spent
            case State.IDLE:
                node.episode.idle += spent
            case State.ALLOCATED:
                node.episode.partial += spent
            case State.BUSY:
                node.episode.busy += spent
            case State.STOPPING:
                node.episode.stopping += spent
        node.state = state
        node.since = self.now

    def _push(self, time: float, kind: _Event, what: _What) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (time, kind, self._sequence, what))

    def _note(self) -> None:
        self._peak = max(self._peak, self.on)
        last = self._levels[-1] if self._levels else (0.0, -1, -1)
        if (self.on, self.busy) != last[1:]:
            self._levels.append((self.now, self.on, self.busy))

    def _outcome(self) -> Outcome:
        for node in self.nodes:
            if node.state != State.OFF:
                self._become(node, node.state)
                # What is on when the trace ends was not started in vain, as far as one can tell.
                self._spent.add(node.episode)
        return Outcome(
            records=tuple(self._records),
            unstarted=(*self._unstarted, *(it[3] for it in self.queue)),
            spent=self._spent,
            boots=self._boots,
            thrashed=self._thrashed,
            peak=self._peak,
            begin=self._begin,
            end=self.now,
            levels=tuple(self._levels),
        )


def simulate(trace: Trace, *, size: int, scaler: Scaler, machine: Machine | None = None) -> Outcome:
    """Play a trace on so many nodes."""
    return Cluster(trace, size, machine or Machine(), scaler).run()
