"""Claims on devices (DRA), placed by a real slurmctld and written to a real API server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from isthmus import names
from isthmus.domain.bridge import jobstates
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.model.base import Kind
from isthmus.model.dra import FINALIZER, RESOURCE_CLAIMS
from isthmus.model.meta import Key, condition
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import WITHIN, Bridge, make_node, pod, running, until
from tests.flows.bridge.devices_bed import (
    DRIVER,
    RAW_CLAIMS,
    RAW_SLICES,
    claiming,
    claims_of,
    device,
    devices_in,
    exactly,
    make_claim,
    make_class,
    make_template,
    nodes_with_devices,
    publish,
)
from tests.flows.bridge.nodes_bed import Nodes

RAW_PODS: Kind[dict[str, Any]] = Kind(dict[str, Any], "v1", "pods", "Pod")
NOON = "2026-11-18T12:00:00Z"
NODE = "dra1"
COUNT = 4


@pytest.fixture
async def device_nodes(config: Config, client: Client, slurm_with_gres: SlurmBed) -> AsyncIterator[Nodes]:
    """A node with four devices, registered in Slurm by a running node controller."""
    async with nodes_with_devices(config, client, slurm_with_gres, NODE, COUNT) as nodes:
        yield nodes


@pytest.fixture
async def bridge(config: Config, slurm_with_gres: SlurmBed, device_nodes: Nodes) -> AsyncIterator[Bridge]:
    del device_nodes
    async with running(config, slurm_with_gres) as bridge:
        yield bridge


async def test_a_pod_gets_the_devices_that_slurm_chose(
    bridge: Bridge, client: Client, namespace: str, slurm_with_gres: SlurmBed
) -> None:
    await make_template(client, namespace, "two", exactly(count=2))
    keys = [await bridge.create(claiming(namespace, f"p{at}", template="two")) for at in range(2)]
    for found in await bridge.bound(*keys):
        assert found.spec.node_name == NODE
    claims = await claims_of(client, namespace)
    for name, claim in claims.items():
        assert FINALIZER in claim.metadata.finalizers
        job = (await bridge.world.kube.get(PODS, Key(namespace, name))).metadata.labels[names.JOB_ID_LABEL]
        (given,) = slurm_with_gres.get(f"/slurm/v0.0.45/resources/{job}")["nodes"]
        first, _, last = given["gres"][0]["index"].partition("-")
        assert devices_in(claim) == [f"gpu-{at}" for at in range(int(first), int(last or first) + 1)]
    assert sorted(it for claim in claims.values() for it in devices_in(claim)) == [f"gpu-{at}" for at in range(4)]


async def test_a_class_as_a_resource_becomes_a_claim_that_the_kubelet_finds(
    bridge: Bridge, client: Client, namespace: str
) -> None:
    """By the name of the class, and by the name that a class gives; as slurm-bridge's examples, on a whole node."""
    await make_class(client, "named", extendedResourceName="example.com/gpu")
    for name, resource in (
        ("implicit", f"deviceclass.resource.kubernetes.io/{DRIVER}"),
        ("named", "example.com/gpu"),
    ):
        body = pod(namespace, name)
        body["spec"]["containers"][0]["resources"]["limits"] = {resource: "2"}
        key = await bridge.create(body)
        await bridge.bound(key)
        (claim,) = (await claims_of(client, namespace)).values()
        assert devices_in(claim) == ["gpu-0", "gpu-1"]
        made = await client.get(RAW_PODS, key)
        told = made["status"]["extendedResourceClaimStatus"]
        assert told["resourceClaimName"] == claim.metadata.name
        (mapping,) = told["requestMappings"]
        assert (mapping["containerName"], mapping["resourceName"]) == ("main", resource)
        (request,) = claim.spec.devices.requests
        assert mapping["requestName"] == request.name
        await client.delete(PODS, key, grace=0)
        await until_no_claims(client, namespace)
        await cancelled(bridge)


