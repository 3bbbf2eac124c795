"""A SlurmCluster with real Slurm in pods: the documents' commands, word for word, and ours beside them."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.bed.browser import running
from tests.bed.commands import Done, attempt, checked
from tests.bed.operator_ground import OperatorGround
from tests.bed.webpage import see, serving
from tests.e2e.command import isthmus
from tests.e2e.injected import INJECTED, STILLBORN, findings, stillborn
from tests.e2e.site import UNFINISHED, Site

DEMO = Path(__file__).parents[2] / "examples" / "demo"
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
    """A cluster of three workers with accounting, and the home of somebody who can log in to it."""

    site: Site
    home: Path

    def kubectl(self, words: str) -> str:
        """Run kubectl with words as the documents have them."""
        return self.site.ground.kubectl(*words.split())

    def isthmus(self, *words: str, stdin: str = "") -> Done:
        """Run our own command, with the user's home."""
        return isthmus(*words, stdin=stdin, HOME=self.home, KUBECONFIG=self.site.ground.kubeconfig)

    def write(self, name: str, text: str) -> None:
        """Put a file into the user's home."""
        self.site.exec("login-0", "su", "-l", "-c", f"cat > {name}", "soperator", stdin=text)

    def submit(self, *words: str) -> str:
        """Submit a job; its id."""
        said = self.site.login("sbatch", *words)
        match = re.fullmatch(r"Submitted batch job (\d+)\n", said)
        assert match, said
        return match[1]

    def left_queue(self, job: str) -> None:
        """Wait until squeue shows a job, or an array, no more."""
        shown = ("squeue", "-h", "-j", job, "-o%i %T")
        self.site.eventually(lambda: self.site.login(*shown), f"job {job} to end", holds=lambda it: not it.strip())

    def ended(self, job: str) -> str:
        """Wait for a job to end; how it did, by accounting."""
        self.left_queue(job)
        told = ("sacct", "-nXPj", job, "-o", "state")
        return self.site.eventually(
            lambda: self.site.login(*told).strip().partition("\n")[0],
            f"accounting to have job {job}",
            holds=lambda it: it not in UNFINISHED,
        )

    def workers(self, count: int) -> None:
        """Wait until Slurm has so many workers and no more, all of them idle."""
        self.site.eventually(
            self.site.states,
            f"{count} idle workers",
            holds=lambda it: it == {f"worker-{number}": "idle" for number in range(count)},
        )


