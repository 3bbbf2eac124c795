"""Where Slurm nodes are in Kubernetes: in which NodeSet, and on a machine of which NVLink instance group."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from isthmus import names
from isthmus.domain.operator.nodeset.identity import slurm_name
from isthmus.model.node import Node
from isthmus.model.pod import Pod


class Location(NamedTuple):
    """Empty texts stand for what is not known."""

    group: str = ""
    nodeset: str = ""


UNKNOWN = Location()


def locations(workers: Iterable[Pod], grouped: Iterable[Node]) -> dict[str, Location]:
    """Find the place of each Slurm node that is a pod or, with the bridge, a Kubernetes node itself."""
    groups: Mapping[str, str] = {it.metadata.name: it.metadata.labels[names.NVLINK_GROUP_LABEL] for it in grouped}
    found = {_slurm_name(it): Location(groups[it.metadata.name]) for it in grouped}
    for pod in workers:
        group = groups.get(pod.spec.node_name, "")
        found[slurm_name(pod)] = Location(group, pod.metadata.labels.get(names.INSTANCE_LABEL, ""))
    return found


def _slurm_name(node: Node) -> str:
    return node.metadata.labels.get(names.NODE_NAME_LABEL) or node.metadata.name
