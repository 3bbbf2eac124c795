#!/usr/bin/env -S sh -c 'd=${0%/*}/..; PYTHONPATH=$d exec "$d/.venv/bin/python" -P "$0" "$@"'
"""Devices and topology.

burst       500 pods with a claim each on 100 nodes with 8 devices, beside the stock scheduler; writes for each pod
slices      what it costs to follow 1,000 ResourceSlices, each of which changes every ten minutes
topology    topology.conf of 5,000 nodes on 32-node leaf switches below spines, from labels: the median of 15
"""

import asyncio
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from bench import bridge_ground as ground
from bench import workload
from bench.bridge_process import bridge
from bench.harness import Figure, Options, figure, main, note
from bench.process import Process
from isthmus import names
from isthmus.domain.operator.slurmfiles.topology import Place, files
from isthmus.errors import Terminal
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.model.dra import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from isthmus.model.meta import Key
from isthmus.model.slinky import NetworkTopology
from isthmus.runtime import loop
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed

_DRIVER = "gpu.example.com"
_DEVICES = 8
_ROUNDS = 2
_SETTLED_WITHIN = 300.0
_CHANGED_EVERY = 600.0
_WINDOW = 60.0
_NODES = 5000


@dataclass
class _Burst:
    rate: float
    writes: float


def burst(options: Options) -> Iterator[Figure]:
    """Give many pods a device each, by either scheduler in turns."""
    pods, nodes, rounds = (50, 10, 1) if options.quick else (500, 100, _ROUNDS)
    found: defaultdict[str, list[_Burst]] = defaultdict(list)
    with ground.control_plane(nodes, external=True, cpus=_DEVICES) as plane:
        loop.run(_publish(plane, nodes))
        for _ in range(rounds):
            with _slurm() as slurm, bridge(plane, slurm) as process:
                loop.run(_registered(slurm, nodes))
                process.await_quiet()
                found["bridge"].append(loop.run(_burst(plane, pods=pods, scheduler=names.SCHEDULER_NAME)))
            with ground.stock_scheduler(plane):
                found["stock"].append(loop.run(_burst(plane, pods=pods, scheduler=ground.STOCK)))
    for who, bursts in found.items():
        note(
            f"{who:8} {', '.join(f'{it.rate:,.0f}' for it in bursts)} pods/s,"
            f" {statistics.mean(it.writes for it in bursts):.1f} writes for each pod"
        )
    rate = {who: statistics.mean(it.rate for it in bursts) for who, bursts in found.items()}
    told = f"{pods} pods with a claim on {nodes} nodes with {_DEVICES} devices"
    yield figure(f"{told}: rate, beside the stock scheduler", "≥ 0.7 times", rate["bridge"] / rate["stock"])
    written = statistics.mean(it.writes for it in found["bridge"])
    yield figure("Writes to the API for each pod with a claim", "≤ 4", written)


