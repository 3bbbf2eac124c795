"""Pods and jobs that end, each with the other: a real API server, a real Slurm, and tests that speak for kubelets.

Jobs are submitted and pods are bound by hand here, so that nothing but the part under test decides anything. The
scheduler's world is not ours, either: the caches of the part under test fill by themselves, as in a process apart.
"""

import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from isthmus import names
from isthmus.bridge.cache import orphans
from isthmus.bridge.cache.metrics import WorldMetrics
from isthmus.bridge.cache.world import World, cluster_id
from isthmus.bridge.pods.sync import PodSync
from isthmus.domain.bridge import jobstates, marker, placeholder, podrules
from isthmus.domain.bridge.groups import group_of
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.recorder import Recorder
from isthmus.model.base import Kind
from isthmus.model.meta import condition
from isthmus.model.node import NODES
from isthmus.model.pod import PODS, Pod
from isthmus.model.slurm import Job, JobRequest, Number
from isthmus.names import MetricName
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client as SlurmClient
from isthmus.slurm.client import connect
from isthmus.slurm.completion import Completer, to_helper
from isthmus.slurm.errors import AlreadyDone
from tests.bed.faults import Faults
from tests.bed.metrics import counted
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import make_node, pod, until
from tests.flows.kube.conftest import Through, through
from tests.flows.slurm.helpers import eventually
from tests.flows.working import at_work

pytestmark = pytest.mark.long

__all__ = ["through"]

EVENTS: Kind[dict[str, Any]] = Kind(dict[str, Any], "events.k8s.io/v1", "events", "Event")

_serial = itertools.count(1)


