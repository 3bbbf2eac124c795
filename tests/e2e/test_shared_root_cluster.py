"""A SlurmCluster with a shared root: scripts of a ConfigMap run on its nodes, and follow its changes. SSH to its
workers: a shell on the node for who has a job there, as part of that job, and nothing for all others.
"""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.bed.commands import Done, attempt, checked
from tests.bed.operator_ground import OperatorGround
from tests.e2e.site import Site
from tests.e2e.ssh import Ssh

NAMESPACE = "root-cluster-test"
CLUSTER = "one"
REFUSED = "Access denied by pam_slurm_adopt: you have no active jobs on this node"
NO_KEY = "Permission denied (publickey)"

# slurmd runs the prolog outside, and the task prolog is run inside: there the shared root is /.
PROLOG = """#!/bin/bash
echo "{version} $SLURMD_NODENAME" >> /mnt/jail/var/tmp/prologs
"""
TASK_PROLOG = """#!/bin/bash
[[ -e /.isthmus/ready ]] && where=inside || where=outside
echo "print task prolog {version} $where"
"""

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


def slurm_cluster(public_key: str) -> dict[str, Any]:
    """Neither of a shared root nor of an SSH port is anything said, as in the documents."""
    return {
        "apiVersion": "slurm.nebius.ai/v1",
        "kind": "SlurmCluster",
        "metadata": {"name": CLUSTER},
        "spec": {
            "slurmNodes": {"worker": {"size": 2, "resources": {"cpu": "1", "memory": "512Mi"}}},
            "slurmConfig": {
                "prolog": "/opt/slurm_scripts/prolog.sh",
                "taskProlog": "/opt/slurm_scripts/task_prolog.sh",
            },
            "users": [
                {"name": "alice", "uid": 2001, "sudo": True, "sshPublicKeys": [public_key]},
                {"name": "bob", "uid": 2002, "sshPublicKeys": [public_key]},
            ],
        },
    }


