"""Node health end to end: a bad node is found, drained, repaired, tested and returned while jobs run elsewhere."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bed.commands import Done
from tests.bed.operator_ground import CHARTS, OperatorGround
from tests.e2e.command import isthmus
from tests.e2e.site import Site

NAMESPACE = "health"
CLUSTER = "one"
CHECK = "own-disk"
RELEASE = "soperatorchecks"
REASON = f"[node_problem] {CHECK}: job "
BAD = "/run/slurm/bad-disk"  # a node's own, which jobs see: it goes with the pod


def slurm_cluster() -> dict[str, Any]:
    worker = {"size": 2, "resources": {"memory": "512Mi"}}
    return {
        "apiVersion": "slurm.nebius.ai/v1",
        "kind": "SlurmCluster",
        "metadata": {"name": CLUSTER},
        "spec": {"populateJail": {}, "slurmNodes": {"worker": worker, "login": {"size": 1}}},
    }


def active_check() -> dict[str, Any]:
    """A check of a file that stands for a bad disk."""
    script = f"#!/bin/bash\n#SBATCH --time=1\ntest ! -e {BAD}\n"
    return {
        "apiVersion": "slurm.nebius.ai/v1alpha1",
        "kind": "ActiveCheck",
        "metadata": {"name": CHECK},
        "spec": {
            "slurmClusterRefName": CLUSTER,
            "checkType": "slurmJob",
            "schedule": "0 0 1 1 *",
            "slurmJobSpec": {"eachWorkerJobs": True, "sbatchScript": script},
            "failureReactions": {"drainSlurmNode": {"drainReasonPrefix": "[node_problem]"}},
        },
    }


@pytest.fixture(scope="module")
def site(operator_ground: OperatorGround) -> Iterator[Site]:
    with operator_ground.namespace(NAMESPACE) as namespace:
        site = Site(operator_ground, namespace, slurmctld="controller-0")
        site.apply(slurm_cluster())
        there = f"--namespace={namespace}"
        operator_ground.helm("install", RELEASE, str(CHARTS / RELEASE), there, "--wait")
        site.ready(f"slurmcluster/{CLUSTER}")
        yield site
        site.kubectl("delete", f"slurmcluster/{CLUSTER}", "--timeout=180s")
        operator_ground.helm("uninstall", RELEASE, there, "--wait")


def health(site: Site, *words: str) -> Done:
    return isthmus("health", *words, f"--namespace={NAMESPACE}", KUBECONFIG=site.ground.kubeconfig)


def phases(site: Site) -> dict[str, str]:
    found = site.get("nodehealths")["items"]
    return {it["spec"]["node"]: it.get("status", {}).get("phase", "") for it in found}


def test_a_bad_node_is_drained_repaired_tested_and_returned(site: Site) -> None:
    site.apply(active_check())
    site.eventually(
        lambda: site.get(f"activecheck/{CHECK}").get("status", {}).get("slurmJobsStatus", {}),
        "the check to pass after its creation",
        holds=lambda it: it.get("lastRunStatus") == "Complete",
    )
    bystander = site.submit("sleep 900", "--nodelist=worker-0", "--mem=10")
    site.until(bystander, "RUNNING")
    before, uid = site.uid("worker-0"), site.uid("worker-1")

    site.exec("worker-1", "touch", BAD)
    done = health(site, "run", CHECK, "--node=worker-1", "--wait")
    assert done.returncode == 1, f"{done.stdout}{done.stderr}"
    assert "worker-1" in done.stdout
    site.eventually(
        lambda: phases(site), "worker-1 to be returned", holds=lambda it: it.get("worker-1") == "Recovered"
    )
    site.eventually(site.states, "worker-1 to be idle", holds=lambda it: it.get("worker-1") == "idle")
    site.eventually(
        lambda: [it["message"] for it in site.get("events")["items"]],
        "an Event that tells of the drain",
        holds=lambda told: any(it.startswith("drained: ") and REASON in it for it in told),
    )
    (record,) = [it for it in site.get("nodehealths")["items"] if it["spec"]["node"] == "worker-1"]
    assert [it["rung"] for it in record["status"]["steps"]] == ["restartPod"], json.dumps(record)
    assert site.uid("worker-1") != uid
    assert CHECK in health(site, "worker-1").stdout
    assert "health-" not in site.run("scontrol", "show", "reservations")
    assert site.run("srun", "--nodelist=worker-1", "--mem=10", "hostname") == "worker-1\n"

    # The other node and its job have not noticed anything.
    assert site.uid("worker-0") == before
    assert site.job(bystander)["JobState"] == "RUNNING"
    site.run("scancel", bystander)


def test_the_drain_of_a_human_is_shown_and_left_alone(site: Site) -> None:
    site.run("scontrol", "update", "NodeName=worker-1", "State=DRAIN", "Reason=new fan")
    site.eventually(
        lambda: health(site, "worker-1").stdout, "the finding to be shown", holds=lambda it: "new fan" in it
    )
    assert "new fan" in site.run("sinfo", "-hN", "-n", "worker-1", "-o", "%E")
    site.run("scontrol", "update", "NodeName=worker-1", "State=RESUME")
    site.eventually(site.states, "worker-1 to be idle", holds=lambda it: it.get("worker-1") == "idle")
