"""SSH to workers: a shell on the node for who has a job there, as part of that job, and nothing for all others."""

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bed.operator_ground import OperatorGround
from tests.e2e.operator_parts import ssh_port

NAME = NAMESPACE = "ssh-test"
REFUSED = "Access denied by pam_slurm_adopt: you have no active jobs on this node"
NO_KEY = "Permission denied (publickey)"

# Nobody is there to answer a question: neither for a password, nor whether a host is the right one.
SSH = "ssh -o BatchMode=yes"
OWN_KEY = (
    "ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519 && cat ~/.ssh/id_ed25519.pub >> ~/.ssh/authorized_keys"
)


@dataclass(frozen=True)
class Site:
    """A cluster of two workers with a shared root, and the key of alice and bob."""

    ground: OperatorGround
    key: Path

    def attempt(self, command: str, *, user: str = "alice") -> "subprocess.CompletedProcess[str]":
        """Run a command on the login node over SSH, with an agent that is reached from there, too."""
        where = "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}"
        address = self.ground.kubectl("get", "nodes", "-o", where)
        known = ("-o", "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={self.key.parent}/known")
        with_agent = ("ssh-agent", "sh", "-c", 'ssh-add -q "$0" && exec "$@"', str(self.key))
        reach = ("-p", ssh_port(self.ground, NAMESPACE), f"{user}@{address}")
        words = [*with_agent, *SSH.split(), "-A", *known, *reach, command]
        return subprocess.run(words, check=False, capture_output=True, text=True, timeout=180)

    def ssh(self, command: str, *, user: str = "alice") -> str:
        """Run a command on the login node, which has to succeed."""
        done = self.attempt(command, user=user)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{self.ground.story(NAMESPACE)}"
        return done.stdout

    @contextmanager
    def job(self, *, user: str = "alice", nodes: int = 1) -> Iterator[str]:
        """Have a job run, on worker-0 at least."""
        words = f"sbatch --parsable --output=/dev/null -w worker-0 -N{nodes} --wrap='sleep 600'"
        job = self.ssh(words, user=user).strip()
        # It runs as soon as it has nodes; these know of it later, when the reason "Prolog" is gone.
        looked = f"squeue -hj {job} -o '%T %r'"
        self.ground.eventually(
            lambda: self.ssh(looked, user=user).strip() == "RUNNING None", f"all nodes to know of job {job}"
        )
        try:
            yield job
        finally:
            self.ssh(f"scancel {job}; while [[ $(squeue -hj {job}) ]]; do sleep 0.2; done", user=user)


@pytest.fixture(scope="module")
def site(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    key = tmp_path_factory.mktemp("home") / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = [key.with_suffix(".pub").read_text().strip()]
    cluster = {
        "apiVersion": "slurm.nebius.ai/v1",
        "kind": "SlurmCluster",
        "metadata": {"name": NAME},
        "spec": {
            "populateJail": {},
            "slurmNodes": {
                "worker": {"size": 2, "resources": {"cpu": "1", "memory": "512Mi"}},
                "login": {"sshdServiceType": "NodePort"},
            },
            "users": [
                {"name": "alice", "uid": 2001, "sudo": True, "sshPublicKeys": public},
                {"name": "bob", "uid": 2002, "sshPublicKeys": public},
            ],
        },
    }
    with operator_ground.namespace(NAMESPACE):
        operator_ground.apply(cluster, NAMESPACE)
        operator_ground.ready(f"slurmcluster/{NAME}", NAMESPACE)
        made = Site(operator_ground, key)
        operator_ground.eventually(
            lambda: made.attempt("sinfo").returncode == 0, "Slurm to answer", namespace=NAMESPACE
        )
        # Nobody waits for their sshd, nor for the file by which the login node knows them.
        for worker in ("worker-0", "worker-1"):
            operator_ground.eventually(
                lambda: NO_KEY in made.attempt(f"{SSH} root@{worker} true").stderr,  # noqa: B023 - now
                f"sshd of {worker} to answer, and to be known",
                namespace=NAMESPACE,
            )
        yield made
        operator_ground.kubectl("delete", f"slurmcluster/{NAME}", f"--namespace={NAMESPACE}", "--wait=false")


def test_weakness_s32_who_has_no_job_on_a_worker_is_kept_out(site: Site) -> None:
    for user in ("alice", "bob"):
        done = site.attempt(f"{SSH} worker-0 true", user=user)
        assert done.returncode == 255
        assert REFUSED in done.stderr
    assert NO_KEY in site.attempt(f"{SSH} root@worker-0 true").stderr


def test_who_has_one_is_inside_the_shared_root_and_part_of_the_job(site: Site) -> None:
    look = "stat --format=%d:%i / /etc/passwd"
    with site.job() as job:
        found = site.ssh(f"{SSH} worker-0 'hostname; echo $SLURM_JOB_ID; pwd; {look}'").split()
        assert found == ["worker-0", job, "/home/alice", *site.ssh(look).split()]
        # What is on the node outside the shared root is not seen, nor does the job let anybody else in.
        assert site.attempt(f"{SSH} worker-0 ls /mnt/jail/etc").returncode != 0
        assert REFUSED in site.attempt(f"{SSH} worker-0 true", user="bob").stderr
        assert REFUSED in site.attempt(f"{SSH} worker-1 true").stderr
    assert REFUSED in site.attempt(f"{SSH} worker-0 true").stderr


def test_files_are_copied_and_workers_reach_each_other(site: Site) -> None:
    site.ssh("echo there > note")
    with site.job(nodes=2):
        site.ssh("scp -q -o BatchMode=yes note worker-0:/tmp/copied")
        # /tmp is each node's own, and so it is by this way that the second one has it.
        site.ssh(f"{SSH} -A worker-0 scp -q -o BatchMode=yes /tmp/copied worker-1:/tmp/again")
        assert site.ssh(f"{SSH} worker-1 cat /tmp/again").strip() == "there"


def test_a_user_who_was_made_on_the_login_node_comes_in_with_a_key_of_his_own(site: Site) -> None:
    site.ssh("sudo useradd --create-home --shell /bin/bash carol && sudo -iu carol mkdir -m 700 .ssh")
    script = f"{OWN_KEY}; salloc -Q -w worker-0 {SSH} worker-0 'whoami; hostname'"
    found = site.ssh(f"sudo -iu carol bash -euc {shlex.quote(script)}")
    assert found.split() == ["carol", "worker-0"]


def test_an_sshd_that_dies_comes_back_and_jobs_do_not_notice(site: Site) -> None:
    listener = "sshd: .*\\[listener\\]"
    with site.job() as job:
        restarts = _restarts(site)
        before = site.ground.exec("worker-0", "pgrep", "-f", listener, namespace=NAMESPACE)
        site.ground.exec("worker-0", "pkill", "-KILL", "-f", listener, namespace=NAMESPACE)
        site.ground.eventually(lambda: site.attempt(f"{SSH} worker-0 true").returncode == 0, "sshd to come back")
        assert site.ground.exec("worker-0", "pgrep", "-f", listener, namespace=NAMESPACE) != before
        assert _restarts(site) == restarts
        assert "RUNNING" in site.ssh(f"squeue -hj {job} -o %T")


def _restarts(site: Site) -> list[tuple[str, int]]:
    found = site.ground.get("pod/worker-0", NAMESPACE)["status"]["containerStatuses"]
    return [(it["containerID"], it["restartCount"]) for it in found]
