"""Records in slurmctld of nodes whose pods are gone, and when they are deleted.

slurmctld keeps the record of a dynamic node forever, and what the record says goes before what a slurmd says that
registers under its name later.

    its pod is gone, another comes     kept: jobs that wait may name the node, and must not lose it
    another of a new shape comes       deleted before that one registers, for it would be turned away
    its pod does not come back           deleted
    DaemonSet mode                     deleted only if pruneSlurmNodeRecords says so and its Kubernetes node is gone

Slurm itself refuses to delete a node that has a job or is in a reservation; then it is tried again later. Records
of slurm.conf, of people and of other NodeSets are not ours: a record is, if it is dynamic and carries our feature.
"""

from typing import Final

from isthmus.domain.operator import partnames
from isthmus.domain.operator.nodeset.actions import DeleteRecord
from isthmus.domain.operator.nodeset.drains import is_free, is_occupied
from isthmus.domain.operator.nodeset.identity import daemon_hostname
from isthmus.domain.operator.nodeset.shape import Shape
from isthmus.domain.operator.nodeset.view import View
from isthmus.model.slurm import Node as SlurmNode

_DYNAMIC: Final = "DYNAMIC_NORM"


def records(view: View, shape: Shape | None = None) -> tuple[DeleteRecord, ...]:
    """Decide which records to delete in Slurm. `shape` is that of new pods; None if unknown."""
    if not view.slurm_in_touch or view.nodeset.spec.registration != "Dynamic":
        return ()
    staying = {pod.slurm_name for pod in view.pods if not pod.leaving}
    leaving = {pod.slurm_name for pod in view.pods if pod.leaving}
    found = (node for name, node in view.slurm_nodes.items() if name not in staying and _is_ours(view, node))
    if view.nodeset.spec.scaling_mode == "DaemonSet" and not view.deleting:
        return tuple(
            DeleteRecord(node.name, "its Kubernetes node is gone")
            for node in found
            if node.name not in leaving and _is_defunct(view, node)
        )
    deleted = []
    for node in found:
        misfit = shape is not None and not shape.fits(node)
        if node.name in leaving or node.name in view.coming:
            if misfit and is_free(node):
                deleted.append(DeleteRecord(node.name, "the next pod of this name has another shape"))
        elif not is_occupied(node):
            deleted.append(DeleteRecord(node.name, "its pod does not come back"))
    return tuple(deleted)


def _is_ours(view: View, node: SlurmNode) -> bool:
    if _DYNAMIC not in node.state or partnames.slurm_nodeset(view.nodeset) not in node.features:
        return False
    return view.nodeset.spec.scaling_mode == "DaemonSet" or _has_our_name(view, node.name)


def _has_our_name(view: View, name: str) -> bool:
    """Whether a name is made of our prefix and a number, however padded: any node can have any feature."""
    prefix = str(view.nodeset.spec.template.spec.get("hostname") or f"{view.name}-")
    number = name.removeprefix(prefix)
    return number != name and number.isascii() and number.isdecimal()


def _is_defunct(view: View, node: SlurmNode) -> bool:
    if view.nodeset.spec.prune_slurm_node_records != "NodeNotFound":
        return False
    if not {"DOWN", "NOT_RESPONDING"} <= set(node.state) or node.name in view.coming:
        return False
    return all(daemon_hostname(kube) != node.name for kube in view.kube_nodes.values())
