"""Whose job is a bound pod's, as far as the caches tell."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from isthmus import names
from isthmus.bridge.cache.jobs import OurJobs
from isthmus.bridge.pods.gatherer import PodGatherer
from isthmus.domain.bridge import marker
from isthmus.domain.bridge.groups import group_of
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Pod, PodSpec
from isthmus.model.slurm import Job
from isthmus.slurm.store import Store


def bound(job_id: int) -> Pod:
    labels = {names.JOB_ID_LABEL: str(job_id)}
    return Pod(ObjectMeta(name="p", namespace="ns", uid="u", labels=labels), PodSpec(node_name="n1"))


def gatherer(*jobs: Job) -> PodGatherer:
    store: Store[int, Job] = Store()
    for job in jobs:
        store.put(job.job_id, job)
    world: Any = SimpleNamespace(jobs=OurJobs(store, cluster="c"))
    return PodGatherer(world, now=lambda: datetime.now(UTC))


def job(job_id: int, state: str, *, ours: bool = True) -> Job:
    pod = bound(job_id)
    marked = marker.write(marker.mark(group_of(pod), "u", [pod], cluster="c"))
    return Job(job_id, job_state=(state,), admin_comment=marked if ours else None)


def test_a_pod_is_not_judged_by_an_older_job_while_its_own_is_too_new_for_the_cache() -> None:
    assert gatherer(job(4, "FAILED")).job_of(bound(5)) is None
    assert gatherer(job(4, "PENDING")).job_of(bound(5)) is None
    assert gatherer(job(4, "FAILED"), job(5, "RUNNING")).job_of(bound(5)) == 5


def test_a_pod_that_claims_a_foreign_job_still_has_its_own() -> None:
    assert gatherer(job(4, "RUNNING"), job(5, "RUNNING", ours=False)).job_of(bound(5)) == 4
