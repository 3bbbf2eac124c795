"""Drains, updates and repairs of NodeSets on a real API server and a real Slurm."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from isthmus import names
from isthmus.domain.operator.nodeset.reservation import CONDITION
from isthmus.kube.client import Client
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.pod import PODS
from isthmus.model.slinky import NODESETS
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import connect
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.faults import Faults
from tests.bed.slurm import SlurmBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.nodesets_bed import NodeSets, make_controller, running
from tests.flows.slurm.helpers import batch_job, job_in_state, new_key

MINE = "ticket 4711"


@pytest.fixture
async def node(kube: Client, namespace: str) -> AsyncIterator[str]:
    """A Kubernetes node of this test's own."""
    name = f"node-{namespace}"
    await kube.create(NODES, {"metadata": {"name": name}})
    yield name
    await kube.delete(NODES, name)


async def brought_up(bed: NodeSets, replicas: int, *, node: str = "", **spec: Any) -> None:
    await bed.make(replicas=replicas, **spec)
    await bed.there(*(f"w-{n}" for n in range(replicas)))
    await bed.up(*bed.pods(), node=node)
    await bed.settled()


async def replaced(bed: NodeSets, pod: str) -> None:
    """Wait until a pod was deleted, let it go, and bring up the one that takes its place."""
    await eventually(lambda: bed.leaving(pod))
    await bed.bury(pod)
    await eventually(lambda: pod in bed.pods())
    await bed.up(pod)


def protected(bed: NodeSets, pod: str) -> bool:
    meta = bed.pods()[pod].metadata
    marks = meta.labels.get(names.POD_PROTECT_LABEL), meta.annotations.get(names.SAFE_TO_EVICT_ANNOTATION)
    assert marks in {("true", "false"), (None, None)}, "the marks for others are not in step"
    return marks[0] == "true"


async def test_a_node_that_is_wanted_again_comes_back(bed: NodeSets) -> None:
    await brought_up(bed, 1)
    job = await bed.busy("w-0")
    await bed.change(replicas=0)
    await bed.in_state("w-0", "DRAIN")
    await eventually(lambda: bed.status().victims == ("w-0",))
    await eventually(lambda: names.POD_DEADLINE_ANNOTATION in bed.pods()["w-0"].metadata.annotations)
    await bed.change(replicas=1)
    await bed.in_state("w-0", "ALLOCATED", without="DRAIN")
    await bed.settled()
    assert bed.status().victims == ()
    await eventually(lambda: names.POD_DEADLINE_ANNOTATION not in bed.pods()["w-0"].metadata.annotations)
    await bed.end(job)


async def test_a_job_that_has_just_begun_is_not_overlooked(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, cluster: SlurmBed, faults: Faults
) -> None:
    """A choice is kept, so it must not be made by what Slurm said two seconds ago."""
    await make_controller(kube, namespace)
    async with (
        faults.in_front_of(cluster.rest_url) as proxy,
        connect([cluster.rest_url], MintedTokens(cluster.jwt_key)) as client,
        running(control_plane, namespace, proxy.url, jwt_key=cluster.jwt_key.read_bytes()) as bed,
    ):
        await brought_up(bed, 2)
        late = proxy.respond(304, path="*/nodes/[?]update_time=*")
        await eventually(lambda: late.used)
        wish = batch_job(flags=("EXTERNAL_JOB",), required_nodes=("w-1",), hold=None)
        job = (await client.submit(msgspec.structs.replace(wish, script=None), key=new_key())).job_id
        await job_in_state(client, job, "RUNNING")
        await bed.change(replicas=1)
        await eventually(lambda: bed.status().victims)
        assert bed.status().victims == ("w-0",)
        late.remove()
        await client.cancel_job(job)


async def test_a_cordon_drains_and_its_end_brings_back(bed: NodeSets, node: str) -> None:
    await brought_up(bed, 2, node=node)
    job = await bed.busy("w-0")
    await bed.tell_slurm("w-1", "DRAIN", MINE)  # which nobody has told us yet when the cordon comes
    await bed.kube.merge_patch(NODES, node, {"spec": {"unschedulable": True}})
    found = await bed.in_state("w-0", "DRAIN")
    assert found.reason == f"slurm-operator: Node ({node}) was cordoned, Pod ({bed.key('w-0')}) must be cordoned"
    assert protected(bed, "w-0")
    await bed.end(job)
    await eventually(lambda: not protected(bed, "w-0"))
    why = {"metadata": {"annotations": {names.NODE_CORDON_REASON_ANNOTATION: "new fan"}}}
    await bed.kube.merge_patch(NODES, node, why)
    await eventually(lambda: (record := bed.record("w-0")) and record.reason == "slurm-operator: new fan")
    await bed.kube.merge_patch(NODES, node, {"spec": {"unschedulable": None}})
    await bed.in_state("w-0", "IDLE", without="DRAIN")
    await eventually(lambda: protected(bed, "w-0"))
    assert (await bed.in_state("w-1", "DRAIN")).reason == MINE, "another's drain was taken back"
    assert bed.counted(names.DRAINS, nodeset="w", cause="cordon") == 2, "once, and once with another reason"


