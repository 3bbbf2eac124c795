"""A small SlurmCluster whose daemons know each other by munge: munged runs beside each of them, with one key.

It is also the one that is sent to rest and deleted, to see what is there when it comes back.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bed.operator_ground import OperatorGround
from tests.e2e.operator_parts import ssh_port

NAMESPACE = "munge-test"
NAME = "munged"
SLURMCTLD = f"{NAME}-controller-0"

# Until it is released; login node and worker have the home in common.
HELD = "until [ -e ~/finish.$SLURM_JOB_ID ]; do sleep 0.2; done"


@dataclass(frozen=True)
class Site:
    """A cluster of one worker with accounting, and the key of alice, who can log in."""

    ground: OperatorGround
    key: Path

    @property
    def manifest(self) -> dict[str, Any]:
        user = {"name": "alice", "uid": 2001, "sshPublicKeys": [self.key.with_suffix(".pub").read_text().strip()]}
        nodes = {
            "worker": {"size": 1, "resources": {"cpu": "1", "memory": "512Mi"}},
            "login": {"sshdServiceType": "NodePort"},
            "accounting": {"enabled": True},
        }
        return {
            "apiVersion": "slurm.nebius.ai/v1",
            "kind": "SlurmCluster",
            "metadata": {"name": NAME},
            "spec": {"customSlurmConfig": "AuthType=auth/munge\n", "slurmNodes": nodes, "users": [user]},
        }

    def up(self) -> None:
        """Wait until it works."""
        self.ground.ready(f"slurmcluster/{NAME}", NAMESPACE)
        # Services take a moment to lead to new pods.
        commands = "timeout 20 sinfo && timeout 20 sacct && timeout 20 scontrol ping"
        self.ground.eventually(
            lambda: self.over_ssh(commands).returncode == 0, "Slurm to answer", namespace=NAMESPACE
        )

    def over_ssh(self, command: str) -> "subprocess.CompletedProcess[str]":
        """Try a command over SSH; the login node has to be the one that it was the first time."""
        where = "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}"
        address = self.ground.kubectl("get", "nodes", "-o", where)
        known = ("-o", "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={self.key.parent}/known")
        patience = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=30")
        # Known by a name: a Service that was made anew has another port.
        reach = ("-o", "HostKeyAlias=login", "-p", ssh_port(self.ground, NAMESPACE))
        words = ["ssh", "-q", "-i", str(self.key), *patience, *known, *reach]
        return subprocess.run(
            [*words, f"alice@{address}", command], check=False, capture_output=True, text=True, timeout=180
        )

    def ssh(self, command: str) -> str:
        """Run a command over SSH."""
        done = self.over_ssh(command)
        assert done.returncode == 0, f"{command}: {done.stderr}\n{self.ground.story(NAMESPACE)}"
        return done.stdout

    def ended(self, job: str) -> None:
        """Wait until the accounts say that a job has ended well."""
        self.ground.eventually(
            lambda: self.ssh(f"sacct -nXPj {job} -o state").strip() == "COMPLETED", f"job {job} in the accounts"
        )

    def records(self) -> set[str]:
        """All jobs that have ended, as the accounts have them."""
        return {it for it in self.ssh("sacct -nXP -S now-1days -o jobid,state,end").split() if "|COMPLETED|" in it}

    def runs(self, job: str) -> bool:
        """Whether a job runs, as slurmctld has it: nobody may be able to log in."""
        squeue = ("squeue", "-hj", job, "-t", "all", "-o", "%T")
        return self.ground.exec(SLURMCTLD, *squeue, namespace=NAMESPACE).strip() == "RUNNING"

    def waited_for(self, job: str) -> None:
        """Wait until the worker takes no other jobs because it is to go; then let its job end."""
        sinfo = ("sinfo", "-hN", "-o", "%T")
        self.ground.eventually(
            lambda: self.ground.exec(SLURMCTLD, *sinfo, namespace=NAMESPACE).strip() == "draining",
            "the worker to be drained",
            namespace=NAMESPACE,
        )
        assert self.runs(job)
        assert "pod/worker-0" in self.pods()
        self.ground.exec("worker-0", "touch", f"/home/alice/finish.{job}", namespace=NAMESPACE)

    def pods(self) -> list[str]:
        return self.ground.kubectl("get", "pods", f"--namespace={NAMESPACE}", "-o", "name").split()

    def maintain(self, mode: str) -> None:
        patch = json.dumps({"spec": {"maintenance": mode}})
        what = ("slurmcluster", NAME, f"--namespace={NAMESPACE}")
        self.ground.kubectl("patch", *what, "--type=merge", f"--patch={patch}")


@pytest.fixture(scope="module")
def site(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    key = tmp_path_factory.mktemp("home") / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    made = Site(operator_ground, key)
    with operator_ground.namespace(NAMESPACE):
        operator_ground.apply(made.manifest, NAMESPACE)
        made.up()
        yield made
        operator_ground.kubectl("delete", f"slurmcluster/{NAME}", f"--namespace={NAMESPACE}", "--timeout=180s")


def test_people_log_in_and_run_jobs_that_are_accounted_for(site: Site) -> None:
    assert site.ssh("srun sh -c 'hostname; id -un'").split() == ["worker-0", "alice"]
    assert "Success (0)" in site.ssh("munge -n | unmunge")
    assert "auth/munge" in site.ssh("scontrol show config | grep AuthType")
    site.ended(site.ssh("sbatch --parsable --output=/dev/null --wrap=true").strip())


def test_who_has_a_job_comes_in_by_ssh_and_nobody_else(site: Site) -> None:
    """Also where login nodes and workers share their homes alone."""
    site.ssh("mkdir -pm 700 .ssh && ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519")
    site.ssh("cat .ssh/id_ed25519.pub >> .ssh/authorized_keys")
    enter = "ssh -o BatchMode=yes worker-0"
    # Nobody waits for its sshd, nor for the file by which the login node knows it; jobs leave it after their end.
    site.ground.eventually(
        lambda: "Permission denied (publickey)" in site.over_ssh(f"{enter} -l root true 2>&1").stdout,
        "sshd of the worker to answer, and to be known",
    )
    site.ground.eventually(lambda: not site.ssh("squeue -h").strip(), "earlier jobs to have left the worker")
    assert "you have no active jobs on this node" in site.over_ssh(f"{enter} true 2>&1").stdout
    found = site.ssh(f"salloc -Q {enter} 'hostname; pwd; echo $SLURM_JOB_ID'").split()
    assert found[:2] == ["worker-0", "/home/alice"]
    assert found[2].isdecimal()


def rest(site: Site, job: str) -> None:
    """Send the cluster to rest, and wake it."""
    site.maintain("downscale")
    site.waited_for(job)
    site.ground.eventually(lambda: not site.pods(), "all pods to go")
    site.maintain("none")
    site.ground.eventually(site.pods, "pods to come back")


def delete(site: Site, job: str) -> None:
    """Delete the cluster in the way that begins with the pods; and make it again."""
    what = (f"slurmcluster/{NAME}", f"--namespace={NAMESPACE}")
    done = site.ground.attempt("delete", *what, "--cascade=foreground")
    assert "its nodes are drained, and then it goes by itself" in done.stderr
    site.waited_for(job)
    site.ground.kubectl("wait", *what, "--for=delete", "--timeout=240s")
    site.ground.apply(site.manifest, NAMESPACE)


@pytest.mark.parametrize("way", [rest, delete])
def test_nothing_is_lost_when_a_cluster_goes_and_comes_back(site: Site, way: Callable[[Site, str], None]) -> None:
    site.ended(site.ssh("sbatch --parsable --output=/dev/null --wrap=true").strip())
    records = site.records()
    assert records
    waiting = site.ssh("sbatch --parsable --hold --output=/dev/null --wrap=true").strip()
    running = site.ssh(f"sbatch --parsable --output=/dev/null --wrap='{HELD}'").strip()
    site.ground.eventually(lambda: site.runs(running), "the job to run")
    way(site, running)
    site.up()
    assert records <= site.records()
    site.ended(running)  # it was waited for
    site.ssh(f"scontrol release {waiting}")
    site.ended(waiting)
