"""A running health loop on a real API server and a real Slurm, with the test in the place of kubelets and checks.

The pods of nodes are objects alone: the test makes them, says that they are ready, and lets them go. What would run
in one is answered by `Execution`, for there is no kubelet.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from isthmus import names
from isthmus.domain.health.activechecks.manifests import MANAGED_BY
from isthmus.domain.health.observations import Settings
from isthmus.domain.health.replacement import Replacement
from isthmus.domain.operator.manifests.common import Settings as OperatorSettings
from isthmus.health.metrics import HealthMetrics
from isthmus.health.nodetests import CRONJOBS
from isthmus.health.notifications import Notifications
from isthmus.health.reservations import Run
from isthmus.health.sync import HealthSync
from isthmus.health.world import HealthWorld, record_name
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.kube.errors import AlreadyExists, NotFound
from isthmus.model.activecheck import ACTIVE_CHECKS
from isthmus.model.health import HEALTH_POLICIES, NodeHealth, NodeHealthStatus
from isthmus.model.meta import Key, condition
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from isthmus.model.slinky import NODESETS, NodeSet
from isthmus.model.slurm import Node as SlurmNode
from isthmus.model.workload import OWN_JOBS
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

CHECK = "gpu-check"
PREFIX = "[node_problem]"


def now() -> str:
    """This moment, as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def worker_pod(node: str, machine: str, owner: NodeSet, *, grace: int) -> dict[str, Any]:
    """The worker pod of a Slurm node, as a NodeSet makes it."""
    meta = owner.metadata
    marks = {names.COMPONENT_LABEL: "worker", names.CLUSTER_LABEL: CONTROLLER, names.POD_HOSTNAME_LABEL: node}
    owned = {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.name,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
    }
    # It tolerates everything, so that nobody evicts it from a machine without a kubelet.
    spec = {
        "nodeName": machine,
        "containers": [{"name": "slurmd", "image": "example/none"}],
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": grace,
    }
    metadata = {"namespace": meta.namespace, "name": f"pod-{node}", "labels": marks, "ownerReferences": [owned]}
    return {"metadata": metadata, "spec": spec}


def pod_is_ready() -> dict[str, Any]:
    """The status of a pod that runs."""
    told = [{"type": "Ready", "status": "True", "lastTransitionTime": now()}]
    return {"status": {"phase": "Running", "conditions": told, "startTime": now()}}


async def set_condition(
    kube: Client, machine: str, type_: str, *, status: str = "True", reason: str = "Broken"
) -> None:
    """Set a condition of a machine, as a problem detector or a rebooter does."""
    told = {"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": now()}
    body = {"metadata": {"name": machine}, "status": {"conditions": [told]}}
    await kube.apply(NODES, body, manager=f"detector-{type_.lower()}", force=True, subresource="status")


def failure(node: str, job: int, *, at: str = "") -> dict[str, str]:
    """What the status of a check says of a node that failed."""
    return {"node": node, "result": "Failed", "jobId": str(job), "evidence": "exit code 1", "at": at or now()}


def end_of_test(*, passed: bool) -> dict[str, Any]:
    """The status of a Job that was the test of a node."""
    moment = now()
    told = [
        {"type": it, "status": "True", "reason": "CheckEnded", "lastTransitionTime": moment}
        for it in (("SuccessCriteriaMet", "Complete") if passed else ("FailureTarget", "Failed"))
    ]
    done = {"completionTime": moment} if passed else {}
    return {"status": {"startTime": moment, "conditions": told, **done}}


def commands_in(bed: SlurmBed) -> Run:
    """Run commands in the bed, as root."""

    async def run(command: Sequence[str]) -> tuple[int, str]:
        try:
            return 0, await asyncio.to_thread(bed.command, *command)
        except RuntimeError as error:
            return 1, str(error)

    return run


