"""Parts that are away for a while, a leader that dies, and a second Kubernetes on the same Slurm.

`make soak` takes five hundred pods and a minute; otherwise it is forty and ten seconds.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from isthmus import names
from isthmus.bridge import policies
from isthmus.bridge.cache.world import cluster_id
from isthmus.domain.bridge import jobstates
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.crd import install
from isthmus.kube.errors import AlreadyExists, NotFound
from isthmus.model.lease import LEASES
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS, Pod
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import connect
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import make_node, pod
from tests.flows.bridge.crash_bed import Ground, Process, settings_file, settled
from tests.flows.kube.conftest import ACCOUNTS, NAMESPACES, make_namespace
from tests.flows.kube.waiting import eventually_read

pytestmark = pytest.mark.long

PODS_IN_ALL = int(os.environ.get("ISTHMUS_PODS", "40"))
AWAY_SECONDS = float(os.environ.get("ISTHMUS_AWAY_SECONDS", "10"))
AT_ONCE = 16
SETTLES_WITHIN = 120.0
TAKES_OVER_WITHIN = 60.0
"""The fifteen seconds of a Lease, two looks of the standby, the placing of a pod, and what a busy machine adds."""


async def each(deeds: list[Awaitable[object]]) -> None:
    """Do many things, some at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(deed: Awaitable[object]) -> None:
        async with gate:
            await deed

    await asyncio.gather(*(one(deed) for deed in deeds))


@asynccontextmanager
async def grounded(bed: ControlPlaneBed, slurm_bed: SlurmBed, *, namespace: str = "") -> AsyncIterator[Ground]:
    """Look at a cluster and its Slurm."""
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(Client(load(bed.kubeconfig)))
        tokens = MintedTokens(slurm_bed.jwt_key, user="slurm")
        slurm = await stack.enter_async_context(connect([slurm_bed.rest_url], tokens))
        await install(kube, policies.crd(), manager=names.FIELD_MANAGER)
        yield Ground(
            kube,
            slurm,
            slurm_bed,
            cluster=await cluster_id(kube),
            namespace=namespace or await make_namespace(kube),
            scheduler_name=f"outage-{uuid4().hex[:8]}",
        )


def process_for(ground: Ground, bed: ControlPlaneBed, directory: Path, *flags: str) -> Process:
    """Make a bridge, not started yet."""
    directory.mkdir(exist_ok=True)
    settings = settings_file(directory, ground.bed, url=ground.bed.rest_url, scheduler_name=ground.scheduler_name)
    return Process(settings, bed.kubeconfig, *flags, log=directory / "bridge.log")


