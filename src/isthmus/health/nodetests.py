"""Starts the test of a node: the check that condemned it runs again, on that node alone.

    an active check    a Job from its CronJob, as `kubectl create job --from` makes one; if it runs a pod, that is
                       sent to the node's machine
    a passive check    its runner, in the worker pod (`passivetests`)

A test has a name, and is started once under it, whoever asks how often.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.domain.health import manualruns
from isthmus.domain.health.actions import RunTest
from isthmus.domain.health.view import ClusterView
from isthmus.health.passivetests import PassiveTest, PassiveTests
from isthmus.health.reservations import reservation_name
from isthmus.health.world import HealthWorld
from isthmus.kube import errors
from isthmus.kube.client import path
from isthmus.model.base import Kind
from isthmus.model.meta import Key, Partial
from isthmus.model.workload import OWN_JOBS

CRONJOBS: Final[Kind[Partial]] = Kind(Partial, "batch/v1", "cronjobs", "CronJob")


@dataclass(eq=False)
class NodeTests:
    world: HealthWorld
    passive: PassiveTests

    async def start(self, view: ClusterView, test: RunTest, *, reserved: bool) -> None:
        """Start a test; `reserved` says that a private reservation keeps the node for it."""
        if test.source == "check":
            await self._start_job(view, test, reserved=reserved)
            return
        node = view.nodes.get(test.node)
        if node is None or node.pod is None or not node.pod_ready:
            self.passive.fail(PassiveTest(view.cluster, test.job, test.check), "the node has no pod that is ready")
            return
        self.passive.start(PassiveTest(view.cluster, test.job, test.check, node.pod.metadata.key))

    async def _start_job(self, view: ClusterView, test: RunTest, *, reserved: bool) -> None:
        namespace = view.cluster.namespace
        try:
            found = await self.world.kube.raw(path(CRONJOBS, Key(namespace, test.check)))
        except errors.NotFound:
            wrong = f"there is no CronJob {test.check}"
            self.passive.fail(PassiveTest(view.cluster, test.job, test.check), wrong)
            return
        cronjob = msgspec.json.decode(found)
        machine = _machine_of(view, test.node)
        if not (machine or manualruns.runs_in_slurm(cronjob)):
            wrong = "the machine of the node is not known"
            self.passive.fail(PassiveTest(view.cluster, test.job, test.check), wrong)
            return
        manifest = manualruns.manual_job(cronjob, suffix="test", node=test.node, machine=machine)
        meta: dict[str, Any] = manifest["metadata"]
        meta["name"] = test.job
        meta["labels"] = {**meta["labels"], names.CHECK_LABEL: test.check}
        if reserved:
            meta["annotations"][names.CHECK_RESERVATION_ANNOTATION] = reservation_name(test.node)
        with suppress(errors.AlreadyExists):
            await self.world.kube.create(OWN_JOBS, manifest)


def _machine_of(view: ClusterView, node: str) -> str:
    found = view.nodes.get(node)
    return found.machine.metadata.name if found and found.machine else ""
