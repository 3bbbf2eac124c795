"""`isthmus cluster` and `isthmus doctor` on a real API server without an operator: what they make, find and say."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
import pytest
from typer.testing import CliRunner

from isthmus.cli.main import app
from isthmus.errors import IsthmusError
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.model.lease import LEASES
from isthmus.model.meta import Key
from isthmus.processes.operator import LEASE_LABELS
from isthmus.runtime.election import Election
from isthmus.runtime.metrics import Metrics
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.operator.conftest import serve_kinds
from tests.flows.runtime.test_election import LONG, NoFuse

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def plane(control_plane: ControlPlaneBed) -> ControlPlaneBed:
    serve_kinds(control_plane)
    return control_plane


@pytest.fixture
def name(plane: ControlPlaneBed) -> Iterator[str]:
    """A name for a cluster and its namespace, which goes at the end."""
    chosen = f"cli-{uuid4().hex[:6]}"
    yield chosen
    plane.kubectl("delete", "namespace", chosen, "--ignore-not-found", "--wait=false")


@pytest.fixture
def isthmus(plane: ControlPlaneBed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*words, f"--kubeconfig={plane.kubeconfig}"])
        if done.exception and not isinstance(done.exception, SystemExit | IsthmusError | click.exceptions.Exit):
            raise done.exception
        said = f"{done.output}{done.exception if isinstance(done.exception, IsthmusError) else ''}"
        return done.exit_code, click.unstyle(said)

    return run


def make(isthmus: Run, name: str, *words: str) -> None:
    code, said = isthmus("cluster", "create", name, "--no-wait", *words)
    assert code == 0, said


def cluster(plane: ControlPlaneBed, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plane.kubectl("get", "slurmcluster", name, "-n", name, "-o", "json"))
    return found


def test_a_cluster_is_made_in_a_namespace_of_its_name(isthmus: Run, plane: ControlPlaneBed, name: str) -> None:
    make(isthmus, name, "--workers=3", "--slurm-version=24.11", "--no-accounting", "--cpus=2", "--memory=1Gi")
    spec = cluster(plane, name)["spec"]
    nodes = spec["slurmNodes"]
    assert nodes["worker"]["size"] == 3
    assert nodes["worker"]["resources"] == {"cpu": "2", "memory": "1Gi"}
    assert nodes["worker"]["slurmd"]["image"] == "isthmus.local/login:24.11"
    assert spec["users"][0]["name"] == "soperator"
    assert spec["users"][0]["sshPublicKeys"][0].startswith("ssh-ed25519 ")
    code, said = isthmus("cluster", "list")
    assert code == 0
    assert [line.split()[:3] for line in said.splitlines() if name in line] == [[name, name, "Pending"]]


def test_a_second_cluster_of_the_name_is_refused(isthmus: Run, name: str) -> None:
    make(isthmus, name)
    code, said = isthmus("cluster", "create", name, "--no-wait")
    assert code == 1
    assert "already" in said
    assert "kubectl edit" in said


@pytest.mark.parametrize("words", [("--user=root;reboot",), ("--memory=lots",)])
def test_wrong_wishes_are_refused_by_the_api_server(isthmus: Run, name: str, words: tuple[str, ...]) -> None:
    code, said = isthmus("cluster", "create", name, "--no-wait", *words)
    assert code == 1
    assert "spec." in said


def test_the_status_of_a_cluster_that_nobody_carries_out(isthmus: Run, name: str) -> None:
    make(isthmus, name)
    code, said = isthmus("cluster", "status", name)
    assert code == 1
    assert f"Cluster {name}/{name}: Not available" in said
    assert "Slurm does not answer yet" in said
    assert "isthmus doctor" in said or "kubectl wait" in said


def test_a_plan_says_what_follows_and_changes_nothing(
    isthmus: Run, plane: ControlPlaneBed, name: str, tmp_path: Path
) -> None:
    make(isthmus, name)
    before = cluster(plane, name)
    file = tmp_path / "change.yaml"

    def planned(**nodes: Any) -> tuple[int, str]:
        meta = {"name": name, "namespace": name}
        manifest = {"apiVersion": "slurm.nebius.ai/v1", "kind": "SlurmCluster", "metadata": meta}
        file.write_text(json.dumps({**manifest, "spec": {"slurmNodes": nodes}}))
        return isthmus("plan", "-f", str(file))

    code, said = planned(worker={"size": 5})
    assert code == 0, said
    assert "spec.slurmNodes.worker.size: " in said
    assert "→ 5" in said
    assert "+ workers worker: " in said
    assert "not known: which jobs run on cluster" in said, "there is no Slurm yet"
    code, said = planned(worker={"size": -1})
    assert code == 1
    assert "Kubernetes refuses it:" in said
    assert cluster(plane, name)["metadata"]["generation"] == before["metadata"]["generation"]
    file.write_text("kind: Pod\n")
    code, said = isthmus("plan", "-f", str(file))
    assert (code, "has no object of Isthmus" in said) == (1, True)


def test_the_doctor_sees_that_there_is_no_operator(isthmus: Run, name: str) -> None:
    make(isthmus, name)
    code, said = isthmus("doctor", name)
    assert code == 1
    assert "the operator does not run" in said
    code, said = isthmus("doctor", name, "--json")
    assert {finding["area"] for finding in json.loads(said)["findings"]} >= {"operator"}


def test_the_doctor_finds_an_operator_whatever_it_is_called(
    isthmus: Run, plane: ControlPlaneBed, name: str
) -> None:
    make(isthmus, name)
    said: list[str] = []

    async def lead() -> None:
        async with Client(load(plane.kubeconfig)) as client:
            lease = Key("default", f"slurm-of-{name}")
            fuse = NoFuse(LONG.duration)
            election = Election(client, lease, metrics=Metrics(), fuse=fuse, terms=LONG, labels=LEASE_LABELS)

            async def work() -> None:
                said.append((await asyncio.to_thread(isthmus, "doctor", name))[1])

            await election.run(work)
            await client.delete(LEASES, lease)

    asyncio.run(lead())
    assert name in said[0]
    assert "the operator does not run" not in said[0]


def test_the_doctor_compares_the_kinds_with_its_own(isthmus: Run, plane: ControlPlaneBed) -> None:
    crd = "tokens.slinky.slurm.net"
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/refresh"
    plane.kubectl("patch", "crd", crd, "--type=json", f'-p=[{{"op":"remove","path":"{path}"}}]')
    try:
        code, said = isthmus("doctor")
    finally:
        serve_kinds(plane)  # others need it
    assert code == 1
    assert f"{crd} is older than this program: it lacks spec.refresh" in said


def test_a_cluster_is_removed_and_its_files_are_kept(isthmus: Run, plane: ControlPlaneBed, name: str) -> None:
    make(isthmus, name)
    labels = f"app.kubernetes.io/instance={name}"
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "jail", "labels": {"app.kubernetes.io/instance": name}},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    plane.kubectl("apply", "-n", name, "-f", "-", stdin=json.dumps(claim))
    code, said = isthmus("cluster", "delete", name, "--yes")
    assert code == 0, said
    assert "Kept: volume claims jail" in said
    assert plane.kubectl("get", "pvc", "-n", name, "-l", labels, "-o", "name").strip()
    marks = f"{labels},app.kubernetes.io/managed-by=isthmus"
    plane.kubectl("create", "secret", "generic", f"{name}-mariadb", "-n", name)
    plane.kubectl("label", "secret", f"{name}-mariadb", "-n", name, *marks.split(","))
    make(isthmus, name)
    code, said = isthmus("cluster", "delete", name, "--data", "--yes")
    assert code == 0, said
    assert "Its data is deleted" in said
    assert not plane.kubectl("get", "secret", "-n", name, "-l", labels, "-o", "name").strip()


def test_a_cluster_is_not_removed_unless_somebody_says_yes(isthmus: Run, plane: ControlPlaneBed, name: str) -> None:
    make(isthmus, name)
    code, said = isthmus("cluster", "delete", name)
    assert code == 1, "nobody answers"
    assert f"Cluster {name}/{name}" in said
    assert "Delete it?" in said
    assert "deletionTimestamp" not in cluster(plane, name)["metadata"]


def test_removing_waits_for_what_belongs_to_the_cluster_and_for_nothing_else(
    isthmus: Run, plane: ControlPlaneBed, name: str
) -> None:
    make(isthmus, name)
    owner = [owned_by("slurm.nebius.ai/v1", "SlurmCluster", name, cluster(plane, name)["metadata"]["uid"])]
    mine, other = (controller_of(plane, name, part, owners) for part, owners in (("mine", owner), ("other", [])))
    for part, uid in (("mine", mine), ("other", other)):
        workload(plane, name, part, [owned_by("slinky.slurm.net/v1beta1", "Controller", part, uid)])
    # It is still there when the cluster itself is gone, as a pod that takes its time to end.
    hold = '{"metadata":{"finalizers":["isthmus.dev/test"]}}'
    plane.kubectl("patch", "statefulset", "mine", "-n", name, "--type=merge", f"-p={hold}")
    result: list[tuple[int, str]] = []
    removing = threading.Thread(target=lambda: result.append(isthmus("cluster", "delete", name, "--yes")))
    removing.start()
    plane.kubectl("wait", "-n", name, "--for=delete", f"slurmcluster/{name}", "--timeout=60s")
    assert removing.is_alive()
    plane.kubectl("patch", "statefulset", "mine", "-n", name, "--type=merge", '-p={"metadata":{"finalizers":[]}}')
    removing.join(timeout=90)
    assert result, "it waits for something else"
    assert result[0][0] == 0, result[0][1]
    assert "still ending" in result[0][1]
    assert "StatefulSet mine" in result[0][1]
    assert "other" in plane.kubectl("get", "statefulsets", "-n", name, "-o", "name")


def owned_by(api: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}


def controller_of(plane: ControlPlaneBed, namespace: str, name: str, owners: list[dict[str, Any]]) -> str:
    """Make a Controller; its uid."""
    made = {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "Controller",
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": {"slurmKeyRef": {"name": "k", "key": "k"}, "jwtKeyRef": {"name": "k", "key": "j"}},
    }
    plane.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(made))
    return plane.kubectl("get", "controller", name, "-n", namespace, "-o", "jsonpath={.metadata.uid}")


def workload(plane: ControlPlaneBed, namespace: str, name: str, owners: list[dict[str, Any]]) -> None:
    labels = {"app.kubernetes.io/component": "controller", "app.kubernetes.io/instance": name}
    made = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "ownerReferences": owners, "labels": labels},
        "spec": {
            "replicas": 1,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": {**labels, "app.kubernetes.io/managed-by": "isthmus"}},
                "spec": {"containers": [{"name": "x", "image": "x"}]},
            },
        },
    }
    plane.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(made))


def test_a_cluster_that_does_not_exist(isthmus: Run) -> None:
    for words in (("status", "nobody"), ("delete", "nobody"), ("exec", "nobody"), ("ssh", "nobody")):
        code, said = isthmus("cluster", *words)
        assert code == 1
        assert "there is no cluster 'nobody'" in said


def test_of_two_clusters_of_one_name_none_is_touched_until_it_is_said_which(
    isthmus: Run, plane: ControlPlaneBed, name: str
) -> None:
    other = f"{name}-b"
    plane.kubectl("create", "namespace", other)
    try:
        make(isthmus, name)
        make(isthmus, name, f"--namespace={other}")
        code, said = isthmus("cluster", "delete", name, "--yes")
        assert code == 1
        assert all(it in said for it in ("several clusters", f"{name}/{name}", f"{other}/{name}", "--namespace"))
        code, said = isthmus("cluster", "delete", name, "--yes", f"--namespace={other}")
        assert code == 0, said
        assert cluster(plane, name)
    finally:
        plane.kubectl("delete", "namespace", other, "--wait=false")


# The shared root


def test_one_root_is_shared_unless_somebody_does_not_want_it(
    isthmus: Run, plane: ControlPlaneBed, name: str
) -> None:
    make(isthmus, name, "--no-shared-root")
    assert cluster(plane, name)["spec"]["populateJail"] == {"enabled": False}
    code, said = isthmus("cluster", "refresh", name, "--yes")
    assert code == 1
    assert "has no shared root" in said


def test_a_root_that_is_not_filled_cannot_be_refreshed_and_its_filling_is_shown(
    isthmus: Run, plane: ControlPlaneBed, name: str
) -> None:
    make(isthmus, name)
    assert cluster(plane, name)["spec"]["populateJail"] == {}
    code, said = isthmus("cluster", "refresh", name, "--yes")
    assert code == 1
    assert "is not filled yet" in said
    held = {
        "type": "JailPopulated",
        "status": "False",
        "reason": "Filling",
        "message": "the shared root is being filled from login:1",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = json.dumps({"status": {"conditions": [held]}})
    words = ("slurmcluster", name, "-n", name, "--subresource=status", "--type=merge", f"-p={status}")
    plane.kubectl("patch", *words)
    _, said = isthmus("cluster", "status", name)
    assert "Root: the shared root is being filled from login:1" in said
