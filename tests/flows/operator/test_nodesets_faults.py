"""NodeSets while something is broken: Slurm hangs, the API server loses answers, the operator ends halfway."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from isthmus.kube.client import Client
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.faults import Faults, Proxy
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.crash_bed import before_the_api_server
from tests.flows.kube.waiting import eventually
from tests.flows.operator.nodesets_bed import NodeSets, make_controller, running

pytestmark = pytest.mark.long


@pytest.fixture
def cluster(slurm_bed: Callable[..., SlurmBed]) -> SlurmBed:
    return slurm_bed("26.05", nodes=0, accounting=False, settings={"ReturnToService": "2"})


class Stage(NamedTuple):
    """A NodeSet controller, and what stands between it and its Slurm."""

    bed: NodeSets
    proxy: Proxy


@pytest.fixture
async def stage(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, cluster: SlurmBed, faults: Faults
) -> AsyncIterator[Stage]:
    await make_controller(kube, namespace)
    key = cluster.jwt_key.read_bytes()
    async with (
        faults.in_front_of(cluster.rest_url) as proxy,
        running(control_plane, namespace, proxy.url, jwt_key=key) as bed,
    ):
        yield Stage(bed, proxy)


async def test_a_slurm_that_hangs_holds_up_no_pod_and_lets_none_go(stage: Stage) -> None:
    """W1, W4."""
    bed, proxy = stage
    await bed.serve(2)
    proxy.freeze()
    await bed.change(replicas=3)
    await bed.there("w-0", "w-1", "w-2")
    await bed.change(replicas=0)
    # It has no node yet, so nothing can run there; but that Slurm does not answer takes a while to see.
    await eventually(lambda: bed.leaving("w-2"), within=90)
    await bed.bury("w-2")
    await eventually(lambda: (it := bed.condition("SlurmReachable")) is not None and it.status == "False")
    assert set(bed.pods()) == {"w-0", "w-1"}
    proxy.heal()
    await eventually(lambda: bed.leaving("w-0") and bed.leaving("w-1"), within=60)


async def test_a_slurm_that_answers_slowly_is_waited_for(stage: Stage) -> None:
    """What was asked before a drain and shows it proves nothing; and what is asked after it shows nothing new."""
    bed, proxy = stage
    await bed.serve(1)
    slow = proxy.delay(3.0, path="*/nodes/[?]update_time=*")
    await eventually(lambda: slow.used)
    await bed.change(replicas=0)
    await eventually(lambda: bed.leaving("w-0"))


async def test_what_slurm_refuses_is_told_and_tried_again(stage: Stage) -> None:
    bed, proxy = stage
    await bed.serve(1)
    denied = b'{"errors": [{"error_number": 2002, "error": "Access/permission denied"}]}'
    refusal = proxy.respond(
        500, headers={"Content-Type": "application/json"}, body=denied, method="POST", path="*/nodes/"
    )
    await bed.change(replicas=0)

    def degraded() -> str:
        found = bed.condition("Degraded")
        return found.message if found and found.status == "True" else ""

    await eventually(lambda: "changing w-0 failed: Access/permission denied" in degraded())
    assert "Access/permission denied" in await bed.told("RefusedBySlurm")
    assert not bed.leaving("w-0")
    refusal.remove()
    await eventually(lambda: bed.leaving("w-0"), within=60)
    assert not degraded()


async def test_lost_answers_make_no_pod_twice_and_lose_none(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, tmp_path: Path
) -> None:
    await make_controller(kube, namespace)
    kubeconfig = tmp_path / "kubeconfig"
    async with before_the_api_server(control_plane, kubeconfig) as proxy:
        proxy.lose_answer(method="POST", path=f"*/namespaces/{namespace}/pods*", times=5)
        proxy.respond(500, method="POST", path=f"*/namespaces/{namespace}/pods*", times=3)
        async with running(control_plane, namespace, None, kubeconfig=kubeconfig) as bed:
            await bed.make(replicas=20)
            await eventually(lambda: len(bed.pods()) == 20)
            await eventually(lambda: bed.status().replicas == 20)
            assert set(bed.pods()) == {f"w-{n}" for n in range(20)}


async def test_what_is_told_is_of_the_specification_that_was_looked_at(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, tmp_path: Path
) -> None:
    """A look that takes long ends with a status of what it saw, whatever somebody wishes meanwhile."""
    await make_controller(kube, namespace)
    kubeconfig = tmp_path / "kubeconfig"
    told: set[tuple[int, int]] = set()
    async with before_the_api_server(control_plane, kubeconfig) as proxy:
        slow = proxy.delay(2.0, method="POST", path=f"*/namespaces/{namespace}/pods*", times=1)
        async with running(control_plane, namespace, None, kubeconfig=kubeconfig) as bed:
            bed.world.nodesets.on_change(
                lambda _key, _old, new: (
                    told.add((new.status.observed_generation, new.status.desired)) if new else None
                )
            )
            await bed.make(replicas=1)
            await eventually(lambda: slow.used)
            await bed.change(replicas=2)
            await eventually(lambda: (2, 2) in told)
    assert (2, 1) not in told


async def test_a_lost_answer_to_a_drain_costs_nothing(stage: Stage) -> None:
    bed, proxy = stage
    await bed.serve(2)
    job = await bed.busy("w-1")
    proxy.lose_answer(method="POST", path="*/nodes*", times=1)
    await bed.change(replicas=0)
    await eventually(lambda: bed.leaving("w-0"))
    assert not bed.leaving("w-1")
    await bed.end(job)
    await eventually(lambda: bed.leaving("w-1"))


# How far a scale-in has come.
MOMENTS: dict[str, Callable[[NodeSets], object]] = {
    "nothing": lambda _: True,
    "some are chosen": lambda bed: bed.status().victims or len(bed.pods()) < 6,
    "one is told to go": lambda bed: len(bed.pods()) < 6,
    "all are told to go": lambda bed: len(bed.pods()) == 2,
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_operator_that_ends_in_a_scale_in_leaves_it_to_the_next(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, cluster: SlurmBed, moment: str
) -> None:
    """W18: the next one goes on with the pods that were chosen, and a busy one is never among the dead."""
    await make_controller(kube, namespace)
    async with running(control_plane, namespace, cluster) as first:
        await first.make(replicas=6)
        await eventually(lambda: len(first.pods()) == 6)
        await first.up(*first.pods())
        await first.settled()
        await first.busy("w-4")
        await first.change(replicas=2)
        await eventually(lambda: MOMENTS[moment](first))
    async with running(control_plane, namespace, cluster) as second:
        chosen = set(second.status().victims)
        await eventually(lambda: len(second.pods()) == 2)
        assert "w-4" in second.pods()
        assert not chosen & set(second.pods())
