"""What wakes the controllers of pods and jobs: changes of real caches, with nobody behind them."""

from pathlib import Path

from isthmus import names
from isthmus.bridge.cache.world import World
from isthmus.bridge.pods.sync import PodSync
from isthmus.domain.bridge import marker
from isthmus.domain.bridge.grouping import group_of
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


def test_a_pod_whose_job_slurm_has_purged_is_looked_after_as_a_stray() -> None:
    kube = Client(Config(server=NOWHERE, credentials=Fixed()))
    world = World(kube, SlurmClient(Calls(Transport([NOWHERE], FileToken(Path("none"))))), cluster="c")
    world.pods.put(POD)
    world.poller.jobs.put(5, JOB)
    sync = PodSync(world, Recorder(kube, controller="test", instance="test"), Metrics())
    assert not len(sync.strays.queue)
    world.poller.jobs.drop(5)
    assert len(sync.strays.queue) == 1