async def test_what_slurm_cannot_place_is_told_with_the_reason(
    bridge: Bridge, client: Client, namespace: str
) -> None:
    unknown = exactly(selectors=["device.attributes.all(it, it != '')", "semver('1.0.0', true).major() == 1"])
    await make_template(client, namespace, "unknown", unknown)
    await make_template(client, namespace, "some", exactly(selectors=[f"device.attributes['{DRIVER}'].index > 1"]))
    await make_template(client, namespace, "nobody", exactly(class_="nobody.example.com"))
    await make_template(client, namespace, "many", exactly(count=COUNT + 1))
    told = {
        "unknown": ("SlurmRefused", "the function semver() with 2 arguments is not supported"),
        "some": ("Unschedulable", "only some match the resource claims"),
        "nobody": ("SlurmRefused", "there is no DeviceClass nobody.example.com"),
        "many": ("Unschedulable", "have the devices of the resource claims"),
    }
    keys = {name: await bridge.create(claiming(namespace, name, template=name)) for name in told}
    for name, (reason, text) in told.items():
        await bridge.told(keys[name], reason, containing=text)
    # On a node of its own, any choice of devices can be served.
    alone = {"slurmjob.slinky.slurm.net/exclusive": "true"}
    key = await bridge.create(claiming(namespace, "alone", template="some", annotations=alone))
    await bridge.bound(key)
    assert devices_in((await claims_of(client, namespace))["alone"]) == ["gpu-2"]


async def test_a_device_goes_to_the_next_pod_when_the_last_claim_is_released(
    bridge: Bridge, client: Client, namespace: str
) -> None:
    """Slurm gives it as soon as the job is over; the claim of the pod that leaves is what counts."""
    await make_template(client, namespace, "all", exactly(count=COUNT))
    first = await bridge.create(claiming(namespace, "first", template="all", terminationGracePeriodSeconds=600))
    (bound,) = await bridge.bound(first)
    await client.delete(PODS, first)  # It leaves for as long as its kubelet, which is not there, lets it.
    await bridge.world.slurm.cancel_job(int(bound.metadata.labels[names.JOB_ID_LABEL]))
    second = await bridge.create(claiming(namespace, "second", template="all"))
    await bridge.told(second, "WaitingForDevices", containing="still belongs to ResourceClaim")
    found = await claims_of(client, namespace)
    assert len(devices_in(found["first"])) == COUNT
    assert "second" not in found
    await client.delete(PODS, first, grace=0)
    await bridge.bound(second)
    found = await claims_of(client, namespace)
    assert len(devices_in(found["second"])) == COUNT


async def test_devices_that_another_scheduler_allocated_are_avoided(
    bridge: Bridge, client: Client, namespace: str
) -> None:
    body = claiming(namespace, "theirs", claim="theirs", schedulerName="default-scheduler", nodeName=NODE)
    key = await make_claim(client, namespace, "theirs")
    theirs = await client.create(PODS, body)
    result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "theirs", "uid": theirs.metadata.uid}],
    }
    await client.merge_patch(RAW_CLAIMS, key, {"metadata": {"finalizers": [FINALIZER]}})
    await client.merge_patch(RAW_CLAIMS, key, {"status": status}, subresource="status")
    await until(lambda: (it := bridge.world.devices.claim(key)) and it.status.allocation)
    await make_template(client, namespace, "one")
    shared = await bridge.create(claiming(namespace, "shared", template="one"))
    await bridge.told(shared, "Unschedulable", containing="only some match")
    alone = {"slurmjob.slinky.slurm.net/exclusive": "true"}
    await bridge.bound(await bridge.create(claiming(namespace, "alone", template="one", annotations=alone)))
    assert devices_in((await claims_of(client, namespace))["alone"]) == ["gpu-1"]


async def test_a_gang_gets_devices_for_all_of_its_pods(bridge: Bridge, client: Client, namespace: str) -> None:
    await make_template(client, namespace, "two", exactly(count=2))
    annotations = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    labels = {"kueue.x-k8s.io/pod-group-name": "pair"}
    bodies = [
        claiming(namespace, f"p{at}", template="two", annotations=annotations, labels=labels) for at in range(2)
    ]
    await bridge.bound(*[await bridge.create(body) for body in bodies])
    found = await claims_of(client, namespace)
    assert sorted(it for claim in found.values() for it in devices_in(claim)) == [f"gpu-{at}" for at in range(4)]


