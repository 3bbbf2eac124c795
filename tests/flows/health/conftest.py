"""A Slurm with three nodes that really run jobs, in each version, and a health loop for it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress

import pytest

from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_box import wait_until
from tests.bed.waiting import PATIENCE
from tests.flows.health.bed import HealthBed, running
from tests.flows.operator.conftest import kube, namespace, served

__all__ = ["kube", "namespace", "served"]

NODES = ("n1", "n2", "n3")


@pytest.fixture
def nodes(slurm_version: str, shared_slurm: Callable[..., SlurmBed]) -> Iterator[SlurmBed]:
    """A Slurm with three nodes, which is left as it was found."""
    bed = shared_slurm(slurm_version, nodes=3, accounting=False)
    yield bed
    clean(bed)


def clean(bed: SlurmBed) -> None:
    """Let nothing of a test be left in Slurm."""
    for user in ("root", "slurm", "alice"):
        bed.command("scancel", "--full", f"--user={user}")
    for line in bed.scontrol("--oneliner", "show", "reservations").splitlines():
        if line.startswith("ReservationName="):
            bed.scontrol("delete", line.split()[0])
    bed.scontrol("update", f"nodename={','.join(bed.nodes)}", "comment=")
    wait_until(lambda: _is_idle(bed), what="all nodes are idle", within=PATIENCE)


def _is_idle(bed: SlurmBed) -> bool:
    """Whether all nodes are idle; those that are out are resumed, which Slurm does when their jobs are gone."""
    states = dict(line.split() for line in bed.command("sinfo", "-hN", "-o", "%N %T").splitlines())
    for name, state in states.items():
        if state.startswith(("drain", "down")):
            with suppress(RuntimeError):
                bed.scontrol("update", f"nodename={name}", "state=resume")
    return set(states.values()) == {"idle"}


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, namespace: str, nodes: SlurmBed) -> AsyncIterator[HealthBed]:
    """A health loop with a worker pod for each node."""
    async with running(control_plane, namespace, nodes) as bed:
        await bed.worker(*NODES)
        yield bed
