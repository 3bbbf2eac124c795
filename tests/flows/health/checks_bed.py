"""The controllers of ActiveChecks at work on a real API server with its Job controllers, and on a real Slurm.

Jobs in Slurm really run. There are no kubelets: what a pod would do, the test says in its status.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from isthmus.domain.operator.manifests.common import Settings
from isthmus.health.activechecks import ActiveCheckSync
from isthmus.health.checkcaches import CheckCaches
from isthmus.health.checkjobs import CheckJobSync
from isthmus.health.world import HealthWorld
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.errors import AlreadyExists
from isthmus.model.activecheck import ACTIVE_CHECKS, ActiveCheck, CheckedNode, SlurmJobsStatus
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from isthmus.model.slinky import CONTROLLERS
from isthmus.model.workload import CHECK_JOBS, CRON_JOBS, CheckJob
from isthmus.operator.applier import Applier
from isthmus.operator.slurms import Address, Slurm
from isthmus.operator.statuswriter import Reporter
from isthmus.operator.world import ClusterCaches
from isthmus.runtime.manager import Manager
from isthmus.runtime.metrics import Metrics
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.bed.waiting import PATIENCE
from tests.flows.kube.waiting import eventually
from tests.flows.operator.nodesets_bed import CONTROLLER, PLACES, make_controller
from tests.flows.working import connected

LIMIT = PATIENCE
ON_FAILURE = {"drainSlurmNode": {"drainReasonPrefix": "[node_problem]"}}


class ChecksBed:
    """Running controllers, and what tests do with them."""

    def __init__(self, caches: CheckCaches, kube: Client, counts: dict[tuple[str, str], int]) -> None:
        self.caches = caches
        self.kube = kube
        """The test's own connection."""
        self.counts = counts
        """Results for nodes, by check and result."""

    @property
    def namespace(self) -> str:
        return self.caches.operator.namespace

    @property
    def slurm(self) -> Slurm:
        found = self.caches.operator.slurms.of(self.key(CONTROLLER))
        assert found
        return found

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    # Checks

    async def check(self, name: str, script: str = "", *, each: bool = True, **spec: Any) -> None:
        """Make a check of the type slurmJob, that runs after its creation unless told otherwise."""
        in_slurm = {"sbatchScript": f"#!/bin/bash\n{script}\n", "eachWorkerJobs": each, "user": "alice"}
        in_slurm |= spec.pop("slurmJobSpec", {})
        spec = {"checkType": "slurmJob", "slurmJobSpec": in_slurm, "failureReactions": ON_FAILURE, **spec}
        await self.make(name, **spec)

    async def make(self, name: str, **spec: Any) -> None:
        wanted = {"name": name, "slurmClusterRefName": CONTROLLER, **spec}
        await self.kube.create(
            ACTIVE_CHECKS, {"metadata": {"namespace": self.namespace, "name": name}, "spec": wanted}
        )

    def get(self, name: str) -> ActiveCheck:
        found = self.caches.checks.get(self.key(name))
        assert found, f"there is no check {name}"
        return found

    def k8s(self, name: str) -> str:
        """How the last Job of Kubernetes of a check stands."""
        found = self.caches.checks.get(self.key(name))
        return (found.status.k8s_jobs_status.last_job_status or "") if found else ""

    def run(self, name: str) -> SlurmJobsStatus:
        found = self.caches.checks.get(self.key(name))
        return found.status.slurm_jobs_status if found else SlurmJobsStatus()

    async def ends(self, name: str, status: str, *, run: str = "") -> SlurmJobsStatus:
        """Wait until the last run of a check, or this one, has ended so."""
        wanted = run or f"{name}-initial-run"
        try:
            await eventually(lambda: _ended(self.run(name), wanted), within=LIMIT)
        except AssertionError:
            raise AssertionError(f"{wanted}: {self.caches.checks.get(self.key(name))}; {self.jobs()}") from None
        assert self.run(name).last_run_status == status, self.get(name).status
        await self.over(wanted)
        return self.run(name)

    def nodes(self, name: str) -> dict[str, CheckedNode]:
        return {it.node: it for it in self.get(name).status.nodes}

    def results(self, name: str) -> dict[str, str]:
        return {it.node: it.result for it in self.get(name).status.nodes}

    # Jobs

    def jobs(self) -> dict[str, CheckJob]:
        return {it.metadata.name: it for it in self.caches.jobs.values()}

    def job(self, name: str) -> CheckJob:
        found = self.caches.jobs.get(self.key(name))
        assert found, f"there is no Job {name}: {sorted(self.jobs())}"
        return found

    async def until_job(self, name: str, holds: Callable[[CheckJob], object]) -> CheckJob:
        def found() -> bool:
            it = self.caches.jobs.get(self.key(name))
            return it is not None and bool(holds(it))

        try:
            await eventually(found, within=LIMIT)
        except AssertionError:
            raise AssertionError(f"{name}: {self.caches.jobs.get(self.key(name))}") from None
        return self.job(name)

    async def over(self, name: str) -> CheckJob:
        """Wait until a Job is over, and nothing of ours holds it."""
        return await self.until_job(
            name, lambda it: (it.complete or it.failure is not None) and not it.metadata.finalizers
        )

    async def start(self, check: str, name: str, **annotations: str) -> None:
        """Start a run as `kubectl create job --from=cronjob/CHECK NAME` does."""
        await eventually(lambda: self.key(check) in self.caches.cron_jobs, within=LIMIT)
        cron_job = await self.kube.get(CRON_JOBS, self.key(check))
        template = cron_job.spec.job_template
        owner = {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "name": check,
            "uid": cron_job.metadata.uid,
            "controller": True,
        }
        marks = {f"isthmus.dev/{it.replace('_', '-')}": value for it, value in annotations.items()}
        metadata = {
            "namespace": self.namespace,
            "name": name,
            "labels": template["metadata"]["labels"],
            "annotations": {
                "cronjob.kubernetes.io/instantiate": "manual",
                **template["metadata"]["annotations"],
                **marks,
            },
            "ownerReferences": [owner],
        }
        await self.kube.create(CHECK_JOBS, {"metadata": metadata, "spec": template["spec"]})

    async def pod_ended(self, job: str, *, code: int, node: str) -> None:
        """Do to the pod of a Job what a scheduler and a kubelet do."""
        await eventually(lambda: self.caches.pods.by("job", self.key(job)), within=LIMIT)
        await end_pod(self.kube, self.caches.pods.by("job", self.key(job))[0].metadata.key, code=code, node=node)

    async def machine(self, name: str) -> str:
        """Make a Kubernetes node."""
        called = f"{self.namespace}-{name}"
        await self.kube.create(NODES, {"metadata": {"name": called, "labels": {PLACES: self.namespace}}})
        return called


