"""Rolling updates: which outdated pods are replaced now, and how many may be unavailable at a time.

Away is what does not serve jobs because of us: a place without a pod, a new pod that is not available yet, and a
pod that was chosen to go. Never are more away than maxUnavailable allows, so a specification that does not work
stops the update by itself: its pods do not become available, and nothing more is drained for it.

    RollingUpdate     pods that do not work first, then healthy ones, idle before busy
    OnDelete          none, until somebody deletes one
    ScheduledUpdate   nodes that are in our maintenance reservation; all at once, as soon as one new pod has shown
                      that the new specification works
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

import msgspec

from isthmus.domain.operator.nodeset.drains import is_occupied
from isthmus.domain.operator.nodeset.reservation import reservation_name
from isthmus.domain.operator.nodeset.victims import chosen_before, in_order
from isthmus.domain.operator.nodeset.view import PodView, View

_MAINTENANCE: Final = ("MAINTENANCE", "MAINT")


class Budget(msgspec.Struct, frozen=True):
    """How many pods may be away at a time, and how many are."""

    limit: int
    away: int

    @property
    def room(self) -> int:
        """How many more may go."""
        return max(0, self.limit - self.away)


def max_unavailable(setting: int | str, total: int) -> int:
    """Read maxUnavailable: a number, or a part of all that rounds up. What cannot be read is one."""
    if isinstance(setting, int):
        return max(1, setting)
    number, percent, rest = setting.partition("%")
    if not number.isdecimal() or rest:
        return 1
    return max(1, -(-total * int(number) // 100) if percent else int(number))


def budget(view: View, departing: Collection[str] = (), *, besides: Collection[str] = ()) -> Budget:
    """Count unavailable pods, without those deleted anyway (`departing`) and those in question (`besides`)."""
    limit = max_unavailable(view.nodeset.spec.update_strategy.rolling_update.max_unavailable, view.desired)
    present = staying(view, departing)
    chosen = chosen_before(view)
    missing = max(0, view.desired - len(present))
    away = sum(
        1
        for pod in present
        if pod.name not in besides and (pod.name in chosen or (not view.outdated(pod) and not pod.available))
    )
    return Budget(limit, missing + away)


def staying(view: View, departing: Collection[str] = ()) -> list[PodView]:
    """List the pods that hold a place of the NodeSet."""
    mode = view.nodeset.spec.scaling_mode
    return [
        pod
        for pod in view.pods
        if pod.mode == mode
        and not pod.leaving
        and not pod.finished
        and pod.name not in departing
        and pod.name not in view.unwanted
    ]


def to_update(
    view: View, departing: Collection[str] = (), deadlines: Mapping[str, datetime] | None = None
) -> tuple[str, ...]:
    """Choose the old pods that make way for new ones now, in the order in which they go."""
    kind = view.nodeset.spec.update_strategy.type
    if kind == "OnDelete" or view.deleting:
        return ()
    old = [pod for pod in staying(view, departing) if view.outdated(pod)]
    if kind == "ScheduledUpdate":
        old = [pod for pod in old if _in_maintenance(view, pod)]
    chosen = chosen_before(view)
    going = in_order([pod for pod in old if pod.name in chosen], chosen, deadlines)
    others = in_order([pod for pod in old if pod.name not in chosen], (), deadlines)
    room = _room(view, departing)
    # A pod that is not ready may still run jobs, and lost contact with Slurm does not justify a drain.
    broken = [pod for pod in others if not pod.ready and not (pod.slurm and is_occupied(pod.slurm))]
    going += broken[:room]
    # What is broken and stays is away as well, without our doing.
    room -= len(broken) + sum(1 for pod in others if not pod.available and pod not in broken)
    going += [pod for pod in others if pod.available][: max(0, room)]
    return tuple(pod.name for pod in going if pod.name in chosen or not view.unheard_of(pod))


def _room(view: View, departing: Collection[str]) -> int:
    if view.nodeset.spec.update_strategy.type == "ScheduledUpdate" and any(
        pod.available and not view.outdated(pod) for pod in staying(view, departing)
    ):
        return len(view.pods)
    return budget(view, departing).room


def _in_maintenance(view: View, pod: PodView) -> bool:
    """Whether Slurm keeps the node free of jobs for us at this moment."""
    held = pod.slurm is not None and pod.slurm.reservation == reservation_name(view.name)
    return held and pod.slurm_has(*_MAINTENANCE)
