"""Who cancelled a job: we, to submit a better one, or somebody who does not want its pods to run.

The pods of a job that somebody cancels are to go, whether they ran or waited; to submit them again would make an
administrator cancel for ever. So we say that it was us before we cancel a job whose pods are to have another.
"""

from collections.abc import Iterable

from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.world import World
from isthmus.domain.bridge import outcome
from isthmus.domain.bridge.outcome import Outcome, Result
from isthmus.model.slurm import JobRequest
from isthmus.slurm.errors import AlreadyDone, NotFound
from isthmus.slurm.submission import key_of, newer


async def take_back(world: World, job_id: int, why: str) -> None:
    """Cancel a job whose pods stay, and will have another."""
    try:
        known = world.jobs.get(job_id)
        job = known.job if known else (await world.slurm.job(job_id))[0]
        said = outcome.in_admin_comment(job.admin_comment or "{}", Outcome(Result.DELETED, why))
        await world.slurm.update_job(job_id, JobRequest(admin_comment=said))
        await world.slurm.cancel_job(job_id)
    except (AlreadyDone, NotFound):
        return
    finally:
        world.expect(job_id)


def is_withdrawn(ours: OurJob, family: Iterable[OurJob]) -> bool:
    """Whether somebody else cancelled this job, and nothing has taken its place in its group.

    What we wrote into it is only there if it was read after its end: caches take their own word for the rest.
    """
    job = ours.job
    if job.job_state[:1] != ("CANCELLED",) or outcome.is_told(job.admin_comment):
        return False
    key = key_of(job.comment)
    # Of several jobs with one submission key, all but one are cancelled by us.
    return not any(
        key_of(other.job.comment) == key
        or (other.marker.uid == ours.marker.uid and newer(other.job_id, job.job_id))
        for other in family
        if other.job_id != job.job_id
    )


async def withdrawn_for(world: World, family: Iterable[OurJob], uids: Iterable[str]) -> int | None:
    """Find the job that somebody cancelled while pods with these uids waited for it; Slurm itself is asked."""
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
