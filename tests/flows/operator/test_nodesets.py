"""Worker pods of NodeSets on a real API server, with a real Slurm beside it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from isthmus import names
from isthmus.domain.operator.nodeset import drains, repair
from isthmus.kube.client import Client
from isthmus.kube.errors import Forbidden, NotFound
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.objects import BUDGETS, CONFIGMAPS, SECRETS, SERVICES
from isthmus.model.pod import PODS
from isthmus.model.slinky import CONTROLLERS, NODESETS
from isthmus.model.storage import CLAIMS
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.kube.conftest import NAMESPACES, make_namespace
from tests.flows.kube.waiting import eventually
from tests.flows.operator.nodesets_bed import FOR_OTHERS, PLACES, NodeSets, make_controller, running


@pytest.fixture
async def alone(control_plane: ControlPlaneBed, kube: Client, namespace: str) -> AsyncIterator[NodeSets]:
    """A NodeSet controller that has no way to any Slurm."""
    await make_controller(kube, namespace)
    async with running(control_plane, namespace, None) as bed:
        yield bed


async def test_pods_come_and_the_status_says_so(bed: NodeSets) -> None:
    await bed.make(replicas=3)
    await bed.there("w-0", "w-1", "w-2")
    await eventually(lambda: bed.status().replicas == 3)
    assert not bed.ready()
    await bed.up("w-0", "w-1", "w-2")
    await bed.settled()
    await eventually(lambda: bed.status().slurm_idle == 3)
    status = bed.status()
    assert (status.desired, status.ready_replicas, status.available_replicas) == (3, 3, 3)
    assert status.updated_replicas == 3
    assert status.observed_generation == 1
    assert {it.type: it.status for it in status.conditions} == {
        "Ready": "True",
        "Progressing": "False",
        "Degraded": "False",
        "SlurmReachable": "True",
    }
    await eventually(lambda: all(bed.mirrored(it) == {"SlurmNodeStateIdle"} for it in ("w-0", "w-1", "w-2")))
    await bed.still()


async def test_a_pod_is_made_by_one_request_and_shown_by_another(bed: NodeSets) -> None:
    began = time.monotonic()
    await bed.make(replicas=40)
    await eventually(lambda: len(bed.pods()) == 40)
    await bed.up(*bed.pods())
    await bed.settled()
    await eventually(lambda: all(bed.mirrored(it) for it in bed.pods()))
    creates, others = bed.requests.count("POST"), len(bed.requests) - bed.requests.count("POST")
    told = 2 * (time.monotonic() - began)  # the status, while pods came up
    assert creates < 40 + 4  # where the API server is too slow to answer, it is asked again
    assert others < 40 + 8 + told  # the finalizer and two shared objects
    assert len(bed.pods()) == 40


async def test_conditions_of_kubelet_stay(bed: NodeSets) -> None:
    await bed.make(replicas=1)
    await bed.there("w-0")
    await bed.up("w-0")
    await eventually(lambda: bed.mirrored("w-0") == {"SlurmNodeStateIdle"})
    await bed.tell_slurm("w-0", "DRAIN", "by hand")
    await eventually(lambda: bed.mirrored("w-0") == {"SlurmNodeStateIdle", "SlurmNodeStateDrain"})
    await bed.tell_slurm("w-0", "RESUME")
    await eventually(lambda: bed.mirrored("w-0") == {"SlurmNodeStateIdle"})
    conditions = {it.type for it in bed.pods()["w-0"].status.conditions}
    assert {"PodScheduled", "Initialized", "ContainersReady", "Ready"} <= conditions


async def test_pods_are_made_and_replaced_while_slurm_is_away(alone: NodeSets) -> None:
    """W4."""
    await alone.make(replicas=2)
    await alone.there("w-0", "w-1")
    await alone.up("w-0", "w-1", register=False)
    await alone.settled()
    reachable = alone.condition("SlurmReachable")
    assert reachable
    assert reachable.status == "False"
    first = alone.pods()["w-0"]
    await alone.tell("w-0", ready=False, phase="Failed")
    await alone.succeeded(first)
    await alone.change(replicas=3)
    await alone.there("w-0", "w-1", "w-2")


async def test_nothing_goes_while_slurm_is_away(alone: NodeSets) -> None:
    """W1."""
    await alone.make(replicas=2)
    await alone.there("w-0", "w-1")
    await alone.up("w-0", "w-1", register=False)
    await alone.settled()
    await alone.change(replicas=1)
    await eventually(
        lambda: (it := alone.condition("Ready")) is not None and "1 pods are deleted as soon" in it.message
    )
    await alone.quiet()
    assert not alone.status().victims
    assert set(alone.pods()) == {"w-0", "w-1"}


async def test_scale_in_drains_deletes_and_keeps_the_rest(bed: NodeSets) -> None:
    await bed.make(replicas=4)
    await bed.there("w-0", "w-1", "w-2", "w-3")
    await bed.up(*bed.pods())
    await bed.settled()
    job = await bed.busy("w-3")
    await bed.change(replicas=2)
    await eventually(lambda: bed.leaving("w-2") and bed.leaving("w-1"))
    assert not bed.leaving("w-3")  # it is busy, and others are not
    await bed.bury("w-1", "w-2")
    await bed.settled()
    assert set(bed.pods()) == {"w-0", "w-3"}
    assert bed.status().victims == ()
    assert bed.counted(names.DRAINS, nodeset="w", cause="scale_in") == 2
    assert not bed.counted(names.PODS_REPLACED)
    await bed.end(job)


async def test_a_busy_node_goes_only_after_its_job(bed: NodeSets) -> None:
    await bed.serve(1)
    job = await bed.busy("w-0")
    await bed.change(replicas=0)
    node = await bed.in_state("w-0", "DRAIN")
    assert node.reason.startswith("slurm-operator: ")
    await bed.quiet(seconds=1.5)
    assert not bed.leaving("w-0")
    await bed.end(job)
    await eventually(lambda: bed.leaving("w-0"))


async def test_when_slurm_knows_no_node_of_any_nodeset_none_is_restarted(
    bed: NodeSets, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("w", "x"):
        await bed.make(name, replicas=1)
        await bed.there(f"{name}-0", name=name)
        await bed.up(f"{name}-0", register=False)
    await eventually(lambda: all(bed.status(name).ready_replicas == 1 for name in ("w", "x")))
    for module in (repair, drains):
        monkeypatch.setattr(module, "UNREGISTERED_GRACE", 0.0)  # as if they had been there for a minute
    for name in ("w", "x"):
        await bed.change(name, revisionHistoryLimit=3)

    def complains(name: str) -> bool:
        found = bed.condition("Degraded", name)
        return found is not None and "does not know 2 of 2 nodes of the cluster" in found.message

    await eventually(lambda: complains("w") and complains("x"))
    assert not any(map(bed.leaving, ("w-0", "x-0")))


async def test_freed_ordinals_are_used_again(bed: NodeSets) -> None:
    await bed.make(replicas=3, ordinalPadding=2)
    await bed.there("w-00", "w-01", "w-02")
    await bed.up(*bed.pods())
    await bed.settled()
    first = bed.pods()["w-01"]
    await bed.kube.delete(PODS, bed.key("w-01"), grace=0)
    await bed.succeeded(first)
    assert set(bed.pods()) == {"w-00", "w-01", "w-02"}


async def test_a_pod_that_leaves_is_awaited(bed: NodeSets) -> None:
    await bed.serve(1)
    first = bed.pods()["w-0"].metadata.uid
    await bed.kube.delete(PODS, bed.key("w-0"))  # its kubelet takes its time
    await eventually(lambda: bed.leaving("w-0"))
    await bed.quiet(seconds=1.0)
    assert len(bed.world.pods) == 1
    await bed.bury("w-0")
    await bed.there("w-0")
    assert bed.pods()["w-0"].metadata.uid != first


async def test_a_refusal_is_told_and_not_asked_for_a_thousand_times(alone: NodeSets) -> None:
    hard = {"pods": "2", "configmaps": "0"}
    quota = {"metadata": {"namespace": alone.namespace, "name": "few"}, "spec": {"hard": hard}}
    await alone.kube.send(
        "POST", f"/api/v1/namespaces/{alone.namespace}/resourcequotas", body=msgspec.json.encode(quota)
    )
    await refused_for(alone, "exceeded quota")
    await alone.make(replicas=200)
    await eventually(lambda: (it := alone.condition("Degraded")) is not None and it.status == "True")
    told = alone.condition("Degraded")
    assert told
    assert "exceeded quota" in told.message
    assert "exceeded quota" in await alone.told("FailedCreate")
    await eventually(lambda: len(alone.pods()) == 2)
    assert alone.requests.count("POST") < 40
    await alone.kube.send("DELETE", f"/api/v1/namespaces/{alone.namespace}/resourcequotas/few")
    # By now it may be asked for once a minute only.
    await eventually(lambda: len(alone.pods()) == 200, within=FOR_OTHERS)
    await eventually(lambda: (it := alone.condition("Degraded")) is not None and it.status == "False")


async def refused_for(bed: NodeSets, why: str) -> None:
    """Wait until a quota has been counted by its controller, and the API server knows of it."""
    metadata = {"namespace": bed.namespace, "name": "probe"}
    async with asyncio.timeout(60):
        while True:
            try:
                await bed.kube.create(CONFIGMAPS, {"metadata": metadata})
                await bed.kube.delete(CONFIGMAPS, bed.key("probe"))
            except Forbidden as error:
                if why in error.what:
                    return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"slurmd": {"imge": "typo"}}, "unknown field"),
        ({"slurmd": {"resources": {"limits": {"cpu": "100m"}}}}, "less than one"),
        ({"extraConf": "Weight=1", "template": {"spec": {"hostname": "no_name-"}}}, "cannot be called"),
        ({"template": {"spec": {"volumes": [{"name": "Bad Name"}]}}}, "Bad Name"),
    ],
)
async def test_what_cannot_be_made_says_why(alone: NodeSets, spec: dict[str, Any], told: str) -> None:
    await alone.make(replicas=2, **spec)
    await eventually(lambda: (it := alone.condition("Degraded")) is not None and it.status == "True")
    found = alone.condition("Ready")
    assert found
    assert told in found.message
    assert not alone.pods()


async def test_a_nodeset_without_its_controller_says_so_and_starts_when_it_comes(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    async with running(control_plane, namespace, None) as bed:
        await bed.make(replicas=1)
        await eventually(lambda: (it := bed.condition("Ready")) is not None and "no Controller" in it.message)
        await make_controller(kube, namespace)
        await bed.there("w-0")


async def test_a_nodeset_of_a_slurmctld_without_a_key_says_so(alone: NodeSets) -> None:
    spec = {"external": True, "externalConfig": {"host": "ctl.example.org", "port": 7000}}
    metadata = {"namespace": alone.namespace, "name": "away"}
    await alone.kube.create(CONTROLLERS, {"metadata": metadata, "spec": spec})
    await alone.make("far", controllerRef={"name": "away"}, replicas=1)
    await eventually(lambda: (told := alone.condition("Degraded", "far")) and "has no slurmKeyRef" in told.message)
    assert not alone.pods("far")


async def test_sshd_of_workers_has_keys_that_stay_and_settings_that_are_checked(alone: NodeSets) -> None:
    await alone.make(replicas=1, ssh={"enabled": True, "extraSshdConfig": "MaxSessions 3"})
    await alone.there("w-0")
    # They were there before the pod, which mounts them.
    keys = await alone.kube.get(SECRETS, alone.key("w-ssh-host-keys"))
    assert len(keys.data) == 6
    config = alone.key("w-ssh-config")
    written = (await alone.kube.get(CONFIGMAPS, config)).data["sshd_config"]
    assert "\nMaxSessions 3\n" in written
    await alone.change(ssh={"extraSshdConfig": "UsePAM no"})
    await eventually(lambda: "sets UsePAM" in getattr(alone.condition("Degraded"), "message", ""))
    assert (await alone.kube.get(CONFIGMAPS, config)).data["sshd_config"] == written
    # Workers know each other, also those of another NodeSet.
    await alone.make("x", replicas=0, ssh={"enabled": True})
    await alone.change(ssh={"extraSshdConfig": ""})

    def known() -> set[str]:
        found = alone.world.configmaps.get(config)
        return {line.split()[0] for line in found.data["ssh_known_hosts"].splitlines()} if found else set()

    await eventually(lambda: known() == {"w-*", "x-*"})
    assert (await alone.kube.get(SECRETS, alone.key("w-ssh-host-keys"))).data == keys.data
    # Without sshd, settings go when no pod mounts them any more.
    await alone.change("x", ssh={"enabled": False})
    await eventually(lambda: alone.key("x-ssh-config") not in alone.world.configmaps)
    await eventually(lambda: known() == {"w-*"})


async def test_what_all_share_is_repaired_and_goes_with_the_last(alone: NodeSets) -> None:
    """W23."""
    service, budget = alone.key("slurm-workers-slurm"), alone.key("slurm-workers-pdb-slurm")
    await alone.make("a", replicas=0)
    await alone.make("b", replicas=0)
    await eventually(lambda: owners(alone) == {"a", "b"})
    await eventually(lambda: budget in alone.world.budgets)
    first = alone.world.budgets.get(budget)
    assert first
    await alone.kube.merge_patch(SERVICES, service, {"spec": {"selector": {"stolen": "yes"}}})
    await alone.kube.delete(BUDGETS, budget)

    async def selector() -> dict[str, str]:
        found = msgspec.json.decode(
            await alone.kube.raw(f"/api/v1/namespaces/{service.namespace}/services/{service.name}")
        )
        return dict(found["spec"]["selector"])

    async with asyncio.timeout(60):
        while "stolen" in await selector():  # noqa: ASYNC110 - nobody tells of what a Service selects
            await asyncio.sleep(0.02)
    assert "slinky.slurm.net/cluster" in await selector()
    await eventually(
        lambda: (it := alone.world.budgets.get(budget)) and it.metadata.uid != first.metadata.uid, within=60
    )
    await alone.kube.delete(NODESETS, alone.key("a"))
    await alone.kube.delete(NODESETS, alone.key("b"))
    await eventually(lambda: service not in alone.world.services, within=FOR_OTHERS)


def owners(bed: NodeSets) -> set[str]:
    found = bed.world.services.get(bed.key("slurm-workers-slurm"))
    return {it.name for it in found.metadata.owner_references} if found else set()


async def test_another_operator_makes_no_pod_twice(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    await make_controller(kube, namespace)
    async with running(control_plane, namespace, None) as first:
        await first.make(replicas=30)
        await eventually(lambda: len(first.pods()) > 3)
    async with running(control_plane, namespace, None) as second:
        await eventually(lambda: len(second.pods()) == 30)
        await eventually(lambda: second.status().replicas == 30)
        assert set(second.pods()) == {f"w-{n}" for n in range(30)}
        await second.still(seconds=1.0)


async def test_a_pod_of_nobody_is_taken_in_and_one_of_others_is_complained_of(alone: NodeSets) -> None:
    await alone.make(replicas=1)
    await alone.there("w-0")
    made = msgspec.json.decode(await alone.kube.raw(f"/api/v1/namespaces/{alone.namespace}/pods/w-0"))
    labels = made["metadata"]["labels"]
    orphan = await alone.kube.merge_patch(PODS, alone.key("w-0"), {"metadata": {"ownerReferences": None}})
    before = {made["metadata"]["resourceVersion"], orphan.metadata.resource_version}
    await eventually(
        lambda: (it := alone.pods().get("w-0")) and it.metadata.resource_version not in before
    )  # again ours, and still the same
    assert alone.pods()["w-0"].metadata.uid == made["metadata"]["uid"]
    stranger = {"containers": [{"name": "a", "image": "b"}]}
    metadata = {"namespace": alone.namespace, "name": "w-1", "labels": {**labels, names.INSTANCE_LABEL: "other"}}
    await alone.kube.create(PODS, {"metadata": metadata, "spec": stranger})
    await alone.change(replicas=2)
    await eventually(lambda: (it := alone.condition("Degraded")) is not None and "does not belong" in it.message)


# DaemonSet mode


@pytest.fixture
async def nodes(kube: Client, namespace: str) -> AsyncIterator[Callable[..., Any]]:
    """Make Kubernetes nodes that only this test's NodeSets select."""
    made: list[str] = []

    async def make(name: str, **more: Any) -> str:
        full = f"{name}-{namespace[-6:]}"
        labels = {"for": namespace, **more.pop("labels", {})}
        await kube.create(NODES, {"metadata": {"name": full, "labels": labels, **more}})
        await kube.merge_patch(NODES, full, {"spec": {"taints": None}})
        made.append(full)
        return full

    yield make
    for name in made:
        try:
            await kube.delete(NODES, name)
        except NotFound:
            continue


