"""Which pods are one Slurm job.

A pod tells by itself which group it belongs to, so that a cache can file it without asking anyone:

    spec.schedulingGroup              a PodGroup of Kubernetes itself
    label of scheduler-plugins        a PodGroup of scheduling.x-k8s.io
    labels of LeaderWorkerSet         one group of the set: a leader and its workers
    label of Kueue                    a pod group, unless its pods start one by one
    labels of KubeRay                 a RayCluster, also that of a RayJob or RayService
    labels of Kubeflow                an MPIJob or a PyTorchJob
    labels of Volcano                 a Volcano Job
    annotation `gang: "true"`         its JobSet, or its Job; admission sets it for the pods of a TrainJob
    none of these                     the pod alone

Most pods are alone: those of Deployments and StatefulSets, and of Jobs that did not ask to start together. Pods of
the kinds from Kueue to Volcano that are to start one by one say `gang: "false"`.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from isthmus import names
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.model.pod import PODS, Pod
from isthmus.model.workload import (
    BUILTIN_POD_GROUPS,
    DEPLOYMENTS,
    JOBS,
    JOBSETS,
    LEADER_WORKER_SETS,
    MPI_JOBS,
    POD_GROUPS,
    PYTORCH_JOBS,
    RAY_CLUSTERS,
    REPLICA_SETS,
    STATEFUL_SETS,
    TRAIN_JOBS,
    VOLCANO_JOBS,
)

GANG_ANNOTATION: Final = f"{names.JOB_ANNOTATIONS}gang"

POD: Final = "Pod"
BUILTIN_POD_GROUP: Final = "PodGroup.scheduling.k8s.io"
POD_GROUP: Final = "PodGroup.scheduling.x-k8s.io"
LEADER_WORKER_SET: Final = "LeaderWorkerSet"
JOBSET: Final = "JobSet"
JOB: Final = "Job"
KUEUE_GROUP: Final = "PodGroup.kueue.x-k8s.io"
RAY_CLUSTER: Final = "RayCluster"
MPI_JOB: Final = "MPIJob"
PYTORCH_JOB: Final = "PyTorchJob"
VOLCANO_JOB: Final = "Job.batch.volcano.sh"

_TRAINING_OPERATORS: Final = {"mpi-operator": MPI_JOB, "pytorchjob-controller": PYTORCH_JOB}

GROUP_LABELS: Final = (
    names.POD_GROUP_LABEL,
    names.LWS_NAME_LABEL,
    names.LWS_GROUP_INDEX_LABEL,
    names.JOBSET_NAME_LABEL,
    names.JOB_NAME_LABEL,
    names.KUEUE_GROUP_LABEL,
    names.RAY_CLUSTER_LABEL,
    names.RAY_NODE_TYPE_LABEL,
    names.TRAINING_JOB_LABEL,
    names.TRAINING_OPERATOR_LABEL,
    names.VOLCANO_JOB_LABEL,
    names.VOLCANO_TASK_LABEL,
)
GROUP_ANNOTATIONS: Final = (GANG_ANNOTATION, names.KUEUE_SERVING_ANNOTATION)
"""All that `group_of` depends on. They do not change on a pod that may have been submitted: see `podadmission`."""

KINDS: Final[Mapping[str, Kind[Any]]] = {
    POD: PODS,
    BUILTIN_POD_GROUP: BUILTIN_POD_GROUPS,
    POD_GROUP: POD_GROUPS,
    LEADER_WORKER_SET: LEADER_WORKER_SETS,
    JOBSET: JOBSETS,
    JOB: JOBS,
    RAY_CLUSTER: RAY_CLUSTERS,
    MPI_JOB: MPI_JOBS,
    PYTORCH_JOB: PYTORCH_JOBS,
    VOLCANO_JOB: VOLCANO_JOBS,
}
"""The object behind each kind of group. A pod group of Kueue has none: its pods say everything themselves."""


_OTHER_KIND: Final = "other"
OWNERS: Final[tuple[Kind[Any], ...]] = (
    JOBS,
    JOBSETS,
    REPLICA_SETS,
    STATEFUL_SETS,
    LEADER_WORKER_SETS,
    RAY_CLUSTERS,
    MPI_JOBS,
    PYTORCH_JOBS,
    TRAIN_JOBS,
    VOLCANO_JOBS,
)
_KINDS_OF_OWNERS: Final = {
    (kind.group, kind.name): "VolcanoJob" if kind is VOLCANO_JOBS else kind.name for kind in OWNERS
}


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
    kind, name = _by_group(pod) or _by_framework(pod) or _by_annotation(pod) or (POD, pod.metadata.name)
    return GroupKey(kind, pod.metadata.namespace, name)


def workload_kind(pod: Pod) -> str:
    """The kind of workload that a pod belongs to, from a fixed set: any user may write any owner onto a pod."""
    group = group_of(pod)
    if not group.single:
        return "VolcanoJob" if group.kind == VOLCANO_JOB else group.kind.partition(".")[0]
    owner, labels = pod.metadata.controller, pod.metadata.labels
    if owner is None:
        return POD
    kind = _KINDS_OF_OWNERS.get((owner.api_version.rpartition("/")[0], owner.kind), _OTHER_KIND)
    if kind == REPLICA_SETS.name and names.TEMPLATE_HASH_LABEL in labels:
        return DEPLOYMENTS.name
    if kind == JOB and names.JOBSET_NAME_LABEL in labels:
        return JOBSET
    return kind


def _by_group(pod: Pod) -> tuple[str, str] | None:
    """Find the kind and name of a group of which the pod itself says that it is one."""
    labels = pod.metadata.labels
    if pod.spec.scheduling_group and pod.spec.scheduling_group.pod_group_name:
        return BUILTIN_POD_GROUP, pod.spec.scheduling_group.pod_group_name
    if name := labels.get(names.POD_GROUP_LABEL):
        return POD_GROUP, name
    if (name := labels.get(names.LWS_NAME_LABEL)) and (index := labels.get(names.LWS_GROUP_INDEX_LABEL)):
        return LEADER_WORKER_SET, f"{name}-{index}"
    return None


def _by_framework(pod: Pod) -> tuple[str, str] | None:
    """Find it in the labels of those whose pods start together unless they object."""
    labels = pod.metadata.labels
    if pod.metadata.annotations.get(GANG_ANNOTATION) == "false":
        return None
    if name := labels.get(names.KUEUE_GROUP_LABEL):
        one_by_one = pod.metadata.annotations.get(names.KUEUE_SERVING_ANNOTATION) == "true"
        return None if one_by_one else (KUEUE_GROUP, name)
    if (name := labels.get(names.RAY_CLUSTER_LABEL)) and names.RAY_NODE_TYPE_LABEL in labels:
        return RAY_CLUSTER, name
    if name := labels.get(names.TRAINING_JOB_LABEL):
        kind = _TRAINING_OPERATORS.get(labels.get(names.TRAINING_OPERATOR_LABEL, ""))
        return (kind, name) if kind else None
    if (name := labels.get(names.VOLCANO_JOB_LABEL)) and names.VOLCANO_TASK_LABEL in labels:
        return VOLCANO_JOB, name
    return None


def _by_annotation(pod: Pod) -> tuple[str, str] | None:
    """Find it in the labels of workloads whose pods start one by one unless an annotation requests a gang."""
    labels = pod.metadata.labels
    if pod.metadata.annotations.get(GANG_ANNOTATION) != "true":
        return None
    if name := labels.get(names.JOBSET_NAME_LABEL):
        return JOBSET, name
    if name := labels.get(names.JOB_NAME_LABEL):
        return JOB, name
    return None