def scripts(version: str) -> dict[str, Any]:
    data = {"prolog.sh": PROLOG.format(version=version), "task_prolog.sh": TASK_PROLOG.format(version=version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": data}


def jailed(name: str, *items: tuple[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "slurm.nebius.ai/v1alpha1",
        "kind": "JailedConfig",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/instance": CLUSTER}},
        "spec": {
            "configMap": {"name": "scripts"},
            "items": [{"key": key, "path": path} for key, path in items],
            "defaultMode": 0o755,
            "updateActions": ["Reconfigure"],
        },
    }


@pytest.fixture(scope="module")
def door(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    """The way into a cluster of two workers, with its scripts made at the same moment."""
    with operator_ground.namespace(NAMESPACE) as namespace:
        site = Site(operator_ground, namespace, slurmctld="controller-0")
        door = Ssh.with_new_key(site, tmp_path_factory.mktemp("home"))
        places = [(file, f"/opt/slurm_scripts/{file}") for file in ("prolog.sh", "task_prolog.sh")]
        site.apply(slurm_cluster(door.public_key), scripts("v1"), jailed("scripts", *places))
        site.ready(f"slurmcluster/{CLUSTER}")
        yield door
        site.kubectl("delete", f"slurmcluster/{CLUSTER}", "--timeout=180s")


@pytest.fixture(scope="module")
def site(door: Ssh) -> Site:
    """The cluster."""
    return door.site


@pytest.fixture(scope="module")
def people(door: Ssh) -> People:
    """Who can log in to it and run jobs: every daemon knows its scripts, and the login node knows the workers."""
    people = People(door)
    applied(door.site, "scripts")
    door.site.eventually(
        lambda: door.site.get("controller/one"), "every node to know of them", holds=config_applied
    )
    door.site.eventually(lambda: people.ssh("sinfo"), "Slurm to answer")
    # Nobody waits for their sshd, nor for the file by which the login node knows them.
    for worker in ("worker-0", "worker-1"):
        door.site.eventually(
            lambda: people.attempt(f"{SSH} root@{worker} true").stderr,  # noqa: B023 - now
            f"sshd of {worker} to answer, and to be known",
            holds=lambda it: NO_KEY in it,
        )
    return people


def status(site: Site, what: str) -> dict[str, Any]:
    found: dict[str, Any] = site.get(what).get("status", {})
    return found


def applied(site: Site, name: str) -> dict[str, Any]:
    """Wait until everybody has read the files of a JailedConfig as they are now; what it says then."""

    def done(it: dict[str, Any]) -> bool:
        held = {it["type"]: it["status"] for it in it.get("conditions", ())}
        is_read = it.get("filesHash") and it.get("filesHash") == it.get("reconfiguredHash")
        return bool(is_read) and held.get("UpdateActionsCompleted") == "True"

    return site.eventually(
        lambda: status(site, f"jailedconfig/{name}"), f"JailedConfig {name} to be applied", holds=done
    )


def config_applied(controller: dict[str, Any]) -> bool:
    """Whether every daemon runs with the files that follow from the Controller as it is now."""
    conditions = controller.get("status", {}).get("conditions", ())
    held: dict[str, Any] = next((it for it in conditions if it["type"] == "ConfigApplied"), {})
    seen = int(held.get("observedGeneration", 0)) >= int(controller["metadata"]["generation"])
    return seen and held.get("status") == "True"


def on_login(site: Site, *words: str) -> str:
    return site.run(*words, where="login-0")


def run_on_both(site: Site, version: str) -> None:
    """Run a job on both nodes, and see which scripts were run, and where."""
    ran = on_login(site, "srun", "--nodes=2", "--ntasks-per-node=1", "hostname")
    assert sorted(ran.splitlines()) == [f"task prolog {version} inside"] * 2 + ["worker-0", "worker-1"]
    assert set(on_login(site, "cat", "/var/tmp/prologs").splitlines()[-2:]) == {  # noqa: S108 - on the shared root
        f"{version} worker-0",
        f"{version} worker-1",
    }


# Configuration on the shared root


def test_scripts_of_a_jailedconfig_run_on_every_node_and_follow_its_configmap(site: Site) -> None:
    applied(site, "scripts")
    site.eventually(
        lambda: on_login(site, "scontrol", "show", "config"),
        "Slurm to know of the prolog",
        holds=lambda it: "/opt/slurm_scripts/prolog.sh" in it,
    )
    site.ready("controller/one")
    site.eventually(lambda: site.get("controller/one"), "every node to know of it", holds=config_applied)
    run_on_both(site, "v1")
    before = applied(site, "scripts")
    site.apply(scripts("v2"))
    site.eventually(
        lambda: status(site, "jailedconfig/scripts")["filesHash"],
        "the files to be written",
        holds=lambda it: it != before["filesHash"],
    )
    (completed,) = (it for it in applied(site, "scripts")["conditions"] if it["type"] == "UpdateActionsCompleted")
    assert completed["message"] == "slurmctld and 2 nodes have read it"
    run_on_both(site, "v2")
    shown = site.kubectl("get", "jailedconfigs").splitlines()
    assert [line.split()[:4] for line in shown] == [
        ["NAME", "CONFIGMAP", "WRITTEN", "APPLIED"],
        ["scripts", "scripts", "True", "True"],
    ]


def test_a_link_on_the_shared_root_is_refused_with_the_real_place(site: Site) -> None:
    site.apply(jailed("link", ("prolog.sh", "/bin/prolog.sh")))
    site.eventually(
        lambda: site.condition("jailedconfig/link", "FilesWritten"),
        "the link to be refused",
        holds=lambda it: "use the real path: /usr/bin instead of /bin" in it["message"],
    )


def test_who_writes_them_is_root_without_any_of_its_powers(site: Site) -> None:
    look = "import os; print(os.getuid(), open('/proc/1/status').read())"
    shown = site.kubectl("exec", "deployment/sconfigcontroller", "--", "python3", "-c", look)
    assert shown.startswith("0 ")
    caps = {line.split()[0]: int(line.split()[1], 16) for line in shown.splitlines() if line.startswith("Cap")}
    assert set(caps.values()) == {0}
    told = site.eventually(
        lambda: status(site, f"slurmcluster/{CLUSTER}"),
        "the cluster to count it",
        holds=lambda it: it.get("readySConfigController") == 1,
    )
    assert "SConfigControllerAvailable" in json.dumps(told["conditions"])


# SSH to workers


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