class Execution:
    """What stands for `kubectl exec`: notes commands and answers with exit codes, by check."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, str]] = []
        """Pods and checks."""
        self.commands: list[tuple[str, tuple[str, ...]]] = []
        """Pods and whole commands."""
        self.codes: dict[str, int] = {}
        self.said = b""
        self.slurm: SlurmBed | None = None
        """Where commands of Slurm are run, as a worker pod has them, too."""

    async def __call__(self, pod: Key, command: Sequence[str], hear: Callable[[bytes], object]) -> int:
        if "scontrol" in command and self.slurm:
            code, said = await commands_in(self.slurm)(command)
            hear(said.encode())
            return code
        check = command[command.index("--check") + 1] if "--check" in command else command[0]
        self.ran.append((pod.name, check))
        self.commands.append((pod.name, tuple(command)))
        hear(self.said)
        return self.codes.get(check, 0)


class HealthBed:
    """A health loop, and what tests do with it."""

    def __init__(self, world: HealthWorld, sync: HealthSync, kube: Client, metrics: Metrics) -> None:
        self.world = world
        self.sync = sync
        self.kube = kube
        """The test's own connection."""
        self.metrics = metrics
        self.requests: list[str] = []
        """The methods of requests of the loop that change something."""
        self.execution = Execution()

    @property
    def namespace(self) -> str:
        return self.world.operator.namespace

    @property
    def cluster(self) -> Key:
        return Key(self.namespace, CONTROLLER)

    @property
    def slurm(self) -> Slurm:
        found = self.world.operator.slurms.of(self.cluster)
        assert found
        return found

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    # Records

    def health(self, node: str) -> NodeHealth | None:
        return self.world.healths.get(self.key(record_name(CONTROLLER, node)))

    def status(self, node: str) -> NodeHealthStatus:
        found = self.health(node)
        return found.status if found else NodeHealthStatus()

    async def phase(self, node: str, *phases: str, within: float = PATIENCE) -> NodeHealthStatus:
        """Wait until a node is in one of these phases."""
        try:
            await eventually(lambda: self.status(node).phase in phases, within=within)
        except AssertionError:
            raise AssertionError(f"{node} is not {phases}: {self.status(node)}; {self.record(node)}") from None
        return self.status(node)

    # Kubernetes

    async def machine(self, node: str) -> str:
        """Make the machine of a node."""
        name = f"{self.namespace}-{node}"
        with suppress(AlreadyExists):
            await self.kube.create(NODES, {"metadata": {"name": name, "labels": {PLACES: self.namespace}}})
        return name

    async def condition(self, machine: str, type_: str, *, status: str = "True", reason: str = "Broken") -> None:
        """Set a condition of a machine, as a problem detector does."""
        await set_condition(self.kube, machine, type_, status=status, reason=reason)

    def shown(self, machine: str, type_: str) -> tuple[str, str]:
        """The status and reason of a condition of a machine."""
        node = self.world.operator.kube_nodes.get(Key("", machine))
        found = condition(node.status.conditions, type_) if node else None
        return (found.status, found.reason) if found else ("", "")

    async def worker(self, *nodes: str, nodeset: str = "w") -> None:
        """Make the worker pods of Slurm nodes, on machines of their own."""
        with suppress(AlreadyExists):
            spec = {"controllerRef": {"name": CONTROLLER}, "replicas": 0}
            await self.kube.create(
                NODESETS, {"metadata": {"namespace": self.namespace, "name": nodeset}, "spec": spec}
            )
        owner = await self.kube.get(NODESETS, self.key(nodeset))
        for node in nodes:
            await self.kube.create(PODS, worker_pod(node, await self.machine(node), owner, grace=0))
            await self.ready(node)
            await eventually(partial(self.uid, node))

    async def ready(self, node: str) -> None:
        await self.kube.merge_patch(PODS, self.key(f"pod-{node}"), pod_is_ready(), subresource="status")

    def uid(self, node: str) -> str:
        """Which pod a node has; empty if it has none."""
        pod = self.world.operator.pods.get(self.key(f"pod-{node}"))
        return pod.metadata.uid if pod and not pod.leaving else ""

    async def replaced(self, node: str, before: str) -> None:
        """Do what a NodeSet does when a pod was deleted: make another one."""
        await eventually(lambda: self.uid(node) != before)
        with suppress(NotFound):
            await self.kube.delete(PODS, self.key(f"pod-{node}"), grace=0, uid=before)
        await eventually(lambda: self.key(f"pod-{node}") not in self.world.operator.pods)
        await self.worker(node)

    # Checks and policies

    async def policy(self, name: str = "policy", **spec: Any) -> None:
        """Make or change a policy."""
        await self.kube.apply(
            HEALTH_POLICIES,
            {"metadata": {"namespace": self.namespace, "name": name}, "spec": spec},
            manager="test",
            force=True,
        )

        def seen() -> bool:
            found = self.world.policies.get(self.key(name))
            return found is not None and found.metadata.generation == made.metadata.generation

        made = await self.kube.get(HEALTH_POLICIES, self.key(name))
        await eventually(seen)

    async def check(
        self,
        name: str = CHECK,
        *,
        prefix: str = PREFIX,
        notify: Sequence[str] = (),
        success: Mapping[str, Any] | None = None,
        in_slurm: bool = True,
    ) -> None:
        """Make an active check that drains nodes which fail it; `success` is what it asks for when they pass.

        Its jobs are Slurm's, or pods.
        """
        script = {"sbatchScript": "#!/bin/sh\ntrue\n"}
        spec = {
            "slurmClusterRefName": CONTROLLER,
            **({"checkType": "slurmJob", "slurmJobSpec": script} if in_slurm else {"checkType": "k8sJob"}),
            "failureReactions": {"drainSlurmNode": {"drainReasonPrefix": prefix}}
            | ({"notify": {"receivers": list(notify)}} if notify else {}),
            "successReactions": success,
        }
        metadata = {"namespace": self.namespace, "name": name}
        await self.kube.create(ACTIVE_CHECKS, {"metadata": metadata, "spec": spec})
        pod = {"containers": [{"name": "check", "image": "example/none"}], "restartPolicy": "Never"}
        managed = {"managedBy": MANAGED_BY} if in_slurm else {}
        job = {"spec": {**managed, "backoffLimit": 0, "template": {"spec": pod}}}
        cron = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": job}
        await self.kube.create(CRONJOBS, {"metadata": metadata, "spec": cron})

    async def tested(self, node: str, *, passed: bool = True) -> str:
        """Wait for the Job of a node's test, and end it as the check would; return the reservation it names."""
        await eventually(lambda: self.world.check_jobs.get(self.key(self.status(node).test)))
        job = self.world.check_jobs.get(self.key(self.status(node).test))
        assert job
        assert job.metadata.annotations[names.CHECK_NODE_ANNOTATION] == node
        await self.kube.merge_patch(OWN_JOBS, job.metadata.key, end_of_test(passed=passed), subresource="status")
        return job.metadata.annotations.get(names.CHECK_RESERVATION_ANNOTATION, "")

    async def fails(self, *nodes: str, name: str = CHECK, job: int = 17, passed: Sequence[str] = ()) -> float:
        """Let the last run of a check have failed on exactly these nodes; return when that was written.

        `passed` are nodes that passed, which a check lists where it has reactions to that.
        """
        told = [failure(it, job) for it in nodes] + [failure(it, job) | {"result": "Passed"} for it in passed]
        await self.kube.merge_patch(
            ACTIVE_CHECKS, self.key(name), {"status": {"nodes": told}}, subresource="status"
        )
        return time.monotonic()

    # Slurm

    def record(self, node: str) -> SlurmNode | None:
        return self.slurm.nodes.get(node)

    def reason(self, node: str) -> str:
        """Why a node is drained; empty if it is not."""
        found = self.record(node)
        return found.reason if found and "DRAIN" in found.state else ""

    async def drained(self, node: str, reason: str, *, within: float = PATIENCE) -> None:
        """Wait until a node is drained with this reason."""
        try:
            await eventually(lambda: self.reason(node) == reason, within=within)
        except AssertionError:
            raise AssertionError(f"{node}: {self.record(node)}; {self.status(node)}") from None

    async def opened(self, node: str, *, within: float = PATIENCE) -> None:
        """Wait until a node takes jobs, of everybody."""

        def found() -> bool:
            it = self.record(node)
            return bool(it and {"DRAIN", "DOWN", "RESERVED", "MAINTENANCE"}.isdisjoint(it.state))

        try:
            await eventually(found, within=within)
        except AssertionError:
            raise AssertionError(f"{node}: {self.record(node)}; {self.status(node)}") from None

    async def settled(self, *, seconds: float = 1.5) -> None:
        """Wait until the loop writes nothing for a while."""
        async with asyncio.timeout(PATIENCE):
            before = -1
            while before != len(self.requests):
                before = len(self.requests)
                await asyncio.sleep(seconds)


