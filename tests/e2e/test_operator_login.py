"""Login nodes end to end: real sshd, real users, real Slurm behind them."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bed.operator_ground import OperatorGround
from tests.e2e.operator_parts import KEYS, OF_SLURM, SMALL, apply, keys, part, patch, ssh_port, uid

NAMESPACE = "login-test"


@dataclass(frozen=True)
class Site:
    """A cluster with two workers and a login node, and alice's key."""

    ground: OperatorGround
    home: Path

    @property
    def address(self) -> str:
        """Where a NodePort is reached."""
        where = "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}"
        return self.ground.kubectl("get", "nodes", "-o", where)

    @property
    def port(self) -> str:
        return ssh_port(self.ground, NAMESPACE)

    @property
    def options(self) -> list[str]:
        return [
            *("-i", str(self.home / "id"), "-o", "BatchMode=yes", "-o", "ConnectTimeout=30"),
            *("-o", "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={self.home}/known"),
            *("-o", "LogLevel=ERROR"),
        ]

    def attempt(self, command: str, *, user: str = "alice") -> "subprocess.CompletedProcess[str]":
        """Run a command over SSH, which may fail."""
        words = ["ssh", *self.options, "-p", self.port, f"{user}@{self.address}", command]
        return subprocess.run(words, check=False, capture_output=True, text=True, timeout=180)

    def ssh(self, command: str, *, user: str = "alice") -> str:
        """Run a command over SSH."""
        done = self.attempt(command, user=user)
        assert done.returncode == 0, f"{command}: {done.stderr}\n{self.ground.story(NAMESPACE)}"
        return done.stdout

    def session(self, command: str) -> "subprocess.Popen[str]":
        """Begin a command over SSH that takes a while."""
        words = ["ssh", *self.options, "-p", self.port, f"alice@{self.address}", command]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def public_key(self) -> str:
        return (self.home / "id.pub").read_text().strip()

    def pods(self) -> dict[str, str]:
        """All pods, by name."""
        found = self.ground.get("pods", NAMESPACE)["items"]
        return {it["metadata"]["name"]: it["metadata"]["uid"] for it in found}

    def users(self, *more: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"name": "alice", "uid": 2001, "sudo": True, "sshPublicKeys": [self.public_key]}, *more]


@pytest.fixture(scope="module")
def site(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("home")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / "id"], check=True)
    made = Site(operator_ground, home)
    with operator_ground.namespace(NAMESPACE):
        apply(
            operator_ground,
            NAMESPACE,
            *keys(),
            part("Controller", "slurm", **KEYS, users=made.users()),
            part("RestApi", "slurm", **OF_SLURM),
            part("NodeSet", "worker", **OF_SLURM, replicas=2, slurmd={"resources": SMALL}),
            part("LoginSet", "login", **OF_SLURM, service={"spec": {"type": "NodePort"}}),
        )
        for what in ("controller/slurm", "loginset/login", "nodeset.slinky.slurm.net/worker"):
            operator_ground.ready(what, NAMESPACE)
        # Services take a moment to lead to new pods.
        operator_ground.eventually(lambda: made.attempt("true").returncode == 0, "sshd to be reached")
        yield made
        operator_ground.kubectl("delete", "nodeset.slinky.slurm.net/worker", f"--namespace={NAMESPACE}")


def test_people_log_in_and_work(site: Site) -> None:
    assert site.ssh("whoami; pwd").split() == ["alice", "/home/alice"]
    assert sorted(site.ssh("srun -N2 hostname").split()) == ["worker-0", "worker-1"]
    assert site.ssh("srun id -un").strip() == "alice"
    assert "Granted job allocation" in site.attempt("salloc -N1 srun hostname").stderr
    job = site.ssh("sbatch --parsable --output=/dev/null --wrap='srun true'").strip()
    site.ground.eventually(
        lambda: "COMPLETED" in site.ssh(f"scontrol show job {job} | grep JobState"), f"job {job} to end"
    )
    assert "worker" in site.ground.exec("login-0", "sinfo", namespace=NAMESPACE)