@pytest.fixture(scope="module")
def slurm(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of the documents, made by our command."""
    site = Site(operator_ground, NAMESPACE, slurmctld="login-0")
    made = Cluster(site, tmp_path_factory.mktemp("home"))
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
    made.isthmus("cluster", "delete", NAME, "--data", "--yes")
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
    assert slurm.site.ground.cluster.cluster.nodes[0].name not in used


def test_slurm_shows_its_nodes_from_the_login_node(slurm: Cluster) -> None:
    assert slurm.kubectl(f"exec login-0 -n {NAMESPACE} -- which sbatch") == "/usr/bin/sbatch\n"
    shown = slurm.kubectl(f"exec login-0 -n {NAMESPACE} -- sinfo")
    assert shown.splitlines()[0].split() == ["PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "NODELIST"]
    assert "main*" in shown
    assert "hidden" not in slurm.site.login("sinfo")  # to anybody but root
    assert slurm.kubectl(f"exec login-0 -n {NAMESPACE} -- scontrol show nodes").count("NodeName=worker-") == 3


def test_names_and_services_are_found(slurm: Cluster) -> None:
    assert "worker-0" in slurm.kubectl(f"exec login-0 -n {NAMESPACE} -- nslookup worker-0")
    told = slurm.site.ground.attempt(*f"exec -i login-0 -n {NAMESPACE} -- telnet slurmctld 6817".split(), stdin="")
    assert "Connected to slurmctld" in told.stdout + told.stderr
    assert "1 received" in slurm.kubectl(f"exec worker-0 -n {NAMESPACE} -- ping -c 1 worker-1")


def test_users_ping_each_node_and_find_slurm_conf_where_it_always_is(slurm: Cluster) -> None:
    ping = ("ping", "-c", "1", "worker-1")
    assert "1 received" in slurm.site.login(*ping)
    assert "1 received" in slurm.site.login("srun", "--nodelist=worker-0", *ping)
    there = ("env", "SLURM_CONF=/etc/slurm/slurm.conf")
    assert slurm.site.login(*there, "srun", *there, "squeue", "--noheader", "--me", "--states=running")


def test_containers_have_the_names_of_the_documents(slurm: Cluster) -> None:
    columns = "NAME:.metadata.name,CONTAINERS:.spec.containers[*].name,INIT_CONTAINERS:.spec.initContainers[*].name"
    shown = slurm.kubectl(f"get pods -n {NAMESPACE} -o custom-columns={columns}")
    of_pod = {line.split()[0]: line.split()[1] for line in shown.splitlines()}
    assert of_pod["controller-0"] == "slurmctld"
    assert of_pod["worker-0"] == "slurmd"
    assert of_pod["login-0"] == "sshd"
    node = slurm.kubectl(f"get pod login-0 -n {NAMESPACE} -o jsonpath={{.spec.nodeName}}")
    told = isthmus("node", "exec", node, "--name", slurm.site.ground.cluster.name, "--", "crictl", "ps")
    assert re.search(r"Running +sshd .* login-0", told.stdout), told


def test_the_scripts_of_the_demonstration(slurm: Cluster) -> None:
    for script in sorted(DEMO.glob("0*.sh")):
        path = f"{slurm.site.ground.cluster.cluster.plane.binaries['kubectl'].parent}:{os.environ['PATH']}"
        kubeconfig = str(slurm.site.ground.kubeconfig)
        env = {**os.environ, "KUBECONFIG": kubeconfig, "NAMESPACE": NAMESPACE, "PATH": path}
        done = attempt(script, env=env)
        assert done.returncode == 0, f"{script.name}\n{done.stdout}{done.stderr}"


# Working with it


def test_a_job_as_the_documents_have_it(slurm: Cluster) -> None:
    slurm.write("my_job.sh", MY_JOB)
    job = slurm.submit("my_job.sh")
    shown = slurm.site.login("scontrol", "show", "job", job)
    assert f"JobId={job} JobName=my_job.sh" in shown
    assert slurm.ended(job) == "COMPLETED"
    out = slurm.site.login("cat", f"job_{job}.out").split()
    assert len(out) == 2
    assert {name.rpartition("-")[0] for name in out} == {"worker"}


def test_srun_on_all_nodes_and_a_shell_on_one(slurm: Cluster) -> None:
    assert sorted(slurm.site.login("srun", "-N3", "hostname").split()) == ["worker-0", "worker-1", "worker-2"]
    assert slurm.site.login("srun", "--pty", "--ntasks=1", "bash", "-c", "echo here $SLURM_JOB_ID").startswith(
        "here "
    )
    slurm.write("test_job.sh", MY_JOB)
    tried = slurm.site.ground.attempt(
        *f"exec login-0 -n {NAMESPACE} -- sbatch --test-only /home/soperator/test_job.sh".split()
    )
    assert tried.returncode == 0
    assert "to start at" in tried.stdout + tried.stderr


def test_an_array_of_twenty_tasks(slurm: Cluster) -> None:
    slurm.write("array_job.sh", ARRAY_JOB)
    job = slurm.submit("--array=1-20%10", "array_job.sh")
    assert slurm.site.login("squeue", "-u", "soperator")
    slurm.left_queue(job)
    written = slurm.site.login("bash", "-c", "cat array_*.out | sort -u | wc -l").strip()
    assert written == "20"


def test_what_a_running_job_uses(slurm: Cluster) -> None:
    job = slurm.submit("--wrap=srun sleep 600")
    slurm.site.eventually(
        lambda: slurm.site.login("squeue", "-h", "-s", "-j", job),
        "the job's step to run",
        holds=lambda it: f"{job}.0" in it,
    )
    slurm.site.eventually(
        lambda: slurm.site.login("sstat", "-nPj", job, "-o", "jobid,avecpu"),
        "sstat to know the step",
        holds=lambda it: f"{job}.0" in it,
    )
    slurm.site.login("scancel", job)
    assert slurm.ended(job).startswith("CANCELLED")
    assert NAME in slurm.site.login("sacctmgr", "-nP", "show", "cluster", "format=cluster")


def test_jobs_that_wait_for_others(slurm: Cluster) -> None:
    first = slurm.submit("--hold", "--wrap=echo first > order.txt")
    second = slurm.submit(f"--dependency=afterok:{first}", "--wrap=echo second >> order.txt")
    slurm.site.login("scontrol", "release", first)
    assert slurm.ended(second) == "COMPLETED"
    assert slurm.site.login("cat", "order.txt").split() == ["first", "second"]
    assert slurm.site.login("salloc", "-N2", "srun", "hostname").count("worker-") == 2


def test_ssh_and_scp(slurm: Cluster, tmp_path: Path) -> None:
    done = slurm.isthmus("cluster", "ssh", NAME, "--", "srun", "hostname")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("worker-")
    key = slurm.home / ".config" / "isthmus" / "id_ed25519"
    address = slurm.site.ground.cluster.cluster.nodes[0].address
    words = ("-i", str(key), "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={tmp_path}/known")
    slurm.site.login("bash", "-c", "mkdir -p results; echo 42 > results/answer")
    checked(attempt("scp", *words, "-P", "30022", f"soperator@{address}:~/results/*", tmp_path))
    assert (tmp_path / "answer").read_text() == "42\n"


def test_the_page_shows_what_jobs_and_pods_write(slurm: Cluster, tmp_path: Path) -> None:
    """A file in a home that only the cluster's nodes have, and what kubelet keeps; both while they are written."""
    job = slurm.submit("--output=written.txt", "--wrap=echo begun; until [ -e go ]; do sleep 0.2; done; echo over")
    slurm.site.until(job, "RUNNING")
    address = slurm.kubectl(f"get service {NAME}-restapi -n {NAMESPACE} -o jsonpath={{.spec.clusterIP}}")
    token = slurm.site.run("scontrol", "token", "username=slurm").strip().removeprefix("SLURM_JWT=")
    kubeconfig, log = slurm.site.ground.kubeconfig, tmp_path / "web.log"
    with (
        serving(
            kubeconfig, rest_url=f"http://{address}:6820", token=token, log=log, more=("--insecure-no-login",)
        ) as url,
        running() as browser,
    ):
        page = browser.new_page()
        see(page, url, f"why/job/{job}")
        page.get_by_role("button", name="Follow").click()
        expect(page.locator("pre.log")).to_have_text("begun")
        slurm.site.login("touch", "go")
        expect(page.locator("pre.log")).to_contain_text("over")
        see(page, url, f"why/pod/{NAMESPACE}/controller-0")
        page.get_by_role("button", name="Follow").click()
        expect(page.locator("pre.log")).to_contain_text(f"JobId={job}")
        see(page, url, "node/worker-0")
        expect(page.get_by_role("heading", level=1)).to_contain_text("worker-0")
    assert slurm.ended(job) == "COMPLETED"


# Changing it


def test_more_workers_by_patch_and_fewer_again(slurm: Cluster) -> None:
    def patch(size: int) -> None:
        slurm.site.ground.kubectl(
            *f"patch slurmcluster {NAME} -n {NAMESPACE} --type=merge".split(),
            f'-p={{"spec":{{"slurmNodes":{{"worker":{{"size":{size}}}}}}}}}',
        )

    patch(4)
    slurm.workers(4)
    patch(3)
    slurm.workers(3)
    slurm.site.ready(f"slurmcluster/{NAME}")


def test_a_setting_reaches_the_running_cluster(slurm: Cluster) -> None:
    before = slurm.site.uid("controller-0")
    slurm.site.patch(f"slurmcluster/{NAME}", {"spec": {"customSlurmConfig": "MinJobAge=4321\n"}})
    slurm.site.eventually(
        lambda: slurm.site.login("scontrol", "show", "config"),
        "the new setting",
        holds=lambda it: re.search(r"MinJobAge\s*= 4321", it),
    )
    assert slurm.site.uid("controller-0") == before  # no restart was needed
    for worker in ("worker-0", "worker-1", "worker-2"):
        slurm.site.eventually(
            lambda: slurm.site.exec(worker, "cat", "/run/slurm/conf/slurm.conf"),  # noqa: B023 - now
            f"{worker} to know",
            holds=lambda it: "MinJobAge=4321" in it,
        )


def test_the_exporter_of_a_cluster_shows_its_jobs_and_nodes(slurm: Cluster) -> None:
    """It stays for the tests below: nothing is wrong with a cluster that has one."""
    slurm.site.patch(f"slurmcluster/{NAME}", {"spec": {"slurmNodes": {"exporter": {"enabled": True}}}})
    job = slurm.submit("--job-name=seen", "--wrap=sleep 600")
    slurm.kubectl(f"wait --for=condition=ExporterAvailable slurmcluster/{NAME} -n {NAMESPACE} --timeout=180s")

    def shown(port: str) -> str:
        return slurm.kubectl(
            f"get --raw /api/v1/namespaces/{NAMESPACE}/services/slurm-exporter:{port}/proxy/metrics"
        )

    # slurmrestd does not know users of the shared root: the exporter learns their names from the accounts.
    named = re.compile(rf'^slurm_job_info{{job_id="{job}".*job_name="seen".*user_name="soperator"', re.MULTILINE)
    try:
        text = slurm.site.eventually(lambda: shown("metrics"), "the job with its user", holds=named.search)
    finally:
        slurm.site.login("scancel", job)  # the cluster would wait for it before it goes
    assert set(re.findall(r'^slurm_node_info{.*?node_name="(.*?)"', text, re.MULTILINE)) == {
        "worker-0",
        "worker-1",
        "worker-2",
    }
    assert "slurm_exporter_collection_attempts_total" in shown("monitoring")
    slurm.left_queue(job)


# Our own commands


def test_our_status_and_our_doctor_find_nothing_wrong(slurm: Cluster) -> None:
    slurm.site.ready(f"slurmcluster/{NAME}")
    slurm.workers(3)
    done = slurm.isthmus("cluster", "status", NAME)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nodes: 3 idle" in done.stdout
    assert "isthmus cluster ssh" in done.stdout
    done = slurm.isthmus("doctor", NAME)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no problem found" in done.stdout or "no error found" in done.stdout
    done = slurm.isthmus("cluster", "exec", NAME, "--user=soperator", "--", "sinfo", "-h", "-o%P")
    assert done.stdout == "main*\n"
    done = slurm.isthmus("cluster", "exec", NAME, "--", "bash", "-c", "cat; exit 3", stdin="through\n")
    assert (done.returncode, done.stdout) == (3, "through\n")


def test_a_plan_names_nodes_and_jobs_and_what_slurm_refuses(slurm: Cluster) -> None:
    slurm.workers(3)
    # Two of three nodes go; the idle one is the first of them.
    job = slurm.site.submit("sleep 300", "--nodelist=worker-1,worker-2", "--time=10")
    try:
        slurm.site.until(job, "RUNNING")
        fewer = planned(slurm, {"slurmNodes": {"worker": {"size": 1}}})
    finally:
        slurm.site.run("scancel", job)
    assert "worker-0: no job" in fewer
    assert re.search(rf"worker-[12]: job {job} of root, done within ", fewer)
    assert "~ workers worker: 3 → 1" in fewer
    refused = planned(slurm, {"customSlurmConfig": "Fantasy=yes"})
    assert "✗ Parsing error at unrecognized key: Fantasy" in refused
    assert "+Fantasy=yes" in refused
    slurm.workers(3)


def planned(slurm: Cluster, spec: dict[str, Any]) -> str:
    meta = {"name": NAME, "namespace": NAMESPACE}
    manifest = {"apiVersion": "slurm.nebius.ai/v1", "kind": "SlurmCluster", "metadata": meta, "spec": spec}
    return str(slurm.isthmus("plan", "-f", "-", stdin=json.dumps(manifest)).stdout)


@pytest.mark.parametrize("fault", INJECTED)
def test_the_doctor_names_what_was_injected_and_nothing_else(slurm: Cluster, fault: str) -> None:
    done_to, printed, within = INJECTED[fault]

    def look() -> list[str]:
        return findings(slurm.site, NAME)

    with done_to(slurm.site, NAME):
        slurm.site.eventually(
            look,
            f"the doctor to print {printed!r} alone",
            holds=lambda it: len(it) == 1 and it[0].startswith(printed),
            within=within,
        )
    slurm.site.eventually(look, "all to be well again", holds=lambda it: not it)


@pytest.fixture(scope="module")
def ill(operator_ground: OperatorGround) -> Iterator[dict[str, Site]]:
    with stillborn(operator_ground) as sites:
        yield sites


@pytest.mark.parametrize("fault", STILLBORN)
def test_the_doctor_names_what_keeps_a_cluster_from_coming_up_and_nothing_else(
    ill: dict[str, Site], fault: str
) -> None:
    site, it = ill[fault], STILLBORN[fault]
    if it.then:
        site.eventually(lambda: site.exec("controller-0", "bash", "-euc", it.then) or True, "slurmctld to run")
    site.eventually(
        lambda: findings(site),
        f"the doctor to print {it.printed!r} alone",
        holds=lambda seen: len(seen) == 1 and seen[0].startswith(it.printed),
    )


def test_the_doctor_finds_an_image_and_a_filter_that_do_not_exist(slurm: Cluster) -> None:
    with slurm.site.ground.namespace("broken") as namespace:
        broken = {
            "apiVersion": "slurm.nebius.ai/v1",
            "kind": "SlurmCluster",
            "metadata": {"name": "broken"},
            "spec": {
                "populateJail": {"enabled": False},
                "k8sNodeFilters": [{"name": "moon", "nodeSelector": {"planet": "moon"}}],
                "slurmNodes": {
                    "controller": {"slurmctld": {"image": "isthmus.local/none:1", "imagePullPolicy": "Never"}},
                    "worker": {"size": 1, "k8sNodeFilterName": "moon"},
                },
            },
        }
        slurm.site.ground.apply(broken, namespace)

        def areas() -> set[str]:
            done = slurm.isthmus("doctor", "--namespace", namespace, "--json")
            assert done.stdout, done.stderr
            return {finding["area"] for finding in json.loads(done.stdout)["findings"]}

        slurm.site.eventually(areas, "the doctor to see both", holds=lambda it: {"images", "placing"} <= it)
        # A cluster that never came up can be removed, too.
        slurm.kubectl(f"delete slurmcluster broken -n {namespace} --timeout=180s")
