"""The identity of a worker pod: its name, its ordinal, and the name of its Slurm node.

    StatefulSet mode   pod workers-3            Slurm node workers-3, or PREFIX3 where the template gives a hostname
    DaemonSet mode     pod workers-gpu-a        Slurm node gpu-a, after the Kubernetes node gpu-a.example.org

A name is a function of the NodeSet and the number or node, so a pod that is created twice is one.
"""

import re
from typing import Final, Literal

from isthmus import names
from isthmus.errors import Terminal
from isthmus.model.base import Data
from isthmus.model.node import Node
from isthmus.model.pod import Pod
from isthmus.model.slinky import NodeSet

Mode = Literal["StatefulSet", "DaemonSet"]

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_MAX_POD_NAME_CHARS: Final = 253


class Identity(Data, frozen=True):
    """What distinguishes a worker pod from the others of its NodeSet."""

    pod: str
    hostname: str
    mode: Mode
    ordinal: int | None = None
    padded: str = ""
    """The ordinal as it is written."""
    node: str = ""
    """The Kubernetes node that it has to run on; empty if it may run on any."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels of such a pod."""
        marks = {
            # A label takes 63 characters; that is enough for any pod with an ordinal.
            names.POD_NAME_LABEL: self.pod[:63].rstrip("-."),
            names.POD_HOSTNAME_LABEL: self.hostname,
            names.SCALING_MODE_LABEL: self.mode,
        }
        return marks | ({names.POD_INDEX_LABEL: self.padded} if self.padded else {})

    @property
    def claim_suffix(self) -> str:
        """What distinguishes its claims."""
        return self.padded or self.hostname


def numbered(nodeset: NodeSet, ordinal: int, *, node: str = "") -> Identity:
    """Make the identity of a pod by its ordinal; with `node`, it is pinned to that one."""
    padded = str(ordinal).zfill(nodeset.spec.ordinal_padding)
    name = f"{nodeset.metadata.name}-{padded}"
    prefix = str(nodeset.spec.template.spec.get("hostname") or "")
    hostname = _host(f"{prefix}{padded}" if prefix else name, nodeset)
    return Identity(pod=name, hostname=hostname, mode="StatefulSet", ordinal=ordinal, padded=padded, node=node)


def on_node(nodeset: NodeSet, node: Node) -> Identity:
    """Make the identity of the pod that belongs on a Kubernetes node."""
    hostname = daemon_hostname(node)
    if not _LABEL.fullmatch(hostname):
        raise Terminal(
            f"node {node.metadata.name} cannot be called {hostname[:70]!r} in Slurm",
            remedy=f"annotate it with {names.NODE_HOSTNAME_ANNOTATION}: lower-case letters, digits and dashes",
        )
    name = f"{nodeset.metadata.name}-{hostname}"[:_MAX_POD_NAME_CHARS]
    return Identity(pod=name, hostname=hostname, mode="DaemonSet", node=node.metadata.name)


def daemon_hostname(node: Node) -> str:
    """The Slurm name of a Kubernetes node: as annotated, or the first part of its own name."""
    return node.metadata.annotations.get(names.NODE_HOSTNAME_ANNOTATION) or node.metadata.name.partition(".")[0]


def ordinal_of(nodeset: str, pod: Pod) -> int | None:
    """Read the ordinal of a pod from its name; padding may have been another when it was made."""
    prefix, dash, number = pod.metadata.name.rpartition("-")
    return int(number) if dash and prefix == nodeset and number.isdecimal() and number.isascii() else None


def mode_of(pod: Pod) -> Mode:
    return "DaemonSet" if pod.metadata.labels.get(names.SCALING_MODE_LABEL) == "DaemonSet" else "StatefulSet"


def slurm_name(pod: Pod) -> str:
    """The name under which its slurmd registers."""
    labels = pod.metadata.labels
    return labels.get(names.POD_HOSTNAME_LABEL) or pod.spec.hostname or pod.metadata.name


def node_of(pod: Pod) -> str:
    """The Kubernetes node that a pod runs on or, while it waits, has to run on; empty if that is open."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    for term in affinity.required.node_selector_terms if affinity and affinity.required else ():
        for it in term.match_fields:
            if it.key == "metadata.name" and it.operator == "In" and len(it.values) == 1:
                return it.values[0]
    return ""


def _host(hostname: str, nodeset: NodeSet) -> str:
    if not _LABEL.fullmatch(hostname):
        raise Terminal(
            f"nodes of NodeSet {nodeset.metadata.name} cannot be called {hostname[:70]!r}: a host name has at most "
            "63 lower-case letters, digits and dashes",
            remedy="choose a shorter name without dots, or set template.spec.hostname to a prefix such as gpu-",
        )
    return hostname
