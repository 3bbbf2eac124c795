"""Gangs of frameworks, by pods as their controllers create them. Labels, names and owners are copied from those."""

from collections.abc import Mapping
from typing import Any

import pytest

from isthmus import names
from isthmus.domain.bridge.groups import GANG_ANNOTATION
from isthmus.kube.client import Client
from isthmus.kube.crd import install
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.model.pod import PODS
from isthmus.model.workload import JOBSETS, MPI_JOBS, PYTORCH_JOBS, RAY_CLUSTERS, VOLCANO_JOBS
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.bridge.conftest import pod, until
from tests.flows.bridge.frameworks import definition, gangs
from tests.flows.bridge.test_gangs import Gangs

__all__ = ["gangs"]

FRAMEWORKS: tuple[Kind[Any], ...] = (RAY_CLUSTERS, MPI_JOBS, PYTORCH_JOBS, VOLCANO_JOBS)
TRAINING = "training.kubeflow.org"


@pytest.fixture(autouse=True)
async def frameworks(client: Client) -> None:
    for kind in FRAMEWORKS:
        await install(client, definition(kind), manager="tests")


class Framework:
    """An object of a framework, and the pods that its controller makes."""

    def __init__(self, gangs: Gangs, kind: Kind[Any], name: str, spec: Mapping[str, Any]) -> None:
        self.gangs, self.kind, self.name, self.spec = gangs, kind, name, spec

    async def create(self, *pods: tuple[str, Mapping[str, str], Mapping[str, str]]) -> None:
        """Create the object, then pods by their name, labels and annotations."""
        await self.gangs.create(self.kind, self.name, self.spec)
        for name, labels, annotations in pods:
            await self.add(name, labels, annotations)

    async def add(self, name: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> None:
        found = await self.gangs.world.kube.get(self.kind, Key(self.gangs.namespace, self.name))
        owner = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.name,
            "name": self.name,
            "uid": found.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        body = pod(
            self.gangs.namespace,
            name,
            labels=dict(labels),
            annotations=dict(annotations or {}),
            ownerReferences=[owner],
        )
        await self.gangs.bridge.create(body)

    async def starts_as_one(self, count: int) -> list[str]:
        """Wait until all pods have nodes by one job; return their names in Slurm's order of nodes."""
        pods = await self.gangs.bound(count)
        ours = await self.gangs.one_job(*pods)
        assert ours.marker.group.kind.startswith(self.kind.name)
        assert [it.job_id for it in self.gangs.living_jobs()] == [ours.job_id]
        return [it.metadata.name for it in sorted(pods, key=lambda it: it.spec.node_name)]


def ray(cluster: str, kind: str, group: str) -> dict[str, str]:
    return {
        "ray.io/is-ray-node": "yes",
        "ray.io/cluster": cluster,
        "ray.io/node-type": kind,
        "ray.io/group": group,
        "ray.io/identifier": f"{cluster}-{kind}",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }


async def test_a_raycluster_is_one_gang_with_its_head_first(gangs: Gangs) -> None:
    spec = {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "small", "replicas": 2, "minReplicas": 0}]}
    cluster = Framework(gangs, RAY_CLUSTERS, "demo", spec)
    await cluster.create(("demo-small-worker-aaaaa", ray("demo", "worker", "small"), {}))
    first = Key(gangs.namespace, "demo-small-worker-aaaaa")
    await gangs.bridge.told(first, "WaitingForGang", containing="1 of 3 pods")
    await cluster.add("demo-small-worker-bbbbb", ray("demo", "worker", "small"))
    await cluster.add("demo-head-zzzzz", ray("demo", "head", "headgroup"))
    order = await cluster.starts_as_one(3)
    assert order == ["demo-head-zzzzz", "demo-small-worker-aaaaa", "demo-small-worker-bbbbb"]


async def test_a_raycluster_that_scales_starts_with_what_it_needs_and_grows(gangs: Gangs) -> None:
    groups = [{"groupName": "g", "replicas": 1, "minReplicas": 1, "maxReplicas": 3}]
    spec = {"enableInTreeAutoscaling": True, "headGroupSpec": {}, "workerGroupSpecs": groups}
    cluster = Framework(gangs, RAY_CLUSTERS, "demo", spec)
    await cluster.create(
        ("demo-head-aaaaa", ray("demo", "head", "headgroup"), {}),
        ("demo-g-worker-bbbbb", ray("demo", "worker", "g"), {}),
    )
    await cluster.starts_as_one(2)
    await cluster.add("demo-g-worker-ccccc", ray("demo", "worker", "g"))
    await gangs.bound(3)
    # A pod may be bound before its job has been read.
    await until(lambda: sorted(it.marker.slots for it in gangs.living_jobs()) == [1, 2])


def training(operator: str, job: str, **more: str) -> dict[str, str]:
    labels = {"operator-name": operator, "job-name": job, **{key.replace("_", "-"): it for key, it in more.items()}}
    return {f"{TRAINING}/{key}": value for key, value in labels.items()}


