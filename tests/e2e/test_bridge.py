"""The bridge as its users meet it: the chart on a real cluster, real pods on the nodes that Slurm gives.

The manifests are those of `examples/bridge`. All of them are applied at once, since six processors are enough for
Slurm to have a queue, and each test waits for its own.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus import names
from tests.bed.bridge_ground import BridgeGround, external_nodes, installed
from tests.bed.cluster import eventually
from tests.e2e.test_command_line import ISTHMUS

NAMESPACE = "slurm-bridge"
EXAMPLES = Path(__file__).parents[2] / "examples" / "bridge"
SHARED = {f"{names.JOB_ANNOTATIONS}exclusive": "false"}
SOON = 15.0

FINITE = {
    "pod": ("jsonpath={.status.phase}=Succeeded", "pod/hello"),
    "job": ("condition=Complete", "job/sweep"),
    "jobset": ("condition=Completed", "jobset/train"),
    "podgroup": ("condition=Complete", "job/ring"),
    "workload": ("condition=Complete", "job/simulation"),
}
LASTING = {
    "deployment": ("jsonpath={.status.readyReplicas}=2", "deployment/web"),
    "statefulset": ("jsonpath={.status.readyReplicas}=2", "statefulset/store"),
    "leaderworkerset": ("condition=Available", "lws/serve"),
}
PODS = {
    "pod": 1,
    "job": 3,
    "jobset": 2,
    "podgroup": 2,
    "workload": 2,
    "deployment": 2,
    "statefulset": 2,
    "leaderworkerset": 4,
}
JOBS = {**PODS, "jobset": 1, "podgroup": 1, "workload": 1, "leaderworkerset": 2}


@pytest.fixture(scope="module")
def bridge(bridge_ground: BridgeGround) -> Iterator[BridgeGround]:
    """The bridge, with all workers as external nodes, for the pods of `slurm-bridge`."""
    bridge_ground.kubectl("label", "node", *bridge_ground.cluster.workers, f"{names.EXTERNAL_NODE_LABEL}=")
    with installed(bridge_ground, NAMESPACE):
        eventually(
            lambda: len(external_nodes(bridge_ground)) == len(bridge_ground.cluster.workers), "nodes in Slurm"
        )
        yield bridge_ground


@pytest.fixture(scope="module")
def workloads(bridge: BridgeGround) -> BridgeGround:
    """All examples, applied at once; those that end come first."""
    for name in (*FINITE, *LASTING):
        kubectl(bridge, "apply", f"--filename={EXAMPLES / name}.yaml")
    return bridge


@pytest.fixture
def quiet(bridge: BridgeGround) -> Iterator[BridgeGround]:
    """The bridge, with nothing to do, before the test and after it."""
    clear(bridge)
    yield bridge
    clear(bridge)


def kubectl(bridge: BridgeGround, *words: str, stdin: str | None = None) -> str:
    """Run kubectl in the namespace that Slurm manages."""
    return bridge.kubectl(f"--namespace={NAMESPACE}", *words, stdin=stdin)


def clear(bridge: BridgeGround) -> None:
    """Delete everything, and wait until Slurm knows."""
    kubectl(bridge, "delete", "jobsets,lws,deployments,statefulsets,jobs,pods", "--all", "--timeout=60s")
    eventually(lambda: not bridge.jobs(), "a queue without jobs")


def pods(bridge: BridgeGround, *names_: str) -> list[dict[str, Any]]:
    """Read pods by name, or all of them."""
    words = ("get", "pods", *names_, "-o", "json")
    found = json.loads(kubectl(bridge, *words))
    return list(found.get("items", [found]))


def job_id(pod: dict[str, Any]) -> str:
    """Tell the Slurm job of a pod; empty as long as it has none."""
    return str(pod["metadata"].get("labels", {}).get(names.JOB_ID_LABEL, ""))


def run(
    bridge: BridgeGround, name: str, *, command: str = "sleep infinity", cpu: str = "250m", **annotations: str
) -> None:
    """Create a pod that shares its node, unless its annotations say otherwise."""
    asked = SHARED | {names.JOB_ANNOTATIONS + key.replace("_", "-"): value for key, value in annotations.items()}
    container = {
        "name": "main",
        "image": "isthmus.local/slurm:26.05",
        "command": ["sh", "-c", f"exec {command}"],
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": asked},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    kubectl(bridge, "apply", "--filename=-", stdin=json.dumps(document))


def running(bridge: BridgeGround, name: str) -> dict[str, Any]:
    """Wait until a pod runs; return it."""
    kubectl(bridge, "wait", "--for=jsonpath={.status.phase}=Running", f"pod/{name}", "--timeout=60s")
    return pods(bridge, name)[0]


def why(bridge: BridgeGround, name: str) -> tuple[str, str]:
    """Read why a pod waits: reason and message of its condition."""
    (found,) = pods(bridge, name)
    conditions: list[dict[str, str]] = found["status"].get("conditions", [])
    told = next((it for it in conditions if it["type"] == "PodScheduled"), dict[str, str]())
    return told.get("reason", ""), told.get("message", "")


def account(bridge: BridgeGround, job: str) -> dict[str, str]:
    """What accounting says of a job."""
    fields = ("state", "comment", "nodelist", "jobname", "partition")
    told = bridge.slurm("sacct", "-X", "-P", "-n", f"--jobs={job}", f"--format={','.join(fields)}").strip()
    return dict(zip(fields, told.split("|"), strict=True)) if told else dict.fromkeys(fields, "")


def isthmus(bridge: BridgeGround, *words: str) -> str:
    """Run our command as an administrator with a token for Slurm does."""
    reach = {"SLURM_REST_API": bridge.rest_url, "SLURM_JWT": bridge.token, "KUBECONFIG": str(bridge.kubeconfig)}
    done = subprocess.run(
        [ISTHMUS, *words], check=False, capture_output=True, text=True, timeout=60, env={**os.environ, **reach}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def soon(condition: Callable[[], object], what: str) -> None:
    """Wait for what should take a second or two."""
    eventually(condition, what, within=SOON)


# Installing


def test_workers_are_nodes_of_slurm_as_large_as_they_are(bridge: BridgeGround) -> None:
    shown = {it["name"]: it for it in json.loads(bridge.slurm("scontrol", "show", "nodes", "--json"))["nodes"]}
    for node in json.loads(bridge.kubectl("get", "nodes", "-o", "json"))["items"]:
        name, allocatable = node["metadata"]["name"], node["status"]["allocatable"]
        if name not in bridge.cluster.workers:
            assert name not in shown
            continue
        assert shown[name]["cpus"] == int(allocatable["cpu"])
        assert shown[name]["real_memory"] == int(allocatable["memory"].removesuffix("Ki")) // 1024
        assert "EXTERNAL" in shown[name]["state"]


# Workloads


@pytest.mark.parametrize("kind", [*FINITE, *LASTING])
def test_slurm_places(workloads: BridgeGround, kind: str) -> None:
    condition, target = {**FINITE, **LASTING}[kind]
    kubectl(workloads, "wait", f"--for={condition}", target, "--timeout=90s")
    members = [pod for pod in pods(workloads) if _belongs(pod, target.partition("/")[2])]
    assert len(members) == PODS[kind]
    assert len({job_id(pod) for pod in members}) == JOBS[kind]
    for pod in members:
        node, annotations = pod["spec"]["nodeName"], pod["metadata"]["annotations"]
        assert annotations[names.POD_JOB_ANNOTATION] == job_id(pod)
        assert annotations[names.POD_NODE_ANNOTATION] == annotations[names.POD_SLURM_NODE_ANNOTATION] == node
        job = account(workloads, job_id(pod))
        hosts = workloads.slurm("scontrol", "show", "hostnames", job["nodelist"]).split()
        assert node in hosts
        assert job["partition"] == NAMESPACE
    if kind in FINITE:
        soon(lambda: all(_ended_well(workloads, pod) for pod in members), "accounting to tell of success")
    else:
        queue = workloads.jobs("--states=RUNNING", "--Format=JobID")
        assert {job_id(pod) for pod in members} <= {line.strip() for line in queue}
    kubectl(workloads, "delete", f"--filename={EXAMPLES / kind}.yaml", "--wait=false")


def _belongs(pod: dict[str, Any], name: str) -> bool:
    own = str(pod["metadata"]["name"])
    return own == name or own.startswith(f"{name}-")


def _ended_well(bridge: BridgeGround, pod: dict[str, Any]) -> bool:
    # Slurm can only cancel an external job: that its pods succeeded stands in the comment.
    job = account(bridge, job_id(pod))
    return job["state"].startswith("CANCELLED") and "Succeeded" in job["comment"]


def test_a_podgroup_that_was_made_anew_is_another_gang(quiet: BridgeGround) -> None:
    example = f"--filename={EXAMPLES / 'podgroup'}.yaml"
    jobs = set()
    for _ in range(2):
        kubectl(quiet, "apply", example)
        kubectl(quiet, "wait", "--for=condition=Complete", "job/ring", "--timeout=60s")
        ids = {job_id(pod) for pod in pods(quiet)}
        assert len(ids) == 1
        jobs |= ids
        kubectl(quiet, "delete", example, "--timeout=30s")
    assert len(jobs) == 2


# One queue for both


def test_pods_wait_for_native_jobs_and_native_jobs_for_pods(quiet: BridgeGround) -> None:
    native = quiet.slurm("sbatch", "--parsable", "--wrap=sleep 300").strip()
    run(quiet, "after", command="sleep 1", dependency=f"afterany:{native}")
    soon(lambda: why(quiet, "after")[0] == "SlurmPending", "the pod to be told that it waits")
    assert "(Dependency)" in why(quiet, "after")[1]
    shown = isthmus(quiet, "explain", "pod/after", "--namespace", NAMESPACE)
    assert "… queue" in shown
    quiet.slurm("scancel", native)
    kubectl(quiet, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/after", "--timeout=30s")
    run(quiet, "before")
    first = job_id(running(quiet, "before"))
    second = quiet.slurm("sbatch", "--parsable", f"--dependency=afterany:{first}", "--wrap=true").strip()
    kubectl(quiet, "delete", "pod", "before")
    eventually(lambda: account(quiet, second)["state"] == "COMPLETED", "the native job to follow the pod")


def test_a_pod_waits_while_the_nodes_are_full_and_says_so(quiet: BridgeGround) -> None:
    workers = quiet.cluster.workers
    for number, _ in enumerate(workers):
        run(quiet, f"whole-{number}", exclusive="true")
    placed = {running(quiet, f"whole-{number}")["spec"]["nodeName"] for number, _ in enumerate(workers)}
    assert placed == set(workers)
    run(quiet, "late")
    soon(lambda: why(quiet, "late")[0] == "SlurmPending", "the pod to be told that it waits")
    assert "(Resources)" in why(quiet, "late")[1]
    status = isthmus(quiet, "bridge", "status")
    assert f"{len(workers)} have a node, 1 wait" in status
    assert f"isthmus explain pod/late -n {NAMESPACE}" in status
    assert "26.05" in status
    kubectl(quiet, "delete", "pod", "whole-1")
    running(quiet, "late")
    shown = isthmus(quiet, "explain", "pod/late", "--namespace", NAMESPACE)
    assert "✓ running" in shown
    assert "…" not in shown


def test_scancel_evicts_the_pod_and_says_why(quiet: BridgeGround) -> None:
    run(quiet, "cancelled")
    job = job_id(running(quiet, "cancelled"))
    quiet.slurm("scancel", job)
    soon(lambda: "cancelled" not in kubectl(quiet, "get", "pods", "-o", "name"), "the pod to be gone")
    events = kubectl(quiet, "get", "events", "--field-selector=involvedObject.name=cancelled")
    assert f"Slurm job {job} was cancelled" in events


def test_a_deleted_and_a_failed_pod_free_their_jobs_and_accounting_tells(quiet: BridgeGround) -> None:
    run(quiet, "deleted")
    run(quiet, "failed", command="false")
    deleted = job_id(running(quiet, "deleted"))
    kubectl(quiet, "wait", "--for=jsonpath={.status.phase}=Failed", "pod/failed", "--timeout=30s")
    failed = job_id(pods(quiet, "failed")[0])
    kubectl(quiet, "delete", "pod", "deleted")
    soon(lambda: not quiet.jobs(), "both jobs to end")
    soon(lambda: f"{NAMESPACE}/deleted: deleted" in account(quiet, deleted)["comment"], "the outcome of one")
    soon(lambda: f"{NAMESPACE}/failed: Failed" in account(quiet, failed)["comment"], "the outcome of the other")


# Nodes


def test_a_cordoned_node_is_drained_and_a_drained_one_cordoned(quiet: BridgeGround) -> None:
    node, other, *_ = quiet.cluster.workers

    def state(name: str) -> str:
        return quiet.slurm("sinfo", "--noheader", f"--nodes={name}", "--format=%T %E").splitlines()[0]

    def unschedulable(name: str) -> str:
        return quiet.kubectl("get", "node", name, "-o", "jsonpath={.spec.unschedulable}")

    quiet.kubectl("cordon", node)
    quiet.slurm("scontrol", "update", f"nodename={other}", "state=drain", "reason=new disks")
    soon(lambda: "drained" in state(node) and "slurm-bridge" in state(node), "the cordoned node to be drained")
    soon(lambda: unschedulable(other) == "true", "the drained node to be cordoned")
    run(quiet, "elsewhere")
    assert running(quiet, "elsewhere")["spec"]["nodeName"] not in {node, other}
    quiet.kubectl("uncordon", node)
    quiet.slurm("scontrol", "update", f"nodename={other}", "state=resume")
    soon(lambda: state(node).startswith("idle"), "the first node to be used again")
    soon(lambda: unschedulable(other) == "", "the second node to be used again")


# What cannot be


def test_bad_annotations_are_refused_when_they_are_applied(bridge: BridgeGround) -> None:
    text = (EXAMPLES / "pod.yaml").read_text().replace('timelimit: "10"', "timelimit: soon")
    with pytest.raises(AssertionError) as told:
        kubectl(bridge, "apply", "--filename=-", stdin=text.replace("name: hello", "name: bad"))
    assert "slurmjob.slinky.slurm.net/timelimit is 'soon', expected minutes above 0" in str(told.value)


# When processes end


@pytest.mark.parametrize("process", ["scheduler", "controllers"])
def test_a_standby_takes_over(quiet: BridgeGround, process: str) -> None:
    lease = {"scheduler": names.SCHEDULER_NAME, "controllers": "69d5fe47.my.slinky.slurm.net"}[process]

    def leader() -> str:
        found = ("get", "lease", lease, f"--namespace={quiet.namespace}", "-o", "jsonpath={.spec.holderIdentity}")
        return quiet.kubectl(*found).partition("_")[0]

    run(quiet, "before")
    job = job_id(running(quiet, "before"))
    gone = leader()
    quiet.kubectl("delete", "pod", f"--namespace={quiet.namespace}", gone, "--grace-period=0", "--force")
    run(quiet, "after")
    kubectl(quiet, "delete", "pod", "before", "--wait=false")
    running(quiet, "after")
    eventually(lambda: account(quiet, job)["state"].startswith("CANCELLED"), "the job of the deleted pod to end")
    assert leader() != gone
    assert len(quiet.jobs()) == 1