class Stage:
    """Both sides, and what tests do to them."""

    def __init__(self, kube: Client, slurm: SlurmClient, bed: SlurmBed, *, cluster: str, namespace: str) -> None:
        self.kube = kube
        self.slurm = slurm
        self.bed = bed
        self.cluster = cluster
        self.namespace = namespace
        self.metrics = Metrics()
        """Of the part under test, as the fixtures start it."""
        self.batch = bed.version < "25.11"
        self.nodes = ("n1", "n2") if self.batch else ("e1", "e2", "e3", "e4")

    async def create(self, name: str = "", **more: Any) -> Pod:
        """Create a pod that Slurm is to place."""
        return await self.kube.create(PODS, pod(self.namespace, name or f"p{next(_serial)}", **more))

    async def submit(self, *pods: Pod, key: str = "", **changes: Any) -> int:
        """Submit the job of these pods, marked as ours."""
        first = pods[0].metadata
        group = group_of(pods[0])
        uid = first.uid if group.single else f"uid-of-{group.name}"
        marked = marker.mark(group, uid, pods, cluster=self.cluster, slots=len(pods))
        request = self.request(comment=marker.comment(pods), admin_comment=marker.write(marked))
        request = msgspec.structs.replace(request, **changes)
        return (await self.slurm.submit_once(request, key=key or f"test:{first.uid}:{next(_serial)}")).job_id

    def request(self, **changes: Any) -> JobRequest:
        """A small job, of nobody."""
        kind: dict[str, Any] = {"script": placeholder.SCRIPT} if self.batch else {"flags": ("EXTERNAL_JOB",)}
        request = JobRequest(
            name="of-a-test",
            current_working_directory="/tmp",  # noqa: S108 - in the bed
            environment=("PATH=/usr/bin:/bin",),
            tasks=1,
            cpus_per_task=1,
            memory_per_node=Number.of(16),
            required_nodes=(self.nodes[next(_serial) % len(self.nodes)],),
            **kind,
        )
        return msgspec.structs.replace(request, **changes)

    async def bind(self, found: Pod, job_id: int, node: str) -> None:
        """Bind a pod as the scheduler does."""
        await self.kube.bind(
            found.metadata.key,
            node,
            uid=found.metadata.uid,
            labels={names.JOB_ID_LABEL: str(job_id)},
            annotations={names.POD_JOB_ANNOTATION: str(job_id), names.POD_SLURM_NODE_ANNOTATION: node},
        )

    async def placed(self, **more: Any) -> tuple[Pod, int]:
        """Make a pod that runs in a job."""
        found = await self.create(**more)
        job_id = await self.submit(found)
        job = await self.job(job_id, "RUNNING")
        await self.bind(found, job_id, job.nodes or "")
        return found, job_id

    async def job(self, job_id: int, *states: str, within: float = 60) -> Job:
        """Wait until a job is in one of these states."""

        async def read() -> Job:
            return (await self.slurm.job(job_id))[0]

        try:
            return await eventually(read, lambda job: job.job_state[0] in states, within=within)
        except TimeoutError:
            around = self.bed.command("squeue", "--all") + self.bed.command("sinfo", "--Node", "--long")
            raise AssertionError(f"job {job_id} is not {states}, but {await read()}\n{around}") from None

    async def state(self, job_id: int) -> str:
        """The base state of a job, now."""
        return (await self.slurm.job(job_id))[0].job_state[0]

    async def set_status(self, found: Pod, phase: str, *, exit_code: int = 0, reason: str = "") -> None:
        """Report what a kubelet would."""
        ended = {"exitCode": exit_code, "reason": reason or ("Error" if exit_code else "Completed")}
        container = {
            "name": "main",
            "image": "example/none",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": ended},
        }
        status: dict[str, Any] = {"phase": phase}
        if phase in {"Succeeded", "Failed"}:
            status["containerStatuses"] = [container]
        await self.kube.merge_patch(PODS, found.metadata.key, {"status": status}, subresource="status")

    def counted(self, metric: MetricName, /, **labels: str) -> float:
        """What the part under test has counted in our namespace."""
        return counted(self.metrics, metric, namespace=self.namespace, **labels)

    async def evicted(self, found: Pod) -> Pod:
        """Wait until a pod is asked to leave."""

        async def read() -> Pod:
            return await self.kube.get(PODS, found.metadata.key)

        return await eventually(read, lambda it: it.leaving, within=60)

    async def event(self, found: Pod, reason: str) -> dict[str, Any]:
        """Wait for an Event about a pod."""

        async def read() -> list[dict[str, Any]]:
            listing = await self.kube.list(EVENTS, namespace=self.namespace)
            return [
                it
                for it in listing.items
                if it["regarding"].get("uid") == found.metadata.uid and it["reason"] == reason
            ]

        return (await eventually(read, bool, within=60))[0]

    async def was_bound(self, found: Pod, *, at: float) -> None:
        """Let a pod have got its node at this time."""
        told = {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        patch = {"status": {"conditions": [told]}}
        await self.kube.merge_patch(PODS, found.metadata.key, patch, subresource="status")

    async def everything_is_looked_at(self) -> None:
        """Wait until a change that is made now has been dealt with, and so whatever was there before it."""
        found, job_id = await self.placed()
        await self.set_status(found, "Succeeded")
        await self.job(job_id, "CANCELLED", "COMPLETED")

    async def ended(self, job_id: int, state: str, exit_code: str) -> None:
        """Wait until accounting says that a job ended so."""

        async def read() -> list[str]:
            return self.accounted(job_id, "State", "ExitCode")

        await eventually(read, lambda it: [it[0].split(" ")[0], *it[1:]] == [state, exit_code])

    def accounted(self, job_id: int, *fields: str) -> list[str]:
        """What sacct says of a job."""
        line = self.bed.command("sacct", "-nPX", "-j", str(job_id), "-o", ",".join(fields))
        return line.strip().split("|")


@asynccontextmanager
async def syncing(
    config: Config,
    bed: SlurmBed,
    *,
    url: str = "",
    metrics: Metrics | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    completes: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[World]:
    """Run the part under test in a process of its own, as far as caches go.

    If it `completes` jobs, it looks for the helper that does so; `clock` tells how long that is away.
    """
    tokens = MintedTokens(bed.jwt_key, user="slurm")
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(Client(config))
        slurm = await stack.enter_async_context(connect([url or bed.rest_url], tokens))
        cluster = await cluster_id(kube)
        completer = None
        if completes:
            helper = await stack.enter_async_context(to_helper([bed.completer_url], tokens))
            completer = Completer(helper, cluster=cluster, clock=clock)
        world = World(kube, slurm, cluster=cluster)
        metrics = metrics or Metrics()
        WorldMetrics(world, tokens, metrics)
        recorder = Recorder(kube, controller="slurm-bridge", instance="test")
        sync = PodSync(world, recorder, metrics, now=now, completer=completer)
        async with at_work(world, recorder, sync.workers):
            yield world


@asynccontextmanager
async def stage_on(bed: SlurmBed, client: Client, namespace: str) -> AsyncIterator[Stage]:
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key, user="slurm")) as slurm:
        stage = Stage(client, slurm, bed, cluster=await cluster_id(client), namespace=namespace)
        for name in stage.nodes:
            await make_node(client, name)
        # A slurmctld that began in the second of a job's submission may have forgotten another with its id.
        await eventually(slurm.diagnose, lambda told: 0 < (told.since.value or 0) < (told.now.value or 0))
        yield stage
        for name in stage.nodes:
            await client.delete(NODES, name)
        for job in await slurm.jobs():
            if not job.has_ended:
                with suppress(AlreadyDone):
                    await slurm.cancel_job(job.job_id)


