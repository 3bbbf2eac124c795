"""The exit status of a job, by what became of its pods, as wait(2) writes it.

    every pod succeeded                     0         COMPLETED 0:0
    a container exited with 3               3 << 8    FAILED    3:0
    a container exited with 137 = 128 + 9   9         FAILED    0:9, as of a task that signal 9 ended
    a pod failed, and no container did      1 << 8    FAILED    1:0
    a pod was deleted, evicted, preempted   None      the job was not run to its end, and is cancelled

The worst member speaks for a gang. Slurm does the same with the steps of a job: the highest code counts.
"""

from collections.abc import Iterable
from typing import Final

from isthmus.model.meta import Key, condition
from isthmus.model.pod import Pod, Terminated

_LAST_SIGNAL: Final = 64
_LAST_CODE: Final = 255
_SIGNALLED: Final = 128
"""Shells and container runtimes report 128 + N if signal N ended a program."""

_DISRUPTIONS: Final = frozenset({"Evicted", "Preempting"})
"""Why a kubelet ends a pod that did nothing wrong. Newer ones set the condition DisruptionTarget, too."""


def exit_status(*, here: Iterable[Pod], gone: Iterable[Pod] = (), missing: Iterable[Key] = ()) -> int | None:
    """Sum up pods as `outcome` does; None if their job is to be cancelled."""
    statuses = [*(_of(pod) for pod in (*here, *gone)), *(None for _ in missing)]
    if failures := [status for status in statuses if status]:
        return max(failures, key=_severity)
    return 0 if statuses and None not in statuses else None


def _of(pod: Pod) -> int | None:
    status = pod.status
    if status.phase == "Succeeded":
        return 0
    if pod.leaving or not pod.finished or _disrupted(pod):
        return None
    containers = (*status.container_statuses, *status.init_container_statuses)
    ends = (it.state.terminated for it in containers)
    return next((_of_container(ended) for ended in ends if ended and (ended.exit_code or ended.signal)), 1 << 8)


def _disrupted(pod: Pod) -> bool:
    told = condition(pod.status.conditions, "DisruptionTarget")
    return pod.status.reason in _DISRUPTIONS or (told is not None and told.status == "True")


def _of_container(ended: Terminated) -> int:
    signal = ended.signal or ended.exit_code - _SIGNALLED
    if 0 < signal <= _LAST_SIGNAL:
        return signal
    # Windows has codes of 32 bits.
    return (ended.exit_code if 0 < ended.exit_code <= _LAST_CODE else _LAST_CODE) << 8


def _severity(status: int) -> int:
    return status >> 8 or _SIGNALLED + status
