"""What is written of runs: the plan and the end into their Jobs, and how nodes did into the status of the check.

    plan ─► Job, before anything follows from it    status of the check ─► then the end of the Job

So whoever takes over after a crash finds in the Job what was done, and does the rest again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.domain.health.activechecks import plan as plans
from isthmus.domain.health.activechecks import results, status
from isthmus.domain.health.activechecks.plan import NodeVerdict, Plan
from isthmus.domain.health.activechecks.status import Ending
from isthmus.errors import Retry
from isthmus.health.checkcaches import CheckCaches, check_name, tested_node
from isthmus.kube.errors import NotFound
from isthmus.kube.recorder import Recorder
from isthmus.model.activecheck import ACTIVE_CHECKS, ActiveCheck, RunStatus
from isthmus.model.meta import Key
from isthmus.model.pod import Pod
from isthmus.model.workload import CHECK_JOBS, CheckJob
from isthmus.runtime.statusparts import StatusPart

MANAGER: Final = "isthmus-checkjobs"
"""The owner of what a check's status says of runs; its conditions are written by `activechecks`."""

_MAX_REASON: Final = 512

Fields = dict[str, Any]


class CheckReports:
    """Writes Jobs and statuses, and remembers Jobs as it left them."""

    def __init__(self, caches: CheckCaches, recorder: Recorder, *, now: Callable[[], datetime]) -> None:
        self._caches = caches
        self._recorder = recorder
        self._now = now
        self._status = StatusPart(caches.kube, ACTIVE_CHECKS, manager=MANAGER, now=now)
        self._telling: defaultdict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._made: dict[Key, CheckJob] = {}

    def newest(self, found: CheckJob) -> CheckJob:
        """Give a Job as we left it, while the cache still shows it as it was before."""
        key, made = found.metadata.key, self._made.get(found.metadata.key)
        if made is None:
            return found
        behind = int(found.metadata.resource_version) < int(made.metadata.resource_version)
        if made.metadata.uid == found.metadata.uid and behind:
            return made
        del self._made[key]
        return found

    def forget(self, key: Key) -> None:
        self._made.pop(key, None)

    # Jobs

    async def planned(self, job: CheckJob, plan: Plan) -> None:
        """Write a plan into its Job. The first time, also that it has begun, and that it must not go unseen."""
        job = self.newest(job)
        meta = job.metadata
        annotations = {
            names.CHECK_PLAN_ANNOTATION: plans.encode(plan),
            names.SLURM_JOBS_ANNOTATION: ",".join(map(str, plan.jobs)),
            names.OPEN_SLURM_JOBS_ANNOTATION: ",".join(map(str, plan.running)),
        }
        if plan.is_over:
            ended = max((it.at for it in plan.parts), default=0)
            annotations[names.FINAL_STATE_ANNOTATION] = str(ended or int(self._now().timestamp()))
        patch: Fields = {"annotations": annotations}
        if names.CHECK_FINALIZER not in meta.finalizers:
            held = [*meta.finalizers, names.CHECK_FINALIZER]
            patch |= {"resourceVersion": meta.resource_version, "finalizers": held}
        await self._patch(job, {"metadata": patch})
        if job.status.start_time is None:
            await self._patch(job, {"status": {"startTime": _text(self._now())}}, subresource="status")

    async def skipped(self, job: CheckJob, why: str) -> None:
        """Write into a Job why it does nothing."""
        patch = {"metadata": {"annotations": {names.SKIPPED_ANNOTATION: why[:_MAX_REASON]}}}
        await self._patch(self.newest(job), patch)

    async def ended(self, job: CheckJob, check: ActiveCheck, end: Ending) -> None:
        """Write how a run ended, and let go of its Job."""
        job = self.newest(job)
        moment = _text(self._now())
        told: Fields = {"conditions": status.job_conditions(end, now=moment)}
        if job.status.start_time is None:
            told["startTime"] = moment
        if end.complete:
            told["completionTime"] = moment
        await self._patch(job, {"status": told}, subresource="status")
        if not end.complete or end.reason == status.SKIPPED:
            note = f"{job.metadata.name}: {end.message}"
            self._recorder.event(ACTIVE_CHECKS, check, end.reason, note, warning=not end.complete, action="Run")
        await self.released(job)

    async def released(self, job: CheckJob) -> None:
        """Let a Job go that has nothing left in Slurm."""
        job = self.newest(job)
        meta = job.metadata
        if names.CHECK_FINALIZER in meta.finalizers:
            left = [it for it in meta.finalizers if it != names.CHECK_FINALIZER]
            patch = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": left}}
            await self._patch(job, patch)

    async def _patch(self, job: CheckJob, patch: Fields, *, subresource: str = "") -> None:
        key = job.metadata.key
        try:
            made = await self._caches.kube.merge_patch(CHECK_JOBS, key, patch, subresource=subresource)
        except NotFound:
            return
        if made.metadata.uid != job.metadata.uid:
            raise Retry(f"Job {key} has just been replaced by another one")
        self._made[key] = made

    # Statuses of checks

    async def tell_run(
        self, job: CheckJob, check: ActiveCheck, plan: Plan, *, there: Container[str] | None
    ) -> None:
        """Report how a run in Slurm stands; of nodes as soon as it is known, since they may have to be drained."""
        counts = self._counts(job)
        verdicts = plans.verdicts(plan) if plan.each or plan.is_over else ()

        def told(known: ActiveCheck) -> Fields:
            fields = _nodes(known, verdicts, there=there)
            if not counts:
                return fields | _as_known(known, "slurmJobsStatus", "passed")
            before = known.status.slurm_jobs_status
            run = status.slurm_status(job.metadata.name, plan, before=before, now=self._now())
            return fields | {"slurmJobsStatus": msgspec.to_builtins(run)}

        await self._tell(check, told)

    async def tell_unplanned(self, job: CheckJob, check: ActiveCheck, outcome: RunStatus) -> None:
        """Report of a run in Slurm without jobs."""
        if not self._counts(job):
            return

        def told(known: ActiveCheck) -> Fields:
            before = known.status.slurm_jobs_status
            run = status.unplanned_status(job.metadata.name, outcome, before=before, now=self._now())
            return _as_known(known, "nodes", "passed") | {"slurmJobsStatus": msgspec.to_builtins(run)}

        await self._tell(check, told)

    async def tell_pods(
        self, job: CheckJob, check: ActiveCheck, pods: tuple[Pod, ...], verdicts: tuple[NodeVerdict, ...]
    ) -> None:
        """Report the result of a Kubernetes Job."""
        if not self._counts(job):
            return
        cron_job = self._caches.cron_jobs.get(check.metadata.key)
        is_over = job.complete or job.failure is not None

        def told(known: ActiveCheck) -> Fields:
            before = known.status.k8s_jobs_status
            run = status.k8s_status(job, cron_job, pods, before=before, now=self._now())
            # Pods may be deleted before their Job is; what they said stays.
            says = is_over and (pods or before.last_job_name != job.metadata.name)
            nodes = _nodes(known, verdicts, there=None) if says else _as_known(known, "nodes", "passed")
            return nodes | {"k8sJobsStatus": msgspec.to_builtins(run)}

        await self._tell(check, told)

    def _counts(self, job: CheckJob) -> bool:
        """Whether a Job is the run that a check's status is about: the newest."""
        newest = self._caches.newest(Key(job.metadata.namespace, check_name(job)))
        return not tested_node(job) and (newest is None or newest.metadata.uid == job.metadata.uid)

    async def _tell(self, check: ActiveCheck, told: Callable[[ActiveCheck], Fields]) -> None:
        """Write a status; one at a time for a check, for what it says of nodes comes from several Jobs."""
        async with self._telling[check.metadata.key]:
            known = self._status.newest(self._caches.checks.get(check.metadata.key) or check)
            await self._status.tell(known, told(known), [])


def _nodes(known: ActiveCheck, verdicts: Iterable[NodeVerdict], *, there: Container[str] | None) -> Fields:
    said = tuple(verdicts)
    nodes = results.merged(known, said, there=there)
    return {"nodes": msgspec.to_builtins(nodes), "passed": sum(it.result == "Passed" for it in said)}


def _as_known(known: ActiveCheck, *fields: str) -> Fields:
    """Some fields of a status as they are."""
    there = msgspec.to_builtins(known.status)
    return {name: there.get(name) for name in fields}


def _text(moment: datetime) -> str:
    return moment.replace(microsecond=0).isoformat().replace("+00:00", "Z")