@pytest.fixture
async def stage(slurm_with_external_nodes: SlurmBed, client: Client, namespace: str) -> AsyncIterator[Stage]:
    """Slurm 26.05 with external nodes and jobs."""
    async with stage_on(slurm_with_external_nodes, client, namespace) as made:
        yield made


@pytest.fixture
async def hybrid(shared_slurm: Callable[..., SlurmBed], client: Client, namespace: str) -> AsyncIterator[Stage]:
    """Slurm 24.11 with a slurmd on each node, and placeholder jobs."""
    async with stage_on(shared_slurm("24.11"), client, namespace) as made:
        yield made


@pytest.fixture
async def sync(config: Config, stage: Stage) -> AsyncIterator[World]:
    """The part under test, on external nodes."""
    async with syncing(config, stage.bed, metrics=stage.metrics) as world:
        yield world


@pytest.fixture
async def hybrid_sync(config: Config, hybrid: Stage) -> AsyncIterator[World]:
    """The part under test, on nodes with slurmd."""
    async with syncing(config, hybrid.bed, metrics=hybrid.metrics) as world:
        yield world


@pytest.fixture
async def completing(config: Config, stage: Stage) -> AsyncIterator[Stage]:
    """The part under test on external nodes, with the helper that completes jobs."""
    stage.bed.start("isthmus-complete")
    async with syncing(config, stage.bed, completes=True):
        yield stage
    stage.bed.stop("isthmus-complete")


def disruption(found: Pod) -> tuple[str, str, str]:
    told = condition(found.status.conditions, "DisruptionTarget")
    assert told
    return told.status, told.reason, told.message


def a_gang() -> dict[str, Any]:
    """What pods of one gang have in common."""
    return {
        "annotations": {f"{names.JOB_ANNOTATIONS}gang": "true"},
        "labels": {names.JOB_NAME_LABEL: f"job{next(_serial)}"},
    }


# --- pods end, and so do their jobs ------------------------------------------------------------------------------


@pytest.mark.usefixtures("sync")
async def test_weakness_27_the_job_tells_that_its_pod_succeeded(stage: Stage) -> None:
    found, job_id = await stage.placed()
    await stage.set_status(found, "Running")
    await until(lambda: stage.counted(names.PODS_STARTED, kind="Pod"))
    await stage.set_status(found, "Succeeded")
    job = await stage.job(job_id, "CANCELLED")
    assert stage.counted(names.PODS_STARTED) == 1
    assert not stage.counted(names.PODS_EVICTED)
    text = f"{found.metadata.key}: Succeeded"
    assert job.comment
    assert job.comment.startswith(f"{text} isthmus-key=test:{found.metadata.uid}")

    async def accounted() -> list[str]:
        return stage.accounted(job_id, "AdminComment")

    (recorded,) = await eventually(accounted, lambda it: "outcome" in it[0])
    assert json.loads(recorded)["outcome"] == text
    assert marker.read(recorded), "the marker is still one"


@pytest.mark.usefixtures("sync")
async def test_weakness_27_the_job_tells_how_its_pod_failed(stage: Stage) -> None:
    found, job_id = await stage.placed()
    await stage.set_status(found, "Failed", exit_code=3, reason="OOMKilled")
    job = await stage.job(job_id, "CANCELLED")
    assert job.comment
    assert job.comment.startswith(
        f"{found.metadata.key}: Failed: container main exited with 3 (OOMKilled) isthmus-key="
    )


@pytest.mark.parametrize(
    ("phase", "state", "exit_code"), [("Succeeded", "COMPLETED", "0:0"), ("Failed", "FAILED", "1:0")]
)
@pytest.mark.usefixtures("hybrid_sync")
async def test_weakness_27_a_placeholder_ends_as_its_pod_did(
    hybrid: Stage, phase: str, state: str, exit_code: str
) -> None:
    found, job_id = await hybrid.placed()
    # The job runs, but its script has not begun, perhaps: a signal is lost then, and has to be sent again.
    await hybrid.set_status(found, phase, exit_code=0 if phase == "Succeeded" else 3)
    job = await hybrid.job(job_id, "COMPLETED", "FAILED", "CANCELLED")
    assert job.job_state[0] == state
    assert f"{found.metadata.key}: {phase}" in (job.comment or "")

    async def accounted() -> list[str]:
        return hybrid.accounted(job_id, "State", "ExitCode")

    await eventually(accounted, lambda it: it == [state, exit_code])


