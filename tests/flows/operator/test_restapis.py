"""RestApis on a real API server."""

from collections.abc import AsyncIterator

import pytest

from isthmus import names
from isthmus.kube.client import Client
from isthmus.model.objects import CONFIGMAPS, DEPLOYMENTS, SERVICES
from isthmus.model.slinky import RESTAPIS
from isthmus.operator.restapis import RestApiSync
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.parts_bed import Bed, a_minute_later, working

OF_SLURM = {"name": "slurm"}


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, kube: Client, namespace: str) -> AsyncIterator[Bed]:
    del kube  # which has the kinds installed
    async with working(control_plane, namespace, RestApiSync, now=a_minute_later) as bed:
        yield bed


async def hash_of_config(bed: Bed) -> str:
    template = (await bed.raw(DEPLOYMENTS, "slurm-restapi"))["spec"]["template"]
    return str(template["metadata"]["annotations"][names.SLURM_CONFIG_HASH_ANNOTATION])


async def test_w11_a_restapi_becomes_a_deployment_and_a_service_with_its_port(bed: Bed) -> None:
    await bed.controller()
    await bed.make(RESTAPIS, "slurm", controllerRef=OF_SLURM, service={"port": 8080})
    await bed.there(bed.world.deployments, "slurm-restapi")
    port = (await bed.raw(SERVICES, "slurm-restapi"))["spec"]["ports"][0]
    assert (port["port"], port["targetPort"]) == (8080, 6820)
    pod = (await bed.raw(DEPLOYMENTS, "slurm-restapi"))["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == 64031
    assert pod["automountServiceAccountToken"] is False
    await eventually(lambda: bed.world.pods.by("part", ("restapi", bed.key("slurm"))))
    await bed.until(bed.world.restapis, "slurm", "Ready", "False", saying="slurmrestd: pod slurm-restapi-")


async def test_it_waits_for_the_configuration_of_its_controller(bed: Bed) -> None:
    await bed.becomes_when_its_controller_comes(
        RESTAPIS, bed.world.restapis, "slurm", bed.world.deployments, "slurm-restapi"
    )


async def test_w12_it_is_rolled_out_for_what_it_reads_and_not_for_nodes(bed: Bed) -> None:
    await bed.controller()
    await bed.make(RESTAPIS, "slurm", controllerRef=OF_SLURM)
    await bed.there(bed.world.deployments, "slurm-restapi")
    first = await hash_of_config(bed)
    conf = "ClusterName=x\nPartitionName=new Nodes=ALL\nNodeName=n1 CPUs=2\n"
    await bed.kube.merge_patch(CONFIGMAPS, bed.key("slurm-config"), {"data": {"slurm.conf": conf}})
    await eventually(lambda: any("new" in it.data["slurm.conf"] for it in bed.world.configmaps.values()))
    await bed.quiet()
    assert await hash_of_config(bed) == first
    conf += "SlurmctldHost=elsewhere\n"
    generation = (await bed.kube.get(DEPLOYMENTS, bed.key("slurm-restapi"))).metadata.generation
    await bed.kube.merge_patch(CONFIGMAPS, bed.key("slurm-config"), {"data": {"slurm.conf": conf}})

    def rolled() -> bool:
        found = bed.world.deployments.get(bed.key("slurm-restapi"))
        return found is not None and found.metadata.generation > generation

    await eventually(rolled)
    strategy = (await bed.raw(DEPLOYMENTS, "slurm-restapi"))["spec"]["strategy"]["rollingUpdate"]
    assert strategy["maxUnavailable"] == 0


async def test_a_deleted_service_comes_back(bed: Bed) -> None:
    await bed.controller()
    await bed.make(RESTAPIS, "slurm", controllerRef=OF_SLURM)
    first = (await bed.there(bed.world.services, "slurm-restapi")).metadata.uid
    await bed.there(bed.world.deployments, "slurm-restapi")
    await bed.kube.delete(SERVICES, bed.key("slurm-restapi"))

    def is_back() -> bool:
        found = bed.world.services.get(bed.key("slurm-restapi"))
        return found is not None and found.metadata.uid != first

    await eventually(is_back)
