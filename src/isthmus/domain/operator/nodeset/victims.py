"""Which worker pods a scale-in deletes: those that cost least, chosen once.

The order is slurm-operator's. A pod that was chosen stays chosen until it is gone or wanted again, however the jobs
move: half a drain helps nobody. So what was chosen comes before the order, and is remembered in two places: in the
status of the NodeSet, and in the reason of the drain in Slurm.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

from isthmus import names
from isthmus.domain.operator.nodeset.drains import says_leaving
from isthmus.domain.operator.nodeset.view import PodView, View

_PHASES: Final = {"Unknown": 1, "Running": 2}
_COST: Final = re.compile(r"0|-?[1-9][0-9]{0,9}", re.ASCII)
_LARGEST_COST: Final = 2**31 - 1
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)

Rank: TypeAlias = tuple[bool, int, bool, int, bool, datetime, bool, int, float, str]


def chosen_before(view: View) -> frozenset[str]:
    """The pods that were chosen before: by the status, or by the drain in Slurm."""
    drained = (pod.name for pod in view.pods if pod.draining and pod.slurm and says_leaving(pod.slurm.reason))
    present = frozenset(pod.name for pod in view.pods if not pod.leaving)
    return present & {*view.nodeset.status.victims, *drained}


def victims(view: View, deadlines: Mapping[str, datetime] | None = None) -> tuple[str, ...]:
    """Choose the pods that are too many, in the order in which they go; `deadlines` are ends of jobs by pod."""
    if view.nodeset.spec.scaling_mode == "DaemonSet":
        return ()
    here = [pod for pod in view.pods if pod.mode == "StatefulSet" and not pod.leaving]
    candidates = [pod for pod in here if pod.name not in view.unwanted]
    surplus = len(candidates) - view.desired
    if surplus <= 0:
        return ()
    chosen = chosen_before(view)
    ordered = in_order(candidates, chosen, deadlines)
    if view.desired:
        # The choice is kept, so it waits until Slurm has said which nodes are busy.
        ordered = [pod for pod in ordered if pod.name in chosen or not view.unheard_of(pod)]
    return tuple(pod.name for pod in ordered[:surplus])


def in_order(
    pods: Iterable[PodView], chosen: Collection[str], deadlines: Mapping[str, datetime] | None = None
) -> list[PodView]:
    """Sort pods by deletion order: those that were chosen, then those that cost least."""
    known = deadlines or {}
    return sorted(pods, key=lambda pod: (pod.name not in chosen, rank(pod, known.get(pod.name))))


def rank(pod: PodView, deadline: datetime | None = None) -> Rank:
    """The cost of deleting a pod: the smallest is first."""
    created = pod.pod.metadata.creation_timestamp
    return (
        bool(pod.node_name) and not pod.finished,
        _PHASES.get(pod.pod.status.phase, 0),
        pod.ready,
        deletion_cost(pod),
        pod.busy,
        deadline or _written_deadline(pod) or (_NEVER if pod.busy else _BEGINNING),
        not (pod.cordoned or pod.kube_cordoned),
        -(pod.ordinal or 0),
        -created.timestamp() if created else 0.0,
        pod.name,
    )


def deletion_cost(pod: PodView) -> int:
    """Read the cost of losing the pod from its annotation; 0 if that is not a number."""
    text = pod.annotations.get(names.POD_DELETION_COST_ANNOTATION, "")
    cost = int(text) if _COST.fullmatch(text) else 0
    return cost if abs(cost) <= _LARGEST_COST else 0


def _written_deadline(pod: PodView) -> datetime | None:
    text = pod.annotations.get(names.POD_DEADLINE_ANNOTATION, "")
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found and found.tzinfo is None else found
