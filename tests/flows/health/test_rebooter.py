"""The rebooter's process against a real API server. The reboot command and the machine's /proc are the test's."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import yaml

from isthmus import names
from isthmus.domain.health.reboots import TAINT, Lock, mark_of
from isthmus.errors import Retry
from isthmus.health.rebootlock import TTL, RebootLock
from isthmus.kube.client import Client, path
from isthmus.kube.config import load
from isthmus.model.event import EVENTS
from isthmus.model.lease import LEASES
from isthmus.model.meta import Key, condition
from isthmus.model.node import NODES, Node
from isthmus.model.objects import BUDGETS
from isthmus.model.pod import PODS
from isthmus.processes import rebooter
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.waiting import PATIENCE
from tests.flows.kube.conftest import namespace_for_pods, pod
from tests.flows.kube.waiting import eventually, eventually_read
from tests.unit.health.test_boots import show

DRAIN, REBOOT = names.NODE_DRAIN_CONDITION, names.NODE_REBOOT_CONDITION
LIMIT = PATIENCE


@pytest.fixture
async def kube(control_plane: ControlPlaneBed) -> AsyncIterator[Client]:
    """No kinds of ours are needed: a rebooter works with Nodes."""
    async with Client(load(control_plane.kubeconfig)) as client:
        yield client


@pytest.fixture
async def namespace(kube: Client) -> AsyncIterator[str]:
    async with namespace_for_pods(kube) as name:
        yield name


class Machine:
    """A Node, what its /proc shows, and its rebooter."""

    def __init__(self, kube: Client, namespace: str, directory: Path, kubeconfig: Path) -> None:
        self.kube = kube
        self.namespace = namespace
        self.name = f"n-{uuid4().hex[:8]}"
        self.key = Key("", self.name)
        self.proc = directory / self.name
        self.told = directory / f"{self.name}.rebooted"
        self.kubeconfig = kubeconfig
        show(self.proc, started=0)

    async def make(self) -> None:
        taint = {"key": "gpu", "effect": "NoSchedule"}
        await self.kube.create(NODES, {"metadata": {"name": self.name}, "spec": {"taints": [taint]}})

    async def pod(self, name: str, **labels: str) -> None:
        manifest = pod(self.namespace, name, nodeName=self.name)
        manifest["metadata"]["labels"] = {"app": name, **labels}
        await self.kube.create(PODS, manifest)

    async def leaves(self, name: str) -> None:
        """Take a pod away, as Kubernetes does for the taint; no kubelet is here."""
        await self.kube.delete(PODS, Key(self.namespace, name), grace=0)

    async def ask(self, type_: str, status: str = "True") -> None:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        asked = {"type": type_, "status": status, "reason": "Asked", "lastTransitionTime": moment}
        body = msgspec.json.encode({"status": {"conditions": [asked]}})
        content = "application/strategic-merge-patch+json"
        await self.kube.send("PATCH", path(NODES, self.key, "status"), body=body, content=content)

    async def look(self) -> Node:
        return await self.kube.get(NODES, self.key)

    async def until(self, what: str, holds: Callable[[Node], object]) -> Node:
        return await eventually_read(self.look, what, holds=holds, within=LIMIT)

    async def says(self, type_: str, reason: str) -> Node:
        return await self.until(f"{type_} to be {reason}", lambda it: reason_of(it, type_) == reason)

    @asynccontextmanager
    async def rebooter(self, **options: Any) -> AsyncIterator[None]:
        """Run the process, until it is killed."""
        given = rebooter.Options(
            node=self.name,
            command=("sh", "-c", f"echo now >> {self.told}"),
            kubeconfig=self.kubeconfig,
            metrics_address="0",
            health_address="0",
            recheck=2.0,
            proc=self.proc,
            **options,
        )
        task = asyncio.ensure_future(rebooter.run(given))
        try:
            yield
            if task.done():
                task.result()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def goes_down(self) -> None:
        await eventually(self.told.exists, f"{self.name} to be told to reboot", within=LIMIT)

    def comes_up(self) -> None:
        show(self.proc, started=1)


def reason_of(node: Node, type_: str) -> str:
    found = condition(node.status.conditions, type_)
    return found.reason if found else ""


async def noted(machine: Machine, reason: str) -> None:
    """Wait for an Event about a Node; they are sent beside everything else."""
    fields = f"involvedObject.name={machine.name},reason={reason}"
    async with asyncio.timeout(LIMIT):
        while not (await machine.kube.list(EVENTS, namespace="default", fields=fields)).items:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


def is_open(node: Node) -> bool:
    keys = [it.key for it in node.spec.taints if it.effect == "NoExecute"]
    return not node.spec.unschedulable and not keys and mark_of(node) is None


MakeMachine = Callable[[], Awaitable[Machine]]


@pytest.fixture
async def machine(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, tmp_path: Path
) -> AsyncIterator[MakeMachine]:
    """Make machines; their rebooters are of one namespace, which has the lock."""
    given = yaml.safe_load(control_plane.kubeconfig.read_text())
    given["contexts"][0]["context"]["namespace"] = namespace
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(given))
    made: list[Machine] = []

    async def make() -> Machine:
        machine = Machine(kube, namespace, tmp_path, kubeconfig)
        await machine.make()
        made.append(machine)
        return machine

    yield make
    for it in made:
        await kube.delete(NODES, it.key)


async def test_a_machine_is_emptied_rebooted_once_and_opened_again(machine: MakeMachine, kube: Client) -> None:
    it = await machine()
    before = await it.look()
    await it.pod("worker-0", **{names.POD_PROTECT_LABEL: "true"})
    async with it.rebooter():
        await it.ask(REBOOT)
        node = await it.until("the cordon", lambda found: found.spec.unschedulable)
        node = await it.until(
            "the reason", lambda found: "worker-0" in str(condition(found.status.conditions, REBOOT))
        )
        assert TAINT.key not in {taint.key for taint in node.spec.taints}, "its job goes on"
        unprotected = {"metadata": {"labels": {names.POD_PROTECT_LABEL: None}}}
        await kube.merge_patch(PODS, Key(it.namespace, "worker-0"), unprotected)
        node = await it.until("the taint", lambda found: TAINT in found.spec.taints)
        assert {taint.key for taint in node.spec.taints} >= {"gpu"}
        await it.says(DRAIN, "NodeDraining")
    # It is killed here, and the next one goes on.
    async with it.rebooter():
        await it.leaves("worker-0")
        await it.goes_down()
        node = await it.look()
        assert reason_of(node, DRAIN) == "NodeDrained"
        assert reason_of(node, REBOOT) == "NodeRebooting"
    async with it.rebooter():
        it.comes_up()
        await it.says(REBOOT, "NodeRebooted")
        node = await it.until("the node to be open", is_open)
    assert it.told.read_text() == "now\n"
    assert node.spec.taints == before.spec.taints
    assert reason_of(node, DRAIN) == "NodeUndrained"
    lease = await kube.get(LEASES, Key(it.namespace, names.REBOOT_LEASE))
    assert not lease.spec.holder_identity
    await noted(it, "NodeRebooting")


async def test_one_machine_at_a_time_goes_down(machine: MakeMachine, kube: Client) -> None:
    first, second = await machine(), await machine()
    await first.ask(REBOOT)
    async with first.rebooter():
        await first.goes_down()
        await second.ask(REBOOT)
        async with second.rebooter():
            waiting = f"waits until other machines have been rebooted: {first.name}"
            node = await second.until(
                "it to wait", lambda it: waiting in str(condition(it.status.conditions, REBOOT))
            )
            assert is_open(node)
            assert not second.told.exists()
            first.comes_up()
            await first.says(REBOOT, "NodeRebooted")
            await second.goes_down()
    lease = await kube.get(LEASES, Key(first.namespace, names.REBOOT_LEASE))
    assert lease.spec.holder_identity == second.name


async def test_evictions_respect_disruption_budgets_and_a_drain_that_is_over_is_undone(
    machine: MakeMachine, kube: Client
) -> None:
    it = await machine()
    await it.pod("db")
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    running = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": moment}],
    }
    await kube.merge_patch(PODS, Key(it.namespace, "db"), {"status": running}, subresource="status")
    budget = {
        "metadata": {"namespace": it.namespace, "name": "db"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
    }
    await kube.create(BUDGETS, budget)
    async with it.rebooter(method="drain"):
        await it.ask(DRAIN)
        node = await it.until("the cordon", lambda found: found.spec.unschedulable)
        await it.says(DRAIN, "NodeDraining")
        assert TAINT not in node.spec.taints
        assert not (await kube.get(PODS, Key(it.namespace, "db"))).leaving
        await kube.delete(BUDGETS, Key(it.namespace, "db"))
        async with asyncio.timeout(LIMIT):
            while not (await kube.get(PODS, Key(it.namespace, "db"))).leaving:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.02)
        await it.leaves("db")
        await it.says(DRAIN, "NodeDrained")
        await it.ask(DRAIN, "False")
        await it.until("the node to be open", is_open)
    assert not it.told.exists()


async def test_a_command_that_fails_is_told_and_tried_again(machine: MakeMachine) -> None:
    it = await machine()
    it.told.mkdir()  # so that nothing can be written to it
    await it.ask(REBOOT)
    async with it.rebooter():
        await noted(it, "RebootFailed")
        it.told.rmdir()
        await it.goes_down()


async def test_the_lock_is_for_so_many_machines_and_expires(kube: Client, namespace: str) -> None:
    moment = datetime.now(UTC)

    def lock(machine: str, *, later: float = 0) -> RebootLock:
        at = moment + timedelta(seconds=later)
        return RebootLock(kube, namespace, machine=machine, limit=2, now=lambda: at)

    assert await lock("a").look() == Lock(free=True)
    await lock("a").take()
    await lock("b").take()
    assert await lock("a").look() == Lock(held=True)
    assert await lock("c").look() == Lock(holders=("a", "b"))
    with pytest.raises(Retry):
        await lock("c").take()
    assert await lock("b", later=TTL * 0.9).look() == Lock(held=True), "who is heard of keeps it"
    assert await lock("c", later=TTL * 1.1).look() == Lock(free=True, holders=("b",))
    await lock("c", later=TTL * 1.1).take()
    await lock("b").release()
    assert await lock("d", later=TTL * 1.1).look() == Lock(free=True, holders=("c",))
