"""`isthmus explain` and `isthmus bridge status`, as people run them, beside a running scheduler."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus import names
from isthmus.bridge.cache.jobs import OurJob
from isthmus.domain.bridge import jobstates
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.model.meta import Key
from isthmus.model.pod import PODS
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_conf import SLURMRESTD_PORT
from tests.flows.bridge.conftest import Bridge, pod, running, until

pytestmark = pytest.mark.long

ISTHMUS = Path(sys.executable).with_name("isthmus")

Command = Callable[..., Awaitable[subprocess.CompletedProcess[str]]]


@pytest.fixture
def isthmus(control_plane: ControlPlaneBed, slurm_with_external_nodes: SlurmBed) -> Command:
    """Run a command as an administrator who has set what the documents say."""
    environment = os.environ | {
        "KUBECONFIG": str(control_plane.kubeconfig),
        "SLURM_REST_API": slurm_with_external_nodes.rest_url,
        "SLURM_JWT": slurm_with_external_nodes.token("slurm"),
    }

    def run(words: tuple[str, ...], changes: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ISTHMUS, *words], check=False, capture_output=True, text=True, env=environment | changes, timeout=60
        )

    return lambda *words, **changes: asyncio.to_thread(run, words, changes)


def marks(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The sign of each gate."""
    rows = [line.split() for line in done.stdout.splitlines() if line[2:3] in {"✓", "…", "✗", "?", "·"}]
    return {words[1]: words[0] for words in rows}


async def waiting(bridge: Bridge, namespace: str) -> tuple[Key, Key]:
    """Fill Slurm; return a pod that has a node and one that waits."""
    keys = [await bridge.create(pod(namespace, f"p{number}")) for number in range(5)]

    def bound() -> list[Key] | None:
        found = [key for key in keys if (it := bridge.world.pods.get(key)) and it.bound]
        return found if len(found) == 4 else None

    placed: list[Key] = await until(bound)
    (left,) = set(keys) - set(placed)
    # Until slurmctld has tried to start it, the job has another reason, or none.
    await bridge.told(left, "SlurmPending", containing="(Resources)")
    return placed[0], left


async def test_a_pod_that_waits_is_explained(
    bridge: Bridge, namespace: str, isthmus: Command, slurm_with_external_nodes: SlurmBed
) -> None:
    placed, left = await waiting(bridge, namespace)
    done = await isthmus("explain", f"pod/{left.name}", "-n", namespace)
    assert done.returncode == 0, done.stderr
    assert "".join(marks(done).values()) == "✓✓✓✓✓✓✓…·✓···"
    # An attempt to start at once, for which there was no room, leaves a job that is over.
    jobs = [it for it in bridge.world.jobs if it.marker.keys == (left,) and jobstates.living(it.job.job_state)]
    ((job_id, ours),) = [(it.job_id, it) for it in jobs]
    assert done.stdout.startswith(f"Pod {left}, Slurm job {job_id}\n")
    assert (
        f"waits because it is next, but too few CPUs, memory or devices are free ({ours.job.state_reason}"
        in done.stdout
    )
    assert "number 1 of 1 in partition main" in done.stdout
    assert "of 5 nodes fit: 1 is not a node of this Kubernetes cluster" in done.stdout
    assert "→ wait, or ask for less" in done.stdout

    of_job = await isthmus("explain", f"job/{job_id}")
    assert marks(of_job) == marks(done)

    of_placed = await isthmus("explain", placed.name, f"--namespace={namespace}", "--json")
    gates = {gate["name"]: gate for gate in json.loads(of_placed.stdout)["gates"]}
    assert [gate["mark"] for gate in gates.values()] == ["passed"] * 12 + ["waiting"]
    assert "kubelet" in gates["running"]["text"]

    held = slurm_with_external_nodes.command("scontrol", "hold", str(job_id))
    assert not held
    done = await isthmus("explain", left.name, "-n", namespace)
    assert marks(done)["queue"] == "✗"
    assert f"scontrol release {job_id}" in done.stdout


async def test_less_is_explained_when_slurm_is_away(
    bridge: Bridge, namespace: str, isthmus: Command, address: str
) -> None:
    _, left = await waiting(bridge, namespace)
    away = f"http://{address}:{SLURMRESTD_PORT}"
    done = await isthmus("explain", left.name, "-n", namespace, SLURM_REST_API=away)
    assert done.returncode == 0, done.stderr
    found = marks(done)
    assert [found[name] for name in ("admitted", "nodes", "submitted")] == ["✓", "✓", "?"]
    assert f"unknown: no slurmrestd answers ({away}" in done.stdout