async def test_accounting_tells_how_pods_ended(completing: Stage) -> None:
    ends: dict[tuple[str, int, str], tuple[str, str]] = {
        ("Succeeded", 0, ""): ("COMPLETED", "0:0"),
        ("Failed", 3, ""): ("FAILED", "3:0"),
        ("Failed", 137, "OOMKilled"): ("FAILED", "0:9"),
    }
    jobs = {}
    for (phase, code, reason), end in ends.items():
        found, job_id = await completing.placed()
        await completing.set_status(found, phase, exit_code=code, reason=reason)
        jobs[job_id] = end, f"{found.metadata.key}: {phase}"
    for job_id, (end, text) in jobs.items():
        await completing.ended(job_id, *end)
        (comment,) = completing.accounted(job_id, "AdminComment")
        assert json.loads(comment)["outcome"].startswith(text), "the outcome in words is there, too"


async def test_a_gang_ends_as_its_worst_member(completing: Stage) -> None:
    gang = a_gang()
    pods = [await completing.create(**gang) for _ in range(3)]
    job_id = await completing.submit(*pods)
    node = (await completing.job(job_id, "RUNNING")).nodes or ""
    for found, code in zip(pods, (0, 7, 2), strict=True):
        await completing.bind(found, job_id, node)
        await completing.set_status(found, "Failed" if code else "Succeeded", exit_code=code)
    await completing.ended(job_id, "FAILED", "7:0")


async def test_the_jobs_of_deleted_and_evicted_pods_are_still_cancelled(completing: Stage) -> None:
    deleted, of_deleted = await completing.placed()
    evicted, of_evicted = await completing.placed()
    await completing.kube.delete(PODS, deleted.metadata.key, grace=0)
    failed = {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}}
    await completing.kube.merge_patch(PODS, evicted.metadata.key, failed, subresource="status")
    for job_id in (of_deleted, of_evicted):
        await completing.ended(job_id, "CANCELLED", "0:0")


async def test_a_job_waits_for_the_helper_and_not_for_ever(config: Config, stage: Stage) -> None:
    now = [0.0]
    async with syncing(config, stage.bed, completes=True, clock=lambda: now[0]):
        patient, first = await stage.placed()
        await stage.set_status(patient, "Succeeded")
        # What is dealt with now is dealt with as before, but a pod that did not succeed or fail needs no helper.
        other, marking = await stage.placed()
        await stage.kube.delete(PODS, other.metadata.key, grace=0)
        await stage.job(marking, "CANCELLED")
        assert await stage.state(first) == "RUNNING"
        stage.bed.start("isthmus-complete")
        await stage.ended(first, "COMPLETED", "0:0")
        stage.bed.stop("isthmus-complete")

        hasty, second = await stage.placed()
        await stage.set_status(hasty, "Succeeded")
        await eventually(lambda: stage.slurm.job(second), lambda it: "Succeeded" in (it[0].comment or ""))

        async def much_later() -> str:
            now[0] += 10.0
            return await stage.state(second)

        await eventually(much_later, lambda it: it == "CANCELLED")


async def test_a_placeholder_ends_with_the_code_of_its_pod(config: Config, hybrid: Stage) -> None:
    hybrid.bed.start("isthmus-complete")
    async with syncing(config, hybrid.bed, completes=True):
        found, job_id = await hybrid.placed()
        await hybrid.set_status(found, "Failed", exit_code=3)
        good, other = await hybrid.placed()
        await hybrid.set_status(good, "Succeeded")
        await hybrid.ended(job_id, "FAILED", "3:0")
        await hybrid.ended(other, "COMPLETED", "0:0")
    hybrid.bed.stop("isthmus-complete")


@pytest.mark.usefixtures("hybrid_sync")
async def test_the_placeholder_of_a_deleted_pod_is_cancelled(hybrid: Stage) -> None:
    found, job_id = await hybrid.placed()
    await hybrid.kube.delete(PODS, found.metadata.key, grace=0)
    job = await hybrid.job(job_id, "COMPLETED", "FAILED", "CANCELLED")
    assert job.job_state[0] == "CANCELLED"
    assert f"{found.metadata.key}: deleted" in (job.comment or "")


@pytest.mark.usefixtures("sync")
async def test_weakness_15_a_leaving_pod_keeps_its_job_until_it_is_gone(stage: Stage) -> None:
    found, job_id = await stage.placed(terminationGracePeriodSeconds=300)
    await stage.kube.delete(PODS, found.metadata.key)
    await stage.everything_is_looked_at()
    assert await stage.state(job_id) == "RUNNING"
    await stage.kube.delete(PODS, found.metadata.key, grace=0)
    job = await stage.job(job_id, "CANCELLED")
    assert f"{found.metadata.key}: deleted" in (job.comment or "")


@pytest.mark.usefixtures("sync")
async def test_the_waiting_job_of_a_deleted_pod_is_cancelled(stage: Stage) -> None:
    found = await stage.create()
    job_id = await stage.submit(found, hold=True)
    await stage.everything_is_looked_at()
    assert await stage.state(job_id) == "PENDING"
    await stage.kube.delete(PODS, found.metadata.key)
    await stage.job(job_id, "CANCELLED")


