"""Whose turn it is to be read again, of the jobs that wait: why they wait changes while their states do not.

Jobs of one user, account, partition and QOS that have waited for one thing mostly wait for the same thing next. So
kinds of jobs take turns, with one job each. When one of a kind is found to wait for something else, the others of
that kind come next: a change for thousands of jobs is seen after as many readings as there are kinds.
"""

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from isthmus.model.slurm import Job

Kind: TypeAlias = tuple[object, ...]


def kind_of(job: Job) -> Kind:
    """What a job has in common with those that wait for the same thing."""
    return job.user_id, job.account, job.partition, job.qos, job.state_reason


class Turns:
    def __init__(self) -> None:
        self._left: dict[Kind, list[int]] = {}
        self._order: deque[Kind] = deque()
        self._changed: deque[Kind] = deque()
        """Kinds of which one was found to have changed; they have all turns until none is left."""

    def __bool__(self) -> bool:
        return bool(self._left)

    def begin(self, jobs: Iterable[tuple[int, Kind]]) -> None:
        """Give each of these jobs one turn, those with low ids first."""
        self._left.clear()
        for job_id, kind in sorted(jobs, key=lambda it: -it[0]):
            self._left.setdefault(kind, []).append(job_id)
        self._order = deque(sorted(self._left, key=lambda it: self._left[it][-1]))
        self._changed.clear()

    def take(self) -> int:
        """The job whose turn it is."""
        kind = self._changed[0] if self._changed else self._order[0]
        left = self._left[kind]
        job_id = left.pop()
        if not left:
            self._drop(kind)
        elif not self._changed:
            self._order.rotate(-1)
        return job_id

    def hurry(self, kind: Kind) -> None:
        """Let all jobs of a kind come next: one of them waits for something else than it did."""
        if kind in self._left and kind not in self._changed:
            self._changed.append(kind)

    def _drop(self, kind: Kind) -> None:
        del self._left[kind]
        self._order.remove(kind)
        if kind in self._changed:
            self._changed.remove(kind)
