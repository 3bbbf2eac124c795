"""Which worker pods may be evicted: none from which a job could be lost.

Every pod is protected from its creation on, and only one whose node Slurm can give no job is not:

    starting, idle, busy        protected
    drained, without a job      not: Slurm starts nothing there until we say so
    powered down by Slurm       not: no job begins in this pod, only in the next one

So there is no moment in which a job has begun and its pod is unprotected, and `kubectl drain` works: it cordons the
node, we drain it in Slurm, and when the last job is over the eviction passes.
"""

from collections.abc import Collection, Mapping
from typing import Final

from isthmus import names
from isthmus.domain.elastic.decision import is_off
from isthmus.domain.operator.nodeset.actions import Protect, Unprotect
from isthmus.domain.operator.nodeset.drains import may_go, says_leaving
from isthmus.domain.operator.nodeset.view import PodView, View

MARKS: Final[Mapping[str, Mapping[str, str]]] = {
    "labels": {names.POD_PROTECT_LABEL: "true"},
    "annotations": {names.SAFE_TO_EVICT_ANNOTATION: "false", names.DO_NOT_DISRUPT_ANNOTATION: "true"},
}
"""What a protected pod carries in its metadata."""


def protection(view: View, opening: Collection[str] = ()) -> tuple[Protect | Unprotect, ...]:
    """Decide whose protection changes. `opening` are Slurm nodes that are about to take jobs again.

    Without Slurm nothing changes, unless the user turned it off.
    """
    changes: list[Protect | Unprotect] = []
    for pod in view.pods:
        if pod.leaving or pod.finished:
            continue
        wanted = _wanted(view, pod, opening)
        if wanted != pod.protected:
            changes.append((Protect if wanted else Unprotect)(pod.name, pod.uid))
    return tuple(changes)


def _wanted(view: View, pod: PodView, opening: Collection[str]) -> bool:
    if not view.nodeset.spec.workload_disruption_protection:
        return False
    if not view.slurm_in_touch:
        return pod.protected
    if _starts(pod):
        return pod.protected
    # A node that was never drained, but cannot have jobs, is let go only where somebody wants the place empty: pods
    # that have just been made are in the same state for a moment.
    stopped = pod.slurm is not None and is_off(pod.slurm)
    shut = pod.drained or stopped or (pod.kube_going and may_go(view, pod))
    return not shut or pod.slurm_name in opening


def _starts(pod: PodView) -> bool:
    """Whether a pod starts in the place of one that went: as soon as it is ready, that drain is taken back."""
    inherited = pod.slurm is not None and says_leaving(pod.slurm.reason)
    return inherited and not pod.ready and not pod.kube_going
