"""Machines that are about to go, as autoscalers and clouds say it: by taints and conditions of Kubernetes nodes.

Jobs on a machine that its autoscaler removes may end first: the pods there are protected for as long, and an
autoscaler that gives up takes its taint away. A cloud that takes a machine back asks nobody. Its notice is short,
so jobs are put back into the queue in time to end in order (Slurm gives them half a minute).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from isthmus.model.node import Node


class Notice(msgspec.Struct, frozen=True):
    """That a machine goes."""

    what: str
    """In words, after the name of the node."""
    seconds: float | None = None
    """How long jobs may go on from then; None: as long as they take."""


_BY_AUTOSCALER: Final = "is being removed by Cluster Autoscaler"
_BY_KARPENTER: Final = "is being removed by Karpenter"
_BY_AZURE: Final = Notice("is being reclaimed by Azure", 0.0)

_TAINTS: Final[Mapping[str, Notice]] = {
    "ToBeDeletedByClusterAutoscaler": Notice(_BY_AUTOSCALER),
    "karpenter.sh/disrupted": Notice(_BY_KARPENTER),
    "karpenter.sh/disruption": Notice(_BY_KARPENTER),
    # AWS gives two minutes.
    "aws-node-termination-handler/spot-itn": Notice("is being reclaimed by AWS (spot)", 60.0),
    "aws-node-termination-handler/scheduled-maintenance": Notice("has scheduled maintenance (AWS)"),
    "aws-node-termination-handler/asg-lifecycle-termination": Notice("is being removed by its scaling group (AWS)"),
    "aws-node-termination-handler/rebalance-recommendation": Notice("may soon be reclaimed by AWS (spot)"),
    # Google and Azure give half a minute.
    "cloud.google.com/impending-node-termination": Notice("is being reclaimed by Google Cloud", 0.0),
    "remediator.kubernetes.azure.com/unschedulable": _BY_AZURE,
    "remediator.aks.microsoft.com/unschedulable": _BY_AZURE,
    "node.cloudprovider.kubernetes.io/shutdown": Notice("is shut down in its cloud", 0.0),
}
"""By key. `DeletionCandidateOfClusterAutoscaler` is no notice: a candidate stays in use."""

_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_AZURE_EVENTS: Final = "VMEventScheduled"
_AZURE_ENDS: Final = frozenset({"PreemptScheduled", "TerminateScheduled", "RedeployScheduled"})


def notice_of(node: Node | None) -> Notice | None:
    """Why a machine goes, the most urgent of several; None if it stays."""
    if node is None:
        return None
    found = [_TAINTS[it.key] for it in node.spec.taints if it.key in _TAINTS and it.effect in _EFFECTS]
    found += [
        _BY_AZURE
        for it in node.status.conditions
        if it.type == _AZURE_EVENTS and it.status == "True" and it.reason in _AZURE_ENDS
    ]
    return min(found, key=lambda it: float("inf") if it.seconds is None else it.seconds, default=None)
