"""Filling the shared root in real pods: killed and gone on, refreshed under people, and a volume too small."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from isthmus.local import cgroups, lifecycle, supply
from isthmus.local.delegation import group_of
from isthmus.local.images.recipes import IMAGES, LAYERS, Layer, Recipe, reference
from isthmus.local.progress import PlainProgress
from tests.bed.commands import Done, checked
from tests.bed.operator_ground import OperatorGround
from tests.bed.waiting import eventually
from tests.e2e.command import ISTHMUS, isthmus
from tests.e2e.site import Site

NAME = NAMESPACE = "filling"
NEXT = "login-next"
USER = "soperator"
POPULATE = "app.kubernetes.io/name=populate-jail"

SESSION = """
echo in as $(id -un)
read -r word
cat /etc/isthmus-next
echo $word
"""

JOB = """#!/bin/bash
#SBATCH --output=job.out
echo begun
until [[ -e go ]]; do sleep 0.1; done
cat /etc/isthmus-next
"""


@dataclass(frozen=True)
class Cluster:
    """A cluster that is being filled, and the home of somebody who can log in to it."""

    site: Site
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.home), "KUBECONFIG": str(self.site.ground.kubeconfig)}

    def isthmus(self, *words: str) -> Done:
        """Run our own command, with the user's home."""
        return isthmus(*words, **self.environment)

    def ssh(self, script: str) -> str:
        """Run a script over SSH."""
        return checked(self.isthmus("cluster", "ssh", NAME, "--", script))

    def session(self) -> "subprocess.Popen[str]":
        """Log in, and stay."""
        return subprocess.Popen(
            [str(ISTHMUS), "cluster", "ssh", NAME, "--", SESSION],
            env={**os.environ, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def uids(self) -> dict[str, str]:
        """Which pods people and jobs are in."""
        return self.site.pods("app.kubernetes.io/component in (login, worker)")


@pytest.fixture(scope="module")
def filling(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two workers, made by our command, and not waited for."""
    made = Cluster(Site(operator_ground, NAMESPACE), tmp_path_factory.mktemp("home"))
    done = made.isthmus(
        "cluster",
        "create",
        NAME,
        "--workers=2",
        "--memory=512Mi",
        "--no-accounting",
        "--node-port=30024",  # below 30086, of which nobody gets one by chance
        "--no-wait",
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    yield made
    made.isthmus("cluster", "delete", NAME, "--data", "--yes")
    operator_ground.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(scope="module")
def next_image(operator_ground: OperatorGround) -> Iterator[str]:
    """A newer image: one more file, and another one changed."""
    files = {"etc/isthmus-next": "next\n", "etc/motd": "the next image\n"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(LAYERS, NEXT, Layer(name=NEXT, parent="login-spank-26.05", files=files))
        patched.setitem(IMAGES, NEXT, Recipe(name=NEXT, tag="login:next", layer=NEXT))
        lifecycle.load_images(operator_ground.cluster.name, supply.images([NEXT], PlainProgress()))
        yield reference(NEXT)


def _filler(cluster: str) -> int:
    """Find the process that fills the root: what runs in pods is a process of this machine. 0 if there is none."""
    for pid in cgroups.processes(group_of(cluster)):
        with suppress(OSError):  # it has just ended
            if b"\0jail\0populate\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return 0


def _volume(site: Site) -> Path:
    """Find the directory on this machine that is the shared root."""
    name = site.eventually(lambda: site.get("pvc/jail")["spec"].get("volumeName"), "the volume of the root")
    return site.ground.cluster.cluster.directory / "volumes" / str(name)


def test_a_filling_that_is_killed_goes_on(filling: Cluster) -> None:
    """Killed when the first files have got their names and the last have not. The flows kill it at any moment."""
    site, name = filling.site, filling.site.ground.cluster.name
    own = _volume(site) / ".isthmus"
    pid = site.eventually(lambda: _filler(name), "the root to be filled")
    eventually((own / "journal").exists, "the first files to be put in place")
    os.kill(pid, signal.SIGSTOP)  # who is asleep does not finish meanwhile
    assert not (own / "ready").exists(), "the root was full before anybody could stop it"
    ((pod, uid),) = site.pods(POPULATE).items()
    site.kubectl("delete", "pod", pod, "--grace-period=1")
    assert not Path(f"/proc/{pid}").exists()
    site.kubectl("wait", "--for=condition=JailPopulated", f"slurmcluster/{NAME}", "--timeout=300s")
    assert (own / "ready").exists()
    assert uid not in site.pods(POPULATE).values()
    site.ready(f"slurmcluster/{NAME}")
    assert site.get(f"slurmcluster/{NAME}")["status"]["phase"] == "Available"
    told = filling.isthmus("cluster", "status", NAME)
    assert "Root: the shared root is from isthmus.local/login:26.05" in told.stdout
    # Services take a moment to lead to new pods.
    site.eventually(lambda: filling.ssh("echo in"), "sshd to be reached", holds=lambda it: it == "in\n")
    assert sorted(filling.ssh("srun -N2 hostname").split()) == ["worker-0", "worker-1"]


def test_s23_it_is_refreshed_while_people_are_logged_in_and_jobs_run(filling: Cluster, next_image: str) -> None:
    site, before = filling.site, filling.uids()
    assert len(before) == 3
    filling.ssh("echo mine > kept; echo changed by us | sudo tee /etc/motd; sudo touch /opt/own")
    filling.ssh(f"cat > job.sh << 'EOF'\n{JOB}EOF\nsbatch job.sh")
    site.eventually(lambda: filling.ssh("cat job.out"), "the job to run", holds=lambda it: "begun" in it)
    with filling.session() as session:
        assert session.stdin
        assert session.stdout
        assert session.stdout.readline() == f"in as {USER}\n"
        done = filling.isthmus("cluster", "refresh", NAME, f"--image={next_image}", "--yes")
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{site.ground.story(NAMESPACE)}"
        assert "new: " in done.stdout  # the plan came first
        assert "/etc/isthmus-next" in done.stdout
        assert "/etc/motd: changed by users" in done.stdout
        # Who was in is in, and sees the newer file.
        session.stdin.write("still here\n")
        assert session.stdout.read() == "next\nstill here\n"
    filling.ssh("touch go")
    site.eventually(
        lambda: filling.ssh("cat job.out"), "the job to see the newer file", holds=lambda it: "next" in it
    )
    assert filling.ssh("cat kept /etc/motd /etc/motd.isthmus-new; ls /opt/own") == (
        "mine\nchanged by us\nthe next image\n/opt/own\n"
    )
    assert filling.uids() == before
    site.eventually(
        lambda: site.get(f"slurmcluster/{NAME}")["status"].get("jailImage"),
        "the newer image in the status",
        holds=lambda it: it == next_image,
    )
    # The specification says otherwise.
    assert site.condition(f"slurmcluster/{NAME}", "JailPopulated")["reason"] == "RefreshDue"
    assert site.condition(f"slurmcluster/{NAME}", "Ready")["status"] == "True"


def test_a_volume_that_is_too_small_is_said_so_by_the_condition_and_by_the_doctor(filling: Cluster) -> None:
    with filling.site.ground.namespace("small") as namespace:
        small = {
            "apiVersion": "slurm.nebius.ai/v1",
            "kind": "SlurmCluster",
            "metadata": {"name": "small"},
            "spec": {
                "populateJail": {},
                "volumeSources": [{"name": "jail", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
                "slurmNodes": {"worker": {"size": 0}, "login": {"size": 0}},
            },
        }
        site = Site(filling.site.ground, namespace)
        site.apply(small)
        told = site.eventually(
            lambda: site.condition("slurmcluster/small", "JailPopulated"),
            "the Job to give up",
            holds=lambda it: it["reason"] == "Failed",
        )
        assert "/mnt/jail is too small" in told["message"]
        assert f"kubectl delete job populate-jail -n {namespace}" in told["message"]
        done = filling.isthmus("doctor", "--namespace", namespace)
        assert "the shared root cannot be filled" in done.stdout
        assert "too small" in done.stdout
        site.kubectl("delete", "slurmcluster", "small", "--timeout=180s")
