"""What is made of pods, submitted to real Slurm and read back: Slurm must understand it the way we mean it."""

import math
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal, NamedTuple

import pytest

from isthmus.domain.bridge import joboptions
from isthmus.domain.bridge.joboptions import NOTHING, JobOptions
from isthmus.domain.bridge.jobspec import Defaults, request
from isthmus.domain.kube.podshape import Shape
from isthmus.domain.languages.hostlist import expand
from isthmus.domain.languages.slurmconf import Directive
from isthmus.domain.languages.tres import parse_tres
from isthmus.model.slurm import Job, JobRequest
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client, connect
from isthmus.slurm.errors import Refused, Unsupported
from isthmus.slurm.versions import Feature
from tests.bed.slurm import SlurmBed
from tests.flows.slurm.helpers import eventually, job_in_state, new_key

MIB = 1 << 20
POD = Shape(1500, 512 * MIB)
SETTINGS = {
    "GresTypes": "gpu,slice",
    "AccountingStorageTRES": "gres/gpu,gres/gpu:a100,gres/gpu:mig-1g.5gb,gres/slice",
    "Licenses": "matlab:4",
}
GPU_NODES = ("g1", "g2")
# slurmctld leaves GPUs without a device file out, also those of nodes that have no slurmd to open it.
GRES_CONF = "Name=gpu Type=a100 File=/dev/a[0-1]\nName=gpu Type=mig-1g.5gb File=/dev/b[0-1]\n"


class World(NamedTuple):
    slurm: Client
    external: bool

    def request(self, *shapes: Shape, options: JobOptions = NOTHING, defaults: Any = (), **more: Any) -> JobRequest:
        kind: Literal["external", "batch"] = "external" if self.external else "batch"
        return request(
            name="pod",
            comment="default/pod",
            admin_comment='{"a":1}',
            shapes=shapes,
            options=options,
            defaults=Defaults(placeholder=kind, **dict(defaults)),
            script=None if self.external else "#!/bin/sh\nsleep 600\n",
            **more,
        )

    async def run(self, made: JobRequest) -> Job:
        """Submit a job and see it run."""
        job_id = (await self.slurm.submit(made, key=new_key())).job_id
        return await job_in_state(self.slurm, job_id, "RUNNING")

    async def wait(self, made: JobRequest) -> Job:
        """Submit a job that is not to start."""
        job_id = (await self.slurm.submit(made, key=new_key())).job_id
        (job,) = await self.slurm.job(job_id)
        assert job.job_state == ("PENDING",)
        return job


@pytest.fixture
async def world(slurm_version: str, shared_slurm: Callable[..., SlurmBed]) -> AsyncIterator[World]:
    bed = shared_slurm(slurm_version, nodes=2, settings=SETTINGS)
    async with connect([bed.rest_url], MintedTokens(bed.jwt_key)) as slurm:
        external = (await slurm.server()).has(Feature.EXTERNAL_JOBS)
        if external:
            bed.path("/etc/slurm/gres.conf").write_text(GRES_CONF)
            for number, name in enumerate(GPU_NODES, start=50):
                await slurm.create_node(
                    Directive.of(
                        {
                            "NodeName": name,
                            "NodeAddr": f"127.0.0.{number}",
                            "CPUs": 8,
                            "RealMemory": 4096,
                            "Gres": "gpu:a100:2,gpu:mig-1g.5gb:2,slice:8",
                            "State": "External",
                        }
                    )
                )
        yield World(slurm, external)
        for job in await slurm.jobs():
            if not job.has_ended:
                await slurm.cancel_job(job.job_id)
        # Nodes of a job that is still being ended can neither be deleted nor be given to the next test.
        await eventually(slurm.jobs, lambda jobs: not any(is_in_the_way(it) for it in jobs), within=60)
        if external:
            for name in GPU_NODES:
                await slurm.delete_node(name)


def is_in_the_way(job: Job) -> bool:
    return not job.has_ended or "COMPLETING" in job.job_state