async def test_what_a_user_says_on_a_pod_holds_until_he_says_otherwise(bed: NodeSets) -> None:
    """W7."""
    await brought_up(bed, 1)
    await bed.kube.merge_patch(
        PODS, bed.key("w-0"), {"metadata": {"annotations": {names.POD_CORDON_ANNOTATION: "true"}}}
    )
    await bed.in_state("w-0", "DRAIN")
    await bed.quiet(seconds=1.5)
    assert bed.pods()["w-0"].metadata.annotations[names.POD_CORDON_ANNOTATION] == "true"
    await bed.in_state("w-0", "DRAIN")
    await bed.kube.merge_patch(
        PODS, bed.key("w-0"), {"metadata": {"annotations": {names.POD_CORDON_ANNOTATION: None}}}
    )
    await bed.in_state("w-0", "IDLE", without="DRAIN")


async def test_an_update_goes_round_jobs(bed: NodeSets) -> None:
    strategy = {"rollingUpdate": {"maxUnavailable": 1}}
    await brought_up(bed, 3, updateStrategy=strategy)
    first = {name: it.metadata.uid for name, it in bed.pods().items()}
    job = await bed.busy("w-1")
    await bed.change(slurmd={"env": [{"name": "A", "value": "b"}]})
    for pod in ("w-2", "w-0"):
        await replaced(bed, pod)
        await bed.in_state(pod, "IDLE", without="DRAIN")
    await bed.in_state("w-1", "DRAIN")
    await bed.quiet(seconds=1.5)
    assert bed.pods()["w-1"].metadata.uid == first["w-1"]
    shown = [bed.counted(names.ROLLOUT_PODS, nodeset="w", state=it) for it in ("updated", "outdated")]
    assert shown == [2, 1]
    await bed.end(job)
    await replaced(bed, "w-1")
    await bed.settled()
    assert bed.counted(names.DRAINS, nodeset="w", cause="rollout") == 3
    assert bed.counted(names.PODS_REPLACED, nodeset="w", cause="rollout") == 3
    assert bed.counted(names.ROLLOUT_PODS, nodeset="w", state="outdated") == 0
    assert {it.metadata.uid for it in bed.pods().values()}.isdisjoint(first.values())
    assert (await bed.in_state("w-1", "IDLE", without="DRAIN")).reason == ""


async def test_a_specification_that_does_not_work_takes_one_node_and_no_more(bed: NodeSets) -> None:
    await brought_up(bed, 4)
    await bed.change(slurmd={"image": "example.org/bad:1"})
    await eventually(lambda: bed.leaving("w-3"))
    await bed.bury("w-3")
    await eventually(lambda: "w-3" in bed.pods())
    await bed.quiet(seconds=2)
    assert not any(bed.leaving(f"w-{n}") for n in range(3))
    for number in range(3):
        await bed.in_state(f"w-{number}", "IDLE", without="DRAIN")
    bad = bed.pods()["w-3"]
    await bed.change(slurmd={"image": None})
    await bed.succeeded(bad)  # at once, for it has no node
    await bed.up("w-3")
    await bed.settled()


async def test_a_node_of_a_new_shape_gets_a_new_record(bed: NodeSets) -> None:
    """W13."""
    await brought_up(bed, 1, slurmd={"resources": {"limits": {"cpu": "1", "memory": "100Mi"}}})
    await bed.change(slurmd={"resources": {"limits": {"cpu": "2", "memory": "200Mi"}}})
    await eventually(lambda: bed.leaving("w-0"))
    await bed.bury("w-0")
    await eventually(lambda: bed.record("w-0") is None)
    await eventually(lambda: "w-0" in bed.pods())
    await bed.up("w-0", CPUs=2, RealMemory=200)
    await bed.settled()


async def test_a_drain_that_takes_too_long_ends_jobs_where_the_policy_says_so(bed: NodeSets) -> None:
    await brought_up(bed, 1, drain={"timeout": "1s", "onTimeout": "Cancel"})
    await bed.busy("w-0")
    await bed.change(replicas=0)
    await eventually(lambda: bed.leaving("w-0"))
    assert await bed.told("JobsCancelled")


async def test_a_drain_that_takes_too_long_names_the_jobs_that_it_waits_for(bed: NodeSets) -> None:
    await brought_up(bed, 1, drain={"timeout": "1s"})
    job = await bed.busy("w-0")
    await bed.change(replicas=0)
    assert f"job {job}" in await bed.told("DrainOverdue")
    assert not bed.leaving("w-0")
    await bed.end(job)