async def test_a_job_whose_pod_went_while_nobody_looked_is_ended(config: Config, stage: Stage) -> None:
    found, job_id = await stage.placed()
    await stage.kube.delete(PODS, found.metadata.key, grace=0)
    async with syncing(config, stage.bed):
        job = await stage.job(job_id, "CANCELLED")
    assert f"{found.metadata.key}: deleted" in (job.comment or "")


@pytest.mark.usefixtures("sync")
async def test_a_gang_keeps_its_job_as_long_as_one_pod_lives_or_waits(stage: Stage) -> None:
    gang = a_gang()
    first, second = [await stage.create(**gang) for _ in range(2)]
    job_id = await stage.submit(first, second)
    node = (await stage.job(job_id, "RUNNING")).nodes or ""
    for found in (first, second):
        await stage.bind(found, job_id, node)
    await stage.set_status(first, "Failed", exit_code=7)
    await stage.everything_is_looked_at()
    assert await stage.state(job_id) == "RUNNING"

    replacement = await stage.create(**gang)
    await stage.set_status(second, "Succeeded")
    await stage.everything_is_looked_at()
    assert await stage.state(job_id) == "RUNNING", "a pod of the gang waits for a free place in it"

    await stage.kube.delete(PODS, replacement.metadata.key)
    job = await stage.job(job_id, "CANCELLED")
    assert f"{first.metadata.key}: Failed: container main exited with 7" in (job.comment or "")


async def test_weakness_14_a_dead_kubelet_does_not_hold_an_allocation_for_ever(
    config: Config, stage: Stage
) -> None:
    async with syncing(config, stage.bed, now=lambda: datetime.now(UTC) + timedelta(hours=1)):
        found, job_id = await stage.placed()
        node = (await stage.job(job_id, "RUNNING")).nodes or ""
        await stage.kube.delete(PODS, found.metadata.key)
        await stage.everything_is_looked_at()
        assert await stage.state(job_id) == "RUNNING", "its kubelet lives, and says when it is gone"

        unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        await stage.kube.merge_patch(NODES, node, {"status": {"conditions": [unknown]}}, subresource="status")
        job = await stage.job(job_id, "CANCELLED")
        assert f"deleted, and its node {node} did not confirm its end" in (job.comment or "")


async def test_weakness_14_a_dead_kubelet_has_its_time_to_come_back(config: Config, stage: Stage) -> None:
    # For the part under test no time passes, however long this takes.
    began = datetime.now(UTC)
    async with syncing(config, stage.bed, now=lambda: began):
        found, job_id = await stage.placed(terminationGracePeriodSeconds=1)
        node = (await stage.job(job_id, "RUNNING")).nodes or ""
        unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        await stage.kube.merge_patch(NODES, node, {"status": {"conditions": [unknown]}}, subresource="status")
        await stage.kube.delete(PODS, found.metadata.key)
        await stage.everything_is_looked_at()
        assert await stage.state(job_id) == "RUNNING"


# --- jobs end, and so do their pods ------------------------------------------------------------------------------


@pytest.mark.usefixtures("sync")
async def test_weakness_15_a_cancelled_job_takes_its_pod_with_it_within_two_seconds(stage: Stage) -> None:
    delays = []
    for _ in range(5):
        found, job_id = await stage.placed()
        began = time.monotonic()
        stage.bed.command("scancel", str(job_id))
        gone = await stage.evicted(found)
        delays.append(time.monotonic() - began)
        assert disruption(gone) == ("True", "SlurmJobCancelled", f"Slurm job {job_id} was cancelled")
    # What else the machine does adds to each of them, so that the shortest tells what we ourselves take.
    assert min(delays) < 2, delays
    told = await stage.event(found, "SlurmJobCancelled")
    assert told["type"] == "Warning"
    await until(lambda: stage.counted(names.PODS_EVICTED, kind="Pod", reason="cancelled") == len(delays))
    assert await stage.state(job_id) == "CANCELLED"


@pytest.mark.usefixtures("sync")
async def test_weakness_13_the_failure_of_a_node_takes_the_pod_with_it(stage: Stage) -> None:
    found, job_id = await stage.placed()
    node = (await stage.job(job_id, "RUNNING")).nodes or ""
    stage.bed.scontrol("update", f"nodename={node}", "state=down", "reason=test")
    try:
        gone = await stage.evicted(found)
    finally:
        stage.bed.scontrol("update", f"nodename={node}", "state=resume")
    assert disruption(gone)[1] == "SlurmJobNodeFailed"
    await until(lambda: stage.counted(names.PODS_EVICTED, reason="node_fail") == 1)


