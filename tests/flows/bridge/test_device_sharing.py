"""Pods and batch jobs on one node with a slurmd, under one allocator: devices and CPUs are given once."""

from collections.abc import AsyncIterator, Callable

import pytest

from isthmus import names
from isthmus.domain.bridge.cores import cores_in
from isthmus.domain.bridge.devices import Profile
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.model.meta import condition
from isthmus.model.node import NODES
from isthmus.names import NODE_GRES_CONDITION as GRES_CONDITION
from tests.bed.slurm import SlurmBed
from tests.bed.slurm_box import wait_until
from tests.flows.bridge.conftest import Bridge, running, until
from tests.flows.bridge.devices_bed import (
    CPU_DRIVER,
    DRIVER,
    claiming,
    cpu,
    device,
    exactly,
    forget_devices,
    held_by,
    make_class,
    make_template,
    publish,
)
from tests.flows.bridge.nodes_bed import Nodes, make_kube_node, running_nodes

NODE = "n1"
COUNT = 4
PARTS = {"mig-1g": 2, "mig-3g": 1}
PROFILES = [
    Profile(name, DRIVER, f"device.attributes['{DRIVER}'].?profile.orValue('') == '{name}'") for name in PARTS
]


@pytest.fixture
def slurm(slurm_bed: Callable[..., SlurmBed]) -> SlurmBed:
    """A Slurm whose node has four GPUs and two kinds of parts of another, with a file for each."""
    bed = slurm_bed("26.05", nodes=1, accounting=False, settings={"GresTypes": "gpu"})
    kinds = {DRIVER: COUNT, **PARTS}
    files = {kind: [f"/srv/{kind}-{at}" for at in range(count)] for kind, count in kinds.items()}
    for number, file in enumerate(it for found in files.values() for it in found):
        bed.command("mknod", file, "c", "1", str(3 + number % 6))
    lines = (f"NodeName={NODE} Name=gpu Type={kind} File={file}" for kind, found in files.items() for file in found)
    bed.path("/etc/slurm/gres.conf").write_text("\n".join([*lines, ""]))
    configured = bed.path("/etc/slurm/slurm.conf")
    gres = ",".join(f"gpu:{kind}:{count}" for kind, count in kinds.items())
    configured.write_text(configured.read_text().replace(f"NodeName={NODE} ", f"NodeName={NODE} Gres={gres} "))
    bed.stop(f"slurmd-{NODE}")
    bed.restart("slurmctld")
    bed.start(f"slurmd-{NODE}")
    return bed


@pytest.fixture
async def nodes(config: Config, client: Client, slurm: SlurmBed) -> AsyncIterator[Nodes]:
    """The same node in Kubernetes, whose drivers publish what it has."""
    for name in (DRIVER, CPU_DRIVER):
        await make_class(client, name, expression=f"device.driver == '{name}'")
    for it in PROFILES:
        await make_class(client, it.name, expression=it.selector)
    parts = [
        {"name": f"gpu-9-{profile}-{at}", "attributes": {"profile": {"string": profile}}}
        for profile, count in PARTS.items()
        for at in range(count)
    ]
    await publish(client, NODE, [*(device(at) for at in range(COUNT)), *parts])
    await publish(client, NODE, [cpu(at) for at in range(4)], driver=CPU_DRIVER)
    await make_kube_node(client, NODE, labels={})
    async with running_nodes(config, slurm, profiles=PROFILES) as nodes:
        found = await until(lambda: (it := nodes.node(NODE)) and condition(it.status.conditions, GRES_CONDITION))
        assert found.status == "True", found.message
        yield nodes
        await client.delete(NODES, NODE)
        await forget_devices(client)


@pytest.fixture
async def bridge(config: Config, slurm: SlurmBed, nodes: Nodes) -> AsyncIterator[Bridge]:
    del nodes
    async with running(config, slurm, profiles=PROFILES) as bridge:
        yield bridge


