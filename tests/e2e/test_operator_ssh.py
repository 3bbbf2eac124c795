"""SSH to workers: a shell on the node for who has a job there, as part of that job, and nothing for all others."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.bed.commands import Done, attempt, checked
from tests.bed.operator_ground import OperatorGround
from tests.e2e.site import Site
from tests.e2e.ssh import Ssh

NAME = NAMESPACE = "ssh-test"
REFUSED = "Access denied by pam_slurm_adopt: you have no active jobs on this node"
NO_KEY = "Permission denied (publickey)"

# Nobody is there to answer a question: neither for a password, nor whether a host is the right one.
SSH = "ssh -o BatchMode=yes"
OWN_KEY = (
    "ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519 && cat ~/.ssh/id_ed25519.pub >> ~/.ssh/authorized_keys"
)


@dataclass(frozen=True)
class People:
    """Alice and bob, who have the same key, in an agent that they also reach from the login node."""

    door: Ssh

    @property
    def site(self) -> Site:
        return self.door.site

    def attempt(self, command: str, *, user: str = "alice") -> Done:
        """Run a command on the login node."""
        with_agent = ("ssh-agent", "sh", "-c", 'ssh-add -q "$0" && exec "$@"', self.door.key)
        return attempt(*with_agent, *self.door.words(command, "-A", user=user))

    def ssh(self, command: str, *, user: str = "alice") -> str:
        """Run a command on the login node, which has to succeed."""
        return checked(self.attempt(command, user=user))

    @contextmanager
    def job(self, *, user: str = "alice", nodes: int = 1) -> Iterator[str]:
        """Have a job run, on worker-0 at least."""
        words = f"sbatch --parsable --output=/dev/null -w worker-0 -N{nodes} --wrap='sleep 600'"
        job = self.ssh(words, user=user).strip()
        # It runs as soon as it has nodes; these know of it later, when the reason "Prolog" is gone.
        self.site.eventually(
            lambda: self.site.job(job),
            f"all nodes to know of job {job}",
            holds=lambda it: (it["JobState"], it["Reason"]) == ("RUNNING", "None"),
        )
        try:
            yield job
        finally:
            self.site.run("scancel", job)
            self.site.eventually(
                lambda: self.site.run("squeue", "-hj", job), f"job {job} to leave", holds=lambda it: not it.strip()
            )


@pytest.fixture(scope="module")
def people(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    """A cluster of two workers with a shared root, and who can log in to it."""
    with operator_ground.namespace(NAMESPACE) as namespace:
        site = Site(operator_ground, namespace, slurmctld="controller-0")
        people = People(Ssh.with_new_key(site, tmp_path_factory.mktemp("home")))
        public = [people.door.public_key]
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
        site.apply(cluster)
        site.ready(f"slurmcluster/{NAME}")
        site.eventually(lambda: people.ssh("sinfo"), "Slurm to answer")
        # Nobody waits for their sshd, nor for the file by which the login node knows them.
        for worker in ("worker-0", "worker-1"):
            site.eventually(
                lambda: people.attempt(f"{SSH} root@{worker} true").stderr,  # noqa: B023 - now
                f"sshd of {worker} to answer, and to be known",
                holds=lambda it: NO_KEY in it,
            )
        yield people
        site.kubectl("delete", f"slurmcluster/{NAME}", "--wait=false")


def test_weakness_s32_who_has_no_job_on_a_worker_is_kept_out(people: People) -> None:
    for user in ("alice", "bob"):
        done = people.attempt(f"{SSH} worker-0 true", user=user)
        assert done.returncode == 255
        assert REFUSED in done.stderr
    assert NO_KEY in people.attempt(f"{SSH} root@worker-0 true").stderr


def test_who_has_one_is_inside_the_shared_root_and_part_of_the_job(people: People) -> None:
    look = "stat --format=%d:%i / /etc/passwd"
    with people.job() as job:
        found = people.ssh(f"{SSH} worker-0 'hostname; echo $SLURM_JOB_ID; pwd; {look}'").split()
        assert found == ["worker-0", job, "/home/alice", *people.ssh(look).split()]
        assert people.ssh(f"{SSH} worker-0 grep ^Seccomp: /proc/self/status").split() == ["Seccomp:", "2"]
        # What is on the node outside the shared root is not seen, nor does the job let anybody else in.
        assert "No such file" in people.attempt(f"{SSH} worker-0 ls /mnt/jail/etc").stderr
        assert REFUSED in people.attempt(f"{SSH} worker-0 true", user="bob").stderr
        assert REFUSED in people.attempt(f"{SSH} worker-1 true").stderr
    assert REFUSED in people.attempt(f"{SSH} worker-0 true").stderr


def test_files_are_copied_and_workers_reach_each_other(people: People) -> None:
    people.ssh("echo there > note")
    with people.job(nodes=2):
        people.ssh("scp -q -o BatchMode=yes note worker-0:/tmp/copied")
        # /tmp is each node's own, and so it is by this way that the second one has it.
        people.ssh(f"{SSH} -A worker-0 scp -q -o BatchMode=yes /tmp/copied worker-1:/tmp/again")
        assert people.ssh(f"{SSH} worker-1 cat /tmp/again").strip() == "there"


def test_a_user_who_was_made_on_the_login_node_comes_in_with_a_key_of_his_own(people: People) -> None:
    people.ssh("sudo useradd --create-home --shell /bin/bash carol && sudo -iu carol mkdir -m 700 .ssh")
    script = f"{OWN_KEY}; salloc -Q -w worker-0 {SSH} worker-0 'whoami; hostname'"
    found = people.ssh(f"sudo -iu carol bash -euc {shlex.quote(script)}")
    assert found.split() == ["carol", "worker-0"]


def test_an_sshd_that_dies_comes_back_and_jobs_do_not_notice(people: People) -> None:
    site, listener = people.site, "sshd: .*\\[listener\\]"
    with people.job() as job:
        restarts = _restarts(site)
        before = site.exec("worker-0", "pgrep", "-f", listener)
        site.exec("worker-0", "pkill", "-KILL", "-f", listener)
        site.eventually(lambda: people.ssh(f"{SSH} worker-0 echo in"), "sshd to come back")
        assert site.exec("worker-0", "pgrep", "-f", listener) != before
        assert _restarts(site) == restarts
        assert site.job(job)["JobState"] == "RUNNING"


def _restarts(site: Site) -> list[tuple[str, int]]:
    found = site.get("pod/worker-0")["status"]["containerStatuses"]
    return [(it["containerID"], it["restartCount"]) for it in found]