@pytest.mark.usefixtures("sync")
async def test_weakness_13_a_time_limit_takes_the_pod_with_it(stage: Stage) -> None:
    found, job_id = await stage.placed()
    stage.bed.scontrol("update", f"job={job_id}", "TimeLimit=1")
    stage.bed.scontrol("update", f"job={job_id}", "EndTime=now")
    # slurmctld looks at time limits every 30 s.
    await stage.job(job_id, "TIMEOUT", within=120)
    gone = await stage.evicted(found)
    assert disruption(gone) == ("True", "SlurmJobTimeout", f"Slurm job {job_id} reached its time limit")
    await until(lambda: stage.counted(names.PODS_EVICTED, reason="timeout") == 1)


@pytest.mark.usefixtures("hybrid_sync")
async def test_weakness_13_a_requeued_job_takes_its_pod_with_it(hybrid: Stage) -> None:
    found, job_id = await hybrid.placed()
    hybrid.bed.scontrol("requeue", str(job_id))
    gone = await hybrid.evicted(found)
    assert disruption(gone) == ("True", "SlurmJobRequeued", f"Slurm job {job_id} was put back into the queue")
    await until(lambda: hybrid.counted(names.PODS_EVICTED, reason="requeued") == 1)
    await hybrid.kube.delete(PODS, found.metadata.key, grace=0)
    await hybrid.job(job_id, "CANCELLED")


@pytest.mark.usefixtures("hybrid_sync")
async def test_weakness_13_a_placeholder_that_ends_by_itself_takes_its_pod_with_it(hybrid: Stage) -> None:
    found, job_id = await hybrid.placed()

    async def end_it() -> str:
        with suppress(AlreadyDone):
            await hybrid.slurm.cancel_job(job_id, signal=placeholder.SUCCEED, batch=True)
        return await hybrid.state(job_id)

    await eventually(end_it, lambda state: state == "COMPLETED")
    assert disruption(await hybrid.evicted(found))[1] == "SlurmJobCompleted"


@pytest.mark.usefixtures("hybrid_sync")
async def test_a_suspended_job_is_told_to_its_pod(hybrid: Stage) -> None:
    # Slurm can suspend external jobs, too, but then takes their nodes for ones that do not respond.
    found, job_id = await hybrid.placed()

    async def told() -> str:
        read = await hybrid.kube.get(PODS, found.metadata.key)
        it = condition(read.status.conditions, podrules.SUSPENDED_CONDITION)
        return it.status if it else ""

    hybrid.bed.scontrol("suspend", str(job_id))
    await eventually(told, lambda it: it == "True")
    assert "cannot be paused" in (await hybrid.event(found, "SlurmJobSuspended"))["note"]
    hybrid.bed.scontrol("resume", str(job_id))
    await eventually(told, lambda it: it == "False")
    assert not (await hybrid.kube.get(PODS, found.metadata.key)).leaving


@pytest.mark.usefixtures("sync")
async def test_a_job_that_nobody_knows_takes_its_pod_with_it(stage: Stage) -> None:
    found = await stage.create()
    await stage.bind(found, 9_999_999, stage.nodes[0])
    gone = await stage.evicted(found)
    assert disruption(gone) == ("True", "SlurmJobGone", "Slurm job 9999999 is not known to Slurm any more")
    await until(lambda: stage.counted(names.PODS_EVICTED, reason="lost") == 1)


async def test_nothing_is_evicted_while_slurm_is_away(config: Config, stage: Stage, faults: Faults) -> None:
    metrics = Metrics()
    async with (
        faults.in_front_of(stage.bed.rest_url) as proxy,
        syncing(config, stage.bed, url=proxy.url, metrics=metrics) as world,
    ):
        kept, kept_job = await stage.placed()
        ended, ended_job = await stage.placed()
        cancelled, cancelled_job = await stage.placed()
        unknown = await stage.create()
        await until(lambda: all(world.jobs.get(it) for it in (kept_job, ended_job, cancelled_job)))
        proxy.refuse()
        await until(lambda: not world.in_touch)
        await stage.bind(unknown, 9_999_998, stage.nodes[0])
        await stage.set_status(ended, "Succeeded")
        await stage.slurm.cancel_job(cancelled_job)
        await until(lambda: (it := world.pods.get(ended.metadata.key)) and it.finished)
        await until(lambda: (it := world.pods.get(unknown.metadata.key)) and it.bound)
        # Both controllers have looked, and found that they cannot know.
        await until(lambda: put_off(metrics, "pods") and put_off(metrics, "stray-pods"))
        for found in (kept, cancelled, unknown):
            assert not (await stage.kube.get(PODS, found.metadata.key)).leaving
        assert await stage.state(ended_job) == "RUNNING"

        proxy.heal()
        await stage.job(ended_job, "CANCELLED")
        assert disruption(await stage.evicted(cancelled))[1] == "SlurmJobCancelled"
        assert disruption(await stage.evicted(unknown))[1] == "SlurmJobGone"
        assert not (await stage.kube.get(PODS, kept.metadata.key)).leaving
        assert await stage.state(kept_job) == "RUNNING"