def batch_job(bed: SlurmBed, *options: str) -> dict[str, str]:
    """Run a job, and return its environment."""
    wrap = "--wrap=env > /tmp/env.$SLURM_JOB_ID; sleep 600"
    job = bed.command("sbatch", "--parsable", "--mem=100", "--chdir=/tmp", *options, wrap, user="alice").strip()
    file = bed.path(f"/tmp/env.{job}")  # noqa: S108 - in the bed
    wait_until(lambda: file.exists() and "SLURM_JOB_ID" in file.read_text(), what="the job to run", within=60)
    return dict(line.partition("=")[::2] for line in file.read_text().splitlines())


def cores_of(bed: SlurmBed, job: str) -> set[str]:
    (given,) = bed.get(f"/slurm/v0.0.45/resources/{job}")["nodes"]
    return {f"cpudev{at:03}" for at in cores_in(given["core_bitmap"])}


async def test_a_node_is_split_between_a_pod_and_batch_jobs(
    bridge: Bridge, client: Client, namespace: str, slurm: SlurmBed
) -> None:
    """A pod has a quarter of the node, batch jobs the rest; a further pod waits for one of them."""
    first = batch_job(slurm, "--cpus-per-task=1", f"--gres=gpu:{DRIVER}:1")
    devices, cpus = exactly("gpu"), exactly("cpu", class_=CPU_DRIVER)
    await make_template(client, namespace, "quarter", devices, cpus)
    (found,) = await bridge.bound(await bridge.create(claiming(namespace, "quarter", template="quarter")))
    rest = batch_job(slurm, "--cpus-per-task=2", f"--gres=gpu:{DRIVER}:2")
    has = set(await held_by(client, namespace, "quarter"))
    job = found.metadata.labels[names.JOB_ID_LABEL]
    of_pod = cores_of(slurm, job)
    (gpu,) = has - of_pod
    indices = ",".join((first["SLURM_JOB_GPUS"], rest["SLURM_JOB_GPUS"])).split(",")
    assert sorted([*(f"gpu-{at}" for at in indices), gpu]) == [f"gpu-{at}" for at in range(COUNT)]
    of_jobs = cores_of(slurm, first["SLURM_JOB_ID"]) | cores_of(slurm, rest["SLURM_JOB_ID"])
    assert len(of_pod | of_jobs) == len(of_pod) + len(of_jobs) == 4
    waiting = await bridge.create(claiming(namespace, "waiting", template="quarter"))
    await bridge.told(waiting, "SlurmPending", containing="Resources")
    slurm.command("scancel", first["SLURM_JOB_ID"])
    await bridge.bound(waiting)
    assert f"gpu-{first['SLURM_JOB_GPUS']}" in await held_by(client, namespace, "waiting")


async def test_parts_that_are_not_made_anew_are_kinds_of_gpus_on_both_sides(
    bridge: Bridge, client: Client, namespace: str, slurm: SlurmBed
) -> None:
    """As MIG profiles of a GPU, which both a batch job and a pod ask for by their names."""
    small, large = PARTS
    batch = batch_job(slurm, f"--gres=gpu:{small}:1")
    for name in PARTS:
        await make_template(client, namespace, name, exactly(class_=name))
    keys = [await bridge.create(claiming(namespace, name, template=name)) for name in PARTS]
    await bridge.bound(*keys)
    taken = int(batch["SLURM_JOB_GPUS"]) - COUNT
    assert await held_by(client, namespace, small) == [f"gpu-9-{small}-{1 - taken}"]
    assert await held_by(client, namespace, large) == [f"gpu-9-{large}-0"]


async def test_a_broken_device_drains_the_node_for_both(nodes: Nodes, client: Client) -> None:
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    parts = [{"name": f"part-{at}"} for at in range(3)]
    await publish(client, NODE, [*(device(at) for at in range(3)), device(3, taints=[taint]), *parts], generation=2)
    drained = await nodes.in_state(NODE, "DRAIN")
    assert "device gpu-3 of gpu.example.com has the taint example.com/broken:NoSchedule" in drained.reason
    await publish(client, NODE, [*(device(at) for at in range(4)), *parts], generation=3)
    await nodes.in_state(NODE, "IDLE", without="DRAIN")
