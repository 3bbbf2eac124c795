"""Carries out what `podrules` decided: ends jobs in Slurm, evicts pods, and writes Events on them."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from isthmus.bridge.cache.jobs import OurJob
from isthmus.bridge.cache.world import World
from isthmus.domain.bridge import jobstates, outcome, placeholder, podrules
from isthmus.domain.bridge.outcome import Outcome, Result
from isthmus.domain.bridge.podrules import SUSPENDED_CONDITION, Action, EndJob, Evict, ReportSuspension
from isthmus.errors import Terminal, Wait
from isthmus.kube import errors as kube_errors
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Key, micro_time
from isthmus.model.pod import PODS, Pod
from isthmus.model.slurm import JobRequest
from isthmus.runtime.metrics import PodMetrics
from isthmus.slurm.completion import Completer
from isthmus.slurm.errors import AlreadyDone, CompleterAway, NotFound
from isthmus.slurm.submission import key_of, with_key

log = structlog.get_logger()

_AT_ONCE: Final = 16
"""Pods of one gang that are evicted at a time."""

_SIGNAL_AGAIN: Final = 1.0
_SIGNAL_WITHIN: Final = 30.0
"""A placeholder that has not ended by then does not heed signals, and is cancelled."""

_END_AGAIN: Final = 5.0

_COMPLETE_AGAIN: Final = 1.0
_COMPLETE_WITHIN: Final = 30.0
"""After this time without the helper that completes jobs, nodes are worth more than the state in the accounts."""

_MAX_COMMENT_CHARS: Final = 1024
_COMPLETABLE: Final = frozenset({jobstates.Phase.RUNNING, jobstates.Phase.SUSPENDED})
_SIGNALS: Final = {Result.SUCCEEDED: placeholder.SUCCEED, Result.FAILED: placeholder.FAIL}


class _Ending(msgspec.Struct):
    """A job that we are ending: since when, what was written about its pods, and when Slurm agreed."""

    since: float
    told: str = ""
    agreed: float | None = None


@dataclass(eq=False)
class PodActions:
    world: World
    recorder: Recorder
    metrics: PodMetrics
    _: KW_ONLY
    now: Callable[[], datetime]
    completer: Completer | None = None
    _endings: dict[int, _Ending] = field(default_factory=dict, init=False)

    async def act(self, ours: OurJob, actions: Iterable[Action]) -> None:
        """Do these things about a job; raises `Wait` if they have to be done again."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(action: Action) -> None:
            async with gate:
                match action:
                    case EndJob():
                        await self._end(ours, action)
                    case Evict():
                        await self.evict(action)
                    case ReportSuspension():
                        await self._tell(action)

        async with asyncio.TaskGroup() as group:
            for action in actions:
                group.create_task(one(action))

    def forget(self, job_id: int) -> None:
        self._endings.pop(job_id, None)

    # Jobs

    async def _end(self, ours: OurJob, end: EndJob) -> None:
        family = self.world.jobs.of_group(ours.marker.group)
        # Components end with their leader.
        parts = [ours, *(it for it in family if it.job.queue_id == ours.job_id != it.job_id)]
        await self._require_absent(parts, end.missing)
        job_id = ours.job_id
        ending = self._endings.setdefault(job_id, _Ending(since=time.monotonic()))
        if ending.agreed is not None and time.monotonic() - ending.agreed < _END_AGAIN:
            raise Wait(f"job {job_id} was ended, but Slurm has not confirmed it yet", after=_END_AGAIN)
        log.info("ending a job", job=job_id, group=str(ours.marker.group), because=end.outcome.text)
        try:
            if ending.told != end.outcome.text:
                for part in parts:
                    await self._write_down(part, end.outcome)
                ending.told = end.outcome.text
            if not (
                await self._complete(ours, end.status)
                or await self._signal(ours, end.outcome.result, since=ending.since)
            ):
                await self.world.slurm.cancel_job(job_id)
            ending.agreed = time.monotonic()
        except (AlreadyDone, NotFound):
            return
        finally:
            self.world.inflight.watch(job_id)

    async def _require_absent(self, parts: Iterable[OurJob], missing: Iterable[Key]) -> None:
        """Look for pods that no cache has seen: the job may be known to us earlier than they are."""
        uids = {uid for part in parts for uid in part.marker.uids}
        for key in missing:
            try:
                found = await self.world.kube.get(PODS, key)
            except kube_errors.NotFound:
                continue
            if found.metadata.uid in uids:
                raise Wait(f"pod {key} exists, but is not in the cache yet", after=0.5)

    async def _write_down(self, ours: OurJob, told: Outcome) -> None:
        """Write into a job what became of its pods; what cannot be written does not keep its nodes."""
        job = ours.job
        key = key_of(job.comment)
        mark = with_key(None, key) if key else ""
        before = (job.comment or "").removesuffix(mark).strip()
        room = _MAX_COMMENT_CHARS - len(mark) - 1
        after = outcome.in_comment(before, told)[:room]
        change = JobRequest(
            comment=with_key(after, key) if key else after,
            admin_comment=outcome.in_admin_comment(job.admin_comment or "{}", told),
        )
        if (change.comment, change.admin_comment) == (job.comment, job.admin_comment):
            return
        try:
            await self.world.slurm.update_job(job.job_id, change)
        except (AlreadyDone, NotFound):
            raise
        except Terminal as error:
            log.warning("the outcome was not written into the job", job=job.job_id, error=str(error))

    async def _complete(self, ours: OurJob, status: int | None) -> bool:
        """End a job with the exit status of its pods; False if there is none, or nobody who can."""
        job = ours.job
        if self.completer is None or status is None or jobstates.phase(job.job_state) not in _COMPLETABLE:
            return False
        try:
            await self.completer.complete(job.job_id, status)
        except (AlreadyDone, NotFound):
            raise
        except (CompleterAway, Terminal) as error:
            if isinstance(error, CompleterAway) and self.completer.away_for < _COMPLETE_WITHIN:
                raise Wait(str(error), after=_COMPLETE_AGAIN) from error
            log.warning("accounting will not show how the pods of a job ended", job=job.job_id, error=str(error))
            return False
        return True

    async def _signal(self, ours: OurJob, result: Result, *, since: float) -> bool:
        """Tell a placeholder how to end; False if it can only be cancelled."""
        job = ours.job
        signal = _SIGNALS.get(result)
        if not (job.batch_flag and signal and jobstates.phase(job.job_state) is jobstates.Phase.RUNNING):
            return False
        if time.monotonic() - since > _SIGNAL_WITHIN:
            log.warning("a placeholder job ignores signals and is cancelled", job=job.job_id)
            return False
        await self.world.slurm.cancel_job(job.job_id, signal=signal, batch=True)
        raise Wait(f"job {job.job_id} is being ended", after=_SIGNAL_AGAIN)

    # Pods

    async def evict(self, eviction: Evict) -> None:
        """Evict a pod and report why: in a condition, which its workload may heed, and in an Event.

        This does not ask for disruption budgets. They say how many pods may be taken away at a time by choice; here
        Slurm has taken the nodes away already, and gives them to somebody else.
        """
        pod = eviction.pod
        log.info("evicting a pod", pod=str(pod.metadata.key), reason=eviction.reason)
        self.recorder.event(PODS, pod, eviction.reason, eviction.message, warning=True, action="Evicting")
        try:
            await self._set_condition(pod, "DisruptionTarget", status=True, why=eviction)
            await self.world.kube.delete(PODS, pod.metadata.key, uid=pod.metadata.uid)
        except kube_errors.NotFound:
            return
        labels = self.world.metric_labels(pod, podrules.claimed_job(pod))
        self.metrics.evicted.of(*labels, eviction.label).inc()

    async def _tell(self, told: ReportSuspension) -> None:
        self.recorder.event(
            PODS, told.pod, told.reason, told.message, warning=told.suspended, action="FollowingSlurm"
        )
        try:
            await self._set_condition(told.pod, SUSPENDED_CONDITION, status=told.suspended, why=told)
        except kube_errors.NotFound:
            return

    async def _set_condition(self, pod: Pod, type_: str, *, status: bool, why: Evict | ReportSuspension) -> None:
        meta = pod.metadata
        condition: dict[str, Any] = {
            "type": type_,
            "status": "True" if status else "False",
            "reason": why.reason,
            "message": why.message,
            "lastTransitionTime": micro_time(self.now()),
        }
        body = {
            "metadata": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
            "status": {"conditions": [condition]},
        }
        # A manager for each condition: what one applies and leaves out the next time is removed.
        manager = f"isthmus-pods-{type_.rpartition('/')[2]}"
        await self.world.kube.apply(PODS, body, manager=manager, force=True, subresource="status")
