"""Filling the shared root in real pods: killed and gone on, refreshed under people, and a volume too small."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isthmus.local import lifecycle, supply
from isthmus.local.images.recipes import IMAGES, LAYERS, Layer, Recipe, reference
from isthmus.local.progress import PlainProgress
from tests.bed.operator_ground import OperatorGround

NAME = NAMESPACE = "filling"
NEXT = "login-next"
USER = "soperator"

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
class Site:
    """A cluster that is being filled, and somebody who can log in to it."""

    ground: OperatorGround
    home: Path

    def command(self, *words: str) -> tuple[list[str], dict[str, str]]:
        program = str(Path(sys.executable).parent / "isthmus")
        environment = {**os.environ, "HOME": str(self.home), "KUBECONFIG": str(self.ground.kubeconfig)}
        return [program, *words], environment

    def isthmus(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run our own command, with the user's home."""
        words_, environment = self.command(*words)
        return subprocess.run(words_, env=environment, check=False, capture_output=True, text=True, timeout=600)

    def ssh(self, script: str) -> str:
        """Run a script over SSH."""
        done = self.isthmus("cluster", "ssh", NAME, "--", script)
        assert done.returncode == 0, f"{script}: {done.stdout}{done.stderr}\n{self.ground.story(NAMESPACE)}"
        return done.stdout

    def session(self) -> "subprocess.Popen[str]":
        """Log in, and stay."""
        words, environment = self.command("cluster", "ssh", NAME, "--", SESSION)
        return subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """List pods."""
        words = ("get", "pods", f"--namespace={NAMESPACE}", f"--selector={selector}", "-o", "json")
        found: list[dict[str, Any]] = json.loads(self.ground.kubectl(*words))["items"]
        return found

    def uids(self) -> dict[str, str]:
        """Tell which pods people and jobs are in."""
        selector = "app.kubernetes.io/component in (login, worker)"
        return {it["metadata"]["name"]: it["metadata"]["uid"] for it in self.pods(selector)}

    def condition(self, type_: str, *, name: str = NAME, namespace: str = NAMESPACE) -> dict[str, str]:
        """Read a condition of the cluster."""
        held = self.ground.get(f"slurmcluster/{name}", namespace).get("status", {}).get("conditions", [])
        return next((it for it in held if it["type"] == type_), {"status": "", "reason": "", "message": ""})


@pytest.fixture(scope="module")
def site(operator_ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster of two workers, made by our command, and not waited for."""
    made = Site(operator_ground, tmp_path_factory.mktemp("home"))
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
    made.isthmus("cluster", "delete", NAME, "--data")
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


def test_a_filling_that_is_killed_at_any_moment_goes_on(site: Site) -> None:
    def running() -> str:
        for pod in site.pods("app.kubernetes.io/name=populate-jail"):
            states = [it["state"] for it in pod["status"].get("containerStatuses", ())]
            if any("running" in it for it in states):
                return str(pod["metadata"]["name"])
        return ""

    def filled() -> bool:
        return site.condition("JailPopulated")["status"] == "True"

    # Who looks away for a moment may find it done.
    site.ground.eventually(lambda: running() or filled(), "the root to be filled")
    moment = random.uniform(0, 4)  # noqa: S311 - any moment is as good as another
    time.sleep(moment)
    if pod := running():
        site.ground.kubectl(
            "delete", "pod", pod, f"--namespace={NAMESPACE}", "--grace-period=1", "--ignore-not-found"
        )
    words = (f"slurmcluster/{NAME}", f"--namespace={NAMESPACE}", "--timeout=300s")
    done = site.ground.attempt("wait", "--for=condition=JailPopulated", *words)
    story = site.ground.story(NAMESPACE)
    assert done.returncode == 0, f"killed after {moment:.2f} s: {site.condition('JailPopulated')}\n{story}"
    site.ground.ready(f"slurmcluster/{NAME}", NAMESPACE)
    assert site.ground.get(f"slurmcluster/{NAME}", NAMESPACE)["status"]["phase"] == "Available"
    told = site.isthmus("cluster", "status", NAME)
    assert "Root: the shared root is of isthmus.local/login:26.05" in told.stdout
    # Services take a moment to lead to new pods.
    site.ground.eventually(lambda: site.ssh("echo in") == "in\n", "sshd to be reached")
    assert sorted(site.ssh("srun -N2 hostname").split()) == ["worker-0", "worker-1"]


def test_s23_it_is_refreshed_while_people_are_logged_in_and_jobs_run(site: Site, next_image: str) -> None:
    before = site.uids()
    site.ssh("echo mine > kept; echo changed by us | sudo tee /etc/motd; sudo touch /opt/own")
    site.ssh(f"cat > job.sh << 'EOF'\n{JOB}EOF\nsbatch job.sh")
    site.ground.eventually(lambda: "begun" in site.ssh("cat job.out || true"), "the job to run")
    with site.session() as session:
        assert session.stdin
        assert session.stdout
        assert session.stdout.readline() == f"in as {USER}\n"
        done = site.isthmus("cluster", "refresh", NAME, f"--image={next_image}", "--yes")
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{site.ground.story(NAMESPACE)}"
        assert "new: " in done.stdout  # the plan came first
        assert "/etc/isthmus-next" in done.stdout
        assert "/etc/motd: changed by users" in done.stdout
        # Who was in is in, and sees the newer file.
        session.stdin.write("still here\n")
        assert session.stdout.read() == "next\nstill here\n"
    site.ssh("touch go")
    site.ground.eventually(lambda: "next" in site.ssh("cat job.out"), "the job to see the newer file")
    assert site.ssh("cat kept /etc/motd /etc/motd.isthmus-new; ls /opt/own") == (
        "mine\nchanged by us\nthe next image\n/opt/own\n"
    )
    assert site.uids() == before
    site.ground.eventually(
        lambda: site.ground.get(f"slurmcluster/{NAME}", NAMESPACE)["status"]["jailImage"] == next_image,
        "the newer image in the status",
    )
    assert site.condition("JailPopulated")["reason"] == "RefreshDue"  # the specification says otherwise
    assert site.condition("Ready")["status"] == "True"


def test_a_volume_that_is_too_small_is_said_so_by_the_condition_and_by_the_doctor(site: Site) -> None:
    with site.ground.namespace("small") as namespace:
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
        site.ground.apply(small, namespace)

        def told() -> dict[str, str]:
            return site.condition("JailPopulated", name="small", namespace=namespace)

        site.ground.eventually(lambda: told()["reason"] == "Failed", "the Job to give up")
        assert "/mnt/jail is too small" in told()["message"]
        assert f"kubectl delete job populate-jail -n {namespace}" in told()["message"]
        done = site.isthmus("doctor", "--namespace", namespace)
        assert "the shared root cannot be filled" in done.stdout
        assert "too small" in done.stdout
        site.ground.kubectl("delete", "slurmcluster", "small", f"--namespace={namespace}", "--timeout=180s")
