"""Every image runs in a pod and holds what it promises, for both versions of Slurm."""

import pytest

from isthmus.local import lifecycle, supply
from isthmus.local.images.recipes import reference
from isthmus.local.progress import PlainProgress
from tests.bed.cluster import ClusterBed


@pytest.fixture(scope="module")
def loaded(cluster: ClusterBed) -> ClusterBed:
    """The cluster, with the images that it does not have from the start."""
    more = ["slurm-24.11", "login-24.11", "jobset", "lws"]
    lifecycle.load_images(cluster.name, supply.images(more, PlainProgress()))
    return cluster


def _run(cluster: ClusterBed, namespace: str, image: str, *command: str) -> str:
    words = ["run", "once", "--rm", "--attach", "--restart=Never", "--quiet", f"--namespace={namespace}"]
    return cluster.kubectl(*words, f"--image={reference(image)}", "--command", "--", *command)


@pytest.mark.parametrize("version", ["26.05", "24.11"])
@pytest.mark.parametrize("daemon", ["slurmctld", "slurmd", "slurmdbd", "slurmrestd", "sinfo", "munged"])
def test_slurm_images_hold_every_daemon(loaded: ClusterBed, namespace: str, version: str, daemon: str) -> None:
    printed = _run(loaded, namespace, f"slurm-{version}", daemon, "--version" if daemon == "munged" else "-V")
    assert ("munge-0.5" if daemon == "munged" else f"{version}.") in printed


@pytest.mark.parametrize("version", ["26.05", "24.11"])
def test_slurm_images_hold_the_plugins(loaded: ClusterBed, namespace: str, version: str) -> None:
    plugins = _run(loaded, namespace, f"slurm-{version}", "sh", "-c", "ls /usr/lib/*/slurm-wlm")
    for name in ("auth_jwt.so", "auth_slurm.so", "auth_munge.so", "accounting_storage_mysql.so", "cgroup_v2.so"):
        assert name in plugins


@pytest.mark.parametrize("version", ["26.05", "24.11"])
def test_login_images_hold_what_users_expect(loaded: ClusterBed, namespace: str, version: str) -> None:
    tools = "sshd sbatch srun squeue gcc make mpicc python3 vi nano rsync git less tmux"
    script = f"for tool in {tools}; do command -v $tool || echo MISSING $tool; done"
    assert "MISSING" not in _run(loaded, namespace, f"login-{version}", "sh", "-c", script)


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
    loaded: ClusterBed, namespace: str, image: str, command: tuple[str, ...], said: str
) -> None:
    assert said in _run(loaded, namespace, image, *command)


def test_isthmus_does_not_run_as_root(loaded: ClusterBed, namespace: str) -> None:
    assert _run(loaded, namespace, "isthmus", "id", "-u").strip() == "65532"


def test_no_image_carries_a_key(loaded: ClusterBed, namespace: str) -> None:
    keys = "ls /etc/munge/*.key /etc/slurm/*.key /etc/ssh/ssh_host_* 2>/dev/null; echo none"
    assert _run(loaded, namespace, "login-26.05", "sh", "-c", keys).strip() == "none"