async def test_pods_that_are_not_ours_and_pods_that_are_not(
    bridge: Bridge, namespace: str, isthmus: Command
) -> None:
    other = await bridge.create(pod(namespace, "other", schedulerName="nobody"))
    await until(lambda: bridge.world.pods.get(other))
    done = await isthmus(
        "explain", "other", "-n", namespace, NAMESPACE_SELECTOR=f"kubernetes.io/metadata.name={namespace}"
    )
    assert marks(done) == {"created": "✓", "admitted": "✗"}
    assert "→ create the pod again" in done.stdout

    none = await isthmus("explain", "none", "-n", namespace)
    assert none.returncode == 1
    assert none.stderr.startswith(f"isthmus: there is no pod {namespace}/none\n  → ")


async def test_a_gang_and_an_ask_that_is_not_allowed(bridge: Bridge, namespace: str, isthmus: Command) -> None:
    asks: dict[str, Any] = {"annotations": {f"{names.JOB_ANNOTATIONS}user-id": "root"}}
    key = await bridge.create(pod(namespace, "greedy", **asks))
    await bridge.told(key, "SlurmRefused")
    done = await isthmus("explain", "greedy", "-n", namespace)
    assert marks(done)["allowed"] == "✗"
    assert "user-id 'root' needs a BridgePolicy" in done.stdout
    assert "Traceback" not in done.stderr


async def test_a_job_of_somebody_else_is_said_to_be_so(
    bridge: Bridge, isthmus: Command, slurm_with_external_nodes: SlurmBed
) -> None:
    del bridge
    submitted = slurm_with_external_nodes.command("sbatch", "--parsable", "--hold", "--wrap", "true", user="alice")
    job_id = submitted.strip()
    done = await isthmus("explain", f"job/{job_id}")
    slurm_with_external_nodes.command("scancel", job_id)
    assert done.stderr.startswith(f"isthmus: job {job_id} does not belong to this Kubernetes cluster\n")
    unknown = await isthmus("explain", "job/60000000")
    assert unknown.stderr.startswith("isthmus: Slurm does not know job 60000000 (any more)\n")


async def test_the_status_shows_what_waits_and_what_is_amiss(
    bridge: Bridge, namespace: str, isthmus: Command, address: str
) -> None:
    _, left = await waiting(bridge, namespace)
    done = await isthmus("bridge", "status")
    assert "Slurm: bed answers, release 26.05" in done.stdout
    assert "the longest for " in done.stdout
    assert f": isthmus explain pod/{left.name} -n {namespace}" in done.stdout
    assert f"! no BridgePolicy applies to namespace {namespace}: " in done.stdout

    told = json.loads((await isthmus("bridge", "status", "--json")).stdout)
    assert told["slurm"]["answers"]
    assert {it["reason"] for it in told["waiting"]} == {"SlurmPending"}
    assert told["jobs"]["PENDING"] == 1
    assert told["jobs"]["RUNNING"] == 4
    assert told["nodes"]["slurm"] == 5
    assert len(told["nodes"]["unmapped"]) == 1

    away = await isthmus("bridge", "status", SLURM_REST_API=f"http://{address}:{SLURMRESTD_PORT}")
    assert away.returncode == 1
    assert "Slurm: ✗ does not answer: no slurmrestd answers" in away.stdout


@pytest.mark.usefixtures("nodes")
async def test_an_allocation_that_went_back_is_counted_and_named(
    config: Config, client: Client, namespace: str, slurm_with_external_nodes: SlurmBed, isthmus: Command
) -> None:
    """A node is filled by others while nobody looks, and Slurm gives it to a waiting job."""
    slurm = slurm_with_external_nodes
    async with running(config, slurm) as bridge:
        placed, left = await waiting(bridge, namespace)

        def living() -> list[OurJob]:
            ours = bridge.world.jobs
            return [it for it in ours if left in it.marker.keys and jobstates.living(it.job.job_state)]

        await until(lambda: len(living()) == 1)  # the cache may still show an attempt to start at once
        (waits,) = living()
        filler = bridge.world.pods.get(placed)
        assert filler
    node = filler.spec.node_name
    await client.create(PODS, pod(namespace, "daemon", cpu="4", schedulerName="somebody-else", nodeName=node))
    await client.delete(PODS, placed, grace=0)
    slurm.command("scancel", filler.metadata.labels[names.JOB_ID_LABEL])
    await until(lambda: slurm.command("squeue", "-h", "-j", str(waits.job_id), "-o", "%T").strip() == "RUNNING")
    async with running(config, slurm) as bridge:
        await until(lambda: bridge.counted(names.RETURNED, namespace=namespace, kind="Pod") == 1)
        line = f"  {left}, "

        async def told() -> bool:
            shown = (await isthmus("bridge", "status")).stdout.splitlines()
            return any(
                it.startswith(line) and f"Slurm gave node {node}, but {node} is too small" in it for it in shown
            )

        async with asyncio.timeout(60):
            while not await told():  # noqa: ASYNC110 - Events are written by themselves
                await asyncio.sleep(0.1)


