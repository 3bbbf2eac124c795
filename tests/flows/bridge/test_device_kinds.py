"""Devices that are more than one of a GRES: CPUs, parts of others, shared ones, broken ones.

A real slurmctld places the pods, and a real API server takes what is written into claims. CPUs have what Slurm says
of cores; whether containers get them is tried with their driver (`e2e/test_bridge_devices.py`).
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from isthmus import names
from isthmus.domain.bridge.cores import cores_in
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.model.base import Kind
from isthmus.model.meta import Key, Partial
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import Bridge, pod, running, until
from tests.flows.bridge.devices_bed import (
    CPU_DRIVER,
    DRIVER,
    RAW_SLICES,
    claiming,
    claims_of,
    cpu,
    device,
    devices_in,
    exactly,
    held_by,
    make_class,
    make_template,
    nodes_with_devices,
    publish,
)
from tests.flows.bridge.nodes_bed import Nodes, make_kube_node

NAMESPACES = Kind(Partial, "v1", "namespaces", "Namespace", namespaced=False)
NODE = "dra2"
COUNT = 2
ALONE = {"slurmjob.slinky.slurm.net/exclusive": "true"}


@pytest.fixture
async def nodes(config: Config, client: Client, slurm_with_gres: SlurmBed) -> AsyncIterator[Nodes]:
    async with nodes_with_devices(config, client, slurm_with_gres, NODE, COUNT) as nodes:
        yield nodes


@pytest.fixture
async def bridge(config: Config, slurm_with_gres: SlurmBed, nodes: Nodes) -> AsyncIterator[Bridge]:
    del nodes
    async with running(config, slurm_with_gres) as bridge:
        yield bridge


def cores_of(bed: SlurmBed, job: str) -> list[str]:
    """The CPUs that stand for the cores that Slurm gave to a job."""
    (given,) = bed.get(f"/slurm/v0.0.45/resources/{job}")["nodes"]
    return [f"cpudev{at:03}" for at in sorted(cores_in(given["core_bitmap"]))]


async def test_a_pod_gets_the_cpus_that_slurm_chose(
    bridge: Bridge, client: Client, namespace: str, slurm_with_gres: SlurmBed
) -> None:
    """By a claim and by the class as a resource; the pods share a node of four CPUs."""
    await make_class(client, CPU_DRIVER, expression=f"device.driver == '{CPU_DRIVER}'")
    await publish(client, NODE, [cpu(at) for at in range(4)], driver=CPU_DRIVER)
    await make_template(client, namespace, "two", exactly(class_=CPU_DRIVER, count=2))
    claimed = claiming(namespace, "claimed", template="two", cpu="2")
    extended = pod(namespace, "extended", annotations={"slurmjob.slinky.slurm.net/exclusive": "false"})
    extended["spec"]["containers"][0]["resources"] = {
        "requests": {"memory": "64Mi"},
        "limits": {f"deviceclass.resource.kubernetes.io/{CPU_DRIVER}": "2"},
    }
    pods = await bridge.bound(*[await bridge.create(body) for body in (claimed, extended)])
    seen = []
    for found in pods:
        has = await held_by(client, namespace, found.metadata.name)
        assert sorted(has) == cores_of(slurm_with_gres, found.metadata.labels[names.JOB_ID_LABEL])
        seen += has
    assert sorted(seen) == [f"cpudev{at:03}" for at in range(4)]


async def test_pods_that_start_at_once_do_not_take_the_same_group_of_cpus(
    bridge: Bridge, client: Client, namespace: str
) -> None:
    """A group has CPUs for one of them, and so has the other."""
    await make_class(client, CPU_DRIVER, expression=f"device.driver == '{CPU_DRIVER}'")
    groups = [
        {
            "name": f"cpudevnuma00{at}",
            "attributes": {f"{CPU_DRIVER}/numaNodeID": {"int": at}},
            "allowMultipleAllocations": True,
            "capacity": {f"{CPU_DRIVER}/cpu": {"value": "2"}},
        }
        for at in range(2)
    ]
    await publish(client, NODE, groups, driver=CPU_DRIVER)
    two = exactly(class_=CPU_DRIVER, capacity={"requests": {f"{CPU_DRIVER}/cpu": "2"}})
    await make_template(client, namespace, "two", two)
    bodies = [claiming(namespace, f"p{at}", template="two", cpu="2") for at in range(2)]
    await bridge.bound(*[await bridge.create(body) for body in bodies])
    has = [await held_by(client, namespace, f"p{at}") for at in range(2)]
    assert sorted(has) == [["cpudevnuma000"], ["cpudevnuma001"]]


def partition(name: str, units: int) -> dict[str, Any]:
    return {"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": {"units": {"value": str(units)}}}]}


async def test_parts_of_a_device_are_for_pods_with_a_node_to_themselves(
    bridge: Bridge, nodes: Nodes, client: Client, namespace: str
) -> None:
    made = [partition("whole", 4), *(partition(f"quarter-{at}", 1) for at in range(4))]
    counters = [{"name": "gpu", "counters": {"units": {"value": "4"}}}]
    await publish(client, NODE, made, generation=2, counters=counters)
    await nodes.registered(NODE, gres=f"gpu:{DRIVER}:1")
    await make_template(client, namespace, "three", exactly(count=3))
    await make_template(client, namespace, "one")
    alone = await bridge.create(claiming(namespace, "alone", template="three", annotations=ALONE))
    (found,) = await bridge.bound(alone)
    assert await held_by(client, namespace, "alone") == ["quarter-0", "quarter-1", "quarter-2"]
    # Slurm knows one device there, which cannot be had while its parts are.
    shared = await bridge.create(claiming(namespace, "shared", template="one"))
    await bridge.world.slurm.cancel_job(int(found.metadata.labels[names.JOB_ID_LABEL]))
    await bridge.told(shared, "WaitingForDevices", containing="still belongs to ResourceClaim")
    await client.delete(PODS, alone, grace=0)
    await bridge.bound(shared)
    assert await held_by(client, namespace, "shared") == ["whole"]


async def test_requests_of_a_pod_share_a_device_by_its_capacity(
    bridge: Bridge, nodes: Nodes, client: Client, namespace: str
) -> None:
    policy = {"default": "80Gi", "validRange": {"min": "4Gi", "step": "4Gi"}}
    capacity = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    made = [{**device(at), "allowMultipleAllocations": True, "capacity": capacity} for at in range(COUNT)]
    await publish(client, NODE, made, generation=2)
    await nodes.settled()
    asked = [exactly(f"r{size}", capacity={"requests": {"memory": f"{size}Gi"}}) for size in (38, 40)]
    await make_template(client, namespace, "both", *asked)
    keys = [await bridge.create(claiming(namespace, f"p{at}", template="both")) for at in range(COUNT)]
    await bridge.bound(*keys)
    found = await claims_of(client, namespace)
    # Each pod has a device, which Slurm gives to one job alone; both requests are served by it.
    assert sorted(len(set(devices_in(it))) for it in found.values()) == [1, 1]
    assert len({device for it in found.values() for device in devices_in(it)}) == COUNT
    allocation = found["p0"].status.allocation
    assert allocation is not None
    assert [dict(it.consumed_capacity) for it in allocation.devices.results] == [{"memory": str(40 << 30)}] * 2
    assert len({it.share_id for it in allocation.devices.results}) == len(asked)


async def test_a_device_with_a_taint_is_left_out_and_the_others_go_on(
    bridge: Bridge, nodes: Nodes, client: Client, namespace: str
) -> None:
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    await publish(client, NODE, [device(0), device(1, taints=[taint]), device(2)], generation=2)
    await nodes.registered(NODE, gres=f"gpu:{DRIVER}:2,gpu:{DRIVER}.tainted:1")
    await make_template(client, namespace, "two", exactly(count=2))
    tolerations = [{"key": taint["key"], "operator": "Exists"}]
    of_index = [f"device.attributes['{DRIVER}'].index == 1"]
    await make_template(client, namespace, "tester", exactly(tolerations=tolerations, selectors=of_index))
    await bridge.bound(
        await bridge.create(claiming(namespace, "p", template="two")),
        await bridge.create(claiming(namespace, "tester", template="tester")),
    )
    assert await held_by(client, namespace, "p") == ["gpu-0", "gpu-2"]
    assert await held_by(client, namespace, "tester") == ["gpu-1"]


async def test_alternatives_constraints_and_administrators(
    bridge: Bridge, nodes: Nodes, client: Client, namespace: str
) -> None:
    """The first alternative that can be had, of devices that are alike, and somebody who looks at all of them."""
    await publish(client, NODE, [device(at, model="A" if at else "B") for at in range(3)], generation=2)
    await nodes.registered(NODE, gres=f"gpu:{DRIVER}:3")
    model = f"device.attributes['{DRIVER}'].model"
    alternatives = [
        {"name": "big", "deviceClassName": DRIVER, "selectors": [{"cel": {"expression": f"{model} == 'C'"}}]},
        {"name": "two", "deviceClassName": DRIVER, "count": 2},
    ]
    alike = {"requests": ["gpu"], "matchAttribute": f"{DRIVER}/model"}
    await make_template(
        client, namespace, "first", {"name": "gpu", "firstAvailable": alternatives}, constraints=[alike]
    )
    await bridge.bound(await bridge.create(claiming(namespace, "p", template="first", annotations=ALONE)))
    claim = (await claims_of(client, namespace))["p"]
    assert claim.status.allocation is not None
    assert [(it.request, it.device) for it in claim.status.allocation.devices.results] == [
        ("gpu/two", "gpu-1"),
        ("gpu/two", "gpu-2"),
    ]
    await bridge.world.slurm.cancel_job(
        int((await client.get(PODS, Key(namespace, "p"))).metadata.labels[names.JOB_ID_LABEL])
    )
    label = {"resource.kubernetes.io/admin-access": "true"}
    await client.merge_patch(NAMESPACES, namespace, {"metadata": {"labels": label}})
    everything = exactly(adminAccess=True, allocationMode="All")
    await make_template(client, namespace, "look", everything)
    await bridge.bound(await bridge.create(claiming(namespace, "look", template="look")))
    found = (await claims_of(client, namespace))["look"].status.allocation
    assert found is not None
    assert [(it.device, it.admin_access) for it in found.devices.results] == [
        (f"gpu-{at}", True) for at in range(3)
    ]


async def test_a_node_for_a_later_alternative_is_not_given_where_less_was_asked_for(
    bridge: Bridge, nodes: Nodes, client: Client, namespace: str
) -> None:
    """Two small devices would do, too, but Slurm was asked for one: it waits for one that is large."""
    other = f"{NODE}-large"
    await publish(client, other, [device(0, model="large")])
    await make_kube_node(client, other)
    try:
        await nodes.registered(other, gres=f"gpu:{DRIVER}:1")
        world = bridge.world
        await until(lambda: (it := world.slurm_nodes.get(other)) and it.extra and world.devices.on(other).devices)
        model = f"device.attributes['{DRIVER}'].model"
        alternatives = [
            {
                "name": "one" if count == 1 else "two",
                "deviceClassName": DRIVER,
                "count": count,
                "selectors": [{"cel": {"expression": f"{model} {'==' if count == 1 else '!='} 'large'"}}],
            }
            for count in (1, 2)
        ]
        await make_template(client, namespace, "first", {"name": "gpu", "firstAvailable": alternatives})
        (first,) = await bridge.bound(await bridge.create(claiming(namespace, "first", template="first")))
        assert first.spec.node_name == other
        second = await bridge.create(claiming(namespace, "second", template="first"))
        await bridge.told(second, "SlurmPending", containing="Resources")
        assert bridge.counted(names.RETURNED) == 0
    finally:
        await client.delete(NODES, other)
        await client.delete(RAW_SLICES, f"{other}-{DRIVER}")