class Crowd:
    """Many pods, in all states, and what must be true of them."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.expected: set[str] = set()
        self._serial = 0

    async def create(self, count: int) -> None:
        names_ = [f"p{self._serial + number}" for number in range(count)]
        self._serial += count
        self.expected.update(names_)
        await each([self._create(name) for name in names_])

    async def _create(self, name: str) -> None:
        body = pod(self.ground.namespace, name, schedulerName=self.ground.scheduler_name)
        await self.ground.kube.create(PODS, body)

    async def living(self) -> list[Pod]:
        return [it for it in await self.ground.pods() if it.metadata.name in self.expected]

    async def stir(self, count: int) -> None:
        """Let so many pods succeed, fail, be deleted while they run and while they wait; and as many come."""
        living = await self.living()
        bound = [it for it in living if it.bound]
        loose = [it for it in living if not it.bound]
        going = [*bound[: 3 * count], *loose[:count]]
        self.expected.difference_update(it.metadata.name for it in going)
        deeds: list[Awaitable[object]] = []
        for number, it in enumerate(going):
            if it.bound and number % 3:
                deeds.append(self.ground.finish(it, "Succeeded" if number % 2 else "Failed"))
            else:
                deeds.append(self.ground.remove(it))
        await each(deeds)
        await self.create(len(going))

    async def cancel(self, count: int) -> None:
        """Cancel the jobs of so many running pods in Slurm."""
        bound = [it for it in await self.living() if it.bound][:count]
        self.expected.difference_update(it.metadata.name for it in bound)
        ids = [it.metadata.labels[names.JOB_ID_LABEL] for it in bound]
        await asyncio.to_thread(self.ground.bed.command, "scancel", *ids)

    async def settled(self) -> None:
        await settled(self.ground, expected=lambda: self.expected, within=120, may_wait=True)


async def test_nothing_is_lost_or_doubled_while_parts_are_away(
    own_control_plane: ControlPlaneBed, slurm_bed: Callable[..., SlurmBed], tmp_path: Path
) -> None:
    slots = PODS_IN_ALL * 6 // 10
    slurm = slurm_bed("26.05", nodes=0, external_nodes=slots, accounting=False)
    async with grounded(own_control_plane, slurm) as ground:
        await each([make_node(ground.kube, f"e{number + 1}") for number in range(slots)])
        bridge = process_for(ground, own_control_plane, tmp_path / "bridge", "--leader-elect=false")
        crowd = Crowd(ground)
        stir = max(2, PODS_IN_ALL // 25)
        kubelets = asyncio.ensure_future(ground.confirm_departures())
        try:
            bridge.start()
            await crowd.create(PODS_IN_ALL)
            await crowd.settled()

            # slurmctld is restarted; what was asked of it meanwhile is not forgotten.
            slurm.stop("slurmctld")
            await crowd.stir(stir)
            slurm.start("slurmctld")
            await crowd.settled()

            # slurmrestd is away for long. Pods come and go, and none is thought to have lost its job.
            slurm.stop("slurmrestd")
            back_at = time.monotonic() + AWAY_SECONDS
            await crowd.stir(stir)
            await eventually_read(
                lambda: _passed(back_at), within=AWAY_SECONDS + SETTLES_WITHIN, what="the outage to end"
            )
            assert {it.metadata.name for it in await crowd.living()} == crowd.expected
            slurm.start("slurmrestd")
            await crowd.settled()

            # The API server is killed and started again, and Slurm has ended jobs in between.
            await crowd.cancel(stir)
            own_control_plane.kill("kube-apiserver")
            own_control_plane.start("kube-apiserver")
            await crowd.stir(stir)
            await crowd.settled()

            assert bridge.lives == 1
            assert bridge.pid, "the bridge ended"
            await ground.kube.delete_all(PODS, namespace=ground.namespace, grace=0)
            await settled(ground, expected=lambda: None, within=SETTLES_WITHIN)
        finally:
            kubelets.cancel()
            bridge.kill()


async def _passed(moment: float) -> bool:
    return time.monotonic() >= moment


async def test_two_kubernetes_clusters_share_a_slurm_and_leave_each_other_alone(
    control_plane: ControlPlaneBed,
    own_control_plane: ControlPlaneBed,
    slurm_bed: Callable[..., SlurmBed],
    tmp_path: Path,
) -> None:
    slurm = slurm_bed("26.05", nodes=0, external_nodes=4, accounting=False)
    namespace = f"same-{uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        grounds, bridges = [], []
        for bed, nodes in ((control_plane, ("e1", "e2")), (own_control_plane, ("e3", "e4"))):
            ground = await stack.enter_async_context(grounded(bed, slurm, namespace=namespace))
            await ground.kube.create(NAMESPACES, {"metadata": {"name": namespace}})
            with suppress(AlreadyExists):
                await ground.kube.create(ACCOUNTS, {"metadata": {"namespace": namespace, "name": "default"}})
            # The same names in both, as if one were a copy of the other.
            ground.scheduler_name = "the-same"
            for name in nodes:
                await make_node(ground.kube, name)
                stack.push_async_callback(ground.kube.delete, NODES, name)
            bridge = process_for(ground, bed, tmp_path / nodes[0], "--leader-elect=false")
            stack.callback(bridge.kill)
            bridge.start()
            grounds.append(ground)
            bridges.append(bridge)
        one, other = grounds
        for ground in grounds:
            for name in ("a", "b"):
                await ground.kube.create(PODS, pod(namespace, name, schedulerName="the-same"))
        for ground in grounds:
            await settled(ground, expected=lambda: {"a", "b"}, within=SETTLES_WITHIN)
        before = {job.job_id for job, _ in await other.jobs()}
        assert before.isdisjoint(job.job_id for job, _ in await one.jobs())

        # One cluster goes through everything, and the other's bridge is dead meanwhile.
        bridges[1].kill()
        await one.kube.delete_all(PODS, namespace=namespace, grace=0)
        await settled(one, expected=lambda: None, within=SETTLES_WITHIN)
        bridges[0].kill()
        bridges[0].start()
        await one.kube.create(PODS, pod(namespace, "a", schedulerName="the-same"))
        await settled(one, expected=lambda: {"a"}, within=SETTLES_WITHIN)
        bridges[1].start()
        await settled(other, expected=lambda: {"a", "b"}, within=SETTLES_WITHIN)
        # When it has ended the job of a pod that goes now, it has looked at everything.
        await other.kube.delete(PODS, Key(namespace, "b"), grace=0)
        await settled(other, expected=lambda: {"a"}, within=SETTLES_WITHIN)
        assert {job.job_id for job, _ in await other.jobs()} == before
        await one.kube.delete_all(PODS, namespace=namespace, grace=0)


async def test_a_standby_takes_over_within_seconds_when_the_leader_dies(
    control_plane: ControlPlaneBed, slurm_bed: Callable[..., SlurmBed], tmp_path: Path
) -> None:
    slurm = slurm_bed("26.05", nodes=0, external_nodes=4, accounting=False)
    async with grounded(control_plane, slurm) as ground, AsyncExitStack() as stack:
        for number in range(4):
            await make_node(ground.kube, f"e{number + 1}")
            stack.push_async_callback(ground.kube.delete, NODES, f"e{number + 1}")
        lease = Key("default", ground.scheduler_name)
        replicas = [process_for(ground, control_plane, tmp_path / str(number)) for number in range(2)]
        for replica in replicas:
            stack.callback(replica.kill)

        async def held() -> bool:
            try:
                return bool((await ground.kube.get(LEASES, lease)).spec.holder_identity)
            except NotFound:
                return False

        replicas[0].start()
        await eventually_read(held, within=SETTLES_WITHIN, what="the first to lead")
        replicas[1].start()
        await ground.kube.create(PODS, pod(ground.namespace, "before", schedulerName=ground.scheduler_name))
        await settled(ground, expected=lambda: {"before"}, within=SETTLES_WITHIN)
        replicas[0].kill()
        await ground.kube.create(PODS, pod(ground.namespace, "after", schedulerName=ground.scheduler_name))
        await settled(ground, expected=lambda: {"before", "after"}, within=TAKES_OVER_WITHIN)
        await ground.kube.delete_all(PODS, namespace=ground.namespace, grace=0)
        await settled(ground, expected=lambda: None, within=SETTLES_WITHIN)


async def test_a_job_that_slurm_forgot_is_not_mistaken_for_the_next_with_its_number(
    control_plane: ControlPlaneBed, slurm_bed: Callable[..., SlurmBed], tmp_path: Path
) -> None:
    """A slurmctld that is killed forgets its last seconds, and then gives the same job ids to somebody else."""
    slurm = slurm_bed("26.05", nodes=0, external_nodes=2, accounting=False)
    async with grounded(control_plane, slurm) as ground, AsyncExitStack() as stack:
        for name in ("e1", "e2"):
            await make_node(ground.kube, name)
            stack.push_async_callback(ground.kube.delete, NODES, name)
        bridge = process_for(ground, control_plane, tmp_path / "bridge", "--leader-elect=false")
        stack.callback(bridge.kill)
        bridge.start()
        kubelets = asyncio.ensure_future(ground.confirm_departures())
        stack.callback(kubelets.cancel)
        state, saved = slurm.state_directory / "job_state", b""
        for name in ("kept", "forgotten"):
            await ground.kube.create(PODS, pod(ground.namespace, name, schedulerName=ground.scheduler_name))
            await eventually_read(
                partial(_is_bound, ground, name), within=SETTLES_WITHIN, what=f"{name} to be bound"
            )
            async with asyncio.timeout(SETTLES_WITHIN):
                while not (saved := saved or _saved(state, name)):  # noqa: ASYNC110 - slurmctld tells nobody
                    await asyncio.sleep(0.05)
        lost = max(job.job_id for job, _ in await ground.jobs())
        slurm.kill("slurmctld")
        # Otherwise it would depend on the machine whether it has come to writing down the second, too.
        state.write_bytes(saved)
        slurm.start("slurmctld")
        foreign = await ground.foreign_job('{"of": "somebody else"}')
        assert foreign == lost
        slurm.scontrol("release", str(foreign))
        await eventually_read(
            lambda: _is_gone(ground, "forgotten"), within=SETTLES_WITHIN, what="the pod without a job to go"
        )
        (found, *_) = await ground.slurm.job(foreign)
        assert jobstates.living(found.job_state), "somebody else's job was ended"
        assert found.admin_comment == '{"of": "somebody else"}'


def _saved(state: Path, name: str) -> bytes:
    """Read what slurmctld has written down, if the job of this pod is in it."""
    try:
        content = state.read_bytes()
    except FileNotFoundError:  # not there yet, or just being replaced
        return b""
    return content if name.encode() in content else b""


async def _is_bound(ground: Ground, name: str) -> bool:
    return (await ground.kube.get(PODS, Key(ground.namespace, name))).bound


async def _is_gone(ground: Ground, name: str) -> bool:
    return name not in {it.metadata.name for it in await ground.pods()}
