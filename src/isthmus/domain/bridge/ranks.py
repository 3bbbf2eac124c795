"""The order of pods within their group: the first pod goes to the first node of the Slurm job, and so on.

Slurm lists the nodes of a job in the order of its topology, so neighbours in rank become neighbours on the network.
The order depends on the pods alone, so every computation gives the same.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from isthmus import names
from isthmus.domain.kube.selectors import integer
from isthmus.domain.languages.hostlist import natural_key
from isthmus.model.pod import Pod

Rank: TypeAlias = tuple[int, str, int, tuple[str, int, int]]
"""Compare to order; the parts have no meaning across kinds of groups."""


def rank(pod: Pod) -> Rank:
    """A pod's place in its group."""
    labels = pod.metadata.labels

    def index(label: str) -> int:
        return integer(labels.get(label)) or 0

    place: tuple[int, str, int] = (0, "", 0)
    if found := _by_framework(labels, index):
        place = found
    elif names.LWS_WORKER_INDEX_LABEL in labels:
        place = index(names.LWS_WORKER_INDEX_LABEL), "", 0
    elif names.JOBSET_NAME_LABEL in labels:
        place = index(names.JOBSET_JOB_INDEX_LABEL), "", index(names.JOB_INDEX_LABEL)
    elif names.JOB_INDEX_LABEL in labels:
        place = 0, labels.get(names.JOB_NAME_LABEL, ""), index(names.JOB_INDEX_LABEL)
    elif names.STATEFUL_INDEX_LABEL in labels:
        owner = pod.metadata.controller
        place = 0, owner.name if owner else "", index(names.STATEFUL_INDEX_LABEL)
    return (*place, natural_key(pod.metadata.name))


def _by_framework(labels: Mapping[str, str], index: Callable[[str], int]) -> tuple[int, str, int] | None:
    """The place that a framework gives a pod: a leader comes first."""
    if names.RAY_NODE_TYPE_LABEL in labels:
        worker = labels[names.RAY_NODE_TYPE_LABEL] != "head"
        return int(worker), labels.get(names.RAY_GROUP_LABEL, ""), 0
    if names.TRAINING_JOB_LABEL in labels:
        worker = labels.get(names.TRAINING_ROLE_LABEL) not in {"launcher", "master"}
        return int(worker), labels.get(names.TRAINING_TYPE_LABEL, ""), index(names.TRAINING_INDEX_LABEL)
    if names.VOLCANO_JOB_LABEL in labels:
        return 0, labels.get(names.VOLCANO_TASK_LABEL, ""), index(names.VOLCANO_INDEX_LABEL)
    return None
