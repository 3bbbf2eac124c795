"""Configuration on the shared root end to end: scripts of a ConfigMap run on two nodes, and follow its changes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bed.operator_ground import OperatorGround

NAMESPACE = "config-test"
CLUSTER = "one"
RESOURCES = {"memory": "512Mi"}

# slurmd runs the prolog outside, and the task prolog is run inside: there the shared root is /.
PROLOG = """#!/bin/bash
echo "{version} $SLURMD_NODENAME" >> /mnt/jail/var/tmp/prologs
"""
TASK_PROLOG = """#!/bin/bash
[[ -e /.isthmus/ready ]] && where=inside || where=outside
echo "print task prolog {version} $where"
"""


def slurm_cluster() -> dict[str, Any]:
    return {
        "apiVersion": "slurm.nebius.ai/v1",
        "kind": "SlurmCluster",
        "metadata": {"name": CLUSTER},
        "spec": {
            "populateJail": {},
            "slurmNodes": {"worker": {"size": 2, "resources": RESOURCES}, "login": {"size": 1}},
            "slurmConfig": {
                "prolog": "/opt/slurm_scripts/prolog.sh",
                "taskProlog": "/opt/slurm_scripts/task_prolog.sh",
            },
        },
    }


def scripts(version: str) -> dict[str, Any]:
    data = {"prolog.sh": PROLOG.format(version=version), "task_prolog.sh": TASK_PROLOG.format(version=version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": data}


def jailed(name: str, *items: tuple[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "slurm.nebius.ai/v1alpha1",
        "kind": "JailedConfig",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/instance": CLUSTER}},
        "spec": {
            "configMap": {"name": "scripts"},
            "items": [{"key": key, "path": path} for key, path in items],
            "defaultMode": 0o755,
            "updateActions": ["Reconfigure"],
        },
    }


@pytest.fixture(scope="module")
def ground(operator_ground: OperatorGround) -> Iterator[OperatorGround]:
    """A cluster of two workers, with its scripts made at the same moment."""
    with operator_ground.namespace(NAMESPACE):
        places = [(file, f"/opt/slurm_scripts/{file}") for file in ("prolog.sh", "task_prolog.sh")]
        items = [slurm_cluster(), scripts("v1"), jailed("scripts", *places)]
        operator_ground.apply({"apiVersion": "v1", "kind": "List", "items": items}, NAMESPACE)
        operator_ground.ready(f"slurmcluster/{CLUSTER}", NAMESPACE)
        yield operator_ground
        operator_ground.kubectl("delete", f"slurmcluster/{CLUSTER}", f"--namespace={NAMESPACE}", "--timeout=180s")


def applied(ground: OperatorGround, name: str) -> dict[str, Any]:
    """Wait until everybody has read the files of a JailedConfig as they are now; what it says then."""

    def done() -> bool:
        status = ground.get(f"jailedconfig/{name}", NAMESPACE).get("status", {})
        held = {it["type"]: it["status"] for it in status.get("conditions", ())}
        is_read = status.get("filesHash") and status.get("filesHash") == status.get("reconfiguredHash")
        return bool(is_read) and held.get("UpdateActionsCompleted") == "True"

    ground.eventually(done, f"JailedConfig {name} to be applied")
    found: dict[str, Any] = ground.get(f"jailedconfig/{name}", NAMESPACE)["status"]
    return found


def config_applied(ground: OperatorGround) -> bool:
    """Whether every daemon runs with the files that follow from the Controller as it is now."""
    found = ground.get("controller/one", NAMESPACE)
    held: dict[str, Any] = next((it for it in found["status"]["conditions"] if it["type"] == "ConfigApplied"), {})
    seen = int(held.get("observedGeneration", 0)) >= int(found["metadata"]["generation"])
    return seen and held.get("status") == "True"


def on_login(ground: OperatorGround, *words: str) -> str:
    return ground.exec("login-0", *words, namespace=NAMESPACE)


def run_on_both(ground: OperatorGround, version: str) -> None:
    """Run a job on both nodes, and see which scripts were run, and where."""
    ran = on_login(ground, "srun", "--nodes=2", "--ntasks-per-node=1", "hostname")
    assert sorted(ran.splitlines()) == [f"task prolog {version} inside"] * 2 + ["worker-0", "worker-1"]
    assert set(on_login(ground, "cat", "/var/tmp/prologs").splitlines()[-2:]) == {  # noqa: S108 - on the shared root
        f"{version} worker-0",
        f"{version} worker-1",
    }


def test_scripts_of_a_jailedconfig_run_on_every_node_and_follow_its_configmap(ground: OperatorGround) -> None:
    applied(ground, "scripts")
    ground.eventually(
        lambda: "/opt/slurm_scripts/prolog.sh" in on_login(ground, "scontrol", "show", "config"),
        "Slurm to know of the prolog",
    )
    ground.ready("controller/one", NAMESPACE)
    ground.eventually(lambda: config_applied(ground), "every node to know of it")
    run_on_both(ground, "v1")
    before = applied(ground, "scripts")
    ground.apply(scripts("v2"), NAMESPACE)
    ground.eventually(
        lambda: ground.get("jailedconfig/scripts", NAMESPACE)["status"]["filesHash"] != before["filesHash"],
        "the files to be written",
    )
    (completed,) = (it for it in applied(ground, "scripts")["conditions"] if it["type"] == "UpdateActionsCompleted")
    assert completed["message"] == "slurmctld and 2 nodes have read it"
    run_on_both(ground, "v2")
    shown = ground.kubectl("get", "jailedconfigs", f"--namespace={NAMESPACE}").splitlines()
    assert [line.split()[:4] for line in shown] == [
        ["NAME", "CONFIGMAP", "WRITTEN", "APPLIED"],
        ["scripts", "scripts", "True", "True"],
    ]


def test_a_link_on_the_shared_root_is_refused_with_the_real_place(ground: OperatorGround) -> None:
    ground.apply(jailed("link", ("prolog.sh", "/bin/prolog.sh")), NAMESPACE)

    def said() -> str:
        status = ground.get("jailedconfig/link", NAMESPACE).get("status", {})
        return " ".join(it["message"] for it in status.get("conditions", ()) if it["type"] == "FilesWritten")

    ground.eventually(lambda: "name the real place: /usr/bin instead of /bin" in said(), "the link to be refused")


def test_who_writes_them_is_root_without_any_of_its_powers(ground: OperatorGround) -> None:
    look = "import os; print(os.getuid(), open('/proc/1/status').read())"
    status = ground.exec("deployment/sconfigcontroller", "python3", "-c", look, namespace=NAMESPACE)
    assert status.startswith("0 ")
    caps = {line.split()[0]: int(line.split()[1], 16) for line in status.splitlines() if line.startswith("Cap")}
    assert set(caps.values()) == {0}

    def told() -> dict[str, Any]:
        status: dict[str, Any] = ground.get(f"slurmcluster/{CLUSTER}", NAMESPACE)["status"]
        return status

    ground.eventually(lambda: told().get("readySConfigController") == 1, "the cluster to count it")
    assert "SConfigControllerAvailable" in json.dumps(told()["conditions"])
