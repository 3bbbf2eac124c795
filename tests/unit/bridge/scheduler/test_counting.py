"""How long pods had to wait for their binding after Slurm had started their job, by a clock that a test sets."""

from isthmus import names
from isthmus.bridge.cache.world import World
from isthmus.bridge.scheduler.scheduler import Scheduler
from isthmus.domain.bridge import marker
from isthmus.domain.bridge.groups import group_of
from isthmus.domain.bridge.jobspec import Defaults
from isthmus.domain.bridge.placement import Bind, Seat
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Pod, PodSpec
from isthmus.model.slurm import Job
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.client import Client
from tests.bed.metrics import counted

POD = Pod(ObjectMeta("p", "ns", "u"), PodSpec(scheduler_name=names.SCHEDULER_NAME))
MARKED = marker.write(marker.mark(group_of(POD), "u", [POD], cluster="c"))


class Bed:
    """A scheduler of a world with nobody behind it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.metrics = Metrics()
        self.world = World(None, Client(None), cluster="c")  # type: ignore[arg-type] # caches need no client
        recorder = Recorder(None, controller="test", instance="test")  # type: ignore[arg-type] # nothing is sent
        self.scheduler = Scheduler(
            self.world, Defaults(), recorder=recorder, metrics=self.metrics, clock=lambda: self.seconds
        )

    def job(self, *states: str, at: float) -> None:
        """Let the poller see the job in these states."""
        self.seconds = at
        self.world.poller.jobs.put(5, Job(5, job_state=states, admin_comment=MARKED))

    def bind(self, *, at: float) -> tuple[float, float]:
        """Bind the pods of the job; return how many times were counted, and their sum."""
        self.seconds = at
        self.scheduler._count_bind(Bind((Seat(POD, 5, "n1"),), together=False))
        return tuple(counted(self.metrics, names.BIND_SECONDS, it) for it in ("_count", "_sum"))  # type: ignore[return-value] # two


def test_the_time_from_start_to_binding_is_counted_once() -> None:
    bed = Bed()
    bed.job("PENDING", at=10)
    bed.job("RUNNING", "CONFIGURING", at=15)
    bed.job("RUNNING", at=20)
    assert bed.bind(at=23) == (1, 3), "booting does not count"
    assert bed.bind(at=3600) == (1, 3), "a member of a gang was replaced"
    bed.job("SUSPENDED", at=4000)
    bed.job("RUNNING", at=5000)
    assert bed.bind(at=6000) == (1, 3)


def test_a_binding_before_the_poller_sees_the_job_is_not_counted_again_later() -> None:
    bed = Bed()
    bed.world.inflight.watch(5)
    bed.scheduler._started[5] = 1.0
    assert bed.bind(at=2) == (1, 1)
    bed.job("RUNNING", at=3)
    assert bed.bind(at=100) == (1, 1)


def test_a_job_that_was_requeued_is_counted_anew_and_one_that_ended_is_forgotten() -> None:
    bed = Bed()
    bed.job("PENDING", at=0)
    bed.job("RUNNING", at=1)
    bed.job("PENDING", at=50)
    bed.job("RUNNING", at=60)
    assert bed.bind(at=62) == (1, 2)
    bed.job("CANCELLED", at=70)
    assert not bed.scheduler._started


def test_jobs_that_ran_before_the_process_began_are_not_counted() -> None:
    bed = Bed()
    bed.job("RUNNING", at=0)
    assert bed.bind(at=900) == (0, 0)


def test_a_job_that_is_seen_to_run_before_slurm_has_answered_its_submission_is_counted() -> None:
    bed = Bed()
    bed.world.inflight.begin(group_of(POD), "u", slots=1, uids=["u"])
    bed.job("RUNNING", at=3)
    assert bed.bind(at=5) == (1, 2)