async def _burst(plane: ControlPlaneBed, *, pods: int, scheduler: str) -> _Burst:
    async with ground.load_on(plane) as load:
        body = {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": _DRIVER}}]}}
        keys = [Key(load.namespace, f"p{number}") for number in range(pods)]
        await workload.all_of(
            load.client.create(RESOURCE_CLAIMS, {"metadata": _named(key), "spec": body}) for key in keys
        )
        writes = await ground.writes(load.client)
        await load.create(pods, scheduler=scheduler, claims=True)
        await load.until_bound(keys)
        found = _Burst(load.rate(keys), (await ground.writes(load.client) - writes) / pods)
        await _release(load.client, load.namespace)
        return found


async def _release(client: Client, namespace: str) -> None:
    """Delete all claims, as Kubernetes' controllers would, and see that no device is in two of them."""
    claims = (await client.list(RESOURCE_CLAIMS, namespace=namespace)).items
    held = Counter(
        (it.pool, it.device)
        for claim in claims
        if claim.status.allocation
        for it in claim.status.allocation.devices.results
    )
    if held.total() != len(claims) or max(held.values()) > 1:
        raise Terminal(f"{len(claims)} claims have {held.total()} devices, of which {len(held)} are different")
    keys = [claim.metadata.key for claim in claims]
    freed = {"status": {"allocation": None, "reservedFor": None}}
    await workload.all_of(client.merge_patch(RESOURCE_CLAIMS, it, freed, subresource="status") for it in keys)
    await workload.all_of(
        client.merge_patch(RESOURCE_CLAIMS, it, {"metadata": {"finalizers": None}}) for it in keys
    )
    await client.delete_all(RESOURCE_CLAIMS, namespace=namespace)


def slices(options: Options) -> Iterator[Figure]:
    """Follow the devices of many nodes."""
    nodes, window = (100, 10.0) if options.quick else (1_000, _WINDOW)
    with ground.control_plane(nodes, external=True, cpus=_DEVICES) as plane:
        loop.run(_publish(plane, nodes))
        with _slurm() as slurm, bridge(plane, slurm) as process:
            loop.run(_registered(slurm, nodes))
            process.await_quiet()
            still = loop.run(_followed(plane, process, (), window=window))
            changed = [1 + number % nodes for number in range(round(nodes * window / _CHANGED_EVERY))]
            share = loop.run(_followed(plane, process, changed, window=window))
    note(f"the process takes {still:.2%} of a core while nothing changes, {share:.2%} with {len(changed)} changes")
    yield figure(f"{nodes:,} ResourceSlices followed: of one core", "≤ 1 %", 100 * max(0.0, share - still))


async def _followed(plane: ControlPlaneBed, process: Process, changed: Iterable[int], *, window: float) -> float:
    """Tell which share of a core the process takes while these nodes' drivers publish news, one after the other."""
    async with Client(load(plane.kubeconfig)) as client:
        began, processor = time.monotonic(), process.processor
        numbers = list(changed)
        for at, number in enumerate(numbers):
            await asyncio.sleep(max(0.0, began + at * window / len(numbers) - time.monotonic()))
            spec = _slice(number, version=f"1.{at}.0")["spec"]
            await client.merge_patch(RESOURCE_SLICES, _slice_name(number), {"spec": spec})
        await asyncio.sleep(max(0.0, began + window - time.monotonic()))
        return (process.processor - processor) / (time.monotonic() - began)


def _slurm() -> AbstractContextManager[SlurmBed]:
    """Run a Slurm without nodes: the bridge registers them."""
    return ground.slurm(0, GresTypes="gpu")


async def _publish(plane: ControlPlaneBed, nodes: int) -> None:
    """Publish the devices of all nodes, as their drivers would."""
    async with Client(load(plane.kubeconfig)) as client:
        selector = {"cel": {"expression": f"device.driver == '{_DRIVER}'"}}
        await client.create(DEVICE_CLASSES, {"metadata": {"name": _DRIVER}, "spec": {"selectors": [selector]}})
        await workload.all_of(client.create(RESOURCE_SLICES, _slice(it)) for it in range(1, nodes + 1))


async def _registered(slurm: SlurmBed, nodes: int) -> None:
    """Wait until Slurm has all nodes with their devices."""
    began, wanted = time.monotonic(), f"gpu:{_DRIVER}:{_DEVICES}"
    async with ground.slurm_client(slurm) as client:
        while (found := await client.nodes()) is None or sum(it.gres == wanted for it in found.nodes) < nodes:
            if time.monotonic() - began > _SETTLED_WITHIN:
                raise Terminal("the nodes were not registered in time")
            await asyncio.sleep(0.2)


def _named(key: Key) -> dict[str, Any]:
    return {"namespace": key.namespace, "name": key.name}


def _slice_name(node: int) -> str:
    return f"e{node}-{_DRIVER}"


def _slice(node: int, *, version: str = "1.0.0") -> dict[str, Any]:
    devices = [
        {
            "name": f"gpu-{at}",
            "attributes": {
                "index": {"int": at},
                "model": {"string": "LATEST-GPU-MODEL"},
                "uuid": {"string": f"gpu-{node}-{at}"},
                "driverVersion": {"version": version},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for at in range(_DEVICES)
    ]
    pool = {"name": f"e{node}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "nodeName": f"e{node}", "pool": pool, "devices": devices}
    return {"metadata": {"name": _slice_name(node)}, "spec": spec}


def topology(options: Options) -> Iterator[Figure]:
    tiers = ((0, 18), (1, 32), (2, 512))
    places = [
        Place(f"gpu-{it}", {f"{names.TOPOLOGY_PREFIX}tier-{tier}": f"s{tier}-{it // size}" for tier, size in tiers})
        for it in range(_NODES)
    ]
    plugins: tuple[Literal["tree", "block"], ...] = ("tree", "block")
    for plugin in plugins:
        taken = []
        for _ in range(3 if options.quick else 15):
            began = time.process_time()
            files(NetworkTopology(plugin), places, with_yaml=True)
            taken.append(time.process_time() - began)
        what = f"topology/{plugin} of {_NODES:,} nodes: processor time"
        yield figure(what, "≤ 100 ms", 1000 * statistics.median(taken))


if __name__ == "__main__":
    sys.exit(main({"burst": burst, "slices": slices, "topology": topology}, about=__doc__))
