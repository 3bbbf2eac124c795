"""SlurmClusters on a real API server: their parts, their status, their end. The parts are carried out elsewhere."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from isthmus import names
from isthmus.domain.kube.conditions import no, yes
from isthmus.domain.operator.manifests import sconfig
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.autoscaler import AUTOSCALERS
from isthmus.model.base import Kind
from isthmus.model.meta import Key, condition
from isthmus.model.objects import SECRETS, SERVICES
from isthmus.model.pod import PODS, Pod
from isthmus.model.slinky import ACCOUNTINGS, CONTROLLERS, LOGINSETS, NODESETS, RESTAPIS
from isthmus.model.soperator import NEBIUS_NODESETS, SLURM_CLUSTERS, SlurmCluster
from isthmus.model.storage import CLAIMS
from isthmus.operator.applier import Applier
from isthmus.operator.clusters.sync import ClusterSync, NebiusNodeSetSync
from isthmus.operator.statuswriter import Reporter
from isthmus.operator.world import World
from isthmus.runtime.metrics import Metrics
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.scale import set_scale
from tests.flows.kube.waiting import eventually
from tests.flows.operator.parts_bed import LIMIT, until_quiet
from tests.flows.working import at_work, seated

T = TypeVar("T")


class Bed:
    """The controllers of SlurmClusters at work in one namespace."""

    def __init__(self, world: World, syncs: tuple[ClusterSync, NebiusNodeSetSync], writes: list[str]) -> None:
        self.world = world
        self._queues = [sync.controller.queue for sync in syncs]
        self.kube = world.kube
        self.namespace = world.namespace
        self.writes = writes
        """The methods of all requests that change something but Events."""

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    async def make(self, name: str = "demo", **spec: Any) -> SlurmCluster:
        made = await self.kube.create(SLURM_CLUSTERS, {"metadata": self.meta(name), "spec": spec})
        await eventually(lambda: self.key(name) in self.world.clusters)
        return made

    def meta(self, name: str, **more: Any) -> dict[str, Any]:
        return {"namespace": self.namespace, "name": name, **more}

    def cluster(self, name: str = "demo") -> SlurmCluster:
        found = self.world.clusters.get(self.key(name))
        assert found is not None
        return found

    def condition(self, type_: str, name: str = "demo") -> tuple[str, str]:
        found = condition(self.cluster(name).status.conditions, type_)
        return (found.status, found.message) if found else ("", "")

    async def there(self, kind: Kind[T], name: str) -> T:
        """Wait until an object is there."""
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                return await self.kube.get(kind, self.key(name))
            except NotFound:
                assert time.monotonic() < deadline, f"{kind.name} {name} did not come"
                await asyncio.sleep(0.02)

    async def gone(self, kind: Kind[Any], name: str) -> None:
        """Wait until an object is gone: the garbage collector may take half a minute."""
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                await self.kube.get(kind, self.key(name))
            except NotFound:
                return
            assert time.monotonic() < deadline, f"{kind.name} {name} did not go"
            await asyncio.sleep(0.02)

    def size(self, nodeset: str) -> int | None:
        """How many workers a NodeSet is to have, as the cache shows; None before it shows any."""
        found = self.world.nodesets.get(self.key(nodeset))
        return found.spec.replicas if found else None

    def wake(self, name: str) -> None:
        for queue in self._queues:
            queue.add(self.key(name))

    async def quiet(self) -> None:
        """Wait until nobody has anything left to do, now or later, and all have heard of everything."""
        await until_quiet(
            self.world, lambda: not any(len(queue) or queue.taken for queue in self._queues), self.writes
        )

    def is_due(self, name: str) -> bool:
        """Whether the cluster is looked at now, without waiting for anything."""
        queue = self._queues[0]
        return self.key(name) in queue.taken or queue._backlog.ready_count(queue._clock()) == 1

    async def tell(self, kind: Kind[Any], name: str, *, ready: bool = True, wrong: str = "", **fields: Any) -> None:
        """How a part is, as the controller that carries it out would."""
        found = await self.there(kind, name)
        held = [
            yes("Ready", "Test") if ready else no("Ready", "Test", wrong or "not yet"),
            yes("Degraded", "Test", wrong) if wrong else no("Degraded", "Test"),
        ]
        conditions = [
            {
                "type": it.type,
                "status": it.status,
                "reason": it.reason,
                "message": it.message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for it in held
        ]
        status = {"observedGeneration": found.metadata.generation, "conditions": conditions, **fields}
        await self.kube.merge_patch(kind, self.key(name), {"status": status}, subresource="status")

    async def tell_all(self, *, workers: int, prefix: str = "", name: str = "demo") -> None:
        """Tell that every part is ready."""
        await self.tell(CONTROLLERS, name, slurmVersion="26.05.1")
        await self.tell(RESTAPIS, name)
        await self.tell(LOGINSETS, f"{prefix}login", readyReplicas=1, replicas=1)
        await self.tell(
            NODESETS,
            f"{prefix}worker",
            readyReplicas=workers,
            replicas=workers,
            desired=workers,
            nodeSetHash="x",
            selector="x",
        )
        if self.cluster(name).spec.populate_jail is not None:
            await self.tell_writer(name)

    async def tell_writer(self, name: str = "demo", *, component: str = sconfig.COMPONENT) -> None:
        """Tell that the pod of a Deployment is ready, as kubelet would; the rest is Kubernetes' own work."""

        def pods() -> tuple[Pod, ...]:
            store = self.world.exporter_pods if component == "exporter" else self.world.pods
            return store.by("part", (component, self.key(name)))

        await eventually(lambda: len(pods()) == 1)
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        status = {"status": {"phase": "Running", "conditions": [ready]}}
        await self.kube.merge_patch(PODS, pods()[0].metadata.key, status, subresource="status")


