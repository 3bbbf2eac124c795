"""A small SlurmCluster whose daemons know each other by munge: munged runs beside each of them, with one key.

It is also the one that is sent to rest and deleted, to see what is there when it comes back.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.bed.operator_ground import OperatorGround
from tests.e2e.site import Site
from tests.e2e.ssh import Ssh

NAMESPACE = "munge-test"
NAME = "munged"
CLUSTER = f"slurmcluster/{NAME}"

# Until it is released; login node and worker have the home in common.
HELD = "until [ -e ~/finish.$SLURM_JOB_ID ]; do sleep 0.2; done"


def manifest(ssh: Ssh) -> dict[str, Any]:
    """A cluster of one worker with accounting, and alice, who can log in."""
    user = {"name": "alice", "uid": 2001, "sshPublicKeys": [ssh.public_key]}
    nodes = {
        "worker": {"size": 1, "resources": {"cpu": "1", "memory": "512Mi"}},
        "login": {"sshdServiceType": "NodePort"},
        "accounting": {"enabled": True},
    }
    return {
        "apiVersion": "slurm.nebius.ai/v1",
        "kind": "SlurmCluster",
        "metadata": {"name": NAME},
        "spec": {
            "populateJail": {"enabled": False},
            "customSlurmConfig": "AuthType=auth/munge\n",
            "slurmNodes": nodes,
            "users": [user],
        },
    }


def up(ssh: Ssh) -> None:
    """Wait until it works."""
    ssh.site.ready(CLUSTER)
    # Services take a moment to lead to new pods.
    commands = "timeout 20 sinfo && timeout 20 sacct && timeout 20 scontrol ping"
    ssh.site.eventually(lambda: ssh.run(commands), "Slurm to answer")


def accounted(ssh: Ssh, job: str) -> None:
    """Wait until the accounts say that a job has ended well."""
    ssh.site.eventually(
        lambda: ssh.run(f"sacct -nXPj {job} -o state").strip(),
        f"job {job} in the accounts",
        holds=lambda it: it == "COMPLETED",
    )


def records(ssh: Ssh) -> set[str]:
    """All jobs that have ended, as the accounts have them."""
    shown = ssh.run("sacct -nXP -S now-1days -o jobid,state,end")
    return {it for it in shown.splitlines() if "|COMPLETED|" in it}


def waited_for(site: Site, job: str) -> None:
    """Wait until the worker takes no other jobs because it is to go; then let its job end."""
    site.eventually(site.states, "the worker to be drained", holds=lambda it: it == {"worker-0": "draining"})
    assert site.job(job)["JobState"] == "RUNNING"
    assert "worker-0" in site.pods()
    site.exec("worker-0", "touch", f"/home/alice/finish.{job}")


@pytest.fixture(scope="module")
def ssh(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    with operator_ground.namespace(NAMESPACE) as namespace:
        site = Site(operator_ground, namespace, slurmctld="controller-0")
        ssh = Ssh.with_new_key(site, tmp_path_factory.mktemp("home"))
        site.apply(manifest(ssh))
        up(ssh)
        yield ssh
        site.kubectl("delete", CLUSTER, "--timeout=180s")


def test_people_log_in_and_run_jobs_that_are_accounted_for(ssh: Ssh) -> None:
    assert ssh.run("srun sh -c 'hostname; id -un'").split() == ["worker-0", "alice"]
    assert "Success (0)" in ssh.run("munge -n | unmunge")
    assert "auth/munge" in ssh.run("scontrol show config | grep AuthType")
    accounted(ssh, ssh.run("sbatch --parsable --output=/dev/null --wrap=true").strip())


def test_who_has_a_job_comes_in_by_ssh_and_nobody_else(ssh: Ssh) -> None:
    """Also where login nodes and workers share their homes alone."""
    ssh.run("mkdir -pm 700 .ssh && ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519")
    ssh.run("cat .ssh/id_ed25519.pub >> .ssh/authorized_keys")
    enter = "ssh -o BatchMode=yes worker-0"
    # Nobody waits for its sshd, nor for the file by which the login node knows it; jobs leave it after their end.
    ssh.site.eventually(
        lambda: ssh.attempt(f"{enter} -l root true 2>&1").stdout,
        "sshd of the worker to answer, and to be known",
        holds=lambda it: "Permission denied (publickey)" in it,
    )
    ssh.site.eventually(
        lambda: ssh.run("squeue -h"), "earlier jobs to have left the worker", holds=lambda it: not it.strip()
    )
    assert "you have no active jobs on this node" in ssh.attempt(f"{enter} true 2>&1").stdout
    found = ssh.run(f"salloc -Q {enter} 'hostname; pwd; echo $SLURM_JOB_ID'").split()
    assert found[:2] == ["worker-0", "/home/alice"]
    assert found[2].isdecimal()


def rest(ssh: Ssh, job: str) -> None:
    """Send the cluster to rest, and wake it."""
    site = ssh.site
    site.patch(CLUSTER, {"spec": {"maintenance": "downscale"}})
    waited_for(site, job)
    site.eventually(lambda: site.get("pods")["items"], "all pods to go", holds=lambda it: not it)
    site.patch(CLUSTER, {"spec": {"maintenance": "none"}})
    site.eventually(site.pods, "pods to come back")


def delete(ssh: Ssh, job: str) -> None:
    """Delete the cluster in the way that begins with the pods; and make it again."""
    site = ssh.site
    done = site.ground.attempt("delete", CLUSTER, f"--namespace={NAMESPACE}", "--cascade=foreground")
    assert "its nodes are drained first, then it is removed" in done.stderr
    waited_for(site, job)
    site.kubectl("wait", CLUSTER, "--for=delete", "--timeout=240s")
    site.apply(manifest(ssh))


@pytest.mark.parametrize("way", [rest, delete])
def test_nothing_is_lost_when_a_cluster_goes_and_comes_back(ssh: Ssh, way: Callable[[Ssh, str], None]) -> None:
    accounted(ssh, ssh.run("sbatch --parsable --output=/dev/null --wrap=true").strip())
    before = records(ssh)
    assert before
    waiting = ssh.run("sbatch --parsable --hold --output=/dev/null --wrap=true").strip()
    running = ssh.run(f"sbatch --parsable --output=/dev/null --wrap='{HELD}'").strip()
    ssh.site.until(running, "RUNNING")
    way(ssh, running)
    up(ssh)
    assert before <= records(ssh)
    accounted(ssh, running)  # it was waited for
    ssh.run(f"scontrol release {waiting}")
    accounted(ssh, waiting)