def test_files_are_copied(site: Site, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("and back")
    words = ["scp", *site.options, "-P", site.port]
    subprocess.run([*words, tmp_path / "there", f"alice@{site.address}:"], check=True, timeout=180)
    subprocess.run([*words, f"alice@{site.address}:there", tmp_path / "back"], check=True, timeout=180)
    assert (tmp_path / "back").read_text() == "and back"


def test_who_has_no_key_stays_outside(site: Site) -> None:
    for user in ("root", "slurm", "nobody", "mallory"):
        assert "Permission denied (publickey)" in site.attempt("true", user=user).stderr


def test_the_key_of_the_cluster_is_nowhere_that_people_reach(site: Site) -> None:
    found = site.ssh("sudo find / -xdev -name 'slurm.jwks' -o -xdev -name 'slurm.key'; sudo ls /run/secrets")
    assert found.split() == ["ssh"]


def test_a_user_who_comes_later_needs_no_restart(site: Site) -> None:
    before = site.pods()
    assert site.attempt("true", user="bob").returncode != 0
    bob = {"name": "bob", "uid": 2002, "groups": ["physics"], "sshPublicKeys": [site.public_key]}
    patch(site.ground, NAMESPACE, "controller/slurm", {"spec": {"users": site.users(bob)}})
    site.ground.eventually(lambda: site.attempt("true", user="bob").returncode == 0, "bob to log in")
    assert "physics" in site.ssh("id -Gn", user="bob")
    # Workers hear of bob's name within a minute or two; his jobs need not wait for that.
    assert site.ssh("srun -N2 id -u", user="bob").split() == ["2002", "2002"]
    assert site.attempt("sudo -n true", user="bob").returncode != 0
    assert site.ssh("sudo -n whoami").strip() == "root"
    assert site.pods() == before


def test_settings_of_sshd_reach_it_and_end_no_session(site: Site) -> None:
    with site.session("echo begun; read line; echo $line") as session:
        assert session.stdout
        assert session.stdin
        assert session.stdout.readline() == "begun\n"
        patch(site.ground, NAMESPACE, "loginset/login", {"spec": {"extraSshdConfig": "SetEnv WHERE=login"}})
        site.ground.eventually(lambda: site.ssh("echo $WHERE").strip() == "login", "the new setting")
        session.stdin.write("still here\n")
        session.stdin.flush()
        assert session.stdout.readline() == "still here\n"


def test_host_keys_are_the_same_in_every_pod_and_for_ever(site: Site) -> None:
    site.ssh("true")  # whose key is now known
    before = uid(site.ground, NAMESPACE, "login-0")
    site.ground.kubectl("delete", "pod", "login-0", f"--namespace={NAMESPACE}", "--grace-period=1")
    site.ground.eventually(lambda: site.attempt("true").returncode == 0, "the next pod to answer")
    assert uid(site.ground, NAMESPACE, "login-0") != before
    site.ground.ready("loginset/login", NAMESPACE)


def test_people_reach_their_files_while_slurmctld_is_away(site: Site) -> None:
    before = uid(site.ground, NAMESPACE, "slurm-controller-0")
    site.ground.kubectl("delete", "pod", "slurm-controller-0", f"--namespace={NAMESPACE}", "--wait=false")
    assert site.ssh("echo here").strip() == "here"
    # The old one may answer for a while yet; and who asks it when it goes, may hear nothing.
    site.ground.eventually(lambda: uid(site.ground, NAMESPACE, "slurm-controller-0") != before, "another slurmctld")
    site.ground.eventually(
        lambda: site.attempt("timeout 30 srun hostname").stdout.startswith("worker-"), "Slurm to answer again"
    )


def test_more_login_nodes(site: Site) -> None:
    site.ground.kubectl("scale", "loginset/login", "--replicas=2", f"--namespace={NAMESPACE}")
    site.ground.eventually(
        lambda: site.ground.get("loginset/login", NAMESPACE)["status"].get("readyReplicas") == 2, "two login nodes"
    )
    assert "worker" in site.ground.exec("login-1", "sinfo", namespace=NAMESPACE)
    assert site.ground.exec("login-1", "srun", "-N2", "hostname", namespace=NAMESPACE).count("worker-") == 2
    site.ground.kubectl("scale", "loginset/login", "--replicas=1", f"--namespace={NAMESPACE}")
    site.ground.ready("loginset/login", NAMESPACE)


def test_an_image_without_sssd_is_named(site: Site) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "sssd"},
        "stringData": {"sssd.conf": "[sssd]"},
    }
    conf = {"name": "sssd", "key": "sssd.conf"}
    apply(site.ground, NAMESPACE, secret, part("LoginSet", "directory", **OF_SLURM, sssdConfRef=conf))

    def says_so() -> bool:
        held = site.ground.get("loginset/directory", NAMESPACE).get("status", {}).get("conditions", [])
        return any(it["type"] == "Degraded" and "the image has no sssd" in it["message"] for it in held)

    site.ground.eventually(says_so, "the LoginSet to say what is wrong")
    site.ground.kubectl("delete", "loginset/directory", f"--namespace={NAMESPACE}")


def test_workers_join_a_slurmctld_that_is_run_elsewhere(site: Site) -> None:
    # To these parts, the slurmctld of this very cluster is somebody else's: they know its address and its keys.
    away = {
        "external": True,
        "externalConfig": {"host": f"slurm-controller.{NAMESPACE}.svc", "port": 6817},
        "clusterName": "login-test_slurm",
        "slurmKeyRef": {"name": "slurm-auth", "key": "slurm.jwks"},
        "jwtKeyRef": KEYS["jwtKeyRef"],
    }
    of_away = {"controllerRef": {"name": "away"}}
    apply(
        site.ground,
        NAMESPACE,
        part("Controller", "away", **away),
        part("RestApi", "away", **of_away),
        part("NodeSet", "guest", **of_away, replicas=1, slurmd={"resources": SMALL}),
    )
    site.ground.ready("nodeset.slinky.slurm.net/guest", NAMESPACE)
    assert site.ssh("srun -w guest-0 hostname").strip() == "guest-0"
    # It is drained before it goes, also from there.
    site.ground.kubectl(
        *(
            "delete",
            "nodeset.slinky.slurm.net/guest",
            "controller/away",
            f"--namespace={NAMESPACE}",
            "--timeout=180s",
        )
    )
    assert "guest-0" not in site.ssh("sinfo -hN -t idle,alloc,mix -o %N")
