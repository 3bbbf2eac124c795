"""What placing and waiting cost: requests are counted on their way to a real Slurm and a real API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from isthmus import names
from isthmus.kube.config import Config
from isthmus.model.pod import Pod
from isthmus.model.workload import POD_GROUPS
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.faults import Faults, Proxy
from tests.bed.slurm import SlurmBed
from tests.bed.workload_controllers import apply_kinds
from tests.flows.bridge.conftest import Bridge, pod, running, until
from tests.flows.kube.conftest import Through, through

__all__ = ["through"]

pytestmark = pytest.mark.usefixtures("nodes")

BINDINGS = "*/binding"
STATES = "*/jobs/state*"


@asynccontextmanager
async def counted(
    slurm: SlurmBed, faults: Faults, config: Config, *, kube: Proxy | None = None
) -> AsyncIterator[tuple[Bridge, Proxy]]:
    """Run a scheduler whose requests to Slurm are counted from the moment when it is ready."""
    async with (
        faults.in_front_of(slurm.rest_url) as proxy,
        running(config, proxy.url, key=slurm.jwt_key) as bridge,
    ):
        await bridge.world.poller.synced()
        proxy.seen.clear()
        if kube:
            kube.seen.clear()
        yield bridge, proxy


async def test_weakness_01_no_list_of_all_jobs_is_read_for_a_pod(
    slurm_with_external_nodes: SlurmBed, faults: Faults, config: Config, namespace: str
) -> None:
    async with counted(slurm_with_external_nodes, faults, config) as (bridge, proxy):
        keys = [await bridge.create(pod(namespace, f"p{number}")) for number in range(4)]
        await bridge.bound(*keys)
        assert not proxy.count(method="GET", path="*/jobs/")
        own = sum(proxy.count(path=path) for path in ("*/job/*", "*/resources/*"))
        assert own <= 3 * len(keys), "more than three calls for a pod"


async def test_with_the_helper_a_pod_is_one_call_and_no_job_fails_for_want_of_room(
    slurm_with_external_nodes: SlurmBed, faults: Faults, config: Config, namespace: str
) -> None:
    slurm = slurm_with_external_nodes
    slurm.start("isthmus-complete")
    try:
        async with (
            faults.in_front_of(slurm.rest_url) as rest,
            faults.in_front_of(slurm.completer_url) as helper,
            running(config, rest.url, key=slurm.jwt_key, helper=helper.url) as bridge,
        ):
            await bridge.world.poller.synced()
            rest.seen.clear()
            keys = [await bridge.create(pod(namespace, f"p{number}")) for number in range(4)]
            await bridge.bound(*keys)
            assert helper.count(path="/jobs/allocate") == len(keys)
            assert not [it for path in ("*/job/*", "*/resources/*") for it in rest.exchanges(path=path)]
            late = await bridge.create(pod(namespace, "late"))
            await until(lambda: [it for it in bridge.world.jobs if it.marker.keys == (late,)])
            states = [
                it.job_state for it in await bridge.world.slurm.jobs() if namespace in (it.admin_comment or "")
            ]
            assert sorted(states) == [("PENDING",), *[("RUNNING",)] * 4]
    finally:
        slurm.stop("isthmus-complete")


def knows_why(found: Pod) -> bool:
    told = " ".join(it.message for it in found.status.conditions)
    return "(Priority)" in told or "(Resources)" in told


async def test_weakness_02_waiting_pods_cost_nothing_of_their_own(
    slurm_with_external_nodes: SlurmBed, faults: Faults, config: Config, namespace: str
) -> None:
    async with counted(slurm_with_external_nodes, faults, config) as (bridge, proxy):
        keys = [await bridge.create(pod(namespace, f"p{number}")) for number in range(14)]

        def all_told() -> bool:
            found = [bridge.world.pods.get(key) for key in keys]
            return all(it and (it.bound or knows_why(it)) for it in found)

        # Who is read before Slurm has looked at it has its next turn after all others: 10 of them, 3 s each.
        await until(all_told, within=180)
        proxy.seen.clear()
        await proxy.until_seen(path=STATES, times=6)
        assert not proxy.exchanges(method="POST"), "a job that waits is written to"
        # Why they wait is read again now and then, a few at a time, however many there are.
        assert proxy.count(path="*/job/[0-9]*") <= 2 * proxy.count(path=STATES)


async def test_weakness_03_a_gang_is_submitted_once_and_each_pod_written_once(  # noqa: PLR0917 - fixtures
    slurm_with_external_nodes: SlurmBed,
    faults: Faults,
    through: Through,
    control_plane: ControlPlaneBed,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Pods that wait for longer than this are told why, which is a write: on a busy machine these may.
    monkeypatch.setattr("isthmus.bridge.scheduler.scheduler.PATIENCE", 60.0)
    apply_kinds(control_plane, "podgroup")
    async with (
        through() as (kube, config),
        counted(slurm_with_external_nodes, faults, config, kube=kube) as (bridge, proxy),
    ):
        meta = {"namespace": namespace, "name": "trio"}
        await bridge.world.kube.create(POD_GROUPS, {"metadata": meta, "spec": {"minMember": 3}})
        labels = {names.POD_GROUP_LABEL: "trio"}
        keys = [await bridge.create(pod(namespace, f"p{number}", labels=labels)) for number in range(3)]
        made = kube.count(method="POST")
        await bridge.bound(*keys)
        submissions = proxy.count(method="POST", path="*/job/submit") + proxy.count(
            method="POST", path="*/job/allocate"
        )
        assert submissions == 1
        assert kube.count(method="POST", path=BINDINGS) == len(keys)
        assert not kube.exchanges(method="PATCH")
        assert not kube.exchanges(method="PUT")
        assert kube.count(method="POST") <= made + len(keys)
