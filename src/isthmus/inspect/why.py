"""Why a job or a pod waits, for `isthmus why`: from Slurm alone where that is all there is, as on a login node."""

import msgspec

from isthmus.bridge.cache.world import World, job_ids
from isthmus.bridge.config import Config
from isthmus.domain.bridge import marker
from isthmus.domain.bridge.explain import Gate
from isthmus.domain.views import jobwhy, rows, targets
from isthmus.domain.views.jobwhy import Blocker, Estimate
from isthmus.domain.views.targets import JobTarget, PodTarget
from isthmus.errors import Terminal
from isthmus.inspect import explain
from isthmus.inspect.snapshot import Snapshot
from isthmus.inspect.worlds import KUBERNETES, SLURM, Observation, SilentError
from isthmus.model.meta import Key
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job


class Why(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A job or a pod, explained. Gates are in the order in which it passes them."""

    ref: str
    title: str
    state: str = ""
    job: int = 0
    pods: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    estimate: Estimate = Estimate()
    helps: tuple[str, ...] = ()


async def why(observed: Observation, config: Config, target: JobTarget | PodTarget, *, now: float) -> Why:
    if isinstance(target, JobTarget):
        return await _of_job(observed, config, find_job(observed, target), now=now)
    kube, pod = find_pod(observed, target)
    found = await explain.explain_pod(kube, config, pod.metadata.key, now=now)
    job_id = found.job_id or next(iter(job_ids(pod)), None)
    job = next((it for it in observed.jobs if it.job_id == job_id), None)
    about = Why(
        ref=f"pod/{pod.metadata.key}",
        title=f"Pod {found.pod}{f', of {found.group}' if found.group else ''}",
        state=str(rows.pod_row(pod, job_id=job_id, ours=True)[rows.POD_COLUMNS.index("state")]),
        job=job_id or 0,
        pods=(found.pod, *(it.partition(" ")[0] for it in found.siblings)),
        gates=found.gates,
    )
    return _with_queue(about, job, observed, now=now) if job else about


def find_job(observed: Observation, target: JobTarget) -> Job:
    """Find a job, or say who does not know it."""
    if job := targets.find_job(target, observed.jobs):
        return job
    if SLURM in observed.absent:
        raise Terminal(f"job {target.text} cannot be looked up: {observed.absent[SLURM]}")
    if SLURM in observed.troubles:
        raise SilentError(f"job {target.text} cannot be looked up: {observed.troubles[SLURM]}")
    raise Terminal(
        f"Slurm does not know job {target.text} (any more)",
        remedy=f"see sacct -j {target.text} for past jobs",
    )


def find_pod(observed: Observation, target: PodTarget) -> tuple[Snapshot, Pod]:
    """Find a pod and where it was seen, or say why it cannot be seen."""
    key = Key(target.namespace or observed.namespace, target.name)
    if observed.kube is None:
        raise Terminal(
            f"pod {target.name} cannot be looked up: {observed.absent.get(KUBERNETES, 'there is no Kubernetes')}",
            remedy="where there is only Slurm, give the id of the pod's job: isthmus why JOB",
        )
    pod = observed.kube.world.pods.get(key)
    if pod is not None:
        return observed.kube, pod
    if trouble := observed.troubles.get("pods"):
        raise SilentError(f"pod {key} cannot be looked up: {trouble}")
    raise Terminal(f"there is no pod {key}", remedy="list all: isthmus jobs -A; give its namespace with -n")


def pods_of(world: World, job: Job) -> tuple[Pod, ...]:
    """The pods for which Slurm has this job."""
    if found := world.pods.by("job", job.job_id):
        return tuple(found)
    mark = marker.read(job.admin_comment)
    return tuple(filter(None, map(world.pods.get, mark.keys))) if mark else ()


async def _of_job(observed: Observation, config: Config, job: Job, *, now: float) -> Why:
    pods = pods_of(observed.kube.world, job) if observed.kube else ()
    gates = jobwhy.gates(job, observed.jobs, now=now)
    if pods and observed.kube:
        # A pod's way is longer, and its gates name what Kubernetes has to say, too.
        chosen = min(pods, key=lambda it: (it.bound, it.metadata.key))
        gates = (await explain.explain_pod(observed.kube, config, chosen.metadata.key, now=now)).gates
    name = f" {job.name}" if job.name else ""
    by = f" of {job.user_name}" if job.user_name else ""
    mark = marker.read(job.admin_comment)
    about = Why(
        ref=f"job/{job.job_id}",
        title=f"Job {rows.job_label(job)}{name}{by}",
        job=job.job_id,
        pods=tuple(str(it.metadata.key) for it in pods) or (mark.pods if mark else ()),
        gates=gates,
    )
    return _with_queue(about, job, observed, now=now)


def _with_queue(about: Why, job: Job, observed: Observation, *, now: float) -> Why:
    return msgspec.structs.replace(
        about,
        state=about.state or "+".join(job.job_state),
        blockers=jobwhy.blockers(job, observed.jobs, now=now),
        estimate=jobwhy.estimate(job, now=now),
        helps=jobwhy.helps(job, observed.nodes),
    )
