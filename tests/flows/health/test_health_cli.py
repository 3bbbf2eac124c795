"""`isthmus health` on a real API server: what it shows, runs, pauses and returns. Nothing else runs there."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from typer.testing import CliRunner

from isthmus import names
from isthmus.cli.main import app
from isthmus.domain.health.activechecks.manifests import MANAGED_BY
from isthmus.domain.health.manualruns import manual_job
from isthmus.errors import IsthmusError
from isthmus.inspect.healthcontrol import REASON_COMMAND, reason_of, same_reason
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.base import Kind
from isthmus.model.health import HEALTH_POLICIES, NODE_HEALTHS
from isthmus.model.meta import Key
from isthmus.model.pod import PODS
from isthmus.model.slinky import CONTROLLERS
from isthmus.model.workload import OWN_JOBS, OwnJob
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.operator.nodesets_bed import CONTROLLER, make_controller

Run = Callable[..., tuple[int, str]]

CRONJOBS: Kind[dict[str, Any]] = Kind(dict[str, Any], "batch/v1", "cronjobs", "CronJob")
JOBS: Kind[dict[str, Any]] = Kind(dict[str, Any], "batch/v1", "jobs", "Job")
NOW = datetime.now(UTC).replace(microsecond=0)
REASON = "[node_problem] gpu-checks: job 12 [slurm_job]"


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
def isthmus(control_plane: ControlPlaneBed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*words: str, said: str = "") -> tuple[int, str]:
        # In a thread: the command has a loop of its own, and the test's is running.
        done: list[Any] = []
        given = [*words, f"--kubeconfig={control_plane.kubeconfig}"]
        thread = threading.Thread(target=lambda: done.append(CliRunner().invoke(app, given, input=said)))
        thread.start()
        thread.join()
        (result,) = done
        if result.exception and not isinstance(result.exception, SystemExit | IsthmusError):
            raise result.exception
        told = result.exception if isinstance(result.exception, IsthmusError) else ""
        return result.exit_code, click.unstyle(f"{result.output}{told}")

    return run


@pytest.fixture
async def cluster(kube: Client, namespace: str) -> AsyncIterator[str]:
    """A namespace with a Controller, and a record of a sick node and of one that is well again."""
    await make_controller(kube, namespace)
    sick = {
        "phase": "OutOfService",
        "since": stamp(NOW - timedelta(minutes=30)),
        "message": "no rung is left",
        "reason": REASON,
        "machine": "k8s-7",
        "findings": [
            {
                "source": "check",
                "check": "gpu-checks",
                "evidence": "GPU 3 has fallen off the bus",
                "firstSeen": stamp(NOW - timedelta(hours=1)),
                "lastSeen": stamp(NOW - timedelta(hours=1)),
                "proof": "slurmTest",
            }
        ],
        "steps": [{"rung": "restartPod", "started": stamp(NOW - timedelta(minutes=50)), "outcome": "not yet"}],
    }
    await record(kube, namespace, "worker-1", sick)
    await record(kube, namespace, "worker-2", {"phase": "Recovered", "since": stamp(NOW)})
    yield namespace
    await kube.delete_all(NODE_HEALTHS, namespace=namespace)


async def record(kube: Client, namespace: str, node: str, status: dict[str, Any]) -> None:
    name = f"{CONTROLLER}.{node}"
    metadata = {"name": name, "namespace": namespace}
    await kube.create(NODE_HEALTHS, {"metadata": metadata, "spec": {"cluster": CONTROLLER, "node": node}})
    await kube.merge_patch(NODE_HEALTHS, Key(namespace, name), {"status": status}, subresource="status")


async def test_nodes_are_shown_to_people_and_to_programs(isthmus: Run, cluster: str) -> None:
    code, said = isthmus("health", "-n", cluster)
    assert code == 0, said
    lines = said.splitlines()
    assert lines[0].split() == ["NODE", "CLUSTER", "PHASE", "SINCE", "FINDINGS", "NEXT", "STEP"]
    assert lines[1].startswith("worker-1"), "the gravest first"
    assert "isthmus health release worker-1" in lines[1]
    assert f"{cluster}/{CONTROLLER}: 1 held, limit 20% of each NodeSet, policy built-in" in said

    code, said = isthmus("health", "-A", "-o", "wide")
    assert "no rung is left" in said
    _, said = isthmus("health", "-n", cluster, "-o", "name")
    assert said.split() == [f"nodehealth.isthmus.dev/{CONTROLLER}.worker-{number}" for number in (1, 2)]
    found = json.loads(isthmus("health", "-n", cluster, "-o", "json")[1])
    assert found["nodes"][0]["health"]["status"]["phase"] == "OutOfService"
    assert yaml.safe_load(isthmus("health", "-n", cluster, "-o", "yaml")[1])["clusters"][0]["held"] == 1


async def test_one_node_is_shown_with_all_that_is_known(isthmus: Run, cluster: str) -> None:
    code, said = isthmus("health", "worker-1", "-n", cluster)
    assert code == 0, said
    for part in ("GPU 3 has fallen off the bus", "restartPod", "gpu-checks passes on this node", REASON):
        assert part in said
    code, said = isthmus("health", "worker-9", "-n", cluster)
    assert code == 1
    assert "nothing was found on a node 'worker-9'" in said


async def test_repair_is_paused_and_resumed(isthmus: Run, kube: Client, cluster: str) -> None:
    _, said = isthmus("health", "resume", "-n", cluster)
    assert "there is no HealthPolicy" in said
    with pytest.raises(NotFound):
        await kube.get(HEALTH_POLICIES, Key(cluster, "default"))

    _, said = isthmus("health", "pause", "-n", cluster)
    assert f"HealthPolicy {cluster}/default created, paused." in said
    assert (await kube.get(HEALTH_POLICIES, Key(cluster, "default"))).spec.paused
    assert "PAUSED" in isthmus("health", "-n", cluster)[1]

    _, said = isthmus("health", "resume", "-n", cluster)
    assert f"HealthPolicy {cluster}/default resumed." in said
    assert not (await kube.get(HEALTH_POLICIES, Key(cluster, "default"))).spec.paused

    metadata = {"name": "own", "namespace": cluster}
    limits = {"maxUnavailable": 1}
    await kube.create(
        HEALTH_POLICIES,
        {"metadata": metadata, "spec": {"slurmClusterRefName": CONTROLLER, "limits": limits}},
    )
    isthmus("health", "pause", "-n", cluster)
    own = await kube.get(HEALTH_POLICIES, Key(cluster, "own"))
    assert own.spec.paused, "the policy that governs the cluster, and no other"
    assert own.spec.limits.max_unavailable == 1
    assert not (await kube.get(HEALTH_POLICIES, Key(cluster, "default"))).spec.paused


async def make_check(kube: Client, namespace: str, *, in_slurm: bool = True) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "check", "image": "none"}]}
    template = {
        "metadata": {"labels": {"isthmus.dev/check": "gpu-checks"}},
        "spec": {**({"managedBy": MANAGED_BY} if in_slurm else {}), "template": {"spec": pod}},
    }
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": template}
    await kube.create(CRONJOBS, {"metadata": {"name": "gpu-checks", "namespace": namespace}, "spec": spec})


async def jobs(kube: Client, namespace: str) -> list[OwnJob]:
    found = await kube.list(OWN_JOBS, namespace=namespace)
    return [it for it in found.items if it.metadata.name.startswith("gpu-checks-manual-")]


async def end(kube: Client, job: Key, status: dict[str, Any]) -> None:
    """Play the controller of checks: say how a Job has ended."""
    await kube.merge_patch(OWN_JOBS, job, {"status": {"startTime": stamp(NOW), **status}}, subresource="status")


def failed(reason: str, message: str) -> dict[str, Any]:
    condition = {"status": "True", "reason": reason, "message": message, "lastTransitionTime": stamp(NOW)}
    return {"conditions": [{"type": "FailureTarget", **condition}, {"type": "Failed", **condition}]}


def passed() -> dict[str, Any]:
    condition = {"status": "True", "lastTransitionTime": stamp(NOW)}
    conditions = [{"type": "SuccessCriteriaMet", **condition}, {"type": "Complete", **condition}]
    return {"conditions": conditions, "completionTime": stamp(NOW)}


@pytest.mark.parametrize(
    "case",
    [
        (passed(), 0, "✓ gpu-checks passed"),
        (failed("CheckFailed", "GPU 3 is gone"), 1, "✗ gpu-checks failed: GPU 3 is gone"),
        (failed("CheckError", "no nvidia-smi"), 2, "! gpu-checks error: no nvidia-smi"),
    ],
    ids=["passed", "failed", "error"],
)
async def test_a_check_is_run_on_one_node_and_followed(
    isthmus: Run, kube: Client, namespace: str, case: tuple[dict[str, Any], int, str]
) -> None:
    ended, code, said = case
    await make_check(kube, namespace)
    done: list[tuple[int, str]] = []
    words = ("health", "run", "gpu-checks", "--node", "worker-1", "--wait", "-n", namespace)
    thread = threading.Thread(target=lambda: done.append(isthmus(*words)))
    thread.start()
    try:
        async with asyncio.timeout(120):
            while not (found := await jobs(kube, namespace)):  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.05)
        (job,) = found
        assert job.metadata.annotations["isthmus.dev/check-node"] == "worker-1"
        assert job.metadata.labels["isthmus.dev/check"] == "gpu-checks"
        controller = job.metadata.controller
        assert controller is not None
        assert controller.name == "gpu-checks"
        await end(kube, job.metadata.key, ended)
    finally:
        thread.join()
    assert done[0][0] == code, done
    assert said in done[0][1]


async def test_a_check_is_started_without_waiting_and_one_that_is_not_there_is_an_error(
    isthmus: Run, kube: Client, namespace: str
) -> None:
    await make_check(kube, namespace)
    code, said = isthmus("health", "run", "gpu-checks", "-n", namespace)
    assert code == 0
    assert "Started gpu-checks: Job" in said
    (job,) = await jobs(kube, namespace)
    assert "isthmus.dev/check-node" not in job.metadata.annotations
    code, said = isthmus("health", "run", "no-such-check", "-n", namespace)
    assert code == 2
    assert "there is no check 'no-such-check'" in said


async def test_the_pod_of_a_check_is_sent_to_the_machine_of_the_node(
    isthmus: Run, kube: Client, namespace: str
) -> None:
    await make_check(kube, namespace, in_slurm=False)
    code, said = isthmus("health", "run", "gpu-checks", "--node", "worker-1", "-n", namespace)
    assert code == 2
    assert "no worker pod of node 'worker-1' runs in the namespace" in said
    assert await jobs(kube, namespace) == []
    labels = {names.COMPONENT_LABEL: "worker", names.POD_HOSTNAME_LABEL: "worker-1"}
    spec = {"nodeName": "m7", "containers": [{"name": "slurmd", "image": "none"}]}
    await kube.create(PODS, {"metadata": {"name": "w", "namespace": namespace, "labels": labels}, "spec": spec})
    code, said = isthmus("health", "run", "gpu-checks", "--node", "worker-1", "-n", namespace)
    assert code == 0, said
    (job,) = await jobs(kube, namespace)
    made = await kube.get(JOBS, job.metadata.key)
    required = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    assert "'values': ['m7']" in str(required)


async def test_it_is_said_that_a_job_does_not_start_on_a_drained_node(
    isthmus: Run, kube: Client, cluster: str
) -> None:
    await make_check(kube, cluster)
    for node, drained in (("worker-1", True), ("worker-2", False)):
        code, said = isthmus("health", "run", "gpu-checks", "--node", node, "-n", cluster)
        assert code == 0
        assert (f"{node} is drained: {REASON}" in said) == drained


async def test_kubernetes_takes_the_job_as_kubectl_would_make_it(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    await make_check(kube, namespace)
    control_plane.kubectl("create", "job", "by-kubectl", "--from=cronjob/gpu-checks", "-n", namespace)
    cronjob = await kube.get(CRONJOBS, Key(namespace, "gpu-checks"))
    ours = await kube.create(OWN_JOBS, manual_job(cronjob, suffix="manual-1"))
    theirs = await kube.get(OWN_JOBS, Key(namespace, "by-kubectl"))
    assert ours.metadata.owner_references == theirs.metadata.owner_references
    assert ours.metadata.annotations == theirs.metadata.annotations


async def test_a_node_is_released_only_after_a_yes_and_only_if_it_is_ours(
    isthmus: Run, kube: Client, cluster: str
) -> None:
    code, said = isthmus("health", "release", "worker-1", "-n", cluster, said="n\n")
    assert code == 0
    assert "Nothing was changed." in said
    code, said = isthmus("health", "release", "worker-1", "-n", cluster, "--yes")
    assert code == 1
    assert "no login or controller pod" in said, "Slurm is asked before anything is done"
    code, said = isthmus("health", "release", "worker-2", "-n", cluster, "--yes")
    assert code == 1
    assert "node health does not hold worker-2" in said
    assert (await kube.get(CONTROLLERS, Key(cluster, CONTROLLER))).metadata.name == CONTROLLER


def test_a_reason_is_read_back_as_slurm_prints_it(nodes: SlurmBed) -> None:
    long = f"{REASON} {'and more ' * 30}".strip()
    asked = REASON_COMMAND.format(node="n1").split()
    assert reason_of(nodes.command(*asked)) == ""
    for reason in (REASON, long):
        nodes.scontrol("update", "nodename=n1", "state=drain", f"reason={reason}")
        assert same_reason(reason_of(nodes.command(*asked)), reason)


async def test_the_doctor_names_nodes_that_wait_for_a_human(isthmus: Run, cluster: str) -> None:
    code, said = isthmus("doctor", "-n", cluster)
    assert code == 1, "there is no operator"
    assert "1 node is out of service: worker-1" in said
    assert f"isthmus health release worker-1 -n {cluster}" in said
