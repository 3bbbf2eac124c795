"""Configuration on the shared root end to end: scripts of a ConfigMap run on two nodes, and follow its changes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bed.operator_ground import OperatorGround
from tests.e2e.site import Site

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
def site(operator_ground: OperatorGround) -> Iterator[Site]:
    """A cluster of two workers, with its scripts made at the same moment."""
    with operator_ground.namespace(NAMESPACE) as namespace:
        site = Site(operator_ground, namespace, slurmctld="controller-0")
        places = [(file, f"/opt/slurm_scripts/{file}") for file in ("prolog.sh", "task_prolog.sh")]
        site.apply(slurm_cluster(), scripts("v1"), jailed("scripts", *places))
        site.ready(f"slurmcluster/{CLUSTER}")
        yield site
        site.kubectl("delete", f"slurmcluster/{CLUSTER}", "--timeout=180s")


def status(site: Site, what: str) -> dict[str, Any]:
    found: dict[str, Any] = site.get(what).get("status", {})
    return found


def applied(site: Site, name: str) -> dict[str, Any]:
    """Wait until everybody has read the files of a JailedConfig as they are now; what it says then."""

    def done(it: dict[str, Any]) -> bool:
        held = {it["type"]: it["status"] for it in it.get("conditions", ())}
        is_read = it.get("filesHash") and it.get("filesHash") == it.get("reconfiguredHash")
        return bool(is_read) and held.get("UpdateActionsCompleted") == "True"

    return site.eventually(
        lambda: status(site, f"jailedconfig/{name}"), f"JailedConfig {name} to be applied", holds=done
    )


def config_applied(controller: dict[str, Any]) -> bool:
    """Whether every daemon runs with the files that follow from the Controller as it is now."""
    conditions = controller.get("status", {}).get("conditions", ())
    held: dict[str, Any] = next((it for it in conditions if it["type"] == "ConfigApplied"), {})
    seen = int(held.get("observedGeneration", 0)) >= int(controller["metadata"]["generation"])
    return seen and held.get("status") == "True"


def on_login(site: Site, *words: str) -> str:
    return site.run(*words, where="login-0")


def run_on_both(site: Site, version: str) -> None:
    """Run a job on both nodes, and see which scripts were run, and where."""
    ran = on_login(site, "srun", "--nodes=2", "--ntasks-per-node=1", "hostname")
    assert sorted(ran.splitlines()) == [f"task prolog {version} inside"] * 2 + ["worker-0", "worker-1"]
    assert set(on_login(site, "cat", "/var/tmp/prologs").splitlines()[-2:]) == {  # noqa: S108 - on the shared root
        f"{version} worker-0",
        f"{version} worker-1",
    }


def test_scripts_of_a_jailedconfig_run_on_every_node_and_follow_its_configmap(site: Site) -> None:
    applied(site, "scripts")
    site.eventually(
        lambda: on_login(site, "scontrol", "show", "config"),
        "Slurm to know of the prolog",
        holds=lambda it: "/opt/slurm_scripts/prolog.sh" in it,
    )
    site.ready("controller/one")
    site.eventually(lambda: site.get("controller/one"), "every node to know of it", holds=config_applied)
    run_on_both(site, "v1")
    before = applied(site, "scripts")
    site.apply(scripts("v2"))
    site.eventually(
        lambda: status(site, "jailedconfig/scripts")["filesHash"],
        "the files to be written",
        holds=lambda it: it != before["filesHash"],
    )
    (completed,) = (it for it in applied(site, "scripts")["conditions"] if it["type"] == "UpdateActionsCompleted")
    assert completed["message"] == "slurmctld and 2 nodes have read it"
    run_on_both(site, "v2")
    shown = site.kubectl("get", "jailedconfigs").splitlines()
    assert [line.split()[:4] for line in shown] == [
        ["NAME", "CONFIGMAP", "WRITTEN", "APPLIED"],
        ["scripts", "scripts", "True", "True"],
    ]


def test_a_link_on_the_shared_root_is_refused_with_the_real_place(site: Site) -> None:
    site.apply(jailed("link", ("prolog.sh", "/bin/prolog.sh")))
    site.eventually(
        lambda: site.condition("jailedconfig/link", "FilesWritten"),
        "the link to be refused",
        holds=lambda it: "use the real path: /usr/bin instead of /bin" in it["message"],
    )


def test_who_writes_them_is_root_without_any_of_its_powers(site: Site) -> None:
    look = "import os; print(os.getuid(), open('/proc/1/status').read())"
    shown = site.kubectl("exec", "deployment/sconfigcontroller", "--", "python3", "-c", look)
    assert shown.startswith("0 ")
    caps = {line.split()[0]: int(line.split()[1], 16) for line in shown.splitlines() if line.startswith("Cap")}
    assert set(caps.values()) == {0}
    told = site.eventually(
        lambda: status(site, f"slurmcluster/{CLUSTER}"),
        "the cluster to count it",
        holds=lambda it: it.get("readySConfigController") == 1,
    )
    assert "SConfigControllerAvailable" in json.dumps(told["conditions"])
