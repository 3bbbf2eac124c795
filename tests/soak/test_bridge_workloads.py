"""Workloads as users of slurm-bridge write them, on the setup of the README: operator, Slurm cluster and bridge.

Of each kind what slurm-bridge's own examples show: pods of two containers, JobSets with a coordinator and with
dependencies, more pods than nodes, groups of bare pods, pods that ask for nothing. Everything runs twice in a row,
because what the first round leaves behind is in the way of the second.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from isthmus import names
from isthmus.local import crds, workloads
from isthmus.local.progress import PlainProgress
from tests.bed.operator_ground import CHARTS, EXAMPLES, OperatorGround
from tests.bed.waiting import eventually
from tests.e2e.bridge import job_id
from tests.e2e.pods import TOOLS

pytestmark = pytest.mark.timeout(1200)

SLURM = "slurm"
NAMESPACE = "slurm-bridge"
MINUTES = 300.0

Object = dict[str, Any]


def container(name: str) -> Object:
    size = {"cpu": "1", "memory": "100Mi"}
    return {
        "name": name,
        "image": TOOLS,
        "command": ["sh", "-c", "sleep 3"],
        "resources": {"requests": size, "limits": size},
    }


def template(containers: int = 1, **spec: Any) -> Object:
    made = [container(f"worker{number}") for number in range(containers)]
    return {"spec": {"schedulerName": names.SCHEDULER_NAME, "restartPolicy": "Never", "containers": made, **spec}}


def job(name: str, *, completions: int = 1, parallelism: int = 1, **spec: Any) -> Object:
    made = {"completions": completions, "parallelism": parallelism, "template": template(**spec)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": made}


def replicated(name: str, *, replicas: int, pods: int, containers: int, **more: Any) -> Object:
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template(containers)}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def jobset(name: str, *jobs: Object, **spec: Any) -> Object:
    # The annotation as older releases wrote it.
    meta = {"name": name, "annotations": {"slinky.slurm.net/job-name": name}}
    made = {"replicatedJobs": list(jobs), **spec}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": made}


def grouped(name: str, group: str) -> Object:
    meta = {"name": name, "labels": {names.POD_GROUP_LABEL: group}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, **template()}


GANG = {"gang": {"minCount": 2}}
LEADER = replicated("leader", replicas=1, pods=1, containers=1)
WORKERS = replicated("workers", replicas=2, pods=2, containers=2)
AFTER = {"dependsOn": [{"name": "leader", "status": "Complete"}]}

# The manifests of each, what to wait for, how many pods there are in all, and how many Slurm jobs.
FINITE: dict[str, tuple[list[Object], str, int, int]] = {
    "job": ([job("one")], "job/one condition=Complete", 1, 1),
    "jobs": ([job("three", completions=3, parallelism=2)], "job/three condition=Complete", 3, 3),
    "jobset": (
        [jobset("single", replicated("workers", replicas=1, pods=1, containers=1))],
        "jobset/single condition=Completed",
        1,
        1,
    ),
    "coordinator": (
        [jobset("led", LEADER, WORKERS, coordinator={"replicatedJob": "leader", "jobIndex": 0, "podIndex": 0})],
        "jobset/led condition=Completed",
        5,
        5,
    ),
    "dependencies": ([jobset("after", LEADER, WORKERS | AFTER)], "jobset/after condition=Completed", 5, 5),
    "many": (
        [jobset("many", replicated("workers", replicas=4, pods=4, containers=2))],
        "jobset/many condition=Completed",
        16,
        16,
    ),
    "group": (
        [
            {
                "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": "pair"},
                "spec": {"minMember": 2},
            },
            grouped("pair-1", "pair"),
            grouped("pair-2", "pair"),
        ],
        "pod/pair-2 jsonpath={.status.phase}=Succeeded",
        2,
        1,
    ),
    "workload": (
        [
            {
                "apiVersion": "scheduling.k8s.io/v1alpha2",
                "kind": "Workload",
                "metadata": {"name": "training"},
                "spec": {
                    "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "training"},
                    "podGroupTemplates": [{"name": "workers", "schedulingPolicy": GANG}],
                },
            },
            {
                "apiVersion": "scheduling.k8s.io/v1alpha2",
                "kind": "PodGroup",
                "metadata": {"name": "training-workers"},
                "spec": {
                    "podGroupTemplateRef": {
                        "workload": {"workloadName": "training", "podGroupTemplateName": "workers"}
                    },
                    "schedulingPolicy": GANG,
                },
            },
            job("training", completions=2, parallelism=2, schedulingGroup={"podGroupName": "training-workers"}),
        ],
        "job/training condition=Complete",
        2,
        1,
    ),
}


class Setup:
    """The setup of the README."""

    def __init__(self, ground: OperatorGround) -> None:
        self.ground = ground

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.ground.kubectl(f"--namespace={NAMESPACE}", *words, stdin=stdin)

    def slurm(self, *words: str) -> str:
        return self.ground.exec("login-0", *words, namespace=SLURM)

    def apply(self, manifests: list[Object]) -> None:
        text = "\n".join(f"---\n{json.dumps(it)}" for it in manifests)
        self.kubectl("apply", "--filename=-", stdin=text)

    def clear(self, manifests: list[Object]) -> None:
        """Delete workloads, and wait until neither side knows of them."""
        text = "\n".join(f"---\n{json.dumps(it)}" for it in manifests)
        self.kubectl("delete", "--filename=-", "--timeout=120s", stdin=text)
        eventually(self.pods, "all pods to go", holds=lambda it: not it)
        eventually(lambda: self.slurm("squeue", "--noheader"), "an empty queue", holds=lambda it: not it)

    def pods(self) -> list[Object]:
        return list(self.ground.get("pods", NAMESPACE)["items"])

    def accounts(self, jobs: set[str]) -> dict[str, str]:
        """Tell state and exit code of each job, as accounting has them."""
        fields = ("-X", "-P", "-n", f"--jobs={','.join(sorted(jobs))}", "--format=jobid,state,exitcode")
        lines = [line.split("|") for line in self.slurm("sacct", *fields).splitlines()]
        return {number: f"{state} {code}" for number, state, code in lines}


@pytest.fixture(scope="module")
def setup(operator_ground: OperatorGround) -> Iterator[Setup]:
    """Do as the README says."""
    ground = operator_ground
    workloads.install(
        ground.cluster.cluster, [workloads.ADDONS[name] for name in crds.DEFINITIONS], PlainProgress()
    )
    there = f"--namespace={SLURM}"
    values = f"--values={EXAMPLES / 'values-for-bridge.yaml'}"
    ground.helm("install", "slurm", str(CHARTS / "slurm-cluster"), there, "--create-namespace", values)
    ground.ready("slurmcluster/slurm", SLURM, within=600)
    ground.kubectl("apply", there, f"--filename={EXAMPLES / 'token-for-bridge.yaml'}")
    ground.ready("token/bridge", SLURM)
    ground.kubectl("label", "node", *ground.cluster.workers, f"{names.EXTERNAL_NODE_LABEL}=")
    ground.cluster.make_namespace(NAMESPACE)
    completer = "--set=config.slurmCompleter=http://slurm-completer.slurm:6821"
    ground.helm("install", "slurm-bridge", str(CHARTS / "slurm-bridge"), there, "--wait", completer)
    made = Setup(ground)
    named = ",".join(ground.cluster.workers)
    eventually(
        lambda: made.slurm("sinfo", "--noheader", "--Node", "--states=idle", f"--nodes={named}").split(),
        "the machines to be nodes of Slurm",
        holds=lambda it: set(ground.cluster.workers) <= set(it),
        within=MINUTES,
    )
    yield made
    ground.kubectl("label", "node", *ground.cluster.workers, f"{names.EXTERNAL_NODE_LABEL}-")
    ground.helm("uninstall", "slurm-bridge", there, "--wait")
    ground.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    ground.kubectl("delete", "slurmcluster", "slurm", there, "--timeout=300s")


@pytest.mark.parametrize("turn", ["first", "again"])
@pytest.mark.parametrize("kind", FINITE)
def test_a_workload_runs_to_completion_and_accounting_tells(setup: Setup, kind: str, turn: str) -> None:
    manifests, awaited, pods, jobs = FINITE[kind]
    setup.apply(manifests)
    target, _, condition = awaited.partition(" ")
    setup.kubectl("wait", f"--for={condition}", target, f"--timeout={MINUTES:g}s")
    found = eventually(
        setup.pods, f"{pods} pods to succeed", holds=lambda it: [_phase(pod) for pod in it] == ["Succeeded"] * pods
    )
    ids = {job_id(pod) for pod in found}
    assert len(ids) == jobs, turn
    eventually(
        lambda: setup.accounts(ids),
        "accounting to tell of success",
        holds=lambda it: it == dict.fromkeys(ids, "COMPLETED 0:0"),
    )
    setup.clear(manifests)


def test_groups_of_pods_that_ask_for_nothing_start_one_after_the_other(setup: Setup) -> None:
    """Each pod has a machine for itself, so that three of a LeaderWorkerSet's six are all that run."""
    endless = {"name": "main", "image": TOOLS, "command": ["sleep", "infinity"]}
    pod = {"spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [endless]}}
    serve = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve"},
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {
                "size": len(setup.ground.cluster.workers),
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": pod,
                "workerTemplate": pod,
            },
        },
    }
    setup.apply([serve])
    size = len(setup.ground.cluster.workers)
    running = eventually(
        lambda: [it for it in setup.pods() if _phase(it) == "Running"],
        f"{size} pods to run",
        holds=lambda it: len(it) == size,
        within=MINUTES,
    )
    (first,) = {job_id(it) for it in running}
    assert len({it["spec"]["nodeName"] for it in running}) == size
    eventually(
        lambda: setup.slurm("squeue", "--noheader", "--states=PENDING", "--format=%i %r"),
        "the other group to wait for nodes",
        holds=lambda it: "Resources" in it,
    )
    setup.clear([serve])
    eventually(
        lambda: setup.accounts({first})[first],
        "accounting to tell that it was deleted",
        holds=lambda it: it.startswith("CANCELLED"),
    )


def _phase(pod: Object) -> str:
    return str(pod["status"].get("phase", ""))
