"""The Slurm side of runs of checks: submits each job once, and finds out how jobs ended, with few calls.

    every node of 500     500 submissions, and one question for all jobs now and then

A process that takes over a run does not know whether the last submission of its predecessor took effect. It looks
for the keys of the run among all jobs, once, before it submits anything.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import structlog

from isthmus.domain.health.activechecks import outcomes, plan, requests
from isthmus.domain.health.activechecks.plan import End, Part, Plan
from isthmus.domain.health.activechecks.requests import Run
from isthmus.domain.languages import hostlist
from isthmus.errors import IsthmusError, Retry, Terminal, Wait
from isthmus.model.meta import Key
from isthmus.model.slurm import Job, States
from isthmus.model.slurmdb import PastJob
from isthmus.operator.slurms import Slurm
from isthmus.slurm.errors import AlreadyDone, NotFound
from isthmus.slurm.submission import base_id, best_first, key_of

log = structlog.get_logger()

_AT_ONCE: Final = 8
_BATCH: Final = 64
"""Jobs that are submitted before the ids are written down."""

_MAX_IDS: Final = 200
"""Ids that fit into one question; beyond, asking for all jobs is cheaper."""

_MAX_DETAILS: Final = 64
"""Failed jobs of one look whose records are read for their exit codes; of more, the state says enough."""


class SlurmRuns:
    """Submits and follows the jobs of runs. The plan that it returns is to be written down before the next call."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        """Runs of which every submission is this process's own."""
        self._users: dict[Key, str] = {}
        """For each cluster, who runs checks that name no user."""

    def begin(self, uid: str) -> None:
        """Say that a run is new: nobody can have submitted anything for it."""
        self._known.add(uid)

    def forget(self, uid: str) -> None:
        self._known.discard(uid)

    # Submission

    async def submit(
        self, slurm: Slurm, run: Run, now_plan: Plan, *, cluster: Key, now: int
    ) -> tuple[Plan, IsthmusError | None]:
        """Submit some of what is not submitted; return the plan, and what keeps the rest from being submitted."""
        if run.uid not in self._known:
            now_plan = await self.recovered(slurm, run.uid, now_plan)
            self._known.add(run.uid)
        waiting = [place for place, _ in now_plan.unsubmitted][:_BATCH]
        if not waiting:
            return now_plan, None
        if not now_plan.user:
            return await self._submit_as_somebody(slurm, run, now_plan, waiting[0], cluster=cluster, now=now)
        gate = asyncio.Semaphore(_AT_ONCE)
        jobs: dict[int, int] = {}
        failures: dict[int, IsthmusError] = {}

        async def one(place: int) -> None:
            async with gate:
                try:
                    jobs[place] = await self._submit(slurm, run, now_plan, place)
                except IsthmusError as error:
                    failures[place] = error

        async with asyncio.TaskGroup() as together:
            for place in waiting:
                together.create_task(one(place))
        refused = {place: error.line for place, error in failures.items() if isinstance(error, Terminal)}
        made = plan.refused(plan.submitted(now_plan, jobs), refused, now=now)
        left = [error for error in failures.values() if isinstance(error, Retry | Wait)]
        return made, left[0] if left else None

    async def _submit(self, slurm: Slurm, run: Run, now_plan: Plan, place: int) -> int:
        request = requests.request(run, now_plan, place, now=now_plan.begun)
        made = await slurm.client.submit(request, key=requests.key(run.uid, place))
        return made.job_id

    async def _submit_as_somebody(
        self, slurm: Slurm, run: Run, now_plan: Plan, place: int, *, cluster: Key, now: int
    ) -> tuple[Plan, IsthmusError | None]:
        """Submit the first job, as the first user of whom Slurm takes it; all others follow as that user."""
        users = requests.users(run.check)
        if (known := self._users.get(cluster)) in users:
            users = (known, *(it for it in users if it != known))
        refusal = ""
        for user in users:
            attempt = plan.owned(now_plan, user)
            try:
                job = await self._submit(slurm, run, attempt, place)
            except Terminal as error:
                refusal = refusal or error.line
                log.info("Slurm refuses a check", user=user, error=error.what)
                continue
            except IsthmusError as error:
                return now_plan, error
            self._users[cluster] = user
            return plan.submitted(attempt, {place: job}), None
        every = {it: refusal for it, _ in now_plan.unsubmitted}
        return plan.refused(now_plan, every, now=now), None

    async def recovered(self, slurm: Slurm, uid: str, now_plan: Plan) -> Plan:
        """Find jobs of a run that were submitted by a process that did not live to write it down."""
        places = {requests.key(uid, place): place for place, _ in now_plan.unsubmitted}
        if not places:
            return now_plan
        found: dict[int, list[Job]] = {}
        for job in await slurm.client.jobs():
            place = places.get(key_of(job.comment) or "")
            if place is not None:
                found.setdefault(place, []).append(job)
        best = {place: best_first(jobs)[0] for place, jobs in found.items()}
        made = plan.submitted(now_plan, {place: job.job_id for place, job in best.items()})
        if best and not made.user:
            user = next(iter(best.values())).user_name or ""
            made = plan.owned(made, user)
        return made

    # How jobs ended

    async def look(self, slurm: Slurm, now_plan: Plan, *, now: int) -> Plan:
        """Ask how the jobs of a plan stand, and note those that are over."""
        running = now_plan.running
        if not running:
            return now_plan
        wanted = set(running)
        listed = await slurm.client.job_states(running if len(running) <= _MAX_IDS else None)
        states = {job: it.state for it in listed if (job := base_id(it.job_id)) in wanted}
        parts = {part.job: part for part in now_plan.parts if part.job and part.is_open}
        ends: dict[int, End] = {}
        unclear: list[int] = []
        for job, part in parts.items():
            outcome = outcomes.of_states(states.get(job, ()))
            if outcome is None and job in states:
                continue
            if job not in states or not part.nodes or outcome == "failed":
                unclear.append(job)
            elif outcome is not None:
                ends[job] = End(outcome, ", ".join(states[job][:1]) if outcome != "passed" else "", now)
        ends |= await self._records(slurm, parts, states, unclear, now=now)
        return plan.ended(now_plan, ends)

    async def _records(
        self,
        slurm: Slurm,
        parts: Mapping[int, Part],
        states: Mapping[int, States],
        unclear: list[int],
        *,
        now: int,
    ) -> dict[int, End]:
        """Read the records of jobs whose state is not enough."""
        ends: dict[int, End] = {}
        read = unclear[:_MAX_DETAILS]
        there = {it.job_id: it for it in await slurm.client.details(read)}
        for job in read:
            record: Job | PastJob | None = there.get(job) or await self._past(slurm, job)
            if record is None:
                ends[job] = End("error", outcomes.GONE, now)
            elif outcome := outcomes.of_job(record):
                nodes = "" if parts[job].nodes else _nodes(record)
                told = "" if outcome == "passed" else outcomes.evidence(record)
                ends[job] = End(outcome, told, outcomes.ended_at(record) or now, nodes)
        for job in unclear[_MAX_DETAILS:]:
            outcome = outcomes.of_states(states.get(job, ()))
            if outcome is not None and parts[job].nodes:
                ends[job] = End(outcome, ", ".join(states[job][:1]), now)
        return ends

    async def _past(self, slurm: Slurm, job: int) -> PastJob | None:
        """Look for a job in the accounts; None if it is not there, or if there are none."""
        try:
            found = await slurm.accounting.job(job)
        except Terminal:
            return None
        return max(found, key=lambda it: it.time.submission, default=None)

    # Cancellation

    async def cancel(self, slurm: Slurm, uid: str, now_plan: Plan) -> None:
        """End the jobs of a run, also those of which nothing was written down."""
        if uid not in self._known:
            now_plan = await self.recovered(slurm, uid, now_plan)
        for place, _ in now_plan.unsubmitted:
            slurm.client.forget_submission(requests.key(uid, place))
        await self._cancel(slurm, now_plan.running)

    async def _cancel(self, slurm: Slurm, jobs: Iterable[int]) -> None:
        for job in jobs:
            with suppress(AlreadyDone, NotFound):
                await slurm.client.cancel_job(job)


def _nodes(record: Job | PastJob) -> str:
    """Where a job ran. After the failure of a node, that node alone, if Slurm says which it was."""
    nodes = record.nodes or ""
    if isinstance(record, Job) and record.failed_node and "NODE_FAIL" in record.job_state:
        nodes = record.failed_node
    return (
        hostlist.fold(sorted(hostlist.expand(nodes), key=hostlist.natural_key)) if nodes != "None assigned" else ""
    )
