"""sconfigcontroller of a SlurmCluster on a real API server, with the real Deployment controller."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.base import Kind
from isthmus.model.objects import DEPLOYMENTS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from isthmus.model.soperator import SLURM_CLUSTERS
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.test_clusters import Bed, working

if TYPE_CHECKING:
    from isthmus.kube.store import Store

KINDS: tuple[Kind[Any], ...] = (DEPLOYMENTS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)
AVAILABLE = "SConfigControllerAvailable"


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, kube: Client, namespace: str) -> AsyncIterator[Bed]:
    del kube  # which has the kinds installed
    async with working(control_plane.kubeconfig, namespace) as bed:
        yield bed


async def test_it_comes_and_goes_with_the_shared_root_and_the_cluster_tells_how_it_is(bed: Bed) -> None:
    world = bed.world
    await bed.make(populateJail={"image": "root:1"})
    for kind in KINDS:
        await bed.there(kind, "sconfigcontroller")
    await eventually(lambda: bed.condition(AVAILABLE)[0] == "False")
    assert bed.condition(AVAILABLE)[1].startswith("sconfigcontroller")
    await bed.tell_writer()
    await eventually(lambda: bed.condition(AVAILABLE) == ("True", "sconfigcontroller is ready"))
    assert bed.cluster().status.ready_s_config_controller == 1
    await bed.kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), {"spec": {"maintenance": "downscale"}})
    await eventually(
        lambda: bed.condition(AVAILABLE)[0] == "False" and "maintenance" in bed.condition(AVAILABLE)[1]
    )
    await bed.kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), {"spec": {"populateJail": None}})
    gone: tuple[Store[Any], ...] = (world.deployments, world.service_accounts, world.roles, world.role_bindings)
    await eventually(lambda: all(bed.key("sconfigcontroller") not in store for store in gone))
    for kind in KINDS:
        with pytest.raises(NotFound):
            await bed.kube.get(kind, bed.key("sconfigcontroller"))
