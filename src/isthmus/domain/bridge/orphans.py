"""Allocations that one side holds for nothing: a running job without a pod, a bound pod without a running job.

Both are normal for a moment, while a job starts or a pod ends. If they last, nodes are idle that Slurm has given
away, or used that Slurm gives to somebody else.
"""

from collections.abc import Collection
from typing import Final

from isthmus.domain.bridge import jobstates, podrules
from isthmus.domain.bridge.jobstates import Phase
from isthmus.domain.bridge.marker import Marker
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job

_NOT_HOLDING: Final = frozenset({Phase.WAITING, Phase.ENDING, Phase.ENDED})


def unused_jobs(jobs: Collection[tuple[Job, Marker]], pods: Collection[Pod]) -> frozenset[int]:
    """The jobs of a group that hold nodes for none of its pods. A pod without a node may still get one.

    Components of a heterogeneous job end together: one of them that is used keeps all.
    """
    live = [pod for pod in pods if not pod.finished]
    if any(not pod.bound for pod in live):
        return frozenset()
    whole = {job.job_id: job.queue_id for job, _ in jobs}
    used = {whole[job_id] for pod in live if (job_id := podrules.true_job(pod, jobs)) is not None}
    held = {job.queue_id for job, _ in jobs if jobstates.holds_nodes(job.job_state)}
    return frozenset(held - used)


def is_without_job(pod: Pod, jobs: Collection[tuple[Job, Marker]]) -> bool:
    """Whether a pod is on a node though none of the jobs that may be its own has nodes.

    A state that a later Slurm has added counts as running.
    """
    if pod.finished or not pod.bound:
        return False
    own = podrules.true_job(pod, jobs)
    return not any(job.job_id == own and jobstates.phase(job.job_state) not in _NOT_HOLDING for job, _ in jobs)
