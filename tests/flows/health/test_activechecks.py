"""ActiveChecks from a manifest to results for nodes: on a real API server with its controllers and a real Slurm."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from isthmus.kube.client import Client
from isthmus.kube.errors import Invalid
from isthmus.model.activecheck import ACTIVE_CHECKS
from isthmus.model.meta import condition
from isthmus.model.objects import CONFIGMAPS
from isthmus.model.pod import PODS
from isthmus.model.workload import CHECK_JOBS, CRON_JOBS
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.health.checks_bed import ChecksBed, available, working
from tests.flows.health.conftest import clean
from tests.flows.kube.waiting import eventually
from tests.flows.operator.nodesets_bed import CONTROLLER

NEWEST = pytest.mark.parametrize("slurm_version", ["26.05"])
ALL = {"n1", "n2", "n3", "n4"}
BAD_N3 = '[[ ",$(scontrol show hostnames $SLURM_JOB_NODELIST | paste -sd,)," != *,n3,* ]]'
"""Fails on any set of nodes that n3 is one of."""


@pytest.fixture
def four(slurm_version: str, shared_slurm: Callable[..., SlurmBed]) -> Iterator[SlurmBed]:
    """A Slurm with four nodes, which is left as it was found."""
    bed = shared_slurm(slurm_version, nodes=4, accounting=False)
    yield bed
    clean(bed)


@pytest.fixture
async def checks(control_plane: ControlPlaneBed, namespace: str, four: SlurmBed) -> AsyncIterator[ChecksBed]:
    async with working(control_plane, namespace, four) as bed:
        yield bed


def queued(bed: SlurmBed, name: str) -> list[str]:
    """The ids of jobs of a check that are not over."""
    return bed.command("squeue", "--noheader", f"--name={name}", "--format=%A").split()


# Results


async def test_every_worker_is_checked_and_the_bad_one_is_named(checks: ChecksBed) -> None:
    await checks.check("gpu", "[[ $SLURMD_NODENAME != n3 ]]")
    run = await checks.ends("gpu", "Failed")
    found = checks.nodes("gpu")["n3"]
    assert (found.result, found.evidence) == ("Failed", "FAILED, exit code 1")
    assert checks.results("gpu") == {"n3": "Failed"}
    assert checks.get("gpu").status.passed == 3
    assert [it.job_id for it in run.last_run_fail_jobs_and_reasons] == [found.job_id]
    job = checks.job("gpu-initial-run")
    assert job.failure is not None
    assert job.failure.reason == "CheckFailed"
    assert job.metadata.annotations["unhandled-slurm-job-id"] == ""
    assert len(job.metadata.annotations["slurm-job-id"].split(",")) == 4
    assert int(job.metadata.annotations["soperator-checks-final-state-time"]) > 0
    assert checks.counts == {("gpu", "passed"): 3, ("gpu", "failed"): 1}


async def test_the_bad_node_of_a_job_on_four_is_found_by_halves(checks: ChecksBed) -> None:
    await checks.check("nccl", f"#SBATCH --nodes=4\n{BAD_N3}", each=False)
    await checks.ends("nccl", "Failed")
    assert checks.results("nccl") == {"n3": "Failed"}
    assert checks.get("nccl").status.passed == 3
    # All four, two halves, two single nodes.
    assert len(checks.job("nccl-initial-run").metadata.annotations["slurm-job-id"].split(",")) == 5


@NEWEST
async def test_a_check_that_passes_is_complete(checks: ChecksBed, four: SlurmBed) -> None:
    four.scontrol("update", "nodename=n2", "state=drain", "reason=broken")
    await eventually(lambda: (it := checks.slurm.nodes.get("n2")) and "DRAIN" in it.state)
    await checks.check("disk", "true", slurmJobSpec={"user": ""})
    await checks.ends("disk", "Complete")
    assert checks.results("disk") == {}
    assert checks.get("disk").status.passed == 3  # n2 is drained, and passed by
    job = checks.job("disk-initial-run")
    assert job.complete
    assert job.status.completion_time is not None


@NEWEST
async def test_some_workers_of_many_are_checked(checks: ChecksBed) -> None:
    await checks.check("some", "true", slurmJobSpec={"maxNumberOfJobs": 2}, jitterSeconds=2)
    await checks.ends("some", "Complete")
    assert checks.get("some").status.passed == 2


@NEWEST
async def test_an_error_is_not_a_pass(checks: ChecksBed) -> None:
    await checks.check("broken", "exit 75")
    await checks.check("refused", "true", slurmJobSpec={"partition": "nowhere"})
    await checks.check("unread", "#SBATCH --array=1-4\ntrue")
    await checks.check("nobody", "true", slurmJobSpec={"user": "mallory"})
    await checks.ends("broken", "Error")
    assert set(checks.results("broken").values()) == {"Error"}
    assert checks.get("broken").status.passed == 0
    for name, why in (("refused", "no node of partition nowhere"), ("unread", "--array"), ("nobody", "mallory")):
        await checks.ends(name, "Error")
        job = checks.job(f"{name}-initial-run")
        assert job.failure is not None
        assert job.failure.reason == "CheckError"
        assert why in f"{job.failure.message} {checks.get(name).status}"


@NEWEST
async def test_a_node_that_failed_stays_listed_until_it_passes(checks: ChecksBed, four: SlurmBed) -> None:
    mark = four.path("/tmp/n3-is-well")  # noqa: S108 - in the bed
    await checks.check("disk", "[[ $SLURMD_NODENAME != n3 || -e /tmp/n3-is-well ]]")
    await checks.ends("disk", "Failed")
    four.scontrol("update", "nodename=n3", "state=drain", "reason=[node_problem]")
    await eventually(lambda: (it := checks.slurm.nodes.get("n3")) and "DRAIN" in it.state)
    await checks.start("disk", "again")
    await checks.ends("disk", "Complete", run="again")
    assert checks.results("disk") == {"n3": "Failed"}
    # Its test, once it may run jobs again.
    four.scontrol("update", "nodename=n3", "state=resume")
    await checks.start("disk", "test-1", check_node="n3")
    failed = await checks.over("test-1")
    assert failed.failure is not None
    assert checks.results("disk") == {"n3": "Failed"}
    mark.touch()
    await checks.start("disk", "test-2", check_node="n3")
    assert (await checks.over("test-2")).complete
    await eventually(lambda: checks.results("disk") == {})
    assert checks.run("disk").last_run_name == "again"
    mark.unlink()


# Time, cancellation, deletion


@NEWEST
async def test_a_run_over_its_deadline_is_cancelled_and_proves_nothing(checks: ChecksBed, four: SlurmBed) -> None:
    await checks.check("hangs", "[[ $SLURMD_NODENAME == n1 ]] || sleep 600", activeDeadlineSeconds=8)
    await checks.ends("hangs", "Error")
    assert checks.job("hangs-initial-run").failure is not None
    assert getattr(checks.job("hangs-initial-run").failure, "reason", "") == "DeadlineExceeded"
    found = checks.results("hangs")
    assert found.keys() >= ALL - {"n1"}, "on a busy machine, n1 is not done in time either"
    assert set(found.values()) == {"Error"}
    await eventually(lambda: not queued(four, "hangs"))


@NEWEST
async def test_jobs_that_somebody_cancels_say_nothing(checks: ChecksBed, four: SlurmBed) -> None:
    await checks.check("long", "sleep 600", slurmJobSpec={"maxNumberOfJobs": 1})
    await eventually(lambda: queued(four, "long"))
    four.command("scancel", "--name=long")
    run = await checks.ends("long", "Cancelled")
    assert len(run.last_run_cancelled_jobs) == 1
    assert checks.results("long") == {}


@NEWEST
async def test_a_deleted_check_takes_its_slurm_jobs_with_it(checks: ChecksBed, four: SlurmBed) -> None:
    await checks.check("gone", "sleep 600")
    await eventually(lambda: len(queued(four, "gone")) == 4)
    await checks.kube.delete(ACTIVE_CHECKS, checks.key("gone"), propagation="Background")
    await eventually(lambda: not queued(four, "gone"))
    await eventually(lambda: checks.key("gone-initial-run") not in checks.caches.jobs)


# Gates and schedules


@NEWEST
async def test_dependencies_count_for_every_run(checks: ChecksBed, four: SlurmBed) -> None:
    mark = four.path("/tmp/first-may-pass")  # noqa: S108 - in the bed
    await checks.check("first", "[[ -e /tmp/first-may-pass ]]", slurmJobSpec={"maxNumberOfJobs": 1})
    await checks.check("second", "true", dependsOn=["first"])
    await checks.ends("first", "Failed")
    await eventually(lambda: "which is Failed" in _message(checks, "second", "FirstRunStarted"))
    await checks.start("second", "early")
    await checks.ends("second", "Skipped", run="early")
    skipped = checks.job("early")
    assert skipped.complete
    assert "depends on the check first" in skipped.metadata.annotations["slurm-skipped-reason"]
    mark.touch()
    await checks.start("first", "first-again")
    await checks.ends("first", "Complete", run="first-again")
    await checks.ends("second", "Complete")
    mark.unlink()


def _message(checks: ChecksBed, name: str, type_: str) -> str:
    found = checks.caches.checks.get(checks.key(name))
    told = condition(found.status.conditions, type_) if found else None
    return told.message if told else ""


@NEWEST
async def test_nothing_starts_before_the_cluster_is_in_use(checks: ChecksBed) -> None:
    await available(checks.kube, checks.namespace, ready=False)
    await checks.check("early", "true")
    await eventually(lambda: "is not ready" in _message(checks, "early", "Ready"))
    assert not checks.jobs()
    await available(checks.kube, checks.namespace)
    await checks.ends("early", "Complete")


@NEWEST
async def test_kubernetes_runs_it_on_schedule_and_people_when_they_like(
    checks: ChecksBed, control_plane: ControlPlaneBed
) -> None:
    await checks.check("often", "true", runAfterCreation=False, suspend=False, schedule="@every 1s")
    # Kubernetes names Jobs after minutes, so there is no second one before the next.
    await eventually(lambda: any(it.complete for it in checks.jobs().values()))
    await checks.kube.merge_patch(ACTIVE_CHECKS, checks.key("often"), {"spec": {"suspend": True}})
    control_plane.kubectl("create", "job", "--from=cronjob/often", "by-hand", f"--namespace={checks.namespace}")
    # The last run may be another: a minute may begin just now, and with it one by schedule.
    await eventually(lambda: (it := checks.jobs().get("by-hand")) and it.complete)
    assert checks.key("often-initial-run") not in checks.caches.jobs


# Pods


async def _worker(checks: ChecksBed, node: str) -> str:
    """Make the pod of a Slurm node on a machine of its own."""
    machine = await checks.machine(node)
    marks = {
        "app.kubernetes.io/component": "worker",
        "slinky.slurm.net/cluster": CONTROLLER,
        "nodeset.slinky.slurm.net/pod-hostname": node,
    }
    spec = {"nodeName": machine, "containers": [{"name": "slurmd", "image": "example/none"}]}
    metadata = {"namespace": checks.namespace, "name": f"pod-{node}", "labels": marks}
    await checks.kube.create(PODS, {"metadata": metadata, "spec": spec})
    await eventually(lambda: checks.caches.operator.pods.by("node", machine))
    return machine


@NEWEST
async def test_pods_are_run_by_kubernetes_and_blame_the_nodes_of_their_machine(checks: ChecksBed) -> None:
    machine = await _worker(checks, "n2")
    spec: dict[str, Any] = {"k8sJobSpec": {"jobContainer": {"image": "example/check", "command": ["false"]}}}
    await checks.make("pods", **spec, failureReactions={"drainSlurmNode": {"drainReasonPrefix": "[x]"}})
    await eventually(lambda: checks.k8s("pods") == "Pending")
    await checks.pod_ended("pods-initial-run", code=3, node=machine)
    await eventually(lambda: checks.k8s("pods") == "Failed")
    found = checks.nodes("pods")["n2"]
    assert (found.result, found.evidence, found.job_id) == ("Failed", "exit code 3", "pods-initial-run")
    await checks.start("pods", "again")
    await checks.pod_ended("again", code=0, node=machine)
    await eventually(lambda: checks.k8s("pods") == "Complete")
    assert checks.results("pods") == {}


@NEWEST
async def test_without_reactions_a_pod_blames_nobody(checks: ChecksBed) -> None:
    machine = await _worker(checks, "n2")
    await checks.make("setup", k8sJobSpec={"jobContainer": {"image": "example/check"}})
    await checks.pod_ended("setup-initial-run", code=1, node=machine)
    await eventually(lambda: checks.k8s("setup") == "Failed")
    assert checks.results("setup") == {}


# Manifests


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"checkType": "slurmJob"}, "needs slurmJobSpec"),
        ({"checkType": "slurmJob", "slurmJobSpec": {}}, "either as sbatchScript or by sbatchScriptRefName"),
        (
            {"checkType": "slurmJob", "slurmJobSpec": {"sbatchScript": "x", "sbatchScriptRefName": "y"}},
            "either as sbatchScript or by sbatchScriptRefName",
        ),
        ({"schedule": "every day"}, "five fields"),
        ({"jitterSeconds": 5}, "for the type slurmJob"),
        ({"slurmClusterRefName": ""}, "name the SlurmCluster"),
    ],
)
async def test_what_cannot_work_is_refused(kube: Client, namespace: str, spec: dict[str, Any], why: str) -> None:
    wanted = {"name": "x", "slurmClusterRefName": CONTROLLER, **spec}
    with pytest.raises(Invalid, match=why):
        await kube.create(ACTIVE_CHECKS, {"metadata": {"namespace": namespace, "name": "x"}, "spec": wanted})


POD_NAME = {"name": "K8S_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
JAIL = {
    "volumeMounts": [{"mountPath": "/mnt/jail", "name": "jail"}],
    "volumes": [{"name": "jail", "persistentVolumeClaim": {"claimName": "jail-pvc"}}],
    "imagePullPolicy": "IfNotPresent",
}
SHAPES: dict[str, dict[str, Any]] = {
    "users": {"k8sJobSpec": {"jobContainer": {"image": "i", "command": ["bash", "-c", "true"], **JAIL}}},
    "state": {
        "dependsOn": ["users"],
        "activeDeadlineSeconds": 3600,
        "runAfterCreation": False,
        "k8sJobSpec": {
            "jobContainer": {
                "image": "i",
                "workingDir": "/opt/ansible",
                "command": ["/run.sh"],
                "args": ["-t", "all"],
                "appArmorProfile": "unconfined",
                **JAIL,
            }
        },
    },
    "hourly": {"schedule": "40 */1 * * *", "suspend": False, "runAfterCreation": False},
    "wait": {
        "hostUsers": True,
        "tolerations": [{"operator": "Exists"}],
        "k8sJobSpec": {"scriptRefName": "mine", "mungeContainer": {"image": "m", "appArmorProfile": "unconfined"}},
    },
    "gpus": {
        "checkType": "slurmJob",
        "dependsOn": ["state", "wait"],
        "schedule": "0 0,12 * * *",
        "suspend": False,
        "affinity": {"nodeAffinity": {}},
        "slurmJobSpec": {
            "sbatchScript": '#!/bin/bash\n#SBATCH --deadline="now+4hours"\n#SBATCH --time=50:00\ntrue\n',
            "eachWorkerJobs": True,
            "maxNumberOfJobs": 200,
            "jobContainer": {
                "image": "i",
                "env": [POD_NAME, {"name": "SBATCH_GPUS_PER_NODE", "value": "8"}],
                **JAIL,
            },
            "mungeContainer": {"image": "m", "appArmorProfile": "unconfined"},
        },
        "failureReactions": {"drainSlurmNode": {"drainReasonPrefix": "[node_problem]"}},
    },
}


@NEWEST
async def test_manifests_of_the_shapes_that_soperator_ships_are_taken(checks: ChecksBed) -> None:
    for name, spec in SHAPES.items():
        await checks.make(name, **spec)
    await eventually(lambda: {key.name for key in checks.caches.cron_jobs} == set(SHAPES))
    template = (await checks.kube.get(CRON_JOBS, checks.key("wait"))).spec.job_template
    pod = template["spec"]["template"]["spec"]
    assert [it["name"] for it in pod["initContainers"]] == ["munge"]
    script = await checks.kube.get(CONFIGMAPS, checks.key("sbatch-script-gpus"))
    assert "now+4hours" in script.data["sbatch.sh"]
    # No node of this Slurm has GPUs.
    await checks.start("gpus", "by-hand")
    await checks.ends("gpus", "Skipped", run="by-hand")


@NEWEST
async def test_a_script_of_a_configmap_is_run(checks: ChecksBed) -> None:
    data = {"sbatch.sh": "#!/bin/bash\n[[ $SLURMD_NODENAME != n1 ]]\n"}
    meta = {"namespace": checks.namespace, "name": "mine"}
    await checks.kube.create(CONFIGMAPS, {"metadata": meta, "data": data})
    named = {"sbatchScriptRefName": "mine", "eachWorkerJobs": True, "user": "alice"}
    await checks.make("named", checkType="slurmJob", slurmJobSpec=named)
    await checks.ends("named", "Failed")
    assert checks.results("named") == {"n1": "Failed"}
    assert (await checks.kube.get(CHECK_JOBS, checks.key("named-initial-run"))).failure
