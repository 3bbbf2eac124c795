"""Every image runs in a pod and holds what it promises, for both versions of Slurm."""

import json
from pathlib import Path

import pytest

from isthmus.local import lifecycle, supply
from isthmus.local.images.recipes import reference
from isthmus.local.progress import PlainProgress
from tests.bed.cluster import ClusterBed
from tests.bed.waiting import eventually

_SCRIPTS = Path(__file__).with_name("in_images")


def _run(cluster: ClusterBed, namespace: str, image: str, *command: str) -> str:
    """Run a program of an image to its end and return what it printed."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "once"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": reference(image), "imagePullPolicy": "Never", "command": list(command)}
            ],
        },
    }
    cluster.kubectl("apply", f"--namespace={namespace}", "--filename=-", stdin=json.dumps(manifest))
    eventually(
        lambda: cluster.get("pod/once", namespace)["status"].get("phase"),
        f"{image} to end",
        holds=lambda it: it in {"Succeeded", "Failed"},
    )
    return cluster.kubectl("logs", "once", f"--namespace={namespace}")


def _script(name: str) -> str:
    return (_SCRIPTS / name).read_text()


@pytest.mark.parametrize("version", ["26.05", "24.11"])
def test_slurm_images_hold_every_daemon_and_plugin(cluster: ClusterBed, namespace: str, version: str) -> None:
    daemons = "slurmctld slurmd slurmdbd slurmrestd slurmstepd sackd munged"
    programs = f"{daemons} sinfo srun sbatch sacct sacctmgr bash ping nc ip ps"
    plugins = "auth_jwt auth_slurm auth_munge accounting_storage_mysql cgroup_v2 rest_auth_jwt"
    script = f"""
slurmctld -V; slurmd -V; slurmrestd -V
for program in {programs}; do command -v $program >/dev/null || echo MISSING $program; done
for plugin in {plugins}; do ls /usr/lib/*/slurm-wlm/$plugin.so >/dev/null || echo MISSING $plugin; done
"""
    printed = _run(cluster, namespace, f"slurm-{version}", "sh", "-c", script)
    assert printed.count(f"{version}.") == 3
    assert "MISSING" not in printed


@pytest.mark.parametrize("version", ["26.05", "24.11"])
def test_login_images_hold_what_users_expect(cluster: ClusterBed, namespace: str, version: str) -> None:
    tools = "sshd sbatch srun squeue gcc make mpicc python3 pip vim nano rsync git less tmux nslookup telnet ping"
    tools += " jq lsof strace xauth"
    manuals = "sbatch srun ls strace"
    script = f"""
for tool in {tools}; do command -v $tool || echo MISSING $tool; done
for name in {manuals}; do man --where $name || echo MISSING manual of $name; done
grep -qE '^deb [a-z]+:' /etc/apt/sources.list || echo MISSING sources of packages
"""
    assert "MISSING" not in _run(cluster, namespace, f"login-{version}", "sh", "-c", script)


@pytest.mark.parametrize("image", ["slurm-26.05", "slurm-24.11", "login-26.05", "login-24.11"])
def test_users_have_the_same_numbers_in_every_slurm_image(cluster: ClusterBed, namespace: str, image: str) -> None:
    numbers = "for user in slurm slurmrestd munge; do echo $user $(id -u $user) $(id -g $user); done"
    printed = _run(cluster, namespace, image, "sh", "-c", numbers)
    assert printed.splitlines() == ["slurm 64030 64030", "slurmrestd 64031 64031", "munge 400 400"]


@pytest.mark.parametrize("version", ["26.05", "24.11"])
def test_munge_runs_with_a_key_that_is_given(cluster: ClusterBed, namespace: str, version: str) -> None:
    printed = _run(cluster, namespace, f"slurm-{version}", "bash", "-euc", _script("munge.sh"))
    assert "alice (2001)" in printed, printed


@pytest.mark.parametrize("version", ["26.05", "24.11"])
def test_a_user_from_mounted_files_logs_in_and_runs_mpi(cluster: ClusterBed, namespace: str, version: str) -> None:
    printed = _run(cluster, namespace, f"login-{version}", "bash", "-euc", _script("login.sh"))
    assert "home /home/alice" in printed, printed
    assert sorted(line for line in printed.splitlines() if line.startswith("rank")) == [
        "rank 0 of 2",
        "rank 1 of 2",
    ]


def test_mariadb_begins_with_a_database_and_keeps_it(cluster: ClusterBed, namespace: str) -> None:
    printed = _run(cluster, namespace, "mariadb", "bash", "-euc", _script("mariadb.sh"))
    assert printed.splitlines()[-2:] == ["owner 401", "kept 7"], printed


@pytest.mark.parametrize(
    ("image", "command", "said"),
    [
        ("mariadb", ("mariadbd", "--version"), "MariaDB"),
        ("isthmus", ("isthmus", "--version"), "isthmus 0."),
        ("coredns", ("/coredns", "-version"), "CoreDNS-1.15.0"),
        ("jobset", ("/jobset", "-help"), "health-probe-bind-address"),
        ("lws", ("/lws", "-help"), "health-probe-bind-address"),
    ],
)
def test_other_images_run(
    cluster: ClusterBed, namespace: str, image: str, command: tuple[str, ...], said: str
) -> None:
    assert said in _run(cluster, namespace, image, *command)


def test_isthmus_does_not_run_as_root(cluster: ClusterBed, namespace: str) -> None:
    assert _run(cluster, namespace, "isthmus", "id", "-u").strip() == "65532"


def test_no_image_carries_a_key(cluster: ClusterBed, namespace: str) -> None:
    keys = "ls /etc/munge/*.key /etc/slurm/*.key /etc/ssh/ssh_host_* 2>/dev/null; echo none"
    assert _run(cluster, namespace, "login-26.05", "sh", "-c", keys).strip() == "none"


def test_an_image_that_a_node_lacks_is_loaded(cluster: ClusterBed, namespace: str) -> None:
    # One that no add-on of the cluster runs: containerd forgets an image slowly while a container of it is there.
    for node in cluster.cluster.nodes:
        listed = node.machine.run("ctr", "--namespace=k8s.io", "images", "list", "--quiet").split()
        names = [name for name in listed if "isthmus.local/login:24.11" in name or "isthmus.local/login@" in name]
        assert names
        node.machine.run("ctr", "--namespace=k8s.io", "images", "remove", "--sync", *names)
    lifecycle.load_images(cluster.name, supply.images(["login-24.11"], PlainProgress()))
    assert _run(cluster, namespace, "login-24.11", "sh", "-c", "command -v sshd").strip() == "/usr/sbin/sshd"