with_external_nodes = pytest.mark.parametrize("slurm_version", ["26.05"])
"""Nodes of 24.11 have slurmd, which wants to see the devices that it counts."""


async def test_a_pod_that_shares_gets_what_it_asks_for_and_no_more(world: World) -> None:
    job = await world.run(world.request(POD, options=JobOptions(exclusive=False)))
    (share,) = job.shares
    assert (share.cpus, share.memory) == (2, 512)
    assert not job.has_whole_nodes
    assert job.admin_comment == '{"a":1}'


async def test_a_pod_that_shares_gets_what_it_requests_though_its_annotations_ask_for_less(world: World) -> None:
    job = await world.run(
        world.request(POD, options=JobOptions(exclusive=False, cpus_per_task=1, memory_per_node=1))
    )
    (share,) = job.shares
    assert (share.cpus, share.memory) == (2, 512)


async def test_two_pods_that_share_run_on_one_node(world: World) -> None:
    options = JobOptions(exclusive=False)
    avoid = "n2,g[1-2]" if world.external else "n2"
    jobs = [await world.run(world.request(POD, options=options, excluded_nodes=avoid)) for _ in range(2)]
    assert [job.nodes for job in jobs] == ["n1", "n1"]


async def test_a_pod_has_its_node_for_itself_by_default(world: World) -> None:
    job = await world.run(world.request(POD))
    (share,) = job.shares
    assert share.cpus >= 4
    assert job.has_whole_nodes


async def test_a_gang_gets_one_node_for_each_pod(world: World) -> None:
    job = await world.run(world.request(POD, Shape(100, MIB), slots=2, minimum=2))
    assert len(expand(job.nodes or "")) == 2
    assert len(job.shares) == 2


async def test_a_gang_starts_with_its_minimum_where_there_is_no_more(world: World) -> None:
    job = await world.run(world.request(POD, slots=50, minimum=2))
    assert len(expand(job.nodes or "")) == (4 if world.external else 2)


@with_external_nodes
async def test_a_gang_waits_for_nodes_that_are_large_enough(world: World) -> None:
    job = await world.run(world.request(*[Shape(5000, MIB)] * 2, slots=4, minimum=2))
    assert expand(job.nodes or "") == list(GPU_NODES)  # the others have four CPUs


async def test_a_gang_that_shares_is_packed_by_task(world: World) -> None:
    avoid = "g[1-2]" if world.external else ""
    job = await world.run(world.request(*[POD] * 3, options=JobOptions(exclusive=False), excluded_nodes=avoid))
    assert job.tasks.value == 3
    assert sum(share.cpus for share in job.shares) == 6
    assert sum(share.memory for share in job.shares) == 3 * 512
    assert len(job.shares) == 2


async def test_memory_of_a_gang_that_shares_is_enough_when_it_does_not_divide(world: World) -> None:
    shapes = [Shape(2000, 333 * MIB + 1)] * 2
    job = await world.run(world.request(*shapes, options=JobOptions(exclusive=False)))
    assert sum(share.memory for share in job.shares) >= 2 * 334


@with_external_nodes
async def test_devices_become_gres_of_a_node(world: World) -> None:
    pod = Shape(1000, MIB, {"nvidia.com/gpu": 1})
    job = await world.run(world.request(pod, options=JobOptions(exclusive=False)))
    assert job.nodes in GPU_NODES
    assert parse_tres(job.tres_allocated)["gres/gpu"] == 1


@with_external_nodes
async def test_weakness_23_slices_of_gpus_are_counted(world: World) -> None:
    pod = Shape(1000, MIB, {"nvidia.com/mig-1g.5gb": 2})
    job = await world.run(world.request(pod, options=JobOptions(exclusive=False)))
    assert parse_tres(job.tres_allocated)["gres/gpu:mig-1g.5gb"] == 2


