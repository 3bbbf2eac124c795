"""Why a pod waits: errors that say so within the scheduler, and the condition and Event that say so to people.

Both are written only when they change, and at a limited rate. Pods that are placed at once are told nothing: their
binding says it all, and it stays their only write.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from isthmus.errors import IsthmusError, Terminal, Wait
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import condition
from isthmus.model.pod import PODS, Pod
from isthmus.runtime.queue import Pace

PATIENCE: Final = 1.5
"""Seconds that a pod may wait before its condition says why."""

_PER_SECOND: Final = 8.0
_BURST: Final = 100
"""Each costs us more than a millisecond; thousands whose reason changes must not take more than a few percent."""

_KEPT: Final = 60.0
"""Seconds for which the turn of a pod is kept that does not use it: by then it has a node, or is gone."""

_MANAGER: Final = "isthmus-scheduler"
_MAX_CHARS: Final = 900

_LOOK_AGAIN: Final = 2.0
"""Most of what is waited for wakes its group by itself; this is for the rest."""


class NotYet(Wait):
    """A group cannot be placed yet. `reason` is that of the pods' condition."""

    def __init__(self, what: str, *, reason: str, after: float = _LOOK_AGAIN, remedy: str = "") -> None:
        super().__init__(what, after=after, remedy=remedy)
        self.reason = reason


class NodeRejected(Terminal):
    """Slurm gave a node that Kubernetes cannot use for this pod."""

    def __init__(self, what: str, *, pod: Pod, job_id: int, slurm_node: str) -> None:
        super().__init__(what)
        self.pod = pod
        self.job_id = job_id
        self.slurm_node = slurm_node


class NoNodeFits(Terminal):
    """No node of Slurm could take some of the pods. A change of a node wakes their group."""


class PodConditions:
    """Writes the condition PodScheduled of pods that wait."""

    def __init__(self, client: Client, recorder: Recorder, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._recorder = recorder
        self._turns = Turns(clock=clock)

    async def tell(self, pods: Sequence[Pod], reason: str, message: str, *, warning: bool = False) -> float:
        """Write to each pod why it waits, if that changed; return the pause before the rest."""
        for pod in pods:
            if knows(pod, reason, message):
                continue
            if (pause := self._turns.wait(pod.metadata.uid)) > 0:
                return pause
            self._recorder.event(PODS, pod, reason, message[:_MAX_CHARS], warning=warning, action="Scheduling")
            told = {
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "message": message[:_MAX_CHARS],
                # It has had no node from the first, whatever it was told about that since.
                "lastTransitionTime": pod.metadata.creation_timestamp,
            }
            body = {
                "metadata": {"namespace": pod.metadata.namespace, "name": pod.metadata.name},
                "status": {"conditions": [told]},
            }
            try:
                await self._client.apply(PODS, body, manager=_MANAGER, force=True, subresource="status")
            except NotFound:
                continue
        return 0.0


class Turns:
    """Which pod is written next. A pod that has to wait keeps its turn, or thousands would wait for one another."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pace = Pace(per_second=_PER_SECOND, burst=_BURST)
        self._due: dict[str, float] = {}
        """The turns that are to come, the next one first."""

    def __len__(self) -> int:
        return len(self._due)

    def wait(self, uid: str) -> float:
        """How many seconds a pod has to wait until it is its turn; with 0 it has had it."""
        now = self._clock()
        while self._due and self._due[first := next(iter(self._due))] < now - _KEPT:
            del self._due[first]
        due = self._due.get(uid)
        if due is None:
            due = now + self._pace.reserve(now)
        if due > now:
            self._due[uid] = due
            return due - now
        self._due.pop(uid, None)
        return 0.0


def knows(pod: Pod, reason: str, message: str) -> bool:
    """Whether the pod has this condition already."""
    told = condition(pod.status.conditions, "PodScheduled")
    return told is not None and (told.status, told.reason, told.message) == ("False", reason, message[:_MAX_CHARS])


def why(error: IsthmusError) -> str:
    """Put an error into one line."""
    return f"{error.what}. {error.remedy[:1].upper()}{error.remedy[1:]}." if error.remedy else error.what
