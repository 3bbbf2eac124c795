"""Which pods are one job, by what their controllers write onto them; and admission guards all of that."""

from collections import UserDict

import pytest

from isthmus.domain.bridge.groups import (
    GANG_ANNOTATION,
    GROUP_ANNOTATIONS,
    GROUP_LABELS,
    GroupKey,
    group_of,
    workload_kind,
)
from isthmus.model.meta import ObjectMeta, OwnerReference
from isthmus.model.pod import Pod, PodSpec, SchedulingGroup

RAY = {"ray.io/cluster": "it", "ray.io/node-type": "worker", "ray.io/group": "gpus", "ray.io/is-ray-node": "yes"}
MPI = {"training.kubeflow.org/job-name": "it", "training.kubeflow.org/operator-name": "mpi-operator"}
TORCH = {"training.kubeflow.org/job-name": "it", "training.kubeflow.org/operator-name": "pytorchjob-controller"}
VOLCANO = {"volcano.sh/job-name": "it", "volcano.sh/task-spec": "worker", "volcano.sh/task-index": "0"}
KUEUE = {"kueue.x-k8s.io/pod-group-name": "it"}
FRAMEWORKS = [
    (RAY, "RayCluster"),
    (MPI, "MPIJob"),
    (TORCH, "PyTorchJob"),
    (VOLCANO, "Job.batch.volcano.sh"),
    (KUEUE, "PodGroup.kueue.x-k8s.io"),
]


def pod(labels: dict[str, str], spec: PodSpec | None = None, **annotations: str) -> Pod:
    spelled = {GANG_ANNOTATION if key == "gang" else key: value for key, value in annotations.items()}
    return Pod(ObjectMeta("p", "ns", labels=labels, annotations=spelled), spec or PodSpec())


@pytest.mark.parametrize(("labels", "kind"), FRAMEWORKS, ids=[kind for _, kind in FRAMEWORKS])
def test_pods_of_a_framework_start_together(labels: dict[str, str], kind: str) -> None:
    assert group_of(pod(labels)) == GroupKey(kind, "ns", "it")


@pytest.mark.parametrize(("labels", "kind"), FRAMEWORKS, ids=[kind for _, kind in FRAMEWORKS])
def test_pods_of_a_framework_may_start_one_by_one(labels: dict[str, str], kind: str) -> None:
    del kind
    assert group_of(pod(labels, gang="false")).single


@pytest.mark.parametrize(
    "labels",
    [
        {"ray.io/cluster": "it"},
        {"training.kubeflow.org/job-name": "it", "training.kubeflow.org/operator-name": "tfjob-controller"},
        {"volcano.sh/job-name": "it"},
    ],
)
def test_what_is_not_known_is_alone(labels: dict[str, str]) -> None:
    """The Job that submits a RayJob names its cluster, too, but is no node of it."""
    assert group_of(pod(labels)).single


def test_a_kueue_group_that_serves_starts_one_by_one() -> None:
    serving = {"kueue.x-k8s.io/pod-group-serving": "true"}
    assert group_of(Pod(ObjectMeta("p", "ns", labels=KUEUE, annotations=serving))).single


def test_a_podgroup_has_the_first_word() -> None:
    assert group_of(pod(RAY | {"scheduling.x-k8s.io/pod-group": "mine"})).name == "mine"
    assert group_of(pod(MPI, PodSpec(scheduling_group=SchedulingGroup("ours")))).name == "ours"


def test_jobs_and_jobsets_start_together_if_they_ask_for_it() -> None:
    labels = {"batch.kubernetes.io/job-name": "job"}
    assert group_of(pod(labels)).single
    assert group_of(pod(labels, gang="true")) == GroupKey("Job", "ns", "job")
    jobset = labels | {"jobset.sigs.k8s.io/jobset-name": "set"}
    assert group_of(pod(jobset, gang="true")) == GroupKey("JobSet", "ns", "set")


class Watched(UserDict[str, str]):
    """Labels or annotations that remember which of them somebody asked for."""

    def __init__(self, there: dict[str, str]) -> None:
        super().__init__(there)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)


def read_by_group_of(labels: dict[str, str], annotations: dict[str, str]) -> tuple[set[str], set[str]]:
    watched = Watched(labels), Watched(annotations)
    group_of(Pod(ObjectMeta(name="p", namespace="ns", labels=watched[0], annotations=watched[1])))
    return watched[0].read, watched[1].read


@pytest.mark.parametrize("gang", [{}, dict.fromkeys(GROUP_ANNOTATIONS, "true")])
@pytest.mark.parametrize("present", [(), *((key,) for key in GROUP_LABELS), GROUP_LABELS[1:3]])
def test_all_that_decides_about_a_group_is_guarded(present: tuple[str, ...], gang: dict[str, str]) -> None:
    labels, annotations = read_by_group_of(dict.fromkeys(present, "0"), gang)
    assert labels <= set(GROUP_LABELS)
    assert annotations <= set(GROUP_ANNOTATIONS)
    assert labels


@pytest.mark.parametrize(
    ("version", "kind", "labels", "named"),
    [
        ("batch/v1", "Job", {}, "Job"),
        ("batch/v1", "Job", {"jobset.sigs.k8s.io/jobset-name": "it"}, "JobSet"),
        ("batch.volcano.sh/v1alpha1", "Job", {}, "VolcanoJob"),
        ("apps/v1", "ReplicaSet", {}, "ReplicaSet"),
        ("apps/v1", "ReplicaSet", {"pod-template-hash": "5d"}, "Deployment"),
        ("apps/v1", "StatefulSet", {}, "StatefulSet"),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {}, "LeaderWorkerSet"),
        ("made.up/v1", "Job", {}, "other"),
        ("made.up/v1", "x" * 10_000, {}, "other"),
    ],
)
def test_a_pod_counts_under_the_kind_of_its_workload(
    version: str, kind: str, labels: dict[str, str], named: str
) -> None:
    owner = OwnerReference(version, kind, "it", "u", controller=True)
    assert workload_kind(Pod(ObjectMeta("p", "ns", labels=labels, owner_references=(owner,)))) == named


def test_a_pod_of_a_gang_counts_under_the_kind_of_the_gang_and_one_of_nobody_under_its_own() -> None:
    assert workload_kind(pod({})) == "Pod"
    for labels, kind in ((RAY, "RayCluster"), (KUEUE, "PodGroup"), (VOLCANO, "VolcanoJob")):
        assert workload_kind(pod(labels)) == kind
