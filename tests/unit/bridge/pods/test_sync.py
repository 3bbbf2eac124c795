"""What wakes the controllers of pods and jobs: changes of real caches, with nobody behind them."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from isthmus import names
from isthmus.bridge.cache.world import World
from isthmus.bridge.pods.gatherer import PodGatherer
from isthmus.bridge.pods.sync import PodSync
from isthmus.domain.bridge import marker
from isthmus.domain.bridge.groups import group_of
from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Pod, PodSpec
from isthmus.model.slurm import Job
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.auth import FileToken
from isthmus.slurm.calls import Calls
from isthmus.slurm.client import Client as SlurmClient
from isthmus.slurm.transport import Transport

NOWHERE = "http://127.0.0.1:1"
POD = Pod(
    ObjectMeta(name="p", namespace="ns", uid="u", labels={names.JOB_ID_LABEL: "5"}),
    PodSpec(node_name="n1", scheduler_name=names.SCHEDULER_NAME),
)
JOB = Job(
    5, job_state=("RUNNING",), admin_comment=marker.write(marker.mark(group_of(POD), "u", [POD], cluster="c"))
)


def pod_with_job() -> tuple[World, PodSync]:
    world = nowhere()
    world.pods.put(POD)
    world.poller.jobs.put(5, JOB)
    return world, PodSync(world, Recorder(world.kube, controller="test", instance="test"), Metrics())


def nowhere() -> World:
    kube = Client(Config(server=NOWHERE, credentials=Fixed()))
    return World(kube, SlurmClient(Calls(Transport([NOWHERE], FileToken(Path("none"))))), cluster="c")


def test_a_pod_whose_job_slurm_has_purged_is_looked_after_as_a_stray() -> None:
    world, sync = pod_with_job()
    assert not len(sync.strays.queue)
    world.poller.jobs.drop(5)
    assert len(sync.strays.queue) == 1


def test_a_pod_with_another_groups_label_is_still_looked_after_with_its_job() -> None:
    world, sync = pod_with_job()
    gatherer = PodGatherer(world, now=lambda: datetime.now(UTC))
    labels = {**POD.metadata.labels, names.POD_GROUP_LABEL: "x"}
    moved = msgspec.structs.replace(POD, metadata=msgspec.structs.replace(POD.metadata, labels=labels))
    world.pods.put(moved)
    (ours,) = world.jobs
    assert gatherer.job_view(ours).bound == (moved,)
    assert not len(sync.strays.queue)
    world.poller.jobs.drop(5)
    assert len(sync.strays.queue) == 1


def test_a_pod_that_went_over_to_another_group_while_it_waited_keeps_no_job() -> None:
    world = nowhere()
    labels = {names.POD_GROUP_LABEL: "x"}
    moved = Pod(msgspec.structs.replace(POD.metadata, labels=labels), PodSpec(scheduler_name=names.SCHEDULER_NAME))
    world.pods.put(moved)
    world.poller.jobs.put(5, JOB)
    (ours,) = world.jobs
    found = PodGatherer(world, now=lambda: datetime.now(UTC)).job_view(ours)
    assert (found.bound, found.loose, found.missing) == ((), (), ())
