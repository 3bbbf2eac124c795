"""Who cancelled a job: we, to submit a better one, or a user who does not want its pods to run.

The pods of a job that a user cancels are evicted, whether they ran or waited; to submit them again would make an
administrator cancel forever. So we say that it was us before we cancel a job whose pods are to have another.

From the first of these two requests on, no pod may get a node by that job: it may start before it ends, its end may
be in no cache yet, and the answer that says so may be lost.
"""

from collections.abc import Iterable
from typing import Final

from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.world import World
from isthmus.domain.bridge import jobstates, outcome
from isthmus.domain.bridge.outcome import Outcome, Result
from isthmus.model.slurm import Job, JobRequest
from isthmus.slurm.errors import AlreadyDone, NotFound
from isthmus.slurm.submission import key_of, newer

_REFUSED_SIGNAL: Final = 1
"""What stands in the exit code of such a job; that of one that was cancelled while it waited is 0."""


class Withdrawals:
    """Cancels jobs whose pods will have others, and remembers which."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._answered: dict[int, bool] = {}
        """Jobs that we are cancelling, and whether Slurm has confirmed it."""
        world.jobs.on_change(self._job_changed)

    async def take_back(self, job_id: int, why: str) -> None:
        """Cancel a job whose pods stay, and will have another. Of a heterogeneous job, that is all components."""
        world = self._world
        known = world.jobs.get(job_id)
        whole = known.job.queue_id if known else job_id
        self._answered[whole] = False
        try:
            for job in [known.job] if known and not known.marker.role else await world.slurm.job(whole):
                if not outcome.is_told(job.admin_comment):
                    told = Outcome(Result.DELETED, why)
                    said = outcome.in_admin_comment(job.admin_comment or "{}", told, taken_back=True)
                    await world.slurm.update_job(job.job_id, JobRequest(admin_comment=said))
            await world.slurm.cancel_job(whole)
        except (AlreadyDone, NotFound):
            pass
        finally:
            world.inflight.watch(whole)
        self._answered[whole] = True

    async def covers(self, ours: OurJob) -> bool:
        """Whether a living job is about to end, and so of no use to pods that wait.

        If it is being taken back and it is not certain that Slurm knows, Slurm is told again. One whose pods have
        ended is left to the pod controller, which ends it as they ended: to cancel it would hide that.
        """
        whole, said = ours.job.queue_id, ours.job.admin_comment
        if whole not in self._answered and not outcome.is_told(said):
            return False
        if not self._answered.get(whole) and (whole in self._answered or outcome.is_taken_back(said)):
            await self.take_back(ours.job_id, "it was already being withdrawn")
        return True

    def _job_changed(self, job_id: int, _before: OurJob | None, after: OurJob | None) -> None:
        if after is None or not jobstates.living(after.job.job_state):
            self._answered.pop(job_id, None)


def is_withdrawn(ours: OurJob, family: Iterable[OurJob]) -> bool:
    """Whether a user cancelled this job, and nothing has taken its place in its group.

    What we wrote into it is only there if it was read after its end: caches take their own word for the rest.
    """
    job = ours.job
    if job.job_state[:1] != ("CANCELLED",) or outcome.is_told(job.admin_comment) or _was_refused(job):
        return False
    key = key_of(job.comment)
    # Of several jobs with one submission key, all but one are cancelled by us; components are one job.
    return not any(
        key_of(other.job.comment) == key
        or (other.marker.uid == ours.marker.uid and newer(other.job_id, job.job_id))
        for other in family
        if other.job.queue_id != job.queue_id
    )


def _was_refused(job: Job) -> bool:
    """Whether Slurm itself cancelled it: it makes components one by one, and refuses all when it refuses one."""
    return bool(job.het_job_id.value) and job.exit_code.signal.id.value == _REFUSED_SIGNAL


async def withdrawn_for(world: World, family: Iterable[OurJob], uids: Iterable[str]) -> int | None:
    """Find the job that a user cancelled while pods with these uids waited for it; Slurm itself is asked."""
    known, wanted = tuple(family), frozenset(uids)
    for ours in known:
        if not (is_withdrawn(ours, known) and wanted.intersection(ours.marker.uids)):
            continue
        try:
            (job, *_) = await world.slurm.job(ours.job_id)
        except NotFound:
            continue
        if is_withdrawn(OurJob(job, ours.marker), known):
            return ours.job_id
    return None
