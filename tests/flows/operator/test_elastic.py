"""Elastic NodeSets: a running controller between a real API server and a real Slurm, whose slurmds really start."""

import time
from collections.abc import AsyncIterator, Callable

import pytest

from isthmus.domain.elastic.decision import phase_of
from isthmus.model.meta import Key, condition
from isthmus.model.powerstate import POWER_STATES, NodeSetPowerState
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.elastic_bed import IDLE, Site, elastic_site
from tests.flows.operator.nodesets_bed import NodeSets, make_controller, running

POLICY = {"idleTime": IDLE}


class Elastic:
    """A running controller with the two nodes of a Slurm."""

    def __init__(self, nodesets: NodeSets, site: Site) -> None:
        self.nodesets = nodesets
        self.site = site

    def state(self, name: str) -> NodeSetPowerState | None:
        return self.nodesets.world.power_states.get(self.nodesets.key(name))

    def active(self, name: str) -> set[int]:
        found = self.state(name)
        return set(found.spec.active_nodes) if found else set()

    def phase(self, node: str) -> str:
        return phase_of(self.nodesets.record(node))

    async def make(self, *names: str) -> None:
        for name in names:
            await self.nodesets.make(name, replicas=1, autoscale=POLICY)
        await eventually(lambda: all(self.nodesets.ready(it) for it in names))

    async def bring_up(self, *names: str) -> None:
        """Do what scheduler and kubelet do, with real slurmds."""
        for name in names:
            await self.nodesets.there(f"{name}-0", name=name)
            self.site.pods[f"{name}-0"].start()
            await self.nodesets.up(f"{name}-0", register=False)

    async def take_down(self, *names: str) -> None:
        """Wait until pods are deleted, and end them as kubelet does."""
        for name in names:
            await eventually(lambda: self.nodesets.leaving(f"{name}-0"))  # noqa: B023
            self.site.pods[f"{name}-0"].end()
            await self.nodesets.bury(f"{name}-0")


@pytest.fixture
async def elastic(
    control_plane: ControlPlaneBed, namespace: str, slurm_bed: Callable[..., SlurmBed]
) -> AsyncIterator[Elastic]:
    # One release will do: what differs between them, the tests of Slurm alone show.
    async with elastic_site(slurm_bed, "26.05") as site, running(control_plane, namespace, site.bed) as nodesets:
        await make_controller(nodesets.kube, namespace)
        yield Elastic(nodesets, site)


async def test_a_job_gets_its_nodes_and_they_go_after_it(elastic: Elastic) -> None:
    nodesets = elastic.nodesets
    await elastic.make("a", "b")
    assert not nodesets.pods("a")
    ready = nodesets.condition("Ready", "a")
    assert ready
    assert ready.message == "0 of 1 nodes are powered up"
    job = elastic.site.submit("-N2", script="srun sleep 3600")
    await elastic.bring_up("a", "b")
    assert elastic.active("a") == elastic.active("b") == {0}
    assert await nodesets.told("PoweringUp", name="a") == "Slurm starts a-0"
    await eventually(lambda: elastic.phase("a-0") == elastic.phase("b-0") == "on")
    elastic.site.bed.command("scancel", str(job))
    # Idle for two seconds, they go by themselves, and Slurm does not wait for its time-out.
    await elastic.take_down("a", "b")
    await eventually(lambda: elastic.phase("a-0") == elastic.phase("b-0") == "off")
    await eventually(lambda: not elastic.active("a") | elastic.active("b"))
    assert await nodesets.told("PoweredDown", name="a")
    await nodesets.settled("a")
    state = elastic.state("a")
    assert state

    def at_rest() -> bool:
        found = elastic.state("a")
        told = condition(found.status.conditions, "ScalingInProgress") if found else None
        return bool(found and not found.status.node_states and told and told.status == "False")

    await eventually(at_rest)
    assert not nodesets.record("a-0").reason  # type: ignore[union-attr]


async def test_people_ask_for_nodes_by_their_ordinals(elastic: Elastic) -> None:
    nodesets = elastic.nodesets
    await elastic.make("a")
    key: Key = nodesets.key("a")
    await nodesets.kube.merge_patch(POWER_STATES, key, {"spec": {"activeNodes": [0]}})
    await elastic.bring_up("a")
    # It comes up, is idle for two seconds, and goes.
    await elastic.take_down("a")
    await eventually(lambda: not elastic.active("a"))


async def test_a_warm_node_is_kept_on_beyond_its_idle_time(elastic: Elastic) -> None:
    nodesets = elastic.nodesets
    await elastic.make("a")
    await nodesets.change("a", autoscale={**POLICY, "warm": 1})
    await elastic.bring_up("a")
    await eventually(lambda: elastic.phase("a-0") == "on")

    def outlasted() -> bool:
        nodesets.slurm.hurry()
        return time.time() - (nodesets.record("a-0").last_busy.value or 0) >= 5  # type: ignore[union-attr]

    await eventually(outlasted)
    assert elastic.phase("a-0") == "on"
    await nodesets.change("a", autoscale={**POLICY, "warm": 0})
    await elastic.take_down("a")
