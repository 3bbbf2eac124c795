"""Elastic NodeSets: a running controller between a real API server and a real Slurm, whose slurmds really start."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from isthmus import names
from isthmus.domain.elastic import decision
from isthmus.domain.elastic.decision import phase_of
from isthmus.domain.elastic.outlook import SQUEUE, Supply, limited, supply, waiting
from isthmus.domain.kube import podtrouble
from isthmus.model.event import EVENTS
from isthmus.model.meta import condition
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from isthmus.model.powerstate import POWER_STATES, NodeSetPowerState
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.elastic_bed import IDLE, Pod, Site, elastic_site
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

    def spec(self, name: str) -> dict[str, Any]:
        """All that the Slurm of the site knows of a NodeSet."""
        known = self.site.nodesets[name].spec
        return {"replicas": 1, "autoscale": POLICY, "extraConf": known.extra_conf, "slurmd": known.slurmd}

    async def shown(self, name: str) -> Supply:
        """What `isthmus elastic` shows of a NodeSet."""
        listed = await self.nodesets.kube.list(EVENTS, namespace=self.nodesets.namespace)
        nodeset = self.nodesets.nodeset(name)
        return supply(nodeset, self.state(name), listed.items, now=datetime.now(UTC))

    async def is_running(self, job: int) -> bool:
        return "RUNNING" in (await self.site.client.job(job))[0].job_state

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
    await eventually(lambda: nodesets.counted(names.ELASTIC_DEMAND, nodeset="a", kind="jobs") == 1)
    await elastic.bring_up("a", "b")
    assert elastic.active("a") == elastic.active("b") == {0}
    assert await nodesets.told("PoweringUp", name="a") == "Slurm starts a-0"
    await eventually(lambda: elastic.phase("a-0") == elastic.phase("b-0") == "on")
    assert nodesets.counted(names.ELASTIC_NODES, nodeset="a", state="on") == 1
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
    for use in ("starting", "busy", "stopping"):
        assert nodesets.counted(names.ELASTIC_SECONDS, nodeset="a", use=use) > 0
    assert nodesets.counted(names.ELASTIC_UNUSED, nodeset="a") == 0
    for step in ("queue", "boot", "register"):
        assert nodesets.counted(names.ELASTIC_START, "_count", nodeset="a", step=step) == 1


async def test_people_ask_for_nodes_by_their_ordinals(elastic: Elastic) -> None:
    nodesets = elastic.nodesets
    await elastic.make("a")
    await nodesets.kube.merge_patch(POWER_STATES, nodesets.key("a"), {"spec": {"activeNodes": [0]}})
    # Or by a number to begin with.
    await nodesets.make("b", replicas=1, autoscale=POLICY, initialNumberEphemeralNodes=1)
    await elastic.bring_up("a", "b")
    # They come up, are idle for two seconds, and go.
    await elastic.take_down("a", "b")
    await eventually(lambda: not elastic.active("a") | elastic.active("b"))


async def test_another_operator_goes_on_with_what_the_first_began(
    control_plane: ControlPlaneBed, namespace: str, slurm_bed: Callable[..., SlurmBed]
) -> None:
    async with elastic_site(slurm_bed, "26.05") as site:
        async with running(control_plane, namespace, site.bed) as nodesets:
            await make_controller(nodesets.kube, namespace)
            elastic = Elastic(nodesets, site)
            await elastic.make("a")
            job = site.submit("-wa-0", script="srun sleep 3600")
            await nodesets.there("a-0", name="a")
            began = nodesets.pods("a")["a-0"].metadata.uid
        # Nobody is there while its slurmd starts.
        site.pods["a-0"].start()
        await site.job_is(job, "RUNNING")
        async with running(control_plane, namespace, site.bed) as nodesets:
            elastic = Elastic(nodesets, site)
            await nodesets.up("a-0", register=False)
            await nodesets.settled("a")
            assert nodesets.pods("a")["a-0"].metadata.uid == began
            assert elastic.active("a") == {0}
            site.bed.command("scancel", str(job))
            await eventually(lambda: nodesets.leaving("a-0"))
        # Nor while it ends.
        site.pods["a-0"].end()
        async with running(control_plane, namespace, site.bed) as nodesets:
            elastic = Elastic(nodesets, site)
            await eventually(lambda: elastic.phase("a-0") == "stopping")
            await nodesets.bury("a-0")
            await eventually(lambda: elastic.phase("a-0") == "off" and not elastic.active("a"))


async def test_a_start_that_is_disturbed_begins_again(elastic: Elastic) -> None:
    nodesets = elastic.nodesets
    await elastic.make("a")
    job = elastic.site.submit("-wa-0", script="srun sleep 3600")
    await nodesets.there("a-0", name="a")
    # Its machine goes while it boots, and Kubernetes removes the pod.
    first = nodesets.pods("a")["a-0"]
    await nodesets.kube.delete(PODS, first.metadata.key, grace=0)
    await nodesets.succeeded(first)
    await elastic.bring_up("a")
    await elastic.site.job_is(job, "RUNNING")
    elastic.site.bed.command("scancel", str(job))
    await eventually(lambda: elastic.phase("a-0") == "stopping")
    # The next job comes when it is too late to stay: neither waits for the other for ever.
    job = elastic.site.submit("-wa-0", script="srun sleep 3600")
    await elastic.take_down("a")
    await elastic.bring_up("a")
    await elastic.site.job_is(job, "RUNNING")


async def no_machine(nodesets: NodeSets, pod: str) -> str:
    none = "0/3 nodes are available"
    pending = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": none}]
    await say(nodesets, pod, conditions=pending)
    return none


async def no_image(nodesets: NodeSets, pod: str) -> str:
    await nodesets._place(nodesets.pods("a")[pod], "")
    slurmd = {"name": "slurmd", "ready": False, "image": "i", "imageID": "", "restartCount": 0}
    waits = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    await say(nodesets, pod, containerStatuses=[{**slurmd, "state": waits}])
    return "container slurmd: ImagePullBackOff: no such image"


async def say(nodesets: NodeSets, pod: str, **status: Any) -> None:
    """Say how a pod is, as scheduler and kubelet do."""
    await nodesets.kube.merge_patch(PODS, nodesets.key(pod), {"status": status}, subresource="status")


@pytest.mark.parametrize("trouble", [no_machine, no_image])
async def test_where_nodes_do_not_come_jobs_go_to_the_next_nodeset(
    elastic: Elastic, trouble: Callable[[NodeSets, str], Awaitable[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodesets = elastic.nodesets
    await elastic.make("a", "b")
    given_back = elastic.site.submit("-N1")
    await nodesets.there("a-0", name="a")
    cause = await trouble(nodesets, "a-0")
    with monkeypatch.context() as impatient:
        # Only now: a node that is given up before its pod says what is wrong is given up without a cause.
        impatient.setattr(decision, "CAPACITY_S", 1.0)
        impatient.setattr(podtrouble, "PATIENCE", 0.0)
        looked_at = {"metadata": {"annotations": {"isthmus.test/look": "again"}}}
        await nodesets.kube.merge_patch(PODS, nodesets.key("a-0"), looked_at)
        await eventually(lambda: elastic.phase("a-0") == "held")
    await elastic.site.job_is(given_back, "PENDING")
    assert cause in await nodesets.told("NoCapacity", name="a")
    # The pod has nothing to wait for. Slurm itself lets a job that it took back wait for two minutes.
    await eventually(lambda: not nodesets.pods("a"))
    job = elastic.site.submit("-N1")
    await elastic.bring_up("b")
    await elastic.site.job_is(job, "RUNNING")
    told = nodesets.condition("Ready", "a")
    assert told
    assert "nodes could not be started, and are tried again at" in told.message


async def test_a_gang_larger_than_the_limits_starts_nothing_and_is_explained(elastic: Elastic) -> None:
    nodesets, site = elastic.nodesets, elastic.site
    await elastic.make("a", "b")
    await nodesets.change("b", autoscale={**POLICY, "max": 0})
    assert await nodesets.told("NodesHeldBack", name="b") == f"b-0: {decision.FENCED}autoscale.max is 0"
    gang = site.submit("-N2", script="srun sleep 3600")
    asked = await eventually(lambda: waiting(site.bed.command(*SQUEUE)))
    assert [(it.id, it.nodes, it.state) for it in asked] == [(str(gang), 2, "PENDING")]
    shown = await elastic.shown("b")
    (told,) = limited(asked, [await elastic.shown("a"), shown])
    assert told.limit == f"NodeSets allow no more than 1 nodes ({nodesets.key('b')}: autoscale.max is 0)"
    assert shown.next_step == "no more nodes are started: autoscale.max is 0"
    assert [it.message for it in shown.decisions] == [f"b-0: {decision.FENCED}autoscale.max is 0"]
    # Another limit takes the place of the first, which would let it begin.
    budget = {"budget": {"nodeHoursPerDay": 1}}
    await nodesets.change("b", autoscale={**POLICY, "max": 0, **budget})
    now = datetime.now(UTC)
    used = {"usedDay": f"{now:%Y-%m-%d}", "usedNodeHours": 1.5, "usedAt": now.isoformat()}
    await eventually(lambda: (it := elastic.state("b")) and it.status.used_day)
    await nodesets.kube.merge_patch(POWER_STATES, nodesets.key("b"), {"status": used}, subresource="status")
    await eventually(lambda: (it := elastic.state("b")) and it.status.used_node_hours == 1.5)
    await nodesets.change("b", autoscale={**POLICY, "max": None, **budget})
    exhausted = "the budget is used up: 1.5 of 1 node-hours today"
    await eventually(
        lambda: (it := nodesets.record("b-0")) and it.reason.startswith(f"{decision.FENCED}{exhausted}")
    )
    await nodesets.settled("b")
    assert (await elastic.shown("b")).next_step.startswith(exhausted)
    # Slurm has looked at the queue since: it has begun a job that is behind the gang.
    small = site.submit("-N1", "--time=1", script="srun sleep 3600")
    await elastic.bring_up("a")
    await site.job_is(small, "RUNNING")
    assert elastic.phase("b-0") == "off"
    assert not nodesets.pods("b")
    site.bed.command("scancel", str(small))
    await nodesets.change("b", autoscale={**POLICY, "budget": None})
    await elastic.bring_up("b")
    await site.job_is(gang, "RUNNING")


async def test_jobs_leave_a_machine_that_is_taken_away(elastic: Elastic) -> None:
    nodesets, site = elastic.nodesets, elastic.site
    await elastic.make("a")
    job = site.submit("-wa-0", "--requeue", script="srun sleep 3600")
    await elastic.bring_up("a")
    await site.job_is(job, "RUNNING")
    machine = nodesets.pods("a")["a-0"].spec.node_name
    assert machine

    async def notice(*keys: str) -> None:
        taints = [{"key": it, "effect": "NoSchedule"} for it in keys]
        await nodesets.kube.merge_patch(NODES, machine, {"spec": {"taints": taints}})

    def protected() -> bool:
        return nodesets.pods("a")["a-0"].metadata.annotations.get(names.SAFE_TO_EVICT_ANNOTATION) == "false"

    # An autoscaler waits for the job, and may give up.
    await notice("ToBeDeletedByClusterAutoscaler")
    drained = await nodesets.in_state("a-0", "DRAIN")
    assert drained.reason.startswith(f"slurm-operator: Node ({machine}) is being removed by Cluster Autoscaler")
    await eventually(protected)
    await notice()
    await nodesets.in_state("a-0", without="DRAIN")
    assert await elastic.is_running(job)
    # A cloud does not wait.
    await notice("cloud.google.com/impending-node-termination")
    reclaimed = await nodesets.in_state("a-0", "DRAIN")
    assert reclaimed.reason.startswith(f"slurm-operator: Node ({machine}) is being reclaimed by Google Cloud")
    assert f"job {job}" in await nodesets.told("MachineTakenBack", name="a")
    await site.job_is(job, "PENDING")
    # No pod takes the place of this one before a job needs its node.
    await elastic.take_down("a")
    await eventually(lambda: elastic.phase("a-0") == "off" and not elastic.active("a"))
    off = nodesets.record("a-0")
    assert off
    assert "DRAIN" not in off.state
    assert await nodesets.told("PowerDownRequested", name="a") == "a-0: its machine is being removed"
    site.bed.command("scancel", str(job))
    again = site.submit("-wa-0", script="srun sleep 3600")
    await nodesets.there("a-0", name="a")
    site.bed.command("scancel", str(again))


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


async def test_a_warm_node_is_kept_on_beyond_the_time_after_which_slurm_stops_nodes(elastic: Elastic) -> None:
    """Slurm is told so by us, each time before it would stop it."""
    nodesets, site = elastic.nodesets, elastic.site
    impatient = elastic.spec("a") | {"autoscale": {"warm": 1}, "suspendTime": 20}
    await nodesets.make("a", **impatient)
    site.deliver(nodesets.nodeset("a"), site.nodesets["b"])
    assert "SuspendTime=20" in site.bed.scontrol("show", "node", "a-0")
    await elastic.bring_up("a")
    await eventually(lambda: elastic.phase("a-0") == "on")
    began = nodesets.record("a-0").last_busy.value or 0  # type: ignore[union-attr]

    def kept() -> bool:
        nodesets.slurm.hurry()
        return (nodesets.record("a-0").last_busy.value or 0) > began  # type: ignore[union-attr]

    await eventually(kept)
    assert elastic.phase("a-0") == "on"


async def test_a_policy_is_taken_away_while_a_job_runs(elastic: Elastic) -> None:
    nodesets, site = elastic.nodesets, elastic.site
    await nodesets.make("a", **elastic.spec("a"))
    await eventually(lambda: nodesets.ready("a"))
    job = site.submit("-wa-0", script="srun sleep 3600")
    await elastic.bring_up("a")
    await site.job_is(job, "RUNNING")
    before = nodesets.pods("a")["a-0"].metadata.uid
    await nodesets.change("a", autoscale=None)
    await eventually(lambda: nodesets.nodeset("a").spec.autoscale is None and nodesets.ready("a"))
    site.deliver(nodesets.nodeset("a"), site.nodesets["b"])
    await eventually(lambda: nodesets.slurm.in_touch)
    assert await elastic.is_running(job)
    site.bed.command("scancel", str(job))
    # All nodes of a NodeSet without a policy are on.
    await eventually(lambda: nodesets.record("a-0").alloc_cpus == 0)  # type: ignore[union-attr]
    await nodesets.settled("a")
    again = site.submit("-wa-0", script="srun sleep 3600")
    await site.job_is(again, "RUNNING")
    assert nodesets.pods("a")["a-0"].metadata.uid == before


async def test_a_policy_is_given_while_a_job_runs(elastic: Elastic) -> None:
    nodesets, site = elastic.nodesets, elastic.site
    others = site.nodesets["b"]
    site.deliver(others)
    plain = {key: value for key, value in elastic.spec("a").items() if key != "autoscale"}
    await nodesets.make("a", **plain)
    pod = Pod(site.bed, nodesets.nodeset("a"))
    await nodesets.there("a-0", name="a")
    pod.start()
    await nodesets.up("a-0", register=False)
    await nodesets.settled("a")
    # Not the one of the files, which is announced before, but the one that made itself known.
    await nodesets.in_state("a-0", "IDLE", "DYNAMIC_NORM")
    job = site.submit("-wa-0", script="srun sleep 3600")
    await site.job_is(job, "RUNNING")
    await nodesets.change("a", autoscale=POLICY)
    await eventually(lambda: elastic.state("a"))
    site.deliver(nodesets.nodeset("a"), others, dynamic=("a-0",))
    await nodesets.in_state("a-0", "DRAIN")
    assert await elastic.is_running(job)
    assert not nodesets.leaving("a-0")
    site.bed.command("scancel", str(job))
    await eventually(lambda: nodesets.leaving("a-0"))
    pod.end()
    await nodesets.bury("a-0")
    site.deliver(nodesets.nodeset("a"), others)
    # Slurm forgets the node that made itself known, and reads of the one in its files.
    await eventually(lambda: nodesets.record("a-0") is not None and elastic.phase("a-0") == "off")
    again = site.submit("-wa-0", script="srun sleep 3600")
    await elastic.bring_up("a")
    await site.job_is(again, "RUNNING")
