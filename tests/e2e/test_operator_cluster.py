"""A SlurmCluster with real Slurm in pods: the documents' commands, word for word, and ours beside them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bed.operator_ground import CHARTS, OperatorGround

NAME = "correct-cpu-cluster"
NAMESPACE = "correct-cpu-cluster"

MY_JOB = """#!/bin/bash
#SBATCH --ntasks=2
#SBATCH --time=10:00
#SBATCH --output=job_%j.out
srun hostname
"""

ARRAY_JOB = """#!/bin/bash
#SBATCH --output=array_%a.out
echo task $SLURM_ARRAY_TASK_ID
"""


@dataclass(frozen=True)
class Cluster:
    """A cluster of three workers with accounting, and somebody who can log in to it."""

    ground: OperatorGround
    home: Path

    def kubectl(self, words: str) -> str:
        """Run kubectl with words as the documents have them."""
        return self.ground.kubectl(*words.split())

    def login(self, *words: str, user: str = "soperator") -> str:
        """Run a command on the login node, in the user's home."""
        script = 'exec "$0" "$@"'
        return self.ground.exec("login-0", "su", "-l", "-c", script, "--", user, *words, namespace=NAMESPACE)

    def isthmus(self, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Run our own command, with the user's home."""
        return subprocess.run(
            [Path(sys.executable).parent / "isthmus", *words],
            env={**os.environ, "HOME": str(self.home), "KUBECONFIG": str(self.ground.kubeconfig)},
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
        )

    def write(self, name: str, text: str) -> None:
        """Put a file into the user's home."""
        words = ("su", "-l", "-c", f"cat > {name}", "soperator")
        self.ground.kubectl("exec", "-i", "login-0", "-n", NAMESPACE, "--", *words, stdin=text)

    def submit(self, *words: str) -> str:
        """Submit a job; its id."""
        said = self.login("sbatch", *words)
        match = re.fullmatch(r"Submitted batch job (\d+)\n", said)
        assert match, said
        return match[1]

    def ended(self, job: str) -> str:
        """Wait for a job to end; how it did, by accounting."""
        self.ground.eventually(
            lambda: not self.login("squeue", "-h", "-j", job, "-o%T").strip(), f"job {job} to end"
        )

        def state() -> str:
            return self.login("sacct", "-nXPj", job, "-o", "state").strip().partition("\n")[0]

        self.ground.eventually(lambda: state() not in {"", "RUNNING", "PENDING"}, f"accounting to have job {job}")
        return state()

    def workers(self, count: int) -> bool:
        """Whether Slurm has so many workers and no more, all of them idle."""
        states = set(self.login("sinfo", "-h", "-N", "-o", "%N %T").splitlines())
        return len(states) == count and all(line.endswith(" idle") for line in states)


@pytest.fixture(scope="module")
def slurm(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of the documents, made by our command."""
    made = Cluster(operator_ground, tmp_path_factory.mktemp("home"))
    done = made.isthmus(
        "cluster",
        "create",
        NAME,
        "--workers=3",
        "--memory=512Mi",
        f"--namespace={NAMESPACE}",
        "--node-port=30022",
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{operator_ground.story(NAMESPACE)}"
    yield made
    made.isthmus("cluster", "delete", NAME, "--data")
    operator_ground.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


# The documents' ways to look at a cluster


def test_pods_have_the_names_and_labels_of_the_documents(slurm: Cluster) -> None:
    pods = slurm.kubectl(f"get pods -n {NAMESPACE} -o name").split()
    assert {f"pod/{name}" for name in ("controller-0", "login-0", "worker-0", "worker-1", "worker-2")} <= set(pods)
    workers = slurm.kubectl(f"get pods -n {NAMESPACE} -l app.kubernetes.io/component=worker -o name").split()
    assert len(workers) == 3
    assert slurm.kubectl(f"logs -n {NAMESPACE} -l app.kubernetes.io/component=controller")
    assert slurm.kubectl(f"logs -n {NAMESPACE} controller-0")


def test_kubectl_tells_how_the_cluster_is(slurm: Cluster) -> None:
    slurm.kubectl(f"wait --for=condition=Ready slurmcluster/{NAME} -n {NAMESPACE} --timeout=180s")
    line = next(it for it in slurm.kubectl("get slurmclusters -A").splitlines() if NAME in it)
    assert "Available" in line
    assert "3/3" in line
    described = slurm.kubectl(f"describe slurmcluster {NAME} -n {NAMESPACE}")
    assert "Ready" in described
    assert slurm.kubectl(f"get events -n {NAMESPACE} --sort-by=.metadata.creationTimestamp")


def test_no_pod_of_slurm_is_on_the_control_plane(slurm: Cluster) -> None:
    nodes = json.loads(slurm.kubectl(f"get pods -n {NAMESPACE} -o json"))
    used = {it["spec"].get("nodeName") for it in nodes["items"]}
    assert slurm.ground.cluster.cluster.nodes[0].name not in used


def test_slurm_shows_its_nodes_from_the_login_node(slurm: Cluster) -> None:
    assert slurm.kubectl(f"exec login-0 -n {NAMESPACE} -- which sbatch") == "/usr/bin/sbatch\n"
    shown = slurm.kubectl(f"exec login-0 -n {NAMESPACE} -- sinfo")
    assert shown.splitlines()[0].split() == ["PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "NODELIST"]
    assert "main*" in shown
    assert "hidden" not in slurm.login("sinfo")  # to anybody but root
    assert slurm.kubectl(f"exec login-0 -n {NAMESPACE} -- scontrol show nodes").count("NodeName=worker-") == 3


def test_names_and_services_are_found(slurm: Cluster) -> None:
    assert "worker-0" in slurm.kubectl(f"exec login-0 -n {NAMESPACE} -- nslookup worker-0")
    told = slurm.ground.attempt(*f"exec -i login-0 -n {NAMESPACE} -- telnet slurmctld 6817".split(), stdin="")
    assert "Connected to slurmctld" in told.stdout + told.stderr
    assert "1 received" in slurm.kubectl(f"exec worker-0 -n {NAMESPACE} -- ping -c 1 worker-1")


# Working with it


def test_a_job_as_the_documents_have_it(slurm: Cluster) -> None:
    slurm.write("my_job.sh", MY_JOB)
    job = slurm.submit("my_job.sh")
    shown = slurm.login("scontrol", "show", "job", job)
    assert f"JobId={job} JobName=my_job.sh" in shown
    assert slurm.ended(job) == "COMPLETED"
    out = slurm.login("cat", f"job_{job}.out").split()
    assert len(out) == 2
    assert {name.rpartition("-")[0] for name in out} == {"worker"}


def test_srun_on_all_nodes_and_a_shell_on_one(slurm: Cluster) -> None:
    assert sorted(slurm.login("srun", "-N3", "hostname").split()) == ["worker-0", "worker-1", "worker-2"]
    assert slurm.login("srun", "--pty", "--ntasks=1", "bash", "-c", "echo here $SLURM_JOB_ID").startswith("here ")
    slurm.write("test_job.sh", MY_JOB)
    tried = slurm.ground.attempt(
        *f"exec login-0 -n {NAMESPACE} -- sbatch --test-only /home/soperator/test_job.sh".split()
    )
    assert tried.returncode == 0
    assert "to start at" in tried.stdout + tried.stderr


def test_an_array_of_a_hundred_tasks(slurm: Cluster) -> None:
    slurm.write("array_job.sh", ARRAY_JOB)
    job = slurm.submit("--array=1-100%10", "array_job.sh")
    assert slurm.login("squeue", "-u", "soperator")
    slurm.ground.eventually(
        lambda: not slurm.login("squeue", "-h", "-j", job, "-o%T").strip(), "all tasks to end", within=600
    )
    written = slurm.login("bash", "-c", "cat array_*.out | sort -u | wc -l").strip()
    assert written == "100"


def test_what_a_running_job_uses(slurm: Cluster) -> None:
    job = slurm.submit("--wrap=srun sleep 600")
    slurm.ground.eventually(
        lambda: f"{job}.0" in slurm.login("squeue", "-h", "-s", "-j", job), "the job's step to run"
    )
    slurm.ground.eventually(
        lambda: f"{job}.0" in slurm.login("sstat", "-nPj", job, "-o", "jobid,avecpu"), "sstat to know the step"
    )
    slurm.login("scancel", job)
    assert slurm.ended(job).startswith("CANCELLED")
    assert NAME in slurm.login("sacctmgr", "-nP", "show", "cluster", "format=cluster")


def test_jobs_that_wait_for_others(slurm: Cluster) -> None:
    first = slurm.submit("--wrap=sleep 1; echo first > order.txt")
    second = slurm.submit(f"--dependency=afterok:{first}", "--wrap=echo second >> order.txt")
    assert slurm.ended(second) == "COMPLETED"
    assert slurm.login("cat", "order.txt").split() == ["first", "second"]
    assert slurm.login("salloc", "-N2", "srun", "hostname").count("worker-") == 2


def test_ssh_and_scp(slurm: Cluster, tmp_path: Path) -> None:
    done = slurm.isthmus("cluster", "ssh", NAME, "--", "srun", "hostname")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("worker-")
    key = slurm.home / ".config" / "isthmus" / "id_ed25519"
    address = slurm.kubectl("get nodes -o jsonpath={.items[0].status.addresses[0].address}")
    words = ("-i", str(key), "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={tmp_path}/known")
    slurm.login("bash", "-c", "mkdir -p results; echo 42 > results/answer")
    copied = subprocess.run(
        ["scp", *words, "-P", "30022", f"soperator@{address}:~/results/*", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert copied.returncode == 0, copied.stderr
    assert (tmp_path / "answer").read_text() == "42\n"


# Changing it


def test_more_workers_by_patch_and_fewer_again(slurm: Cluster) -> None:
    def patch(size: int) -> None:
        slurm.ground.kubectl(
            *f"patch slurmcluster {NAME} -n {NAMESPACE} --type=merge".split(),
            f'-p={{"spec":{{"slurmNodes":{{"worker":{{"size":{size}}}}}}}}}',
        )

    patch(4)
    slurm.ground.eventually(lambda: slurm.workers(4), "the fourth worker to be idle")
    patch(3)
    slurm.ground.eventually(lambda: slurm.workers(3), "the fourth worker to be gone")
    slurm.ground.ready(f"slurmcluster/{NAME}", NAMESPACE)


def test_a_setting_reaches_the_running_cluster(slurm: Cluster) -> None:
    before = json.loads(slurm.kubectl(f"get pod controller-0 -n {NAMESPACE} -o json"))["metadata"]["uid"]
    patch = {"spec": {"customSlurmConfig": "MinJobAge=4321\n"}}
    slurm.ground.kubectl(
        *f"patch slurmcluster {NAME} -n {NAMESPACE} --type=merge".split(), f"-p={json.dumps(patch)}"
    )
    slurm.ground.eventually(
        lambda: re.search(r"MinJobAge\s*= 4321", slurm.login("scontrol", "show", "config")), "the new setting"
    )
    after = json.loads(slurm.kubectl(f"get pod controller-0 -n {NAMESPACE} -o json"))["metadata"]["uid"]
    assert after == before  # no restart was needed
    for worker in ("worker-0", "worker-1", "worker-2"):
        read = f"exec {worker} -n {NAMESPACE} -- cat /run/slurm/conf/slurm.conf"
        slurm.ground.eventually(lambda: "MinJobAge=4321" in slurm.kubectl(read), f"{worker} to know")  # noqa: B023 - now


# Our own commands


def test_our_status_and_our_doctor_find_nothing_wrong(slurm: Cluster) -> None:
    slurm.ground.ready(f"slurmcluster/{NAME}", NAMESPACE)
    slurm.ground.eventually(lambda: slurm.workers(3), "three idle workers")
    done = slurm.isthmus("cluster", "status", NAME)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nodes: 3 idle" in done.stdout
    assert "isthmus cluster ssh" in done.stdout
    done = slurm.isthmus("doctor", NAME)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is" in done.stdout
    done = slurm.isthmus("cluster", "exec", NAME, "--user=soperator", "--", "sinfo", "-h", "-o%P")
    assert done.stdout == "main*\n"
    done = slurm.isthmus("cluster", "exec", NAME, "--", "bash", "-c", "cat; exit 3", stdin="through\n")
    assert (done.returncode, done.stdout) == (3, "through\n")


def test_the_doctor_finds_a_node_that_was_set_down(slurm: Cluster) -> None:
    slurm.login("scontrol", "update", "nodename=worker-2", "state=down", "reason=test broke it", user="root")
    try:
        done = slurm.isthmus("doctor", NAME)
        assert done.returncode == 1
        assert "1 node is DOWN: worker-2" in done.stdout
        assert "test broke it" in done.stdout
    finally:
        slurm.login("scontrol", "update", "nodename=worker-2", "state=resume", user="root")


def test_the_doctor_finds_an_image_and_a_filter_that_do_not_exist(slurm: Cluster) -> None:
    with slurm.ground.namespace("broken") as namespace:
        broken = {
            "apiVersion": "slurm.nebius.ai/v1",
            "kind": "SlurmCluster",
            "metadata": {"name": "broken"},
            "spec": {
                "k8sNodeFilters": [{"name": "moon", "nodeSelector": {"planet": "moon"}}],
                "slurmNodes": {
                    "controller": {"slurmctld": {"image": "isthmus.local/none:1", "imagePullPolicy": "Never"}},
                    "worker": {"size": 1, "k8sNodeFilterName": "moon"},
                },
            },
        }
        slurm.ground.apply(broken, namespace)

        def areas() -> set[str]:
            done = slurm.isthmus("doctor", "--namespace", namespace, "--json")
            assert done.stdout, done.stderr
            return {finding["area"] for finding in json.loads(done.stdout)["findings"]}

        slurm.ground.eventually(lambda: {"images", "placing"} <= areas(), "the doctor to see both")
        # A cluster that never came up can be removed, too.
        slurm.kubectl(f"delete slurmcluster broken -n {namespace} --timeout=180s")


def test_a_cluster_by_helm_in_the_old_version_beside_the_first(slurm: Cluster) -> None:
    chart = str(CHARTS / "slurm-cluster")
    with slurm.ground.namespace("my-namespace") as namespace:
        values = (
            "--set=slurmVersion=24.11",
            "--set=slurmNodes.worker.size=1",
            "--set=slurmNodes.login.sshdServiceNodePort=0",
            "--set=slurmNodes.worker.resources.memory=512Mi",
        )
        slurm.ground.helm("install", "my-cluster", chart, f"--namespace={namespace}", *values)
        slurm.ground.ready("slurmcluster/my-cluster", namespace)
        assert slurm.ground.exec("login-0", "sinfo", "--version", namespace=namespace).startswith("slurm-wlm 24.11")
        slurm.ground.helm(
            *("upgrade", "my-cluster", chart, f"--namespace={namespace}", "--reuse-values"),
            *("--set=slurmNodes.worker.size=2", "--set=slurmNodes.controller.resources.memory=1Gi"),
        )
        # slurmctld is made anew meanwhile, since its memory has changed. Who asks the old one, hears nothing.
        asking = f"exec login-0 -n {namespace} -- timeout 30 sinfo -hN -p main -o%T".split()
        slurm.ground.eventually(
            lambda: slurm.ground.attempt(*asking).stdout.split() == ["idle", "idle"],
            "the second worker to be idle",
            within=300,
            namespace=namespace,
        )
        # The old one may have seen that worker, too.
        limit = (
            *f"get pod controller-0 -n {namespace} -o".split(),
            "jsonpath={.spec.containers[0].resources.limits.memory}",
        )
        slurm.ground.eventually(lambda: slurm.ground.kubectl(*limit) == "1Gi", "slurmctld to have more memory")
