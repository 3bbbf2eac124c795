"""The controller of Jobs that run ActiveChecks.

    k8sJob     Kubernetes runs the pod; what became of it goes into the check's status
    slurmJob   `checkruns` carries it out in Slurm, without a pod

A Job of a slurmJob that is deleted takes its Slurm jobs with it. How these stand is asked when a node of the
cluster has given up CPUs, and otherwise ever less often: an hour-long check of every node costs less than one call
a node.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final, Unpack

import msgspec

from isthmus import names
from isthmus.clock import utc_now
from isthmus.domain.health.activechecks import manifests, status
from isthmus.domain.health.activechecks.plan import NodeVerdict, Plan
from isthmus.domain.operator.nodeset import identity
from isthmus.errors import Wait
from isthmus.health.checkcaches import CheckCaches
from isthmus.health.checkreports import CheckReports
from isthmus.health.checkruns import CheckRuns, Counted, plan_of
from isthmus.model.activecheck import ActiveCheck
from isthmus.model.meta import HasMeta, Key
from isthmus.model.pod import Pod
from isthmus.model.workload import CheckJob
from isthmus.operator.kindsync import Tools
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker

_WORKERS: Final = 8
_REQUEUE_S: Final = 2.0
_SOONEST_S: Final = 1.0
_LATEST_S: Final = 30.0
_SHARE: Final = 0.1
"""How long after a look the next one is, as a share of the time that the run has taken."""

_MORE_LOOKS: Final = 60
"""So many looks because of nodes a run may have, and one for each of its jobs."""


class _Polling(msgspec.Struct):
    """When a run was last looked at, and how often because of a node."""

    cluster: Key
    last: float | None = None
    roused: int = 0
    most: int = 0
    due: bool = True


class CheckJobSync:
    """The controller; `workers` are for the leader. `counted` is called with each result for a node."""

    def __init__(
        self,
        caches: CheckCaches,
        *,
        counted: Counted = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
        **tools: Unpack[Tools],
    ) -> None:
        self._caches = caches
        self._world = caches.operator
        self._now = tools.get("now", utc_now)
        self._clock = clock
        self._looks: dict[Key, _Polling] = {}
        self._allocated: dict[tuple[Key, str], int] = {}
        self.controller: Controller[Key] = Controller(
            "checkjobs", self.reconcile, metrics=tools["metrics"], workers=_WORKERS
        )
        self._reports = CheckReports(caches, tools["recorder"], now=self._now)
        self._runs = CheckRuns(
            caches, self._reports, wake=self.controller.queue.add, counted=counted, now=self._now
        )
        caches.jobs.on_change(lambda key, *_: self.controller.queue.add(key))
        caches.pods.on_change(self._pod_changed)
        self._world.slurms.on_change(self._slurm_changed)

    @property
    def workers(self) -> tuple[Worker, ...]:
        return (self.controller,)

    async def reconcile(self, key: Key) -> None:
        found = self._caches.jobs.get(key)
        if found is None:
            self._forget(key)
            return
        job = self._reports.newest(found)
        if not self._caches.in_touch:
            raise Wait("Kubernetes does not answer", after=_REQUEUE_S)
        if job.spec.managed_by == manifests.MANAGED_BY:
            await self._slurm_job(job)
        elif not job.spec.managed_by and job.metadata.deletion_timestamp is None:
            await self._pod_job(job)

    async def _pod_job(self, job: CheckJob) -> None:
        check = self._caches.check_of(job)
        if check is None:
            return
        pods = self._caches.pods.by("job", job.metadata.key)
        verdicts: tuple[NodeVerdict, ...] = ()
        # A check that asks for nothing may not be about the node on which its pod happens to run.
        if check.spec.failure_reactions or check.spec.success_reactions:
            verdicts = status.pod_verdicts(job, pods, self._slurm_nodes(check, pods))
        await self._reports.tell_pods(job, check, pods, verdicts)

    def _slurm_nodes(self, check: ActiveCheck, pods: Iterable[Pod]) -> list[str]:
        """Find the Slurm nodes on the machine on which a check's pod ran."""
        cluster = check.spec.slurm_cluster_ref_name
        machines = {it.spec.node_name for it in pods if it.spec.node_name}
        workers = (it for machine in machines for it in self._world.pods.by("node", machine))
        return sorted(
            identity.slurm_name(it)
            for it in workers
            if it.metadata.labels.get(names.COMPONENT_LABEL) == "worker"
            and it.metadata.labels.get(names.CLUSTER_LABEL) == cluster
        )

    async def _slurm_job(self, job: CheckJob) -> None:
        key, uid = job.metadata.key, job.metadata.uid
        is_over = job.complete or job.failure is not None
        if is_over or job.metadata.deletion_timestamp is not None:
            if not is_over:
                await self._runs.withdraw(job)
            await self._reports.released(job)
            self._looks.pop(key, None)
            self._runs.forget(uid)
            return
        check = self._caches.check_of(job)
        if job.spec.suspend or check is None:
            return  # without its check, the Job is about to go with its CronJob
        cluster = Key(key.namespace, check.spec.slurm_cluster_ref_name)
        looks = self._looks.setdefault(key, _Polling(cluster))
        look = looks.due or looks.last is None or self._clock() - looks.last >= self._pause(plan_of(job))
        if look and looks.last is not None and self._clock() - looks.last < _SOONEST_S:
            look = False
        if look:
            looks.last, looks.due = self._clock(), False
        plan = await self._runs.advance(job, check, look=look)
        if plan is None:
            return
        looks.most = len(plan.parts) + _MORE_LOOKS
        waits = any(True for _ in plan.unsubmitted)
        pause = _SOONEST_S if looks.due else min(self._pause(plan), max(_SOONEST_S, self._runs.left(job)))
        self.controller.queue.add(key, after=0.0 if waits else pause)

    def _pause(self, plan: Plan | None) -> float:
        """How long after a look the next one is due."""
        age = self._now().timestamp() - plan.begun if plan else 0.0
        return min(_LATEST_S, max(_SOONEST_S, _SHARE * age))

    def _forget(self, key: Key) -> None:
        self._looks.pop(key, None)
        self._reports.forget(key)

    # What wakes a Job

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        found: HasMeta | None = new or old
        name = found.metadata.labels.get(names.JOB_NAME_LABEL) if found else None
        if name:
            self.controller.queue.add(Key(key.namespace, name))

    def _slurm_changed(self, cluster: Key, node: str | None) -> None:
        """Look soon when a node has given up CPUs, for a job of ours may be over; and when Slurm is back."""
        if node is not None and not self._gave_up_cpus(cluster, node):
            return
        for key, looks in self._looks.items():
            if looks.cluster == cluster and not looks.due and looks.roused < looks.most:
                looks.roused += 1
                looks.due = True
                since = self._clock() - (looks.last or 0.0)
                self.controller.queue.add(key, after=max(0.0, _SOONEST_S - since))

    def _gave_up_cpus(self, cluster: Key, node: str) -> bool:
        slurm = self._world.slurms.of(cluster)
        record = slurm.nodes.get(node) if slurm is not None else None
        before = self._allocated.get((cluster, node), 0)
        now = self._allocated[cluster, node] = record.alloc_cpus if record else 0
        return now < before