def put_off(metrics: Metrics, controller: str) -> float:
    labels = {"controller": controller, "result": "requeue_after"}
    return metrics.registry.get_sample_value("controller_runtime_reconcile_total", labels) or 0


# --- what is not ours --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("sync")
async def test_weakness_11_jobs_of_others_are_never_touched(stage: Stage) -> None:
    gone = await stage.create()
    of_another_cluster = marker.mark(group_of(gone), gone.metadata.uid, [gone], cluster="another-cluster")
    theirs = [
        await submit_foreign(stage, admin_comment)
        for admin_comment in (
            json.dumps({"pods": [str(gone.metadata.key)]}),
            json.dumps({}),
            "null",
            marker.write(of_another_cluster),
            json.dumps({"isthmus": 2, "cluster": stage.cluster, "uid": "x"}),
        )
    ]
    await stage.kube.delete(PODS, gone.metadata.key)
    await stage.everything_is_looked_at()
    assert [await stage.state(job_id) for job_id in theirs] == ["RUNNING"] * len(theirs)


async def submit_foreign(stage: Stage, admin_comment: str) -> int:
    request = stage.request(admin_comment=admin_comment, name="of-others")
    job_id = (await stage.slurm.submit_once(request, key=f"others/{next(_serial)}")).job_id
    await stage.job(job_id, "RUNNING")
    return job_id


@pytest.mark.usefixtures("sync")
async def test_weakness_32_a_forged_label_ends_no_job_but_its_own(stage: Stage) -> None:
    victim, victims_job = await stage.placed()
    foreign_job = await submit_foreign(stage, "")
    for target in (victims_job, foreign_job):
        found, job_id = await stage.placed()
        forged = {"metadata": {"labels": {names.JOB_ID_LABEL: str(target)}}}
        await stage.kube.merge_patch(PODS, found.metadata.key, forged)
        await stage.set_status(found, "Succeeded")
        await stage.job(job_id, "CANCELLED")
        assert await stage.state(target) == "RUNNING"
    assert not (await stage.kube.get(PODS, victim.metadata.key)).leaving


@pytest.mark.usefixtures("sync")
async def test_weakness_32_a_pod_with_another_groups_label_still_ends_with_its_job(stage: Stage) -> None:
    relabel = {"metadata": {"labels": {names.POD_GROUP_LABEL: "x"}}}
    cancelled, job_id = await stage.placed()
    await stage.kube.merge_patch(PODS, cancelled.metadata.key, relabel)
    await stage.everything_is_looked_at()
    assert await stage.state(job_id) == "RUNNING"
    stage.bed.command("scancel", str(job_id))
    assert condition((await stage.evicted(cancelled)).status.conditions, "DisruptionTarget")

    ended, job_id = await stage.placed()
    await stage.kube.merge_patch(PODS, ended.metadata.key, relabel)
    await stage.set_status(ended, "Succeeded")
    job = await stage.job(job_id, "CANCELLED")
    assert "Succeeded" in (job.comment or "")


@pytest.mark.usefixtures("sync")
async def test_weakness_32_a_pod_that_rides_on_a_foreign_job_is_told_so(stage: Stage) -> None:
    foreign_job = await submit_foreign(stage, "")
    found = await stage.create()
    await stage.bind(found, foreign_job, stage.nodes[0])
    told = await stage.event(found, "SlurmJobNotItsOwn")
    assert str(foreign_job) in told["note"]
    await stage.set_status(found, "Succeeded")
    await stage.everything_is_looked_at()
    assert await stage.state(foreign_job) == "RUNNING"


async def test_a_pod_stays_if_somebody_writes_over_the_marker_of_its_job(config: Config, stage: Stage) -> None:
    found, job_id = await stage.placed()
    # In one second, so that no clock tells which of job and binding was first.
    await stage.was_bound(found, at=(await stage.slurm.job(job_id))[0].submit_time.value or 0)
    stage.bed.scontrol("update", f"job={job_id}", "AdminComment=ask me about this one")
    async with syncing(config, stage.bed):
        told = await stage.event(found, "SlurmJobNotItsOwn")
        assert str(job_id) in told["note"]
        assert not (await stage.kube.get(PODS, found.metadata.key)).leaving


