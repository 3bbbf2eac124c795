"""Which Slurm nodes are free, as far as we know: for jobs that are to start at once or not at all.

Such an attempt leaves a FAILED job in accounting when there is no room, although no pod has failed. So it is made
only where there should be room:

    free  =  idle in the latest list of nodes  -  nodes of jobs that we have seen start since
             + nodes of jobs that we have seen end since
    less the nodes of each attempt under way, and of each job that has started but has not been seen yet

A job that shares nodes needs one that is not full. And while other jobs wait for nodes there is no attempt at all:
Slurm lets nobody overtake a job with a higher priority in a partition with the same nodes, also where it could not
use those that are free. If nothing is free, a pod loses a second at most, since its job is submitted the ordinary
way; if a node is taken for free by mistake, one attempt fails.

Kept by the stores' hooks, O(1) per event.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import Final

from isthmus.bridge.cache.inflight import JobsInFlight, whole_nodes
from isthmus.bridge.cache.jobs import OurJob, OurJobs
from isthmus.domain.bridge import jobstates
from isthmus.domain.bridge.noderules import is_out
from isthmus.domain.languages import hostlist
from isthmus.model.slurm import JobRequest, Node, States
from isthmus.slurm.store import Store
from isthmus.slurm.submission import base_id

_FULL: Final = "ALLOCATED"
_IDLE: Final = "IDLE"
_PENDING: Final = ("PENDING",)
_NOT_FOR_NODES: Final = frozenset(
    {"BeginTime", "Dependency", "DependencyNeverSatisfied", "JobHeldAdmin", "JobHeldUser"}
)
"""Why jobs wait that Slurm lets others overtake."""

_MAX_LOOKED_AT: Final = 100
"""Where more jobs wait, one of them is taken to wait for nodes."""


class Vacancies:
    """Whether an attempt to start at once may succeed."""

    def __init__(
        self, nodes: Store[str, Node], jobs: OurJobs, inflight: JobsInFlight, *, states: Store[str, States]
    ) -> None:
        self._nodes = nodes
        self._jobs = jobs
        self._inflight = inflight
        self._idle: set[str] = set()
        self._open: set[str] = set()
        """Those with room for a job that shares them."""
        self._asked = 0
        self._pending = {key for key, state in states.items() if state[:1] == _PENDING}
        for name, node in nodes.items():
            self._node_changed(name, None, node)
        nodes.on_change(self._node_changed)
        jobs.on_change(self._job_changed)
        states.on_change(self._state_changed)

    def suffice(self, request: JobRequest) -> bool:
        """Whether there may be room for a job at this moment, and nobody waits for it."""
        if self._others_wait():
            return False
        wanted, free = 1, self._open
        if whole := whole_nodes(request):
            unseen = (it for it in self._inflight.starting() if self._jobs.get(it.job_id) is None)
            wanted = whole + self._asked + sum(it.whole_nodes for it in unseen)
            free = self._idle
        left_out = _hosts(request.excluded_nodes)
        usable = (name for name in free if name not in left_out and self._serves(name, request.partition))
        return len(list(islice(usable, wanted))) == wanted

    @contextmanager
    def attempt(self, request: JobRequest) -> Iterator[None]:
        """Count the nodes of a job as taken while Slurm is asked for them."""
        size = whole_nodes(request)
        self._asked += size
        try:
            yield
        finally:
            self._asked -= size

    def _others_wait(self) -> bool:
        return len(self._pending) > _MAX_LOOKED_AT or any(map(self._waits_for_nodes, self._pending))

    def _waits_for_nodes(self, key: str) -> bool:
        """Whether a pending job may be in the way; why jobs of others wait is not known."""
        ours = self._jobs.get(base_id(key))
        return ours is None or ours.job.state_reason not in _NOT_FOR_NODES

    def _state_changed(self, key: str, _old: States | None, new: States | None) -> None:
        _put(self._pending, key, there=new is not None and new[:1] == _PENDING)

    def _serves(self, name: str, partition: str | None) -> bool:
        node = self._nodes.get(name)
        return node is not None and (not partition or not set(partition.split(",")).isdisjoint(node.partitions))

    def _node_changed(self, name: str, _old: Node | None, new: Node | None) -> None:
        usable = new is not None and not is_out(new)
        _put(self._idle, name, there=bool(new and usable and _IDLE in new.state))
        _put(self._open, name, there=bool(new and usable and _FULL not in new.state))

    def _job_changed(self, _job_id: int, before: OurJob | None, after: OurJob | None) -> None:
        had, has = _nodes_of(before), _nodes_of(after)
        if had == has:
            return
        self._idle.difference_update(hostlist.expand(has))
        for name in hostlist.expand(had) if not has else ():
            node = self._nodes.get(name)
            if node and not is_out(node):
                self._idle.add(name)
                self._open.add(name)


def _nodes_of(ours: OurJob | None) -> str:
    """The nodes that a job has at this moment, as a host list."""
    return (ours.job.nodes or "") if ours and jobstates.living(ours.job.job_state) else ""


def _put(names: set[str], name: str, *, there: bool) -> None:
    if there:
        names.add(name)
    else:
        names.discard(name)


@lru_cache(maxsize=64)
def _hosts(excluded: tuple[str, ...]) -> frozenset[str]:
    return frozenset(hostlist.expand(",".join(excluded)))