async def test_a_pod_is_bound_when_drivers_have_made_its_devices_ready(
    bridge: Bridge, client: Client, namespace: str, device_nodes: Nodes
) -> None:
    """The class and the claim tell the driver how; it says when the device is ready."""
    opaque = {"driver": DRIVER, "parameters": {"kind": "GpuConfig"}}
    await make_class(client, "prepared", config=[{"opaque": opaque}])
    made = [
        device(at, bindsToNode=True, bindingConditions=["ready"], bindingFailureConditions=["failed"])
        for at in range(COUNT)
    ]
    await publish(client, NODE, made, generation=2)
    await device_nodes.settled()
    await make_template(client, namespace, "one", exactly(class_="prepared"), config=[{"opaque": opaque}])
    key = await bridge.create(claiming(namespace, "p", template="one"))
    await bridge.told(key, "WaitingForDevices", containing="drivers are preparing")
    claim = (await claims_of(client, namespace))["p"]
    allocation = claim.status.allocation
    assert allocation is not None
    assert [it["source"] for it in allocation.devices.config] == ["FromClass", "FromClaim"]
    (chosen,) = devices_in(claim)
    ready = {"type": "ready", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": NOON}
    said = [{"driver": DRIVER, "pool": NODE, "device": chosen, "conditions": [ready]}]
    await client.merge_patch(RAW_CLAIMS, claim.metadata.key, {"status": {"devices": said}}, subresource="status")
    await bridge.bound(key)


async def test_a_gang_that_waits_again_keeps_no_devices(
    bridge: Bridge, client: Client, namespace: str, device_nodes: Nodes
) -> None:
    """Its job ended before its pods were bound, and one of them is gone: the other may wait for it forever."""
    unready: dict[str, Any] = {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    await publish(client, NODE, [device(at, **unready) for at in range(COUNT)], generation=2)
    await device_nodes.settled()
    await make_template(client, namespace, "two", exactly(count=2))
    more: dict[str, Any] = {
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
        "labels": {"kueue.x-k8s.io/pod-group-name": "pair"},
    }
    first, second = [await bridge.create(claiming(namespace, it, template="two", **more)) for it in ("p0", "p1")]
    for key in (first, second):
        await bridge.told(key, "WaitingForDevices", containing="drivers are preparing")
    await client.delete(PODS, second, grace=0)
    await cancelled(bridge)
    await bridge.told(first, "WaitingForGang")
    async with asyncio.timeout(WITHIN):
        while any(map(devices_in, (await claims_of(client, namespace)).values())):  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.05)


async def test_a_node_says_so_when_slurm_counts_its_devices_otherwise(
    bridge: Bridge, client: Client, namespace: str, device_nodes: Nodes
) -> None:
    """The first external node is one of slurm.conf, which is not ours to change."""
    await device_nodes.told(NODE, "SlurmCountsDevices")
    await make_node(client, "e1")
    await publish(client, "e1", [device(0)])
    try:
        found = await until(lambda: reported(device_nodes, "e1"))
        assert found.status == "False"
        assert f"needs Gres=gpu:{DRIVER}:1" in found.message
        assert reported(device_nodes, NODE).status == "True"
        await make_template(client, namespace, "one")
        (bound,) = await bridge.bound(await bridge.create(claiming(namespace, "p", template="one")))
        assert bound.spec.node_name == NODE
    finally:
        await client.delete(NODES, "e1")
        await client.delete(RAW_SLICES, f"e1-{DRIVER}")


async def test_a_node_follows_its_driver(
    bridge: Bridge, client: Client, namespace: str, device_nodes: Nodes
) -> None:
    """A device that fails and is left out takes its index with it; the others are found by their own."""
    await publish(client, NODE, [device(at) for at in (0, 2, 3)], generation=2)
    await device_nodes.registered(NODE, gres=f"gpu:{DRIVER}:3")
    await make_template(client, namespace, "three", exactly(count=3))
    await bridge.bound(await bridge.create(claiming(namespace, "p", template="three")))
    assert devices_in((await claims_of(client, namespace))["p"]) == ["gpu-0", "gpu-2", "gpu-3"]


def reported(nodes: Nodes, name: str) -> Any:
    node = nodes.node(name)
    return condition(node.status.conditions, names.NODE_GRES_CONDITION) if node else None


async def until_no_claims(client: Client, namespace: str) -> None:
    async with asyncio.timeout(WITHIN):
        while (await client.list(RESOURCE_CLAIMS, namespace=namespace)).items:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.05)


async def cancelled(bridge: Bridge) -> None:
    """End all jobs, which nobody does where no pod controller runs."""
    for ours in list(bridge.world.jobs):
        if jobstates.living(ours.job.job_state):
            await bridge.world.slurm.cancel_job(ours.job_id)
