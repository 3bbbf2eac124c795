"""Which Kubernetes nodes get a worker in DaemonSet mode, and whether one that an ordinal is pinned to still fits.

    gets a pod    selector and affinity match, NoSchedule and NoExecute taints are tolerated, it is large enough
    keeps it      selector and affinity match, NoExecute taints are tolerated

A cordon changes neither: who cordons a node wants it drained, not its slurmd gone; and one that crashed comes back.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from isthmus.domain.kube.feasibility import Constraints, constraints_of, misfit
from isthmus.domain.languages import quantity
from isthmus.model.base import EMPTY, Data
from isthmus.model.node import Node
from isthmus.model.pod import Pod, PodSpec, Toleration

TOLERATED_BY_DAEMONS: Final[tuple[Mapping[str, str], ...]] = (
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
)
"""Taints that a pod of a certain node tolerates: it cannot run elsewhere."""

_LENIENT: Final = tuple(msgspec.convert(it, Toleration) for it in TOLERATED_BY_DAEMONS)
_ANY_NO_SCHEDULE: Final = Toleration(operator="Exists", effect="NoSchedule")


class Demand(Data, frozen=True):
    """What a worker pod asks of a node."""

    constraints: Constraints
    requests: Mapping[str, str] = EMPTY

    def may_start(self, node: Node) -> str | None:
        """Why a node gets no pod, or None if it does."""
        if node.metadata.deletion_timestamp is not None:
            return "is being deleted"
        wrong = misfit(_with(self.constraints, _LENIENT), node)
        if wrong is None and (lacking := _lacking(self.requests, node)):
            return f"has too little {lacking}"
        return wrong

    def may_stay(self, node: Node) -> bool:
        """Whether a pod that runs on a node may keep running there."""
        return misfit(_with(self.constraints, (*_LENIENT, _ANY_NO_SCHEDULE)), node) is None


def demand_of(pod_spec: Mapping[str, Any]) -> Demand:
    """Read a pod specification that we made."""
    pod = Pod(spec=msgspec.convert(_with_quantities_as_text(pod_spec), PodSpec))
    requests: dict[str, int] = {}
    for container in (*pod.spec.containers, *(it for it in pod.spec.init_containers if it.restart_policy)):
        for resource, amount in {**container.resources.limits, **container.resources.requests}.items():
            requests[resource] = requests.get(resource, 0) + quantity.parse(amount)
    whole = {**pod.spec.resources.limits, **pod.spec.resources.requests}
    written = {resource: quantity.write(amount) for resource, amount in requests.items()}
    return Demand(constraints=constraints_of(pod), requests={**written, **whole})


def _with_quantities_as_text(part: Mapping[str, Any]) -> dict[str, Any]:
    """Write the amounts of a pod or container as text: users may write `cpu: 2`, as the API server may, too."""
    found = dict(part)
    if resources := part.get("resources"):
        found["resources"] = {
            **resources,
            **{
                kind: {name: str(amount) for name, amount in resources[kind].items()}
                for kind in ("requests", "limits")
                if resources.get(kind)
            },
        }
    for kind in ("containers", "initContainers"):
        if kind in part:
            found[kind] = [_with_quantities_as_text(it) for it in part[kind] or ()]
    return found


def _with(constraints: Constraints, tolerations: tuple[Toleration, ...]) -> Constraints:
    return msgspec.structs.replace(constraints, tolerations=(*constraints.tolerations, *tolerations))


def _lacking(requests: Mapping[str, str], node: Node) -> str:
    """What a node could not give even if it were empty. One that does not say is not asked."""
    allocatable = node.status.allocatable
    if not allocatable:
        return ""
    for resource, amount in requests.items():
        if quantity.parse(amount) > quantity.parse(allocatable.get(resource, "0")):
            return resource
    return ""