@asynccontextmanager
async def working(kubeconfig: Path, namespace: str) -> AsyncIterator[Bed]:
    async with seated(kubeconfig, namespace) as (world, recorder, writes):
        parts: dict[str, Any] = {
            "applier": Applier(world.kube),
            "reporter": Reporter(world.kube),
            "recorder": recorder,
            "metrics": Metrics(),
        }
        syncs = (ClusterSync(world, **parts), NebiusNodeSetSync(world, **parts))
        async with at_work(world, recorder, (*syncs[0].workers, *syncs[1].workers)):
            yield Bed(world, syncs, writes)


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, kube: Client, namespace: str) -> AsyncIterator[Bed]:
    del kube  # which has the kinds installed
    async with working(control_plane.kubeconfig, namespace) as bed:
        yield bed


async def test_one_resource_becomes_a_cluster(bed: Bed) -> None:
    await bed.make(slurmNodes={"worker": {"size": 3}, "accounting": {"enabled": True}})
    controller = await bed.there(CONTROLLERS, "demo")
    await bed.there(ACCOUNTINGS, "demo")
    await bed.there(RESTAPIS, "demo")
    await bed.there(LOGINSETS, "login")
    workers = await bed.there(NODESETS, "worker")
    assert workers.spec.replicas == 3
    assert controller.metadata.controller is not None
    assert controller.metadata.controller.kind == "SlurmCluster"
    slurm_key = await bed.there(SECRETS, "demo-slurm-key")
    jwt_key = await bed.there(SECRETS, "demo-jwt-key")
    assert [len(it) for it in (slurm_key.data["slurm.key"], jwt_key.data["jwt.key"])] == [1024, 32]
    await bed.there(SERVICES, "slurmctld")
    claim = await bed.there(CLAIMS, "jail")
    assert claim.spec.access_modes == ("ReadWriteMany",)
    assert claim.metadata.owner_references == ()  # users' files are not ours to delete


async def test_it_says_what_it_waits_for_and_when_it_is_ready(bed: Bed, control_plane: ControlPlaneBed) -> None:
    await bed.make(slurmNodes={"worker": {"size": 2}})
    await bed.there(NODESETS, "worker")
    await eventually(lambda: bed.condition("Ready")[0] == "False")
    assert bed.cluster().status.phase == "Not available"
    await bed.tell(CONTROLLERS, "demo", ready=False, wrong="image not found")
    await eventually(lambda: bed.condition("Degraded") == ("True", "slurmctld: image not found"))
    await bed.tell_all(workers=2)
    await eventually(lambda: bed.condition("Ready")[0] == "True")
    status = bed.cluster().status
    assert (status.phase, status.workers, status.ready_login) == ("Available", "2/2", 1)
    assert status.slurm_version == "26.05.1"
    assert status.observed_generation == bed.cluster().metadata.generation
    words = ("wait", "--for=condition=Ready", "slurmcluster/demo", f"--namespace={bed.namespace}", "--timeout=30s")
    assert "condition met" in control_plane.kubectl(*words)
    assert "Available" in control_plane.kubectl("get", "slurmclusters", f"--namespace={bed.namespace}")