async def test_both_worlds_are_in_one_list(
    bridge: Bridge, namespace: str, isthmus: Command, address: str, slurm_with_external_nodes: SlurmBed
) -> None:
    placed, left = await waiting(bridge, namespace)
    other = await bridge.create(pod(namespace, "other", schedulerName="nobody"))
    slurm = slurm_with_external_nodes
    batch = slurm.command("sbatch", "--parsable", "--hold", "--wrap", "true", user="alice").strip()
    found = json.loads((await isthmus("jobs", "-A", "-o", "json")).stdout)
    assert not found["troubles"]
    named = {it["name"]: it for it in found["items"] if it["namespace"] == namespace or it["job"] == int(batch)}
    assert (named[str(placed)]["kind"], named[str(placed)]["phase"]) == ("pod", "running")
    assert named[str(left)]["phase"] == "waiting"
    assert (named[str(other)]["ref"], named[str(other)]["job"]) == (f"pod/{other}", 0)
    assert [it["kind"] for it in named.values() if it["job"] == int(batch)] == ["slurm"]
    mine = await isthmus("jobs", "-n", namespace, "-o", "name")
    assert len(mine.stdout.splitlines()) == 6

    explained = await isthmus("why", f"pod/{left}")
    assert marks(explained)["queue"] == "…", explained.stderr
    assert "Blocked by:" in explained.stdout
    of_job = json.loads((await isthmus("why", str(named[str(left)]["job"]), "-o", "json")).stdout)
    assert [it["name"] for it in of_job["gates"]][:2] == ["created", "admitted"]
    of_batch = await isthmus("why", batch)
    assert "its owner holds it" in of_batch.stdout
    early = await isthmus("logs", f"pod/{left}")
    assert (early.returncode, "has not started" in early.stderr) == (1, True)
    slurm.command("scancel", batch)

    away = await isthmus("jobs", "-n", namespace, SLURM_REST_API=f"http://{address}:{SLURMRESTD_PORT}")
    assert away.returncode == 3
    assert "Slurm cannot be read" in away.stderr
    assert f"{namespace}/other" in away.stdout


async def test_machines_of_both_worlds_are_one_line_each(bridge: Bridge, isthmus: Command) -> None:
    await until(lambda: len(bridge.world.nodes) == 4)
    found = json.loads((await isthmus("nodes", "-o", "json")).stdout)["items"]
    by_name = {it["id"]: it for it in found}
    assert len(found) == len(by_name) == 5
    assert by_name["e1"]["kube"] == "e1"
    assert by_name["e1"]["state"] != "kubernetes"
    assert by_name["n1"]["kube"] == ""
    one = await isthmus("nodes", "e1", "-o", "name")
    assert one.stdout == "node/e1\n"
    none = await isthmus("nodes", "e99")
    assert (none.returncode, none.stderr.splitlines()[0]) == (1, "isthmus: there is no node e99")


async def test_a_manifest_goes_to_kubernetes(
    client: Client, namespace: str, isthmus: Command, tmp_path: Path
) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(
        json.dumps({"apiVersion": "v1", "kind": "Pod", **pod(namespace, "sent", schedulerName="nobody")})
    )
    sent = await isthmus("submit", str(manifest))
    assert sent.stdout == f"pod/{namespace}/sent\n", sent.stderr
    again = await isthmus("submit", str(manifest))
    assert (again.returncode, "Traceback" in again.stderr) == (1, False)
    assert (await client.get(PODS, Key(namespace, "sent"))).spec.scheduler_name == "nobody"
