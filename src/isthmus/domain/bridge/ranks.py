"""The order of pods within their group: the first pod goes to the first node of the Slurm job, and so on.

Slurm lists the nodes of a job in the order of its topology, so neighbours in rank become neighbours on the network.
The order depends on the pods alone: whoever computes it, and however often, gets the same.
"""

from typing import TypeAlias

from isthmus import names
from isthmus.domain.kube.selectors import integer
from isthmus.domain.languages.hostlist import natural_key
from isthmus.model.pod import Pod

Rank: TypeAlias = tuple[int, str, int, tuple[str, int, int]]
"""Compare to order; the parts have no meaning across kinds of groups."""


def rank(pod: Pod) -> Rank:
    """Tell a pod's place in its group."""
    labels = pod.metadata.labels

    def index(label: str) -> int:
        return integer(labels.get(label)) or 0

    name = natural_key(pod.metadata.name)
    if names.LWS_WORKER_INDEX_LABEL in labels:
        return (index(names.LWS_WORKER_INDEX_LABEL), "", 0, name)
    if names.JOBSET_NAME_LABEL in labels:
        return (index(names.JOBSET_JOB_INDEX_LABEL), "", index(names.JOB_INDEX_LABEL), name)
    if names.JOB_INDEX_LABEL in labels:
        return (0, labels.get(names.JOB_NAME_LABEL, ""), index(names.JOB_INDEX_LABEL), name)
    if names.STATEFUL_INDEX_LABEL in labels:
        owner = pod.metadata.controller
        return (0, owner.name if owner else "", index(names.STATEFUL_INDEX_LABEL), name)
    return (0, "", 0, name)