@pytest.mark.usefixtures("sync")
async def test_a_pod_that_was_bound_by_hand_is_left_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "LASTING", 0.0)
    assert counted(stage.metrics, names.ORPHANS) == 0
    found = await stage.create(nodeName=stage.nodes[0])
    told = await stage.event(found, "BoundWithoutSlurm")
    assert told["type"] == "Warning"
    await stage.everything_is_looked_at()
    assert not (await stage.kube.get(PODS, found.metadata.key)).leaving
    await until(lambda: counted(stage.metrics, names.ORPHANS) == 1)
    await stage.kube.delete(PODS, found.metadata.key, grace=0)
    await until(lambda: counted(stage.metrics, names.ORPHANS) == 0)


# --- how it is done ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("sync")
async def test_of_two_jobs_with_one_key_the_younger_is_cancelled(stage: Stage) -> None:
    found = await stage.create()
    key = f"test:{found.metadata.uid}"
    older = await stage.submit(found, key=key, hold=True)
    younger = await stage.submit(found, key=key, hold=True)
    await stage.job(younger, "CANCELLED")
    await stage.everything_is_looked_at()
    assert await stage.state(older) == "PENDING"


async def test_weakness_06_running_pods_cost_slurm_nothing(config: Config, stage: Stage, faults: Faults) -> None:
    async with faults.in_front_of(stage.bed.rest_url) as proxy:
        placed = [await stage.placed() for _ in range(8)]
        async with syncing(config, stage.bed, url=proxy.url) as world:
            await stage.everything_is_looked_at()
            # Of what that took nothing is left to be read.
            await until(lambda: living_jobs(world) == {job_id for _, job_id in placed})
            before = proxy.count(path="*/job/*")
            for found, _ in placed:
                await stage.set_status(found, "Running")
            await until(lambda: all(_is_running(world, found) for found, _ in placed))
            seen = proxy.count(path="*/jobs/state/*")
            await proxy.until_seen(path="*/jobs/state/*", times=seen + 2)
            assert proxy.count(path="*/job/*") == before

            # With nothing asked of Slurm but, perhaps, the record of each ended job.
            stage.bed.command("scancel", *(str(job_id) for _, job_id in placed))
            for found, _ in placed:
                await stage.evicted(found)
            assert proxy.count(path="*/job/*") <= before + len(placed)


def living_jobs(world: World) -> set[int]:
    return {ours.job_id for ours in world.jobs if jobstates.living(ours.job.job_state)}


def _is_running(world: World, found: Pod) -> bool:
    read = world.pods.get(found.metadata.key)
    return read is not None and read.status.phase == "Running"


async def test_a_pod_is_not_evicted_because_its_binding_was_seen_before_its_job_ran(
    config: Config, stage: Stage, faults: Faults
) -> None:
    found = await stage.create()
    job_id = await stage.submit(found, hold=True)
    async with (
        faults.in_front_of(stage.bed.rest_url) as proxy,
        syncing(config, stage.bed, url=proxy.url) as world,
    ):
        await until(lambda: world.jobs.get(job_id))
        # The states of jobs are old ones from now on, as they are when Slurm has very many.
        (*_, asked) = proxy.exchanges(path="*/jobs/state/*")
        old = json.dumps(stage.bed.get(asked.path.partition("?")[0], user="slurm")).encode()
        late = proxy.respond(200, headers={"Content-Type": "application/json"}, body=old, path="*/jobs/state/*")
        stage.bed.scontrol("release", str(job_id))
        job = await stage.job(job_id, "RUNNING")
        await stage.bind(found, job_id, job.nodes or "")
        await until(lambda: (it := world.pods.get(found.metadata.key)) and it.bound)
        await proxy.until_seen(path=f"*/job/{job_id}", times=2)
        late.remove()
        await until(lambda: "RUNNING" in world.states[str(job_id)])
        await stage.everything_is_looked_at()
        assert not (await stage.kube.get(PODS, found.metadata.key)).leaving


async def test_a_job_is_not_ended_because_it_was_seen_before_its_pod(
    stage: Stage, faults: Faults, through: Through
) -> None:
    async with (
        through() as (api, config),
        faults.in_front_of(stage.bed.rest_url) as proxy,
        syncing(config, stage.bed, url=proxy.url) as world,
    ):
        api.freeze()
        found = await stage.create()
        job_id = await stage.submit(found)
        await until(lambda: world.jobs.get(job_id))
        await proxy.until_seen(path="*/jobs/state/*", times=proxy.count(path="*/jobs/state/*") + 3)
        assert found.metadata.key not in world.pods
        assert not proxy.count(method="DELETE")
        api.heal()
        await until(lambda: found.metadata.key in world.pods)
        await stage.everything_is_looked_at()
        assert await stage.state(job_id) == "RUNNING"
