"""What this process has just done for a NodeSet and its caches do not show yet.

It saves work and decides nothing: a process with an empty memory decides the same, only that a pod may be asked
for that is there (which the API server refuses) or deleted twice (which it does not mind).
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from isthmus.domain.operator.nodeset.actions import Action, ReviseRecord
from isthmus.model.pod import Pod

_MAX_LAG_S: Final = 30.0
"""Seconds after which a cache that still does not show what we did must have another reason for it."""

_FIRST_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 60.0


class Memory:
    def __init__(self) -> None:
        self._made: dict[str, tuple[str, float]] = {}
        self._deleted: dict[str, float] = {}
        self._ready_since: dict[str, datetime] = {}
        self.refusal = ""
        """Why pods cannot be made; empty if they can."""
        self._refusals = 0
        self._refused_until = 0.0
        self._refused_at = 0
        self._slurm_refusals: dict[type[Action], str] = {}
        self._revised: dict[ReviseRecord, float] = {}
        self._forgotten: dict[str, float] = {}
        self.reported_at = float("-inf")
        """When its status was written last."""
        self.jobs_due_at = float("-inf")
        """When the jobs of Slurm may be read again."""
        self.wrote_slurm_at = float("-inf")
        """When we changed something in Slurm last: what was read before says nothing of it."""

    # Pods that were made and deleted

    def made(self, name: str, hostname: str, *, now: float) -> None:
        """Remember a pod."""
        self._made[name] = hostname, now

    def deleted(self, uid: str, *, now: float) -> None:
        """Remember that a pod was deleted."""
        self._deleted[uid] = now

    def is_deleted(self, uid: str) -> bool:
        return uid in self._deleted

    def unseen(self, pods: Collection[Pod], *, now: float) -> dict[str, str]:
        """Forget what the cache shows by now, and name the pods that it does not show, with their Slurm names."""
        if self._made:
            seen = {pod.metadata.name for pod in pods}
            self._made = {
                name: (uid, at)
                for name, (uid, at) in self._made.items()
                if name not in seen and now - at < _MAX_LAG_S
            }
        if self._deleted:
            alive = {pod.metadata.uid for pod in pods if not pod.leaving}
            self._deleted = {uid: at for uid, at in self._deleted.items() if uid in alive and now - at < _MAX_LAG_S}
        return {name: hostname for name, (hostname, _) in self._made.items()}

    def unseen_until(self, *, now: float) -> float | None:
        """In how many seconds a pod counts as missing that was made and that the cache does not show.

        It may have been deleted, or lost its owner, before anyone looked: then no event wakes its NodeSet.
        """
        return min((at + _MAX_LAG_S - now for _, at in self._made.values()), default=None)

    # Updates of nodes in Slurm

    def revised(self, told: Iterable[ReviseRecord], *, now: float) -> None:
        """Remember an update of records."""
        self._revised |= dict.fromkeys(told, now)

    def revisions_tried(self, *, now: float) -> frozenset[ReviseRecord]:
        """The updates of records within the last minute."""
        self._revised = {it: at for it, at in self._revised.items() if now - at < _MAX_PAUSE_S}
        return frozenset(self._revised)

    def forgotten(self, records: Iterable[str], *, now: float) -> None:
        """Remember that Slurm is asked to delete records, unless that was tried within the last minute."""
        self._forgotten = {**dict.fromkeys(records, now), **self._forgotten}

    def deletions_tried(self, *, now: float) -> frozenset[str]:
        """The records that Slurm was asked to delete within the last minute."""
        self._forgotten = {name: at for name, at in self._forgotten.items() if now - at < _MAX_PAUSE_S}
        return frozenset(self._forgotten)

    # What Slurm refuses

    @property
    def slurm_refusals(self) -> tuple[str, ...]:
        """Why Slurm does not do what it was asked last."""
        return tuple(self._slurm_refusals.values())

    def slurm_refused(self, kind: type[Action], why: str) -> None:
        """Remember why Slurm refused actions of a kind; empty if it did them."""
        self._slurm_refusals.pop(kind, None)
        if why:
            self._slurm_refusals[kind] = why

    def keep_slurm_refusals(self, wanted: Iterable[type[Action]]) -> None:
        """Forget refusals of what is not wanted any more."""
        kinds = set(wanted)
        self._slurm_refusals = {kind: why for kind, why in self._slurm_refusals.items() if kind in kinds}

    # For how long pods have been ready

    def available(self, pod: Pod, *, ready: bool, min_ready: int, now: datetime) -> bool:
        """Whether a pod has been ready for long enough, as far as this process has seen."""
        if not ready or not min_ready:
            return ready
        since = self._ready_since.setdefault(pod.metadata.uid, now)
        return now - since >= timedelta(seconds=min_ready)

    def keep_readiness(self, ready: Iterable[str]) -> None:
        """Forget since when pods were ready that are so no longer."""
        if self._ready_since:
            kept = set(ready)
            self._ready_since = {uid: since for uid, since in self._ready_since.items() if uid in kept}

    # Refusals

    def refused(self, why: str, *, generation: int, now: float) -> None:
        """Remember that pods cannot be made, and leave it for a while: longer every time."""
        self._refusals += 1
        pause = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._refusals - 1, 10))
        self.refusal, self._refused_until, self._refused_at = why, now + pause, generation

    def accepted(self) -> None:
        """Remember that a pod was made."""
        self.refusal, self._refusals, self._refused_until = "", 0, 0.0

    def pause(self, *, generation: int, now: float) -> float:
        """For how many seconds no pod should be made; 0 if one may be. Another specification may at once."""
        return max(0.0, self._refused_until - now) if generation == self._refused_at else 0.0
