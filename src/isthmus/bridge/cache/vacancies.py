"""Which Slurm nodes are free, as far as we know: for jobs that are to start at once or not at all.

Such an attempt leaves a FAILED job in accounting when there is no room, although no pod has failed. So it is made
only where there should be room:

    free  =  idle in the latest list of nodes  -  nodes of jobs that we have seen start since
             + nodes of jobs that we have seen end since
    less one node for each attempt under way, and for each job that has its nodes but has not been seen yet

A job that shares nodes needs one that is not full. Who is told that nothing is free loses a second at most, since
the job is submitted the ordinary way; who is told otherwise by mistake has an attempt that fails.

Kept by the stores' hooks, O(1) per event.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import Final

from isthmus.bridge.cache.jobs import OurJob, OurJobs
from isthmus.domain.bridge import jobstates
from isthmus.domain.bridge.noderules import is_out
from isthmus.domain.languages import hostlist
from isthmus.model.slurm import JobRequest, Node
from isthmus.slurm.store import Store

_UNSEEN: Final = 15.0
"""After so many seconds a job that nobody has seen holds no node any more: Slurm may have lost it."""

_FULL: Final = "ALLOCATED"
_IDLE: Final = "IDLE"


class Vacancies:
    """Tells whether an attempt to start at once may succeed."""

    def __init__(
        self, nodes: Store[str, Node], jobs: OurJobs, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nodes = nodes
        self._jobs = jobs
        self._clock = clock
        self._idle: set[str] = set()
        self._open: set[str] = set()
        """Those with room for a job that shares them."""
        self._asked = 0
        self._given: dict[int, tuple[int, float]] = {}
        """Nodes of jobs that have them but have not been seen, and until when they count; the oldest first."""
        for name, node in nodes.items():
            self._node_changed(name, None, node)
        nodes.on_change(self._node_changed)
        jobs.on_change(self._job_changed)

    def suffice(self, request: JobRequest) -> bool:
        """Whether there may be room for a job at this moment."""
        wanted, free = 1, self._open
        if _exclusive(request):
            self._forget_unseen()
            wanted = _size(request) + self._asked + sum(size for size, _ in self._given.values())
            free = self._idle
        left_out = _hosts(request.excluded_nodes)
        usable = (name for name in free if name not in left_out and self._serves(name, request.partition))
        return len(list(islice(usable, wanted))) == wanted

    @contextmanager
    def attempt(self, request: JobRequest) -> Iterator[None]:
        """Count the nodes of a job as taken while Slurm is asked for them."""
        size = _size(request) if _exclusive(request) else 0
        self._asked += size
        try:
            yield
        finally:
            self._asked -= size

    def given(self, job_id: int, request: JobRequest) -> None:
        """Count them as taken until the job is seen: Slurm gave nodes, and nobody has said which."""
        if _exclusive(request) and self._jobs.get(job_id) is None:
            self._given[job_id] = _size(request), self._clock() + _UNSEEN

    def _forget_unseen(self) -> None:
        now = self._clock()
        for job_id in [it for it, (_, until) in self._given.items() if until < now]:
            del self._given[job_id]

    def _serves(self, name: str, partition: str | None) -> bool:
        node = self._nodes.get(name)
        return node is not None and (not partition or not set(partition.split(",")).isdisjoint(node.partitions))

    def _node_changed(self, name: str, _old: Node | None, new: Node | None) -> None:
        usable = new is not None and not is_out(new)
        _put(self._idle, name, there=bool(new and usable and _IDLE in new.state))
        _put(self._open, name, there=bool(new and usable and _FULL not in new.state))

    def _job_changed(self, job_id: int, before: OurJob | None, after: OurJob | None) -> None:
        self._given.pop(job_id, None)
        had, has = _nodes_of(before), _nodes_of(after)
        if had == has:
            return
        self._idle.difference_update(hostlist.expand(has))
        for name in hostlist.expand(had) if not has else ():
            node = self._nodes.get(name)
            if node and not is_out(node):
                self._idle.add(name)
                self._open.add(name)


def _exclusive(request: JobRequest) -> bool:
    return request.shared == ("none",)


def _size(request: JobRequest) -> int:
    return request.minimum_nodes or 1


def _nodes_of(ours: OurJob | None) -> str:
    """Name the nodes that a job has at this moment."""
    return (ours.job.nodes or "") if ours and jobstates.living(ours.job.job_state) else ""


def _put(names: set[str], name: str, *, there: bool) -> None:
    if there:
        names.add(name)
    else:
        names.discard(name)


@lru_cache(maxsize=64)
def _hosts(excluded: tuple[str, ...]) -> frozenset[str]:
    return frozenset(hostlist.expand(",".join(excluded)))