async def end_pod(kube: Client, pod: Key, *, code: int, node: str) -> None:
    """Place a pod, and say how it ended."""
    await kube.bind(pod, node)
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ended = {"exitCode": code, "startedAt": moment, "finishedAt": moment}
    container = {"name": "c", "ready": False, "restartCount": 0, "image": "i", "imageID": "i"}
    told = {
        "phase": "Failed" if code else "Succeeded",
        "startTime": moment,
        "containerStatuses": [{**container, "state": {"terminated": ended}}],
    }
    await kube.merge_patch(PODS, pod, {"status": told}, subresource="status")


def _ended(run: SlurmJobsStatus, wanted: str) -> bool:
    return run.last_run_name == wanted and run.last_run_status not in {None, "InProgress"}


async def available(kube: Client, namespace: str, *, ready: bool = True) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    told = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": moment,
    }
    key = Key(namespace, CONTROLLER)
    await kube.merge_patch(CONTROLLERS, key, {"status": {"conditions": [told]}}, subresource="status")


@asynccontextmanager
async def working(
    control_plane: ControlPlaneBed, namespace: str, slurm: SlurmBed, *, url: str = ""
) -> AsyncIterator[ChecksBed]:
    """Run the controllers until the block ends, by way of this URL to Slurm.

    Makes the Controller that everything belongs to, unless an earlier run has.
    """
    async with (
        connected(control_plane.kubeconfig, controller="soperatorchecks") as (client, recorder, _),
        Client(load(control_plane.kubeconfig)) as own,
    ):
        with suppress(AlreadyExists):
            await make_controller(own, namespace)
            await available(own, namespace)
        world = ClusterCaches(client, Settings(cgroup="none"), namespace=namespace)
        health = HealthWorld(world)
        caches = CheckCaches(world, health.checks)
        counts: dict[tuple[str, str], int] = {}

        def counted(check: str, result: str) -> None:
            counts[check, result] = counts.get((check, result), 0) + 1

        metrics = Metrics()
        tools: Any = {
            "applier": Applier(client),
            "reporter": Reporter(client),
            "recorder": recorder,
            "metrics": metrics,
        }
        checks, jobs = ActiveCheckSync(caches, **tools), CheckJobSync(caches, counted=counted, **tools)
        manager = Manager(grace=1.0)
        health.register(manager)
        caches.register(manager)
        for worker in (*checks.workers, *jobs.workers):
            manager.lead(worker)
        cluster = Key(namespace, CONTROLLER)
        world.slurms.follow(cluster, Address((url or slurm.rest_url,), slurm.jwt_key.read_bytes()))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(manager.run())
            tasks.create_task(world.slurms.run())
            events = tasks.create_task(recorder.run())
            try:
                await eventually(lambda: health.in_touch and caches.in_touch)
                yield ChecksBed(caches, own, counts)
            finally:
                manager.stop()
                world.slurms.stop()
                events.cancel()