async def test_a_new_size_reaches_the_workers_at_once(bed: Bed, control_plane: ControlPlaneBed) -> None:
    await bed.make("ml-cluster", slurmNodes={"worker": {"size": 3}})
    await bed.there(NODESETS, "worker")
    await bed.tell_all(workers=3, name="ml-cluster")
    await eventually(lambda: bed.condition("Ready", "ml-cluster")[0] == "True")
    await bed.quiet()
    at_once: list[bool] = []

    def notice(key: Key, _: object, new: SlurmCluster | None) -> None:
        if new and new.spec.slurm_nodes.worker.size == 15:
            at_once.append(bed.is_due(key.name))

    bed.world.clusters.on_change(notice)
    # As the documents have it.
    await asyncio.to_thread(
        control_plane.kubectl,
        "patch",
        "slurmcluster",
        "ml-cluster",
        "-n",
        bed.namespace,
        "--type=merge",
        '-p={"spec":{"slurmNodes":{"worker":{"size":15}}}}',
    )
    await eventually(lambda: bed.size("worker") == 15)
    assert at_once[0]
    # What was told of three workers says nothing about fifteen.
    await eventually(lambda: bed.condition("Ready", "ml-cluster")[0] == "False")


async def test_at_rest_nothing_is_written(bed: Bed) -> None:
    """Soperator writes 114 times a minute while a cluster is not available."""
    await bed.make()
    await bed.there(NODESETS, "worker")
    await bed.quiet()
    before = len(bed.writes)
    for _ in range(5):
        # Whatever wakes the controller.
        bed.wake("demo")
        await bed.quiet()
    assert len(bed.writes) == before


async def test_an_operator_that_starts_again_changes_nothing(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    del kube
    async with working(control_plane.kubeconfig, namespace) as first:
        await first.make()
        await first.there(NODESETS, "worker")
        await first.tell_all(workers=1)
        await eventually(lambda: first.condition("Ready")[0] == "True")
        await first.quiet()
        before = first.cluster()
        key = await first.there(SECRETS, "demo-slurm-key")
    async with working(control_plane.kubeconfig, namespace) as second:
        await second.quiet()
        assert second.cluster() == before
        assert (await second.there(SECRETS, "demo-slurm-key")).data == key.data


async def test_what_cannot_be_made_is_said_and_what_runs_is_left_alone(bed: Bed) -> None:
    await bed.make(slurmNodes={"worker": {"size": 2}})
    await bed.there(NODESETS, "worker")
    patch = {"spec": {"slurmNodes": {"worker": {"size": 9, "k8sNodeFilterName": "gone"}}}}
    await bed.kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), patch)
    await eventually(lambda: bed.condition("Accepted")[0] == "False")
    assert "there is no node filter 'gone'" in bed.condition("Accepted")[1]
    assert bed.condition("Degraded")[0] == "True"
    assert (await bed.there(NODESETS, "worker")).spec.replicas == 2
    repaired = {"spec": {"k8sNodeFilters": [{"name": "gone"}]}}
    await bed.kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), repaired)
    await eventually(lambda: bed.condition("Accepted")[0] == "True")
    await eventually(lambda: bed.size("worker") == 9)


async def test_fields_without_effect_are_named_in_the_status(bed: Bed) -> None:
    await bed.make(useDefaultAppArmorProfile=True)
    await eventually(lambda: bed.condition("FieldsWithoutEffect")[0] == "True")
    assert "useDefaultAppArmorProfile" in bed.condition("FieldsWithoutEffect")[1]


async def test_parts_that_are_no_longer_wanted_go(bed: Bed) -> None:
    await bed.make(slurmNodes={"accounting": {"enabled": True}})
    await bed.there(ACCOUNTINGS, "demo")
    patch = {"spec": {"slurmNodes": {"accounting": {"enabled": False}}}}
    await bed.kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), patch)
    await bed.gone(ACCOUNTINGS, "demo")
    assert (await bed.there(CONTROLLERS, "demo")).spec.accounting_ref is None


