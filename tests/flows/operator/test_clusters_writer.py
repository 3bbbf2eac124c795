"""sconfigcontroller of a SlurmCluster on a real API server, with the real Deployment controller."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from isthmus.domain.operator.manifests import sconfig
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.base import Kind
from isthmus.model.objects import DEPLOYMENTS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from isthmus.model.pod import PODS
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


async def test_an_image_without_our_program_is_told_though_its_pod_only_crashes(bed: Bed) -> None:
    """Nothing but the pod changes then: the Deployment has had no ready pod from the beginning."""
    await bed.make(
        populateJail={"image": "root:1"},
        sConfigController={"container": {"image": "busybox:1"}},
    )
    await bed.there(DEPLOYMENTS, "sconfigcontroller")
    pods = bed.world.pods
    await eventually(lambda: len(pods.by("part", (sconfig.COMPONENT, bed.key("demo")))) == 1)
    (pod,) = pods.by("part", (sconfig.COMPONENT, bed.key("demo")))
    ended = {
        "exitCode": 128,
        "reason": "StartError",
        "message": 'exec: "isthmus": executable file not found in $PATH: unknown',
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:00Z",
    }
    status = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": sconfig.CONTAINER,
                "image": "busybox:1",
                "imageID": "x",
                "ready": False,
                "restartCount": 2,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": ended},
            }
        ],
    }
    await bed.kube.merge_patch(PODS, pod.metadata.key, {"status": status}, subresource="status")
    await eventually(lambda: bed.condition(AVAILABLE)[1].endswith(f"({sconfig.NOT_OURS})"))
    assert bed.condition("Degraded")[0] == "True"
    assert 'exec: "isthmus"' in bed.condition("Degraded")[1]
