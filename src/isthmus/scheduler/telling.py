"""Tells pods why they wait: one condition and one Event, written only when they change, and never in a hurry.

Pods that are placed at once are told nothing: their binding says it all, and it stays their only write.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from isthmus.errors import IsthmusError
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import condition
from isthmus.model.pod import PODS, Pod
from isthmus.runtime.queue import Pace

PATIENCE: Final = 1.5
"""Seconds that a pod may wait before it is told why."""

_PER_SECOND: Final = 20.0
_BURST: Final = 40
_MANAGER: Final = "isthmus-scheduler"
_LONGEST: Final = 900


class Teller:
    """Writes the condition PodScheduled of pods that wait."""

    def __init__(self, client: Client, recorder: Recorder, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._pace = Pace(per_second=_PER_SECOND, burst=_BURST)

    async def tell(self, pods: Sequence[Pod], reason: str, message: str, *, warning: bool = False) -> float:
        """Tell each pod why it waits, if it does not know; return how long to wait before the rest is told."""
        for pod in pods:
            if knows(pod, reason, message):
                continue
            if (pause := self._pace.reserve(self._clock())) > 0:
                return pause
            self._recorder.event(PODS, pod, reason, message[:_LONGEST], warning=warning, action="Scheduling")
            told = {
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "message": message[:_LONGEST],
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


def knows(pod: Pod, reason: str, message: str) -> bool:
    """Whether a pod has been told this already."""
    told = condition(pod.status.conditions, "PodScheduled")
    return told is not None and (told.status, told.reason, told.message) == ("False", reason, message[:_LONGEST])


def why(error: IsthmusError) -> str:
    """Put an error into one line."""
    return f"{error.what}. {error.remedy[:1].upper()}{error.remedy[1:]}." if error.remedy else error.what