async def test_out_of_touch_means_wait(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, cluster: SlurmBed, faults: Faults
) -> None:
    """W1: neither what was known before nor an empty answer lets a pod go."""
    await make_controller(kube, namespace)
    async with (
        faults.in_front_of(cluster.rest_url) as proxy,
        running(control_plane, namespace, proxy.url, jwt_key=cluster.jwt_key.read_bytes()) as bed,
    ):
        await brought_up(bed, 2)
        await bed.tell_slurm("w-1", "DRAIN", MINE)
        await bed.in_state("w-1", "DRAIN")
        proxy.refuse()
        await eventually(lambda: not bed.slurm.in_touch)
        await bed.change(replicas=0)
        await eventually(lambda: set(bed.status().victims) == {"w-0", "w-1"})
        await bed.quiet(seconds=1.5)
        assert set(bed.pods()) == {"w-0", "w-1"}
        proxy.heal()
        await eventually(lambda: bed.leaving("w-0") and bed.leaving("w-1"))


async def test_another_operator_goes_on_with_what_the_first_began(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, cluster: SlurmBed
) -> None:
    await make_controller(kube, namespace)
    async with running(control_plane, namespace, cluster) as bed:
        await brought_up(bed, 2)
        job = await bed.busy("w-1")
        await bed.kube.merge_patch(
            PODS, bed.key("w-1"), {"metadata": {"annotations": {names.POD_DELETION_COST_ANNOTATION: "-1"}}}
        )
        # Pods and NodeSets are heard of by different ways.
        await eventually(lambda: names.POD_DELETION_COST_ANNOTATION in bed.pods()["w-1"].metadata.annotations)
        await bed.change(replicas=1)
        await eventually(lambda: bed.status().victims == ("w-1",))
        await bed.in_state("w-1", "DRAIN")
        await bed.kube.merge_patch(
            PODS, bed.key("w-1"), {"metadata": {"annotations": {names.POD_DELETION_COST_ANNOTATION: None}}}
        )
    async with running(control_plane, namespace, cluster) as bed:
        await eventually(lambda: bed.slurm.in_touch)
        await bed.quiet(seconds=1.5)
        assert bed.status().victims == ("w-1",)
        assert not bed.leaving("w-0")
        await bed.end(job)
        await eventually(lambda: bed.leaving("w-1"))
        await bed.in_state("w-0", "IDLE", without="DRAIN")


async def test_a_node_that_slurm_forgot_is_brought_back(bed: NodeSets) -> None:
    await brought_up(bed, 3)
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 90))
    await bed.kube.merge_patch(PODS, bed.key("w-2"), {"status": {"startTime": began}}, subresource="status")
    await bed.slurm.client.delete_node("w-2")
    bed.slurm.hurry()
    await replaced(bed, "w-2")
    await bed.settled()
    assert await bed.told("SlurmNodeNotRegistered")
    assert bed.counted(names.PODS_REPLACED, nodeset="w", cause="repair") == 1


async def test_a_scheduled_update_keeps_its_reservation(bed: NodeSets) -> None:
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    update = {"startTime": start.isoformat(), "duration": "30m"}
    await brought_up(bed, 2, updateStrategy={"type": "ScheduledUpdate", "scheduledUpdate": update})

    def told(status: str, what: str = "") -> bool:
        found = bed.condition(CONDITION)
        return found is not None and found.status == status and what in found.message

    await eventually(lambda: told("True", "on w-[0-1]"))  # and not of the first node alone
    (found,) = await bed.slurm.client.reservations()
    assert (found.name, found.node_list) == ("SlurmOperatorMaint-w", "w-[0-1]")
    assert names.RESERVATION_FINALIZER in bed.nodeset().metadata.finalizers
    await bed.change(slurmd={"env": [{"name": "A", "value": "b"}]})
    await bed.quiet(seconds=1.5)
    assert not bed.leaving("w-0"), "nothing goes before its time"
    await bed.change(updateStrategy={"type": "OnDelete"})
    while await bed.slurm.client.reservations():  # noqa: ASYNC110 - nobody tells of reservations
        await asyncio.sleep(0.05)
    past = start - timedelta(hours=2)
    await bed.change(updateStrategy={"type": "ScheduledUpdate", "scheduledUpdate": {"startTime": past.isoformat()}})
    await eventually(lambda: told("False"))
    assert (condition := bed.condition(CONDITION))
    assert condition.reason == "StartTimePast"
    await bed.kube.delete(NODESETS, bed.key("w"))
    await eventually(lambda: bed.leaving("w-0") and bed.leaving("w-1"))
    await bed.bury("w-0", "w-1")
    await eventually(lambda: Key(bed.namespace, "w") not in bed.world.nodesets)
    assert await bed.slurm.client.reservations() == ()
