"""A run of a check in Slurm, from its Job to its end.

    Job ─► gate ─► plan ─► submit ─► look, from time to time ─► how nodes did ─► end of the Job
              └ closed: skipped          └ a job on several nodes failed: its parts are run

All that is known of a run stands in its Job, so any process can go on with it.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Literal

from isthmus import names
from isthmus.domain.health.activechecks import choice, manifests, requests, scripts, status
from isthmus.domain.health.activechecks import plan as plans
from isthmus.domain.health.activechecks.plan import Plan
from isthmus.domain.health.activechecks.requests import Run
from isthmus.domain.health.activechecks.status import Ending
from isthmus.errors import IsthmusError, Terminal, Wait
from isthmus.health.checkcaches import CheckCaches, tested_node
from isthmus.health.checkreports import CheckReports
from isthmus.health.slurmruns import SlurmRuns
from isthmus.model.activecheck import ActiveCheck
from isthmus.model.meta import Key
from isthmus.model.workload import CheckJob
from isthmus.operator.slurms import Slurm
from isthmus.runtime.references import Asker

_REQUEUE_S: Final = 2.0
_DEADLINE_S: Final = 1800
"""Of a Job without one, as a check has it."""

Counted = Callable[[str, Literal["passed", "failed", "error"]], None]


class CheckRuns:
    """Carries out the Jobs of checks of the type slurmJob."""

    def __init__(
        self,
        caches: CheckCaches,
        reports: CheckReports,
        *,
        wake: Callable[[Key], None],
        counted: Counted,
        now: Callable[[], datetime],
    ) -> None:
        self._caches = caches
        self._world = caches.operator
        self._reports = reports
        self._wake = wake
        self._counted = counted
        self._now = now
        self._jobs = SlurmRuns()

    def forget(self, uid: str) -> None:
        self._jobs.forget(uid)

    async def advance(self, job: CheckJob, check: ActiveCheck, *, look: bool) -> Plan | None:
        """Do the next step of a run; return its plan, or None if it has ended.

        It reads the states of jobs from Slurm only with `look`.
        """
        plan = plan_of(job)
        if plan is None:
            plan = await self._begin(job, check)
            if plan is None:
                return None
        slurm = self._reached(job, check)
        late = self._now() >= self._deadline(job)
        before, failure = plan, None
        if late:
            plan = await self._abandon(job, plan, slurm)
        elif slurm is not None and any(True for _ in plan.unsubmitted):
            plan, failure = await self._submit(job, check, plan, slurm)
        elif slurm is not None and look:
            plan = plans.searched(await self._jobs.look(slurm, plan, now=self._seconds()))
        if plan != before:
            await self._reports.planned(job, plan)
            self._count(check, before, plan)
        there = slurm.nodes if slurm is not None and slurm.nodes else None
        await self._reports.tell_run(job, check, plan, there=there)
        if failure is not None:
            raise failure
        if not plan.is_over:
            return plan
        end = status.ending(plan)
        if late and end.reason == status.ERROR:
            end = Ending(complete=False, reason="DeadlineExceeded", message=end.message)
        await self._reports.ended(job, check, end)
        return None

    def left(self, job: CheckJob) -> float:
        """How many seconds a run has until its deadline."""
        return (self._deadline(job) - self._now()).total_seconds()

    async def withdraw(self, job: CheckJob) -> None:
        """Cancel the Slurm jobs of a Job that is being deleted; without a cluster, there are none."""
        plan, check = plan_of(job), self._caches.check_of(job)
        name = check.spec.slurm_cluster_ref_name if check else job.metadata.labels.get(names.INSTANCE_LABEL, "")
        cluster = Key(job.metadata.namespace, name)
        if plan is None or not (cluster in self._world.clusters or cluster in self._world.controllers):
            return
        slurm = self._world.slurms.of(cluster)
        if slurm is None or not slurm.in_touch:
            raise Wait(f"its Slurm jobs cannot be cancelled: {self._world.slurms.trouble(cluster)}", after=5.0)
        await self._jobs.cancel(slurm, job.metadata.uid, plan)

    # Steps

    async def _begin(self, job: CheckJob, check: ActiveCheck) -> Plan | None:
        """Make the plan of a run, or end it if there is nothing to run."""
        node = tested_node(job)
        if not node and (closed := self._caches.closed(check)):
            await self._skip(job, check, closed)
            return None
        slurm = self._reached(job, check)
        if slurm is None:
            await self._fail(job, check, f"Slurm did not answer in time: {self._trouble(check)}")
            return None
        try:
            run = self._run(job, check)
        except Terminal as error:
            await self._fail(job, check, error.line)
            return None
        if run.options.gpus and not any(map(choice.has_gpus, slurm.nodes.values())):
            await self._skip(job, check, "its script asks for GPUs, and no node has any")
            return None
        partition = requests.partition(check, run.options, [it.name for it in await slurm.client.partitions()])
        nodes = choice.candidates(slurm.nodes.values(), partition=partition, gpus=run.options.gpus)
        plan = requests.first_plan(run, partition=partition, nodes=nodes, node=node, now=self._seconds())
        if wrong := requests.impossible(run, plan, node=node, there=slurm.nodes):
            await self._fail(job, check, wrong)
            return None
        # Who else finds the plan has to see whether we submitted anything.
        self._jobs.begin(job.metadata.uid)
        await self._reports.planned(job, plan)
        return plan

    async def _submit(
        self, job: CheckJob, check: ActiveCheck, plan: Plan, slurm: Slurm
    ) -> tuple[Plan, IsthmusError | None]:
        try:
            run = self._run(job, check)
        except Terminal as error:
            return plans.abandoned(plan, why=error.line, now=self._seconds()), None
        cluster = Key(job.metadata.namespace, check.spec.slurm_cluster_ref_name)
        return await self._jobs.submit(slurm, run, plan, cluster=cluster, now=self._seconds())

    async def _abandon(self, job: CheckJob, plan: Plan, slurm: Slurm | None) -> Plan:
        """Cancel what is not over at the deadline. It is no failure of a node: it may just have had to wait."""
        if plan.is_over:
            return plan
        if slurm is not None:
            plan = await self._jobs.look(slurm, plan, now=self._seconds())
            await self._jobs.cancel(slurm, job.metadata.uid, plan)
        why = f"not over after {self._limit(job):.0f} s"
        return plans.abandoned(plan, why=why, now=self._seconds())

    async def _skip(self, job: CheckJob, check: ActiveCheck, why: str) -> None:
        await self._reports.skipped(job, why)
        await self._reports.tell_unplanned(job, check, "Skipped")
        await self._reports.ended(job, check, Ending(complete=True, reason=status.SKIPPED, message=why))

    async def _fail(self, job: CheckJob, check: ActiveCheck, why: str) -> None:
        await self._reports.tell_unplanned(job, check, "Error")
        self._counted(check.metadata.name, "error")
        await self._reports.ended(job, check, Ending(complete=False, reason=status.ERROR, message=why))

    def _count(self, check: ActiveCheck, before: Plan, after: Plan) -> None:
        for old, new in zip(before.parts, after.parts, strict=False):
            if new.outcome in {"passed", "failed", "error"} and not old.outcome:
                self._counted(check.metadata.name, new.outcome)

    # What it works with

    def _run(self, job: CheckJob, check: ActiveCheck) -> Run:
        script = self._script(job, check)
        return Run(
            check=check,
            uid=job.metadata.uid,
            script=script,
            options=scripts.read(script, requests.variables(check)),
            reservation=job.metadata.annotations.get(names.CHECK_RESERVATION_ANNOTATION, ""),
        )

    def _script(self, job: CheckJob, check: ActiveCheck) -> str:
        spec = check.spec.slurm_job_spec
        if spec is not None and spec.sbatch_script is not None:
            return spec.sbatch_script
        name = manifests.script_name(check)
        asker = Asker(self._wake, job.metadata.key)
        found = self._world.references.configmap(Key(job.metadata.namespace, name), asker)
        if found is None or manifests.SCRIPT_KEY not in found.data:
            raise Terminal(f"there is no ConfigMap {name} with the key {manifests.SCRIPT_KEY}", remedy="create it")
        return found.data[manifests.SCRIPT_KEY]

    def _reached(self, job: CheckJob, check: ActiveCheck) -> Slurm | None:
        """The Slurm of a check. Until the deadline, one that does not answer is waited for; then it is None."""
        slurm = self._world.slurms.of(Key(check.metadata.namespace, check.spec.slurm_cluster_ref_name))
        if slurm is not None and slurm.in_touch:
            return slurm
        if self._now() < self._deadline(job):
            raise Wait(self._trouble(check) or "Slurm has not answered yet", after=_REQUEUE_S)
        return None

    def _trouble(self, check: ActiveCheck) -> str:
        return self._world.slurms.trouble(Key(check.metadata.namespace, check.spec.slurm_cluster_ref_name))

    def _limit(self, job: CheckJob) -> float:
        return float(job.spec.active_deadline_seconds or _DEADLINE_S)

    def _deadline(self, job: CheckJob) -> datetime:
        begun = job.status.start_time or job.metadata.creation_timestamp or self._now()
        return begun + timedelta(seconds=self._limit(job))

    def _seconds(self) -> int:
        return int(self._now().timestamp())


def plan_of(job: CheckJob) -> Plan | None:
    """The plan of a run; None if it has yet to begin."""
    text = job.metadata.annotations.get(names.CHECK_PLAN_ANNOTATION)
    return plans.decode(text) if text else None