async def test_what_somebody_else_deletes_or_changes_comes_back(bed: Bed) -> None:
    await bed.make()
    await bed.there(NODESETS, "worker")
    await bed.quiet()
    await bed.kube.delete(SERVICES, bed.key("slurmctld"))
    # But for the number of workers, which others may decide.
    theirs = {"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"}}}
    changed = await bed.kube.merge_patch(NODESETS, bed.key("worker"), theirs)
    assert changed.spec.persistent_volume_claim_retention_policy.when_deleted == "Retain"
    await bed.there(SERVICES, "slurmctld")

    heard_of = int(changed.metadata.resource_version)

    def ours() -> bool:
        found = bed.world.nodesets.get(bed.key("worker"))
        return found is not None and found.spec.persistent_volume_claim_retention_policy.when_deleted == "Delete"

    await eventually(lambda: bed.world.nodesets.version > heard_of and ours())


async def test_two_clusters_in_one_namespace_do_not_meet(bed: Bed) -> None:
    await bed.make("one")
    await bed.there(NODESETS, "worker")
    await bed.make("two")
    await bed.there(NODESETS, "two-worker")
    await bed.there(LOGINSETS, "two-login")
    assert (await bed.there(NODESETS, "worker")).spec.controller_ref.name == "one"
    assert (await bed.there(NODESETS, "two-worker")).spec.controller_ref.name == "two"
    await eventually(lambda: [bed.cluster(it).status.name_prefix for it in ("one", "two")] == ["", "two-"])
    # When the first one goes, the second keeps its names.
    await bed.kube.delete(SLURM_CLUSTERS, bed.key("one"))
    await bed.gone(SLURM_CLUSTERS, "one")
    await bed.kube.merge_patch(SLURM_CLUSTERS, bed.key("two"), {"spec": {"slurmNodes": {"worker": {"size": 4}}}})
    await eventually(lambda: bed.size("two-worker") == 4)


async def test_a_cluster_that_goes_lets_its_workers_go_first(bed: Bed) -> None:
    await bed.make()
    await bed.there(NODESETS, "worker")
    # As the controller of NodeSets does while nodes drain.
    held = {"metadata": {"finalizers": [names.DRAIN_FINALIZER]}}
    await bed.kube.merge_patch(NODESETS, bed.key("worker"), held)
    await bed.quiet()
    await bed.kube.delete(SLURM_CLUSTERS, bed.key("demo"))
    await eventually(_deleting(bed, "worker"))
    await bed.quiet()
    assert "NodeSet worker" in bed.condition("Ready")[1]
    assert (await bed.there(CONTROLLERS, "demo")).metadata.deletion_timestamp is None
    assert (await bed.there(RESTAPIS, "demo")).metadata.deletion_timestamp is None
    await bed.kube.merge_patch(NODESETS, bed.key("worker"), {"metadata": {"finalizers": None}})
    await bed.gone(SLURM_CLUSTERS, "demo")
    await bed.gone(CONTROLLERS, "demo")
    await bed.there(CLAIMS, "jail")


def _deleting(bed: Bed, nodeset: str) -> Callable[[], bool]:
    def deleting() -> bool:
        found = bed.world.nodesets.get(bed.key(nodeset))
        return found is not None and found.metadata.deletion_timestamp is not None

    return deleting


async def test_maintenance_drains_before_it_scales_down(bed: Bed) -> None:
    await bed.make(slurmNodes={"worker": {"size": 2}})
    await bed.there(NODESETS, "worker")
    await bed.tell_all(workers=2)
    await bed.kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), {"spec": {"maintenance": "downscale"}})
    await eventually(lambda: bed.size("worker") == 0)
    await bed.quiet()
    await bed.there(CONTROLLERS, "demo")
    assert bed.condition("Ready")[0] == "False"
    assert "2 workers are being drained" in bed.condition("Ready")[1]
    await bed.tell(NODESETS, "worker", readyReplicas=0, replicas=0, nodeSetHash="x", selector="x")
    await bed.gone(CONTROLLERS, "demo")
    await bed.gone(RESTAPIS, "demo")
    key = await bed.there(SECRETS, "demo-slurm-key")
    await bed.kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), {"spec": {"maintenance": "none"}})
    await bed.there(CONTROLLERS, "demo")
    await eventually(lambda: bed.size("worker") == 2)
    assert (await bed.there(SECRETS, "demo-slurm-key")).data == key.data