def daemons(bed: NodeSets, **spec: Any) -> dict[str, Any]:
    selector = {"nodeSelector": {"for": bed.namespace}}
    return {"scalingMode": "DaemonSet", "template": {"spec": selector}, **spec}


async def test_each_node_that_fits_gets_a_pod_as_soon_as_it_is_there(
    bed: NodeSets, nodes: Callable[..., Any]
) -> None:
    """W15."""
    first = await nodes("a")
    await bed.make(**daemons(bed))
    await bed.there(f"w-{first}")
    second = await nodes("b")
    await bed.there(f"w-{first}", f"w-{second}")
    await bed.up(f"w-{first}", node=first)
    await bed.up(f"w-{second}", node=second)
    await bed.settled()
    assert bed.status().desired == 2
    # It does not fit any more: drained, then deleted.
    await bed.kube.merge_patch(NODES, second, {"metadata": {"labels": {"for": "others"}}})
    await eventually(lambda: bed.leaving(f"w-{second}"))
    await bed.bury(f"w-{second}")
    await eventually(lambda: bed.status().desired == 1 and bed.ready())


async def test_a_cordoned_node_gets_its_pod_back(bed: NodeSets, nodes: Callable[..., Any]) -> None:
    """slurm-operator 259."""
    node = await nodes("a")
    await bed.make(**daemons(bed))
    await bed.there(f"w-{node}")
    await bed.up(f"w-{node}", node=node)
    await bed.settled()
    await bed.kube.merge_patch(NODES, node, {"spec": {"unschedulable": True}})
    await bed.in_state(node, "DRAIN")
    first = bed.pods()[f"w-{node}"]
    await bed.kube.delete(PODS, first.metadata.key, grace=0)
    await bed.succeeded(first)


