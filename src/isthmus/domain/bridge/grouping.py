"""Which pods are one Slurm job.

A pod tells by itself which group it belongs to, so that a cache can file it without asking anyone:

    spec.schedulingGroup              a PodGroup of Kubernetes itself
    label of scheduler-plugins        a PodGroup of scheduling.x-k8s.io
    labels of LeaderWorkerSet         one group of the set: a leader and its workers
    annotation `gang: "true"`         its JobSet, or its Job
    none of these                     the pod alone

Most pods are alone: those of Deployments and StatefulSets, and of Jobs that did not ask to start together.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from isthmus import names
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.model.pod import PODS, Pod
from isthmus.model.workload import BUILTIN_POD_GROUPS, JOBS, JOBSETS, LEADER_WORKER_SETS, POD_GROUPS

GANG_ANNOTATION: Final = f"{names.JOB_ANNOTATIONS}gang"

POD: Final = "Pod"
BUILTIN_POD_GROUP: Final = "PodGroup.scheduling.k8s.io"
POD_GROUP: Final = "PodGroup.scheduling.x-k8s.io"
LEADER_WORKER_SET: Final = "LeaderWorkerSet"
JOBSET: Final = "JobSet"
JOB: Final = "Job"

GROUP_LABELS: Final = (
    names.POD_GROUP_LABEL,
    names.LWS_NAME_LABEL,
    names.LWS_GROUP_INDEX_LABEL,
    names.JOBSET_NAME_LABEL,
    names.JOB_NAME_LABEL,
)
GROUP_ANNOTATIONS: Final = (GANG_ANNOTATION,)
"""All that `group_of` goes by. On a pod that may have been submitted these do not change: see `podadmission`."""

KINDS: Final[Mapping[str, Kind[Any]]] = {
    POD: PODS,
    BUILTIN_POD_GROUP: BUILTIN_POD_GROUPS,
    POD_GROUP: POD_GROUPS,
    LEADER_WORKER_SET: LEADER_WORKER_SETS,
    JOBSET: JOBSETS,
    JOB: JOBS,
}
"""The object behind each kind of group."""


class GroupKey(NamedTuple):
    """A group of pods that is one Slurm job. `name` is its object's; LeaderWorkerSets add the group's index."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def single(self) -> bool:
        """Whether it is one pod by itself."""
        return self.kind == POD

    @property
    def object(self) -> Key:
        """The key of the object behind the group."""
        name = self.name.rpartition("-")[0] if self.kind == LEADER_WORKER_SET else self.name
        return Key(self.namespace, name)


def group_of(pod: Pod) -> GroupKey:
    """Tell the group of a pod."""
    meta = pod.metadata
    labels = meta.labels
    if pod.spec.scheduling_group and pod.spec.scheduling_group.pod_group_name:
        return GroupKey(BUILTIN_POD_GROUP, meta.namespace, pod.spec.scheduling_group.pod_group_name)
    if name := labels.get(names.POD_GROUP_LABEL):
        return GroupKey(POD_GROUP, meta.namespace, name)
    if (name := labels.get(names.LWS_NAME_LABEL)) and (index := labels.get(names.LWS_GROUP_INDEX_LABEL)):
        return GroupKey(LEADER_WORKER_SET, meta.namespace, f"{name}-{index}")
    if meta.annotations.get(GANG_ANNOTATION) == "true":
        if name := labels.get(names.JOBSET_NAME_LABEL):
            return GroupKey(JOBSET, meta.namespace, name)
        if name := labels.get(names.JOB_NAME_LABEL):
            return GroupKey(JOB, meta.namespace, name)
    return GroupKey(POD, meta.namespace, meta.name)
