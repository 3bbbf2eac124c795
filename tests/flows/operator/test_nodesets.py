"""Worker pods of NodeSets on a real API server, with a real Slurm beside it."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from isthmus.kube.client import Client
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.nodesets_bed import NodeSets, make_controller, running


@pytest.fixture
def slurm_bed_here(shared_slurm: Callable[..., SlurmBed]) -> Iterator[SlurmBed]:
    bed = shared_slurm("26.05", nodes=1, external_nodes=1, accounting=False)
    yield bed
    bed.command("scancel", "--user=slurm")


@pytest.fixture
async def bed(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, slurm_bed_here: SlurmBed
) -> AsyncIterator[NodeSets]:
    await make_controller(kube, namespace)
    async with running(control_plane, namespace, slurm_bed_here) as bed:
        yield bed


async def test_pods_come_and_the_status_says_so(bed: NodeSets) -> None:
    await bed.make(replicas=3)
    await bed.there("w-0", "w-1", "w-2")
    await eventually(lambda: bed.status().replicas == 3)
    assert not bed.ready()
    await bed.up("w-0", "w-1", "w-2")
    await bed.settled()
    status = bed.status()
    assert (status.desired, status.ready_replicas, status.available_replicas, status.slurm_idle) == (3, 3, 3, 3)
    await eventually(lambda: all(bed.mirrored(it) == {"SlurmNodeStateIdle"} for it in ("w-0", "w-1", "w-2")))
    assert await bed.quiet() == 0