async def test_an_mpijob_is_one_gang_with_its_launcher_first(gangs: Gangs) -> None:
    specs = {"Launcher": {"replicas": 1, "template": {}}, "Worker": {"replicas": 2, "template": {}}}
    job = Framework(gangs, MPI_JOBS, "pi", {"slotsPerWorker": 1, "mpiReplicaSpecs": specs})
    await job.create(
        ("pi-worker-0", training("mpi-operator", "pi", job_role="worker", replica_index="0"), {}),
        ("pi-worker-1", training("mpi-operator", "pi", job_role="worker", replica_index="1"), {}),
    )
    await gangs.bridge.told(Key(gangs.namespace, "pi-worker-0"), "WaitingForGang", containing="2 of 3 pods")
    # Its pod is made by a Job of Kubernetes, which labels it as well.
    launcher = training("mpi-operator", "pi", job_role="launcher") | {names.JOB_NAME_LABEL: "pi-launcher"}
    await job.add("pi-launcher-xxxxx", launcher)
    assert await job.starts_as_one(3) == ["pi-launcher-xxxxx", "pi-worker-0", "pi-worker-1"]


async def test_a_pytorchjob_is_one_gang_with_its_master_first(gangs: Gangs) -> None:
    specs = {"Worker": {"replicas": 2, "template": {}}, "Master": {"replicas": 1, "template": {}}}
    job = Framework(gangs, PYTORCH_JOBS, "mnist", {"pytorchReplicaSpecs": specs})

    def labels(kind: str, index: int, **more: str) -> dict[str, str]:
        return training("pytorchjob-controller", "mnist", replica_type=kind, replica_index=str(index), **more)

    await job.create(
        ("mnist-worker-0", labels("worker", 0), {}),
        ("mnist-worker-1", labels("worker", 1), {}),
    )
    await gangs.bridge.told(Key(gangs.namespace, "mnist-worker-0"), "WaitingForGang", containing="2 of 3 pods")
    await job.add("mnist-master-0", labels("master", 0, job_role="master"))
    assert await job.starts_as_one(3) == ["mnist-master-0", "mnist-worker-0", "mnist-worker-1"]


async def test_a_volcano_job_starts_with_those_that_must_be_there(gangs: Gangs) -> None:
    tasks = [{"name": "ps", "replicas": 1, "template": {}}, {"name": "worker", "replicas": 2, "template": {}}]
    job = Framework(gangs, VOLCANO_JOBS, "tf", {"minAvailable": 3, "schedulerName": "x", "tasks": tasks})

    def made(task: str, index: int) -> tuple[str, dict[str, str], dict[str, str]]:
        told = {"task-spec": task, "task-index": str(index), "job-name": "tf", "queue-name": "default"}
        labels = {f"volcano.sh/{key}": value for key, value in told.items()}
        group = {"scheduling.k8s.io/group-name": "tf-5f0e", "volcano.sh/job-version": "0"}
        return f"tf-{task}-{index}", labels | {"volcano.sh/job-namespace": gangs.namespace}, labels | group

    await job.create(made("worker", 1), made("ps", 0))
    await gangs.bridge.told(Key(gangs.namespace, "tf-ps-0"), "WaitingForGang", containing="2 of 3 pods")
    await job.add(*made("worker", 0))
    assert await job.starts_as_one(3) == ["tf-ps-0", "tf-worker-0", "tf-worker-1"]


async def test_a_kueue_pod_group_waits_for_its_gates_and_starts_together(gangs: Gangs) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/managed": "true", names.KUEUE_GROUP_LABEL: "pair"}
    count = {names.KUEUE_COUNT_ANNOTATION: "2"}
    gate = [{"name": "kueue.x-k8s.io/admission"}]
    for number in range(2):
        body = pod(gangs.namespace, f"pair-{number}", labels=labels, annotations=count, schedulingGates=gate)
        await gangs.bridge.create(body)
    await until(lambda: len(gangs.pods()) == 2)
    assert not gangs.living_jobs()
    for number in range(2):
        ungated = [{"op": "remove", "path": "/spec/schedulingGates"}]
        await gangs.world.kube.json_patch(PODS, Key(gangs.namespace, f"pair-{number}"), ungated)
    await gangs.one_job(*await gangs.bound(2))


async def test_the_steps_of_a_trainjob_start_one_after_the_other(
    gangs: Gangs, workload_controllers: ControlPlaneBed
) -> None:
    """The Trainer makes such a JobSet, its real controller the pods, and admission marks them as a gang."""
    del workload_controllers

    def step(name: str, pods: int, *after: str) -> dict[str, Any]:
        made = pod("", "", restartPolicy="Never", annotations={GANG_ANNOTATION: "true"})
        del made["metadata"]["namespace"], made["metadata"]["name"]
        spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": made}
        depends = {"dependsOn": [{"name": other, "status": "Complete"} for other in after]} if after else {}
        return {"name": name, "template": {"spec": spec}, **depends}

    steps = [step("dataset-initializer", 1), step("node", 2, "dataset-initializer")]
    await gangs.create(JOBSETS, "llm", {"replicatedJobs": steps, "network": {"enableDNSHostnames": False}})
    try:
        (first,) = await gangs.bound(1)
        await gangs.one_job(first)
        done = {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]}
        await gangs.world.kube.merge_patch(PODS, first.metadata.key, {"status": done}, subresource="status")
        await gangs.one_job(*await gangs.bound(2))
    finally:
        await gangs.world.kube.delete_all(JOBSETS, namespace=gangs.namespace, propagation="Foreground")