@with_external_nodes
async def test_weakness_24_several_kinds_of_gres_are_all_counted(world: World) -> None:
    pod = Shape(1000, MIB, {"nvidia.com/gpu": 1, "example.com/slice": 3})
    job = await world.run(
        world.request(pod, options=JobOptions(exclusive=False), defaults={"gres": {"example.com/slice": "slice"}})
    )
    counted = parse_tres(job.tres_allocated)
    assert (counted["gres/gpu"], counted["gres/slice"]) == (1, 3)


@with_external_nodes
async def test_gres_by_annotation_in_either_way_of_writing(world: World) -> None:
    written = joboptions.parse({"slurmjob.slinky.slurm.net/gres": "gpu:a100:1,gres/gpu:mig-1g.5gb=2,slice"})
    job = await world.run(world.request(POD, options=joboptions.merge(written, JobOptions(exclusive=False))))
    counted = parse_tres(job.tres_allocated)
    assert [counted[f"gres/{it}"] for it in ("gpu:a100", "gpu:mig-1g.5gb", "slice")] == [1, 2, 1]


@with_external_nodes
async def test_slurm_has_no_jobs_with_and_without_types_of_one_gres(world: World) -> None:
    job = world.request(POD, options=JobOptions(gres="gres/gpu=1,gres/gpu:mig-1g.5gb=1"))
    with pytest.raises(Refused, match="with and without type"):  # why jobspec refuses it beforehand
        await world.slurm.submit(job, key=new_key())


@with_external_nodes
async def test_devices_of_a_gang_that_shares_are_counted_by_task(world: World) -> None:
    pods = [Shape(1000, MIB, {"nvidia.com/gpu": 1})] * 6
    job = await world.run(world.request(*pods, options=JobOptions(exclusive=False)))
    assert parse_tres(job.tres_allocated)["gres/gpu"] == 6


async def test_weakness_26_slurm_takes_all_that_annotations_ask_for(world: World) -> None:
    options = joboptions.parse(
        {
            f"slurmjob.slinky.slurm.net/{key}": value
            for key, value in {
                "job-name": "train äé",
                "timelimit": "1-12:00:00",
                "begin": "2090-01-31T06:00:00+01:00",
                "licenses": "matlab:2",
                "nice": "100",
                "cpu-per-task": "2500m",
                "mem-per-node": "1Gi",
                "requeue": "false",
                "mcs-label": "kubernetes",
                "partition": "main",
                "wckey": "paper",
                "dependency": "singleton",
                "user-id": "alice",
                "group-id": "2001",
            }.items()
        }
    )
    job = await world.wait(world.request(POD, options=options))
    assert job.name == "train äé"
    assert (job.time_limit.value, job.licenses) == (2160, "matlab:2")
    assert (job.cpus_per_task.value, job.memory_per_node.value) == (3, 1024)
    assert (job.user_name, job.partition, job.mcs_label) == ("alice", "main", "kubernetes")
    assert job.wckey == "paper"


async def test_a_time_without_end_and_one_of_a_deadline(world: World) -> None:
    endless = await world.wait(world.request(POD, options=JobOptions(time_limit=math.inf, priority=0)))
    assert endless.time_limit.value == math.inf
    ending = await world.wait(world.request(POD, options=JobOptions(priority=0), deadline_seconds=61))
    assert ending.time_limit.value == 2


async def test_a_pod_that_asks_for_nothing_is_left_to_slurm(world: World) -> None:
    job = await world.run(world.request(Shape(), options=JobOptions(exclusive=False)))
    (share,) = job.shares
    assert share.cpus == 1


async def test_a_group_by_name_never_reaches_a_slurmrestd_that_it_would_end(world: World) -> None:
    made = world.request(POD, options=JobOptions(priority=0, user_id="alice", group_id="alice"))
    if (await world.slurm.server()).has(Feature.GROUP_NAMES):
        await world.wait(made)
    else:
        with pytest.raises(Unsupported, match=r"for a group by its name needs Slurm 25\.05"):
            await world.slurm.submit(made, key=new_key())
