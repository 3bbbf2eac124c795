"""Whenever the bridge ends on the way to a binding, no device is in two hands, no claim and no device is left over.

The bridge runs as a process behind a proxy. It is killed as one of its writes arrives, or just before it does, and
is started again; a pod that asks for all devices of the only node then needs what the one before it had.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from isthmus.kube.client import Client
from isthmus.model.dra import RESOURCE_CLAIMS
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.fault_rules import Rule
from tests.bed.faults import Proxy
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import WITHIN, pod
from tests.flows.bridge.crash_bed import Process, before_the_api_server, settings_file
from tests.flows.bridge.devices_bed import (
    DRIVER,
    claiming,
    claims_of,
    devices_in,
    doubled,
    exactly,
    forget_devices,
    held_by,
    make_node_with_devices,
    make_template,
)

NODE = "dra-crash"
COUNT = 2
POINTS = {
    "finalizer": ("PATCH", "*/resourceclaims/*-gpu-?????"),
    "devices": ("PATCH", "*/resourceclaims/*/status*"),
    "binding": ("POST", "*/binding*"),
    "extended-claim": ("POST", "*/resourceclaims"),
    "extended-devices": ("PATCH", "*/resourceclaims/*/status*"),
    "extended-mapping": ("PATCH", "*/pods/*/status"),
}
"""What is written on the way, with the writes for extended resources, which need a claim of our own."""


@dataclass(frozen=True)
class Lab:
    """A bridge as a process, behind a proxy before the API server, and a node whose devices it gives away."""

    proxy: Proxy
    process: Process
    client: Client
    namespace: str
    scheduler_name: str

    async def create(self, name: str) -> Key:
        """Make a pod that asks for all devices, by a claim or by the class as a resource."""
        if name.startswith("extended"):
            annotations = {"slurmjob.slinky.slurm.net/exclusive": "false"}
            body = pod(self.namespace, name, annotations=annotations, schedulerName=self.scheduler_name)
            limits = {f"deviceclass.resource.kubernetes.io/{DRIVER}": str(COUNT)}
            body["spec"]["containers"][0]["resources"]["limits"] = limits
        else:
            body = claiming(self.namespace, name, template="all", schedulerName=self.scheduler_name)
        return (await self.client.create(PODS, body)).metadata.key

    async def bound(self, key: Key, *, devices: int = COUNT) -> None:
        """Wait until a pod is bound, with so many devices; meanwhile nobody else has one of them."""
        async with asyncio.timeout(WITHIN):
            while not (await self.client.get(PODS, key)).bound:
                assert await doubled(self.client) == []
                await asyncio.sleep(0.1)
        assert len(set(await held_by(self.client, self.namespace, key.name))) == devices, key


@pytest.fixture
async def lab(
    client: Client, namespace: str, control_plane: ControlPlaneBed, slurm_with_gres: SlurmBed, tmp_path: Path
) -> AsyncIterator[Lab]:
    await make_node_with_devices(client, NODE, COUNT)
    await make_template(client, namespace, "all", exactly(count=COUNT))
    name = f"crash-{uuid4().hex[:8]}"
    async with before_the_api_server(control_plane, tmp_path / "kubeconfig") as proxy:
        settings = settings_file(tmp_path, slurm_with_gres, url=slurm_with_gres.rest_url, scheduler_name=name)
        flags = ("--leader-elect=false",)
        process = Process(settings, tmp_path / "kubeconfig", *flags, log=tmp_path / "bridge.log")
        process.start()
        yield Lab(proxy, process, client, namespace, name)
        process.kill()
    await client.delete(NODES, NODE)
    await forget_devices(client)


async def used(rule: Rule) -> None:
    async with asyncio.timeout(WITHIN):
        while not rule.used:  # noqa: ASYNC110 - rules tell nobody
            await asyncio.sleep(0.01)


async def test_no_device_is_lost_or_doubled_however_the_bridge_ends(lab: Lab, slurm_with_gres: SlurmBed) -> None:
    tried: list[str] = []
    for point, (method, path) in POINTS.items():
        for fault in (lab.proxy.lose_answer, lab.proxy.cut):
            tried.append(f"{point}-{fault.__name__.replace('_', '-')}")
            rule = fault(method=method, path=path, times=1)
            key = await lab.create(tried[-1])
            await used(rule)
            lab.process.kill()
            assert await doubled(lab.client) == []
            lab.process.start()
            await lab.bound(key)
            await lab.client.delete(PODS, key, grace=0)
    async with asyncio.timeout(WITHIN):
        while (await lab.client.list(RESOURCE_CLAIMS, namespace=lab.namespace)).items:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        while slurm_with_gres.command("squeue", "--noheader", f"--name={','.join(tried)}"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_a_gang_gets_its_devices_though_the_bridge_ends_between_two_of_its_claims(lab: Lab) -> None:
    await make_template(lab.client, lab.namespace, "one")
    for fault in (lab.proxy.lose_answer, lab.proxy.cut):
        gang = f"gang-{fault.__name__.replace('_', '-')}"
        rule = fault(method="PATCH", path=f"*/resourceclaims/{gang}-1-gpu-?????/status*", times=1)
        more: dict[str, Any] = {
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
            "labels": {"kueue.x-k8s.io/pod-group-name": gang},
            "schedulerName": lab.scheduler_name,
        }
        bodies = [claiming(lab.namespace, f"{gang}-{at}", template="one", **more) for at in range(2)]
        keys = [(await lab.client.create(PODS, body)).metadata.key for body in bodies]
        await used(rule)
        lab.process.kill()
        assert await doubled(lab.client) == []
        lab.process.start()
        for key in keys:
            await lab.bound(key, devices=1)
        assert await doubled(lab.client) == []
        for key in keys:
            await lab.client.delete(PODS, key, grace=0)


async def test_a_pod_that_cannot_be_bound_gives_its_devices_back(lab: Lab) -> None:
    refused = lab.proxy.respond(403, method="POST", path="*/binding*")
    key = await lab.create("refused")
    await used(refused)
    async with asyncio.timeout(WITHIN):
        while any(map(devices_in, (await claims_of(lab.client, lab.namespace)).values())):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    refused.remove()
    await lab.client.merge_patch(PODS, key, {"metadata": {"annotations": {"example.org/try": "again"}}})
    await lab.bound(key)