@asynccontextmanager
async def running(
    control_plane: ControlPlaneBed,
    namespace: str,
    slurm: SlurmBed | str,
    *,
    jwt_key: bytes = b"",
    kubeconfig: Path | None = None,
    replacement: Replacement = Replacement(),  # noqa: B008 - frozen
    notifications: Notifications | None = None,
    execution: Execution | None = None,
    not_ready_grace: float = 86400.0,
    grace: float = 1.0,
    before: Callable[[HealthBed], object] = lambda _: None,
) -> AsyncIterator[HealthBed]:
    """Run a health loop until the block ends; `slurm` is a bed, or the URL of a proxy before it.

    Makes the Controller that everything belongs to, unless an earlier loop has. `before` is called before the loop
    does anything.
    """
    async with (
        connected(kubeconfig or control_plane.kubeconfig, controller="soperatorchecks") as (
            client,
            recorder,
            requests,
        ),
        Client(load(control_plane.kubeconfig)) as own,
    ):
        with suppress(AlreadyExists):
            await make_controller(own, namespace)
        metrics = Metrics()
        counts = HealthMetrics(metrics)
        notifications = notifications or Notifications(counter=counts.notifications)
        world = HealthWorld(ClusterCaches(client, OperatorSettings(cgroup="none"), namespace=namespace))
        counts.follow([world])
        ran = execution or Execution()
        ran.slurm = slurm if isinstance(slurm, SlurmBed) else None
        sync = HealthSync(
            world,
            # No kubelet answers for the machines of the bed, unless a test says so.
            Settings(not_ready_grace=not_ready_grace),
            replacement=replacement,
            recorder=recorder,
            reporter=Reporter(client),
            notifications=notifications,
            metrics=metrics,
            health_metrics=counts,
            execute=ran,
        )
        bed = HealthBed(world, sync, own, metrics)
        bed.requests, bed.execution = requests, ran
        before(bed)
        manager = Manager(grace=grace)
        world.register(manager)
        for worker in (*sync.workers, notifications):
            manager.lead(worker)
        key = jwt_key if isinstance(slurm, str) else slurm.jwt_key.read_bytes()
        url = slurm if isinstance(slurm, str) else slurm.rest_url
        slurms = world.operator.slurms
        slurms.follow(Key(namespace, CONTROLLER), Address((url,), key))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(manager.run())
            tasks.create_task(slurms.run())
            events = tasks.create_task(recorder.run())
            try:
                await eventually(lambda: world.in_touch)
                await eventually(lambda: slurms.in_touch(bed.cluster))
                yield bed
            finally:
                manager.stop()
                slurms.stop()
                events.cancel()
