"""Devices as drivers publish them, on nodes without drivers: ResourceSlices, classes, claims and templates."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.errors import AlreadyExists
from isthmus.model.base import Kind
from isthmus.model.dra import RESOURCE_CLAIMS, ResourceClaim
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import pod
from tests.flows.bridge.nodes_bed import Nodes, make_kube_node, running_nodes

DRIVER = "gpu.example.com"
CPU_DRIVER = "dra.cpu"
RAW_SLICES: Kind[dict[str, Any]] = Kind(
    dict[str, Any], "resource.k8s.io/v1", "resourceslices", "ResourceSlice", namespaced=False
)
RAW_CLASSES: Kind[dict[str, Any]] = Kind(
    dict[str, Any], "resource.k8s.io/v1", "deviceclasses", "DeviceClass", namespaced=False
)
RAW_CLAIMS: Kind[dict[str, Any]] = Kind(dict[str, Any], "resource.k8s.io/v1", "resourceclaims", "ResourceClaim")
RAW_TEMPLATES: Kind[dict[str, Any]] = Kind(
    dict[str, Any], "resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate"
)


def device(index: int, *, model: str = "LATEST-GPU-MODEL", **more: Any) -> dict[str, Any]:
    """Describe a GPU as the example driver does."""
    attributes = {
        "index": {"int": index},
        "model": {"string": model},
        "uuid": {"string": f"gpu-{index:04}"},
        "driverVersion": {"version": "1.0.0"},
    }
    return {
        "name": f"gpu-{index}",
        "attributes": attributes,
        "capacity": {"memory": {"value": "80Gi"}},
        **more,
    }


def cpu(number: int, *, numa: int = 0) -> dict[str, Any]:
    """Describe a CPU as its driver does, each a core of its own."""
    ints = {"cpuID": number, "coreID": number, "socketID": 0, "numaNodeID": numa}
    attributes: dict[str, Any] = {f"{CPU_DRIVER}/{key}": {"int": value} for key, value in ints.items()}
    return {"name": f"cpudev{number:03}", "attributes": attributes}


async def publish(
    client: Client,
    node: str,
    devices: Sequence[dict[str, Any]],
    *,
    generation: int = 1,
    driver: str = DRIVER,
    counters: Sequence[dict[str, Any]] = (),
) -> None:
    """Publish the devices of a node, as its driver would; again with a higher generation replaces them.

    Counters have a slice of their own.
    """
    pool = {"name": node, "generation": generation, "resourceSliceCount": 2 if counters else 1}
    specs = {f"{node}-{driver}": {"devices": list(devices)}}
    if counters:
        specs[f"{node}-{driver}-counters"] = {"sharedCounters": list(counters)}
    for name, more in specs.items():
        spec = {"driver": driver, "nodeName": node, "pool": pool, **more}
        try:
            await client.create(RAW_SLICES, {"metadata": {"name": name}, "spec": spec})
        except AlreadyExists:
            await client.merge_patch(RAW_SLICES, name, {"spec": spec})


async def make_node_with_devices(client: Client, node: str, count: int) -> None:
    """Make a Kubernetes node, so many devices on it, and their class."""
    await make_class(client)
    await publish(client, node, [device(at) for at in range(count)])
    await make_kube_node(client, node)


@asynccontextmanager
async def nodes_with_devices(
    config: Config, client: Client, slurm: SlurmBed, node: str, count: int
) -> AsyncIterator[Nodes]:
    """Run a node controller with a node that has so many devices, which Slurm knows when the block begins."""
    await make_node_with_devices(client, node, count)
    async with running_nodes(config, slurm) as nodes:
        await nodes.registered(node, gres=f"gpu:{DRIVER}:{count}")
        yield nodes
        slurm.command("scancel", "--user=slurm")
        await client.delete(NODES, node)
        await nodes.gone(node)
        await forget_devices(client)


async def forget_devices(client: Client) -> None:
    """Delete all slices and classes."""
    await client.delete_all(RAW_SLICES)
    await client.delete_all(RAW_CLASSES)


async def make_class(client: Client, name: str = DRIVER, *, expression: str = "", **spec: Any) -> None:
    cel = {"cel": {"expression": expression or f"device.driver == '{DRIVER}'"}}
    await client.create(RAW_CLASSES, {"metadata": {"name": name}, "spec": {"selectors": [cel], **spec}})


def exactly(name: str = "gpu", *, class_: str = DRIVER, **more: Any) -> dict[str, Any]:
    """Make the request of a claim; selectors are written as their expressions."""
    selectors = [{"cel": {"expression": it}} for it in more.pop("selectors", ())]
    return {
        "name": name,
        "exactly": {"deviceClassName": class_, **({"selectors": selectors} if selectors else {}), **more},
    }


async def make_template(client: Client, namespace: str, name: str, *requests: dict[str, Any], **more: Any) -> None:
    spec = {"devices": {"requests": list(requests) or [exactly()], **more}}
    await client.create(RAW_TEMPLATES, {"metadata": {"namespace": namespace, "name": name}, "spec": {"spec": spec}})


async def make_claim(client: Client, namespace: str, name: str, *requests: dict[str, Any], **more: Any) -> Key:
    spec = {"devices": {"requests": list(requests) or [exactly()], **more}}
    await client.create(RAW_CLAIMS, {"metadata": {"namespace": namespace, "name": name}, "spec": spec})
    return Key(namespace, name)


def claiming(namespace: str, name: str, *, template: str = "", claim: str = "", **more: Any) -> dict[str, Any]:
    """Make a pod with a claim that shares its node with others."""
    use = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
    annotations = {"slurmjob.slinky.slurm.net/exclusive": "false", **more.pop("annotations", {})}
    body = pod(namespace, name, annotations=annotations, resourceClaims=[{"name": "gpu", **use}], **more)
    body["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return body


async def claims_of(client: Client, namespace: str) -> dict[str, ResourceClaim]:
    """The claims of a namespace, by the name of the pod that may use them, or their own where none may."""
    found = (await client.list(RESOURCE_CLAIMS, namespace=namespace)).items
    return {next((by.name for by in it.status.reserved_for), it.metadata.name): it for it in found}


async def held_by(client: Client, namespace: str, pod_name: str) -> list[str]:
    """The devices of the claim of a pod."""
    return devices_in((await claims_of(client, namespace))[pod_name])


def devices_in(claim: ResourceClaim) -> list[str]:
    allocation = claim.status.allocation
    return [it.device for it in allocation.devices.results] if allocation else []


async def doubled(client: Client) -> list[str]:
    """Name devices that more than one claim has."""
    held: Counter[tuple[str, str, str]] = Counter()
    for claim in (await client.list(RESOURCE_CLAIMS)).items:
        allocation = claim.status.allocation
        held.update((it.driver, it.pool, it.device) for it in (allocation.devices.results if allocation else ()))
    return [device for (_, _, device), count in held.items() if count > 1]