async def test_a_change_of_mode_replaces_all(bed: NodeSets, nodes: Callable[..., Any]) -> None:
    node = await nodes("a")
    await bed.serve(1)
    await bed.change(**daemons(bed))
    await eventually(lambda: f"w-{node}" in bed.pods() and bed.leaving("w-0"))
    await bed.bury("w-0")
    await bed.there(f"w-{node}")


# Claims


async def test_claims_are_kept_or_go_as_the_policy_says(bed: NodeSets) -> None:
    template = {
        "metadata": {"name": "scratch"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    policy = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    await bed.make(replicas=2, volumeClaimTemplates=[template], persistentVolumeClaimRetentionPolicy=policy)
    await bed.there("w-0", "w-1")
    assert bed.pods()["w-1"].spec.volumes[-1].name == "scratch"
    claims = {bed.key(f"scratch-w-{n}") for n in range(2)}
    await eventually(lambda: claims <= set(bed.world.claims))
    await bed.up("w-0", "w-1")
    await bed.settled()
    await bed.change(replicas=1)
    await eventually(lambda: bed.leaving("w-1"))
    await bed.change(minReadySeconds=1)  # another look while the pod takes its time to end
    await eventually(lambda: bed.status().observed_generation == bed.nodeset().metadata.generation == 3)
    found = await bed.kube.get(CLAIMS, bed.key("scratch-w-1"))
    assert [it.kind for it in found.metadata.owner_references] == ["Pod"]
    await bed.bury("w-1")
    await gone(bed, bed.key("scratch-w-1"))
    kept = bed.world.claims.get(bed.key("scratch-w-0"))
    assert kept
    assert [it.kind for it in kept.metadata.owner_references] == ["NodeSet"]


async def gone(bed: NodeSets, claim: Key) -> None:
    """Wait until the garbage collector deletes a claim, and let go of it as its own controller would."""

    def deleted() -> bool:
        found = bed.world.claims.get(claim)
        return found is None or found.metadata.deletion_timestamp is not None

    await eventually(deleted, within=FOR_OTHERS)
    if bed.world.claims.get(claim):
        with suppress(NotFound):
            await bed.kube.merge_patch(CLAIMS, claim, {"metadata": {"finalizers": None}})
    await eventually(lambda: claim not in bed.world.claims)


# Going


async def test_a_nodeset_that_is_deleted_drains_first(bed: NodeSets) -> None:
    """W3."""
    await bed.serve(2)
    job = await bed.busy("w-0")
    await bed.kube.delete(NODESETS, bed.key("w"))
    await eventually(lambda: bed.leaving("w-1"))
    await bed.bury("w-1")
    assert not bed.leaving("w-0")
    assert bed.key("w") in bed.world.nodesets
    await bed.end(job)
    await eventually(lambda: bed.leaving("w-0"))
    await bed.bury("w-0")
    await eventually(lambda: bed.key("w") not in bed.world.nodesets)
    assert bed.counted(names.DRAINS, nodeset="w", cause="deletion") == 2


async def test_a_namespace_that_goes_is_not_held_up(
    control_plane: ControlPlaneBed, kube: Client, cluster: SlurmBed
) -> None:
    name = await make_namespace(kube)
    await make_controller(kube, name)
    async with running(control_plane, name, cluster) as bed:
        await bed.make(replicas=1)
        await bed.there("w-0")
        await bed.up("w-0", register=False)
        await kube.delete(NAMESPACES, name)
        await eventually(lambda: bed.leaving("w-0"), within=FOR_OTHERS)
        await bed.bury("w-0")  # before all pods are gone, Kubernetes deletes nothing else
        await eventually(lambda: bed.key("w") not in bed.world.nodesets, within=FOR_OTHERS)
    await kube.delete_all(NODES, labels=f"{PLACES}={name}")


async def test_a_nodeset_whose_controller_is_gone_can_be_deleted(alone: NodeSets) -> None:
    await alone.make(replicas=1)
    await alone.there("w-0")
    await alone.up("w-0", register=False)
    await alone.kube.delete(CONTROLLERS, alone.key("slurm"))
    await alone.kube.delete(NODESETS, alone.key("w"))
    await eventually(lambda: alone.key("w") not in alone.world.nodesets)
