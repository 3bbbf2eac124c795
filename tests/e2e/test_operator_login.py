"""Login nodes end to end: real sshd, real users, real Slurm behind them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bed.commands import attempt, checked
from tests.bed.operator_ground import OperatorGround
from tests.e2e.operator_parts import KEYS, OF_SLURM, SMALL, keys, part
from tests.e2e.site import Site
from tests.e2e.ssh import Ssh

NAMESPACE = "login-test"
KNOWN_WITHIN_S: Final = 5.0
"""Within so many seconds, every node knows a new user."""


def users(ssh: Ssh, *more: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "alice", "uid": 2001, "sudo": True, "sshPublicKeys": [ssh.public_key]}, *more]


@pytest.fixture(scope="module")
def ssh(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    """Alice, and a cluster with two workers and a login node."""
    with operator_ground.namespace(NAMESPACE) as namespace:
        site = Site(operator_ground, namespace)
        ssh = Ssh.with_new_key(site, tmp_path_factory.mktemp("home"))
        site.apply(
            *keys(),
            part("Controller", "slurm", **KEYS, users=users(ssh)),
            part("RestApi", "slurm", **OF_SLURM),
            part("NodeSet", "worker", **OF_SLURM, replicas=2, slurmd={"resources": SMALL}),
            part("LoginSet", "login", **OF_SLURM, service={"spec": {"type": "NodePort"}}),
        )
        site.ready("controller/slurm", "loginset/login", "nodeset.slinky.slurm.net/worker")
        ssh.reached()
        yield ssh
        site.kubectl("delete", "nodeset.slinky.slurm.net/worker")


@pytest.fixture(scope="module")
def site(ssh: Ssh) -> Site:
    """The cluster."""
    return ssh.site


def test_people_log_in_and_work(site: Site, ssh: Ssh) -> None:
    assert ssh.run("whoami; pwd").split() == ["alice", "/home/alice"]
    assert sorted(ssh.run("srun -N2 hostname").split()) == ["worker-0", "worker-1"]
    assert ssh.run("srun id -un").strip() == "alice"
    assert "Granted job allocation" in ssh.attempt("salloc -N1 srun hostname").stderr
    job = ssh.run("sbatch --parsable --output=/dev/null --wrap='srun true'").strip()
    assert site.ended(job)["JobState"] == "COMPLETED"
    assert "worker" in site.exec("login-0", "sinfo")


def test_files_are_copied(ssh: Ssh, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("and back")
    words = ["scp", *ssh.options, "-P", ssh.port]
    checked(attempt(*words, tmp_path / "there", f"alice@{ssh.address}:"))
    checked(attempt(*words, f"alice@{ssh.address}:there", tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "and back"


def test_who_has_no_key_stays_outside(ssh: Ssh) -> None:
    for user in ("root", "slurm", "nobody", "mallory"):
        assert "Permission denied (publickey)" in ssh.attempt("true", user=user).stderr


def test_the_key_of_the_cluster_is_nowhere_that_people_reach(ssh: Ssh) -> None:
    found = ssh.run("sudo find / -xdev -name 'slurm.jwks' -o -xdev -name 'slurm.key'; sudo ls /run/secrets")
    assert found.split() == ["ssh"]


def test_a_user_who_comes_later_needs_no_restart(site: Site, ssh: Ssh) -> None:
    before = site.pods()
    assert ssh.attempt("true", user="bob").returncode != 0
    bob = {"name": "bob", "uid": 2002, "groups": ["physics"], "sshPublicKeys": [ssh.public_key]}
    changed = time.monotonic()
    site.patch("controller/slurm", {"spec": {"users": users(ssh, bob)}})
    groups = site.eventually(lambda: ssh.run("id -Gn", user="bob"), "bob to log in")
    assert "physics" in groups
    # Kubelet alone would take a minute or more to bring his name to workers.
    site.eventually(
        lambda: ssh.run("srun -N2 id -un", user="bob").split(),
        "workers to know bob",
        holds=lambda it: it == ["bob", "bob"],
    )
    assert time.monotonic() - changed <= KNOWN_WITHIN_S
    assert ssh.attempt("sudo -n true", user="bob").returncode != 0
    assert ssh.run("sudo -n whoami").strip() == "root"
    assert site.pods() == before


def test_settings_of_sshd_reach_it_and_end_no_session(site: Site, ssh: Ssh) -> None:
    with ssh.session("echo begun; read line; echo $line") as session:
        assert session.stdout
        assert session.stdin
        assert session.stdout.readline() == "begun\n"
        site.patch("loginset/login", {"spec": {"extraSshdConfig": "SetEnv WHERE=login"}})
        site.eventually(lambda: ssh.run("echo $WHERE"), "the new setting", holds=lambda it: it.strip() == "login")
        session.stdin.write("still here\n")
        session.stdin.flush()
        assert session.stdout.readline() == "still here\n"


def test_host_keys_are_the_same_in_every_pod_and_for_ever(site: Site, ssh: Ssh) -> None:
    ssh.run("true")  # whose key is now known
    before = site.uid("login-0")
    site.kubectl("delete", "pod", "login-0", "--grace-period=1")
    ssh.reached()
    assert site.uid("login-0") != before
    site.ready("loginset/login")


def test_pods_end_when_they_are_told_to(site: Site, ssh: Ssh) -> None:
    """Long before the time is over that they are given: daemons in them hear the signal."""
    told = site.pods("app.kubernetes.io/name in (slurmrestd, login)")
    assert len(told) == 2
    site.kubectl("delete", "pod", *told, "--grace-period=600", "--timeout=180s")
    ssh.reached()
    site.ready("loginset/login")


def test_people_reach_their_files_while_slurmctld_is_away(site: Site, ssh: Ssh) -> None:
    before = site.uid(site.slurmctld)
    site.kubectl("delete", "pod", site.slurmctld, "--wait=false")
    assert ssh.run("echo here").strip() == "here"
    # The old one may answer for a while yet; and who asks it when it goes, may hear nothing.
    site.replaced(site.slurmctld, before)
    site.eventually(
        lambda: ssh.run("timeout 30 srun hostname"), "Slurm to answer again", holds=lambda it: "worker-" in it
    )


def test_more_login_nodes(site: Site) -> None:
    site.scale("loginset/login", 2)
    site.eventually(
        lambda: site.get("loginset/login")["status"].get("readyReplicas"),
        "two login nodes",
        holds=lambda it: it == 2,
    )
    assert "worker" in site.exec("login-1", "sinfo")
    assert site.exec("login-1", "srun", "-N2", "hostname").count("worker-") == 2
    site.scale("loginset/login", 1)
    site.kubectl("wait", "pod/login-1", "--for=delete", "--timeout=180s")
    site.ready("loginset/login")


def test_an_image_without_sssd_keeps_nobody_out_and_is_named(site: Site) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "sssd"},
        "stringData": {"sssd.conf": "[sssd]"},
    }
    conf = {"name": "sssd", "key": "sssd.conf"}
    site.apply(secret, part("LoginSet", "directory", **OF_SLURM, sssdConfRef=conf))
    site.eventually(
        lambda: site.condition("loginset/directory", "SssdAvailable"),
        "the LoginSet to say that there is no SSSD",
        holds=lambda it: "the image has no sssd" in it["message"],
    )
    # As the default chart of slurm-operator has it: users of the cluster itself can log in.
    site.ready("loginset/directory")
    site.kubectl("delete", "loginset/directory")


def test_workers_join_a_slurmctld_that_is_run_elsewhere(site: Site, ssh: Ssh) -> None:
    # To these parts, the slurmctld of this very cluster is somebody else's: they know its address and its keys.
    away = {
        "external": True,
        "externalConfig": {"host": f"slurm-controller.{NAMESPACE}.svc", "port": 6817},
        "clusterName": "login-test_slurm",
        "slurmKeyRef": {"name": "slurm-auth", "key": "slurm.jwks"},
        "jwtKeyRef": KEYS["jwtKeyRef"],
    }
    of_away = {"controllerRef": {"name": "away"}}
    site.apply(
        part("Controller", "away", **away),
        part("RestApi", "away", **of_away),
        part("NodeSet", "guest", **of_away, replicas=1, slurmd={"resources": SMALL}),
    )
    site.ready("nodeset.slinky.slurm.net/guest")
    assert ssh.run("srun -w guest-0 hostname").strip() == "guest-0"
    # It is drained before it goes, also from there.
    site.kubectl("delete", "nodeset.slinky.slurm.net/guest", "controller/away", "--timeout=180s")
    assert "guest-0" not in ssh.run("sinfo -hN -t idle,alloc,mix -o %N")
