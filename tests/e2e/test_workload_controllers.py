"""The ground of the bridge by itself: workloads that the stock scheduler places, and a Slurm beside them."""

import http.client
import json
from urllib.parse import urlsplit

import pytest

from tests.bed.bridge_ground import PARTITION, BridgeGround
from tests.bed.cluster import ClusterBed
from tests.bed.waiting import eventually
from tests.e2e.command import isthmus
from tests.e2e.pods import TOOLS


@pytest.fixture(params=["bridge_ground", "hybrid_ground"])
def ground(request: pytest.FixtureRequest) -> BridgeGround:
    """Both versions of Slurm."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, BridgeGround)
    return found


def _pod(command: str) -> dict[str, object]:
    return {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": TOOLS, "command": ["sh", "-euc", command]}],
    }


def test_a_jobset_runs_to_its_end_and_its_pods_find_each_other(workload_addons: ClusterBed, namespace: str) -> None:
    # One waits for the other: a pod that has ended is not found by its name any more.
    second = "tried-workers-1-0"
    meet = f"""
if [ "$(hostname)" = {second} ]; then exec nc -l 7000; fi
until echo found | nc -N {second}.tried 7000; do sleep 0.2; done
"""
    job = {"backoffLimit": 0, "template": {"spec": {**_pod(meet), "restartPolicy": "Never"}}}
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "tried", "namespace": namespace},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": job}}]},
    }
    workload_addons.apply(json.dumps(document))
    workload_addons.kubectl(
        "wait", f"--namespace={namespace}", "--for=condition=Completed", "jobset/tried", "--timeout=240s"
    )
    phases = workload_addons.kubectl(
        "get", "pods", f"--namespace={namespace}", "-o", "jsonpath={.items[*].status.phase}"
    )
    assert phases.split() == ["Succeeded", "Succeeded"]


def test_a_leaderworkerset_gets_ready_and_its_workers_know_their_leader(
    workload_addons: ClusterBed, namespace: str
) -> None:
    document = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "tried", "namespace": namespace},
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": _pod("exec sleep infinity")}},
        },
    }
    workload_addons.apply(json.dumps(document))
    workload_addons.kubectl(
        "wait", f"--namespace={namespace}", "--for=condition=Available", "lws/tried", "--timeout=240s"
    )
    # That says the leaders are ready; what is asked is a worker.
    for state in ("create", "condition=Ready"):
        workload_addons.kubectl(
            "wait", f"--namespace={namespace}", f"--for={state}", "pod/tried-1-1", "--timeout=240s"
        )
    leader = workload_addons.exec("tried-1-1", "printenv", "LWS_LEADER_ADDRESS", namespace=namespace)
    assert leader == f"tried-1.tried.{namespace}\n"


def test_addons_are_listed_installed_again_and_refused(workload_addons: ClusterBed) -> None:
    assert "podgroup" in isthmus("addon", "list").stdout
    again = isthmus("addon", "install", "--name", workload_addons.name, "podgroup", "jobset")
    assert again.returncode == 0, again.stderr
    wrong = isthmus("addon", "install", "--name", workload_addons.name, "nonsense")
    assert wrong.returncode == 1
    assert "choose from: jobset, lws, podgroup" in wrong.stderr


def test_a_native_job_runs_and_is_accounted_for(ground: BridgeGround) -> None:
    job = ground.slurm("sbatch", "--parsable", "--nodes=2", "--wrap=srun true").strip()
    ended = ["sacct", f"--jobs={job}", "--noheader", "--parsable2", "--format=jobid,state,nnodes"]
    # slurmctld tells slurmdbd of the job, its batch script and its step one by one.
    parts = {f"{job}|COMPLETED|2", f"{job}.batch|COMPLETED|1", f"{job}.0|COMPLETED|2"}
    eventually(
        lambda: set(ground.slurm(*ended).splitlines()), f"all of job {job} in sacct", holds=lambda it: it == parts
    )
    placed = {ground.kubernetes_node(f"slurmd-{number}") for number in (0, 1)}
    assert len(placed) == 2
    assert placed <= set(ground.cluster.workers)


def test_slurmrestd_is_reached_from_the_host_with_the_token_of_the_secret(ground: BridgeGround) -> None:
    stored = ground.kubectl("get", "secret", "slurm-bridge-token", f"--namespace={ground.namespace}", "-o", "json")
    assert list(json.loads(stored)["data"]) == ["auth-token"]
    where = urlsplit(ground.rest_url)
    assert where.hostname
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    try:
        for token, status in ((ground.token, 200), ("nonsense", 511)):
            headers = {"X-SLURM-USER-NAME": "slurm", "X-SLURM-USER-TOKEN": token}
            connection.request("GET", f"/slurm/v0.0.42/partition/{PARTITION}", headers=headers)
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == status, content
            if token == ground.token:
                assert json.loads(content)["partitions"][0]["name"] == PARTITION
    finally:
        connection.close()


def test_jobs_outlive_slurmctld(ground: BridgeGround) -> None:
    job = ground.slurm("sbatch", "--parsable", "--hold", "--wrap=true").strip()
    there = f"--namespace={ground.namespace}"

    def restarts() -> int | None:
        found = ground.cluster.get("pod/slurmctld-0", ground.namespace)["status"].get("containerStatuses", [])
        return int(found[0]["restartCount"]) if found else None

    before = restarts()
    assert before is not None
    ground.slurm("scontrol", "shutdown", "slurmctld")
    eventually(restarts, "the container to start again", holds=lambda it: it not in {None, before})
    ground.kubectl("wait", there, "--for=condition=Ready", "pod/slurmctld-0", "--timeout=180s")
    try:
        assert job in ground.slurm("squeue", "--noheader", "--format=%i").split()
    finally:
        ground.slurm("scancel", job)
