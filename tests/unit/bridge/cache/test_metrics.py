"""What is told of caches when somebody asks, and what is not while nobody knows."""

from collections.abc import Mapping

import msgspec
import pytest

from isthmus import names
from isthmus.bridge.cache.metrics import WorldMetrics
from isthmus.bridge.cache.world import World
from isthmus.domain.bridge import marker
from isthmus.domain.bridge.groups import group_of
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Pod, PodSpec, PodStatus
from isthmus.model.slurm import Job
from isthmus.runtime.metrics import Metrics
from isthmus.slurm import auth
from isthmus.slurm.auth import TokenError
from isthmus.slurm.client import Client
from isthmus.slurm.contact import Contact

POD = Pod(
    ObjectMeta("p", "ns", "u", labels={names.JOB_ID_LABEL: "5"}),
    PodSpec(node_name="n1", scheduler_name=names.SCHEDULER_NAME),
    PodStatus("Running"),
)


def job(*states: str, job_id: int = 5, account: str | None = None) -> Job:
    marked = marker.write(marker.mark(group_of(POD), "u", [POD], cluster="c"))
    return Job(job_id, job_state=states, account=account, admin_comment=marked)


class Tokens:
    """A source of one token, or of none."""

    def __init__(self) -> None:
        self.text = ""

    def token(self) -> str:
        if not self.text:
            raise TokenError("there is none")
        return self.text

    def renew(self) -> bool:
        return False


class Bed:
    """A world with nobody behind it, whose clocks and contact a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        self.tokens = Tokens()
        self._monkeypatch = monkeypatch
        self.world = World(None, Client(None), cluster="c", clock=lambda: self.seconds)  # type: ignore[arg-type] # caches need no client
        self.metrics = Metrics()
        self.told = WorldMetrics(
            self.world,
            self.tokens,
            self.metrics,
            clock=lambda: self.seconds,
            now=lambda: 2_000_000_000 + self.seconds,
        )

    def answers(self, *, in_touch: bool = True) -> None:
        """Let both sides answer from now on, or not."""
        poller = self.world.poller
        for event in poller._read_once.values():
            event.set()
        poller._unread.all_read()
        poller.heard_at = self.seconds if in_touch else poller.heard_at
        poller._contact = Contact(in_touch=in_touch, since=self.seconds)
        self._monkeypatch.setattr(World, "in_touch", in_touch)

    def value(self, name: str, labels: Mapping[str, str] | None = None) -> float | None:
        return self.metrics.registry.get_sample_value(name, dict(labels or {}))

    def orphans(self) -> float | None:
        return self.value("isthmus_bridge_orphan_allocations")


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(monkeypatch)


def test_jobs_are_counted_by_state_as_they_change(bed: Bed) -> None:
    jobs = bed.world.poller.jobs
    jobs.put(5, job("PENDING"))
    jobs.put(6, job("PENDING", job_id=6))
    jobs.put(9, Job(9, job_state=("RUNNING",), admin_comment="somebody else's"))
    name = "isthmus_bridge_jobs"
    assert bed.value(name, {"state": "pending"}) is None, "not all of them have been read"
    bed.answers()
    assert (bed.value(name, {"state": "pending"}), bed.value(name, {"state": "running"})) == (2, 0)
    jobs.put(5, job("RUNNING"))
    jobs.put(5, job("SUSPENDED"))
    assert (bed.value(name, {"state": "pending"}), bed.value(name, {"state": "running"})) == (1, 1)
    jobs.put(5, job("COMPLETED"))
    jobs.drop(6)
    assert (bed.value(name, {"state": "pending"}), bed.value(name, {"state": "running"})) == (0, 0)


def test_contact_is_told_with_the_time_of_the_last_answer(bed: Bed) -> None:
    last = "isthmus_bridge_slurm_last_contact_timestamp_seconds"
    assert (bed.value("isthmus_bridge_slurm_in_touch"), bed.value(last)) == (0, None)
    bed.answers()
    bed.seconds += 1
    assert (bed.value("isthmus_bridge_slurm_in_touch"), bed.value(last)) == (1, 2_000_001_000)
    bed.seconds += 60
    bed.answers(in_touch=False)
    assert (bed.value("isthmus_bridge_slurm_in_touch"), bed.value(last)) == (0, 2_000_001_000)


def test_the_token_tells_when_it_expires_and_is_absent_if_it_never_does(bed: Bed) -> None:
    name = "isthmus_bridge_token_expiry_timestamp_seconds"
    assert bed.value(name) is None
    bed.tokens.text = auth.mint(b"k" * 32, user="slurm", now=1_900_000_000, lifetime=900)
    assert bed.value(name) == 1_900_000_900
    bed.tokens.text = "e30.e30.x"
    assert bed.value(name) is None


def test_a_running_job_without_a_pod_is_an_orphan_after_half_a_minute(bed: Bed) -> None:
    bed.answers()
    bed.world.pods.put(POD)
    bed.world.poller.jobs.put(5, job("RUNNING"))
    bed.seconds += 100
    assert bed.orphans() == 0
    bed.world.pods.remove(POD.metadata.key)
    bed.seconds += 29
    assert bed.orphans() == 0
    bed.seconds += 2
    assert bed.orphans() == 1
    bed.world.poller.jobs.drop(5)
    assert bed.orphans() == 0


def test_a_bound_pod_without_a_job_is_an_orphan_and_its_heartbeats_do_not_hide_it(bed: Bed) -> None:
    bed.answers()
    bed.world.pods.put(POD)
    for number in range(4):
        bed.seconds += 10
        meta = msgspec.structs.replace(POD.metadata, resource_version=str(number))
        bed.world.pods.put(msgspec.structs.replace(POD, metadata=meta))
    assert bed.orphans() == 1
    bed.world.poller.jobs.put(5, job("RUNNING"))
    bed.seconds += 100
    assert bed.orphans() == 0
    bed.world.poller.jobs.put(5, job("PREEMPTED"))
    bed.seconds += 31
    assert bed.orphans() == 1


def test_without_contact_there_are_no_new_orphans_and_no_time_passes(bed: Bed) -> None:
    assert bed.orphans() is None
    bed.answers()
    bed.world.pods.put(POD)
    bed.world.poller.jobs.put(5, job("RUNNING"))
    assert bed.orphans() == 0
    bed.answers(in_touch=False)
    bed.world.pods.remove(POD.metadata.key)
    bed.seconds += 1000
    assert bed.orphans() == 0
    bed.answers()
    assert bed.orphans() == 0, "the controllers have had no time to end it"
    bed.seconds += 31
    assert bed.orphans() == 1


def test_what_nobody_scrapes_is_not_kept(bed: Bed) -> None:
    """A process that is never scraped must not remember every group that there ever was."""
    for number in range(100):
        meta = msgspec.structs.replace(POD.metadata, name=f"p{number}", uid=f"u{number}")
        found = msgspec.structs.replace(POD, metadata=meta)
        bed.world.pods.put(found)
        bed.world.pods.remove(found.metadata.key)
    assert not bed.told._orphans._changed


def test_pods_are_counted_under_the_account_of_their_job(bed: Bed) -> None:
    labels = bed.world.metric_labels
    assert labels(POD, 5) == ("ns", "", "Pod")
    bed.world.poller.jobs.put(5, job("RUNNING", account="physics"))
    assert labels(POD, 5) == ("ns", "physics", "Pod")
    assert labels(POD, None) == ("ns", "", "Pod")