async def test_workers_that_somebody_scales_are_left_to_them(bed: Bed) -> None:
    await bed.make(slurmNodes={"worker": {"size": 2}})
    await eventually(lambda: bed.size("worker") == 2)
    # Kubernetes' own controller does it, as for KEDA: a minimum needs no metrics.
    target = {"apiVersion": NODESETS.api_version, "kind": "NodeSet", "name": "worker"}
    spec = {"scaleTargetRef": target, "minReplicas": 5, "maxReplicas": 6}
    await bed.kube.create(AUTOSCALERS, {"metadata": bed.meta("by-load"), "spec": spec})
    await eventually(lambda: bed.cluster().status.workers == "0/5")
    # What the cluster says of its workers otherwise, it says as before; another number is its own again.
    more = {"spec": {"slurmNodes": {"worker": {"priorityClass": "high"}}}}
    await bed.kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), more)

    def prioritized() -> bool:
        found = bed.world.nodesets.get(bed.key("worker"))
        return found is not None and found.spec.template.spec.get("priorityClassName") == "high"

    await eventually(prioritized)
    await bed.quiet()
    assert bed.size("worker") == 5
    await bed.kube.delete(AUTOSCALERS, bed.key("by-load"))
    await set_scale(bed.kube, NODESETS, bed.key("worker"), 0)
    await eventually(lambda: bed.cluster().status.workers == "0/0")
    await bed.quiet()
    assert bed.size("worker") == 0
    size = {"spec": {"slurmNodes": {"worker": {"size": 3}}}}
    await bed.kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), size)
    await eventually(lambda: bed.size("worker") == 3)
    await set_scale(bed.kube, NODESETS, bed.key("worker"), 4)
    await bed.quiet()
    assert bed.size("worker") == 4


async def test_nodesets_of_the_same_family_join_the_cluster(bed: Bed) -> None:
    manifest = {"metadata": bed.meta("gpu"), "spec": {"clusterName": "demo", "replicas": 2}}
    await bed.kube.create(NEBIUS_NODESETS, manifest)
    await eventually(lambda: bed.key("gpu") in bed.world.nebius_nodesets)
    await bed.make(slurmNodes={"worker": {"size": 0}})
    part = await bed.there(NODESETS, "gpu")
    assert (part.spec.controller_ref.name, part.spec.replicas) == ("demo", 2)
    await bed.tell(NODESETS, "gpu", readyReplicas=2, replicas=2, desired=2, nodeSetHash="x", selector="a=b")
    await eventually(lambda: bed.world.nebius_nodesets.get(bed.key("gpu")).status.phase == "Ready")  # type: ignore[union-attr]
    await eventually(lambda: bed.cluster().status.workers == "2/2")
    await set_scale(bed.kube, NEBIUS_NODESETS, bed.key("gpu"), 5)
    await eventually(lambda: bed.size("gpu") == 5)
    await bed.kube.delete(NEBIUS_NODESETS, bed.key("gpu"))
    await bed.gone(NODESETS, "gpu")


async def test_a_nodeset_takes_the_place_of_the_cluster_s_own_workers(bed: Bed) -> None:
    await bed.make(slurmNodes={"worker": {"size": 0}})
    own = await bed.there(NODESETS, "worker")
    manifest = {"metadata": bed.meta("worker"), "spec": {"replicas": 3, "ephemeralNodes": True}}
    await bed.kube.create(NEBIUS_NODESETS, manifest)
    await eventually(lambda: bed.size("worker") == 3)
    assert (await bed.there(NODESETS, "worker")).metadata.uid != own.metadata.uid


async def test_nodesets_of_the_same_family_go_with_the_cluster(bed: Bed) -> None:
    await bed.make(slurmNodes={"worker": {"size": 0}})
    await bed.kube.create(NEBIUS_NODESETS, {"metadata": bed.meta("cpu"), "spec": {"replicas": 1}})
    await bed.there(NODESETS, "cpu")
    await bed.kube.delete(SLURM_CLUSTERS, bed.key("demo"))
    await bed.gone(SLURM_CLUSTERS, "demo")
    await bed.gone(NODESETS, "cpu")
    await eventually(lambda: bed.world.nebius_nodesets.get(bed.key("cpu")).status.phase == "Pending")  # type: ignore[union-attr]
