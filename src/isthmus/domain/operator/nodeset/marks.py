"""Annotations of Kubernetes nodes for their Slurm nodes: features and a place in Slurm's topology.

    features.slinky.slurm.net/spec: fast,ssd            features k8s/fast and k8s/ssd, beside all others
    topology.slinky.slurm.net/spec: topo-switch:s2      the place in the topology

A pod does not know its node before it is placed, so slurmd cannot be told at its start. slurmctld is told as soon
as it has the node. What is not annotated is left as it is, unless it is a feature of ours.
"""

import re
from typing import Final

from isthmus import names
from isthmus.domain.operator.nodeset.actions import ReviseRecord
from isthmus.domain.operator.nodeset.view import PodView, View
from isthmus.model.node import Node

PREFIX: Final = "k8s/"
_WORD: Final = re.compile(r"[A-Za-z0-9_.:-]+", re.ASCII)
_TOPOLOGY: Final = re.compile(r"[A-Za-z0-9_.:,-]+", re.ASCII)

Wanted = tuple[tuple[str, ...] | None, str | None]


def revisions(view: View) -> tuple[ReviseRecord, ...]:
    """Bring what Slurm knows into step: one action for all nodes that get the same."""
    if not view.slurm_in_touch:
        return ()
    alike: dict[Wanted, list[str]] = {}
    for pod in view.pods:
        wanted = _wanted(pod)
        if wanted != (None, None):
            alike.setdefault(wanted, []).append(pod.slurm_name)
    return tuple(ReviseRecord(tuple(found), *wanted) for wanted, found in alike.items())


def _wanted(pod: PodView) -> Wanted:
    if pod.slurm is None or pod.kube_node is None or pod.leaving:
        return None, None
    others = [it for it in pod.slurm.features if not it.startswith(PREFIX)]
    features = (*others, *_features(pod.kube_node))
    topology = _topology(pod.kube_node)
    return (
        features if set(features) != set(pod.slurm.features) else None,
        topology if topology and topology != pod.slurm.topology else None,
    )


def _features(node: Node) -> list[str]:
    words = node.metadata.annotations.get(names.NODE_FEATURES_ANNOTATION, "").split(",")
    return [f"{PREFIX}{word}" for word in sorted({it.strip() for it in words}) if _WORD.fullmatch(word)]


def _topology(node: Node) -> str:
    text = node.metadata.annotations.get(names.NODE_TOPOLOGY_ANNOTATION, "").strip()
    return text if _TOPOLOGY.fullmatch(text) else ""
