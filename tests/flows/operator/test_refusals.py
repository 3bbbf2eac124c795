"""What a real API server refuses is told in the status of every kind and tried again; others keep their objects."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from isthmus import names
from isthmus.kube.client import Client
from isthmus.model.base import Kind
from isthmus.model.meta import Key, Partial, condition
from isthmus.model.objects import CONFIGMAPS, SECRETS, SERVICES
from isthmus.model.slinky import ACCOUNTINGS, CONTROLLERS, LOGINSETS, NODESETS, RESTAPIS
from isthmus.model.soperator import NEBIUS_NODESETS, SLURM_CLUSTERS
from isthmus.operator import kindsync, parts, refusals
from isthmus.operator.accountings import AccountingSync
from isthmus.operator.loginsets import LoginSetSync
from isthmus.operator.nodesets.sync import NodeSetSync
from isthmus.operator.restapis import RestApiSync
from isthmus.operator.slurmctld import ControllerSync
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator import parts_bed, test_clusters

SOON = 0.2


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was refused is tried again at once, and not after seconds."""
    monkeypatch.setattr(refusals, "AGAIN_S", SOON)


@asynccontextmanager
async def clusters(control_plane: ControlPlaneBed, namespace: str) -> AsyncIterator[test_clusters.Bed]:
    async with test_clusters.working(control_plane.kubeconfig, namespace) as bed:
        yield bed


def told(bed: Any, store: Any, name: str, type_: str) -> tuple[str, str]:
    found = store.get(bed.key(name))
    held = condition(found.status.conditions, type_) if found else None
    return (held.status, held.message) if held else ("", "")


async def until_told(bed: Any, store: Any, name: str, *, saying: str) -> None:
    """Wait until an object is Degraded for this reason, and says so of its newest specification."""

    def holds() -> bool:
        found = store.get(bed.key(name))
        status, message = told(bed, store, name, "Degraded")
        current = found is not None and found.status.observed_generation == found.metadata.generation
        return status == "True" and saying in message and current

    try:
        await eventually(holds, within=60)
    except AssertionError:
        raise AssertionError(f"Degraded is {told(bed, store, name, 'Degraded')}, without {saying!r}") from None


async def until_well(bed: Any, store: Any, name: str) -> None:
    await eventually(lambda: told(bed, store, name, "Degraded")[0] == "False", within=60)


# Fields that go


FILTER = {"name": "some", "nodeSelector": {"example.org/kind": "some"}}


@pytest.mark.parametrize("where", ["worker", "controller", "login", "rest"])
async def test_a_node_filter_can_be_taken_away(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, where: str
) -> None:
    async with clusters(control_plane, namespace) as bed:
        await bed.make(k8sNodeFilters=[FILTER], slurmNodes={"worker": {"size": 1}})
        await eventually(lambda: bed.size("worker") == 1)
        nodes: dict[str, Any] = {where: {"k8sNodeFilterName": "some"}}
        await kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), {"spec": {"slurmNodes": nodes}})
        world = bed.world
        parts: dict[str, tuple[str, Any]] = {
            "worker": ("worker", world.nodesets),
            "controller": ("demo", world.controllers),
            "login": ("login", world.loginsets),
            "rest": ("demo", world.restapis),
        }
        name, store = parts[where]

        def selector() -> object:
            found = store.get(bed.key(name))
            return found.spec.template.spec.get("nodeSelector") if found else None

        await eventually(lambda: selector() == FILTER["nodeSelector"])
        # Unset, and something else changes with it.
        nodes = {where: {"k8sNodeFilterName": None}}
        nodes["worker"] = {**nodes.get("worker", {}), "size": 3}
        await kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), {"spec": {"slurmNodes": nodes}})
        await eventually(lambda: bed.size("worker") == 3)
        await eventually(lambda: selector() is None)
        generation = (await kube.get(SLURM_CLUSTERS, bed.key("demo"))).metadata.generation
        await eventually(lambda: bed.cluster().status.observed_generation == generation)
        assert bed.condition("Degraded")[0] == "False"


# Objects of others


async def foreign_service(kube: Client, namespace: str, name: str) -> None:
    """Make a Service of somebody else."""
    labels = {names.MANAGED_BY_LABEL: "Helm", names.INSTANCE_LABEL: "web"}
    manifest = {
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}},
    }
    await kube.create(SERVICES, manifest)


async def test_a_cluster_takes_over_no_service_of_others(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    await foreign_service(kube, namespace, "slurmctld")
    before = await kube.get(SERVICES, Key(namespace, "slurmctld"))
    async with clusters(control_plane, namespace) as bed:
        await bed.make(slurmNodes={"worker": {"size": 1}})
        refusal = (
            "Service slurmctld already exists and does not belong to Isthmus: it is managed by Helm as part of web"
        )
        await until_told(bed, bed.world.clusters, "demo", saying=refusal)
        # Every other part is there nonetheless.
        await bed.there(CONTROLLERS, "demo")
        await bed.there(RESTAPIS, "demo")
        await bed.there(LOGINSETS, "login")
        await bed.there(NODESETS, "worker")
        await parts_bed.until_recorded(kube, namespace, refusal)
        assert await kube.get(SERVICES, Key(namespace, "slurmctld")) == before
        # A new specification reaches those parts, too.
        await kube.merge_patch(SLURM_CLUSTERS, bed.key("demo"), {"spec": {"slurmNodes": {"worker": {"size": 2}}}})
        await eventually(lambda: bed.size("worker") == 2)
        await until_told(bed, bed.world.clusters, "demo", saying=refusal)
        # What was in the way goes, which nobody tells us.
        await kube.delete(SERVICES, Key(namespace, "slurmctld"))
        await until_well(bed, bed.world.clusters, "demo")
        owner = (await bed.there(SERVICES, "slurmctld")).metadata.controller
        assert owner
        assert owner.kind == "SlurmCluster"


async def test_what_was_made_by_hand_under_the_name_of_a_part_stays_as_it_is(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    spec = {"slurmKeyRef": parts_bed.SLURM_KEY_REF, "jwtKeyRef": parts_bed.JWT_KEY_REF}
    await kube.create(CONTROLLERS, {"metadata": {"namespace": namespace, "name": "demo"}, "spec": spec})
    before = await kube.get(CONTROLLERS, Key(namespace, "demo"))
    async with clusters(control_plane, namespace) as bed:
        await bed.make(slurmNodes={"worker": {"size": 1}})
        await until_told(
            bed, bed.world.clusters, "demo", saying="Controller demo already exists and does not belong to Isthmus"
        )
        assert await kube.get(CONTROLLERS, Key(namespace, "demo")) == before


async def test_a_nodeset_of_a_cluster_takes_over_no_other(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    spec = {"controllerRef": {"name": "other"}}
    await kube.create(NODESETS, {"metadata": {"namespace": namespace, "name": "gpu"}, "spec": spec})
    async with clusters(control_plane, namespace) as bed:
        await bed.make(slurmNodes={"worker": {"size": 0}})
        await kube.create(NEBIUS_NODESETS, {"metadata": bed.meta("gpu"), "spec": {"clusterName": "demo"}})
        await until_told(
            bed,
            bed.world.nebius_nodesets,
            "gpu",
            saying="NodeSet gpu already exists and does not belong to Isthmus",
        )
        await kube.delete(NODESETS, bed.key("gpu"))
        await until_well(bed, bed.world.nebius_nodesets, "gpu")


class Part(NamedTuple):
    """A part, and what of its objects has a name that somebody else can have."""

    sync: Any
    kind: Kind[Any]
    store: Callable[[Any], Any]
    taken: str
    spec: dict[str, Any]


KEYS = {"slurmKeyRef": parts_bed.SLURM_KEY_REF, "jwtKeyRef": parts_bed.JWT_KEY_REF}
OF_SLURM = {"controllerRef": {"name": "slurm"}}
PARTS = {
    "Controller": Part(ControllerSync, CONTROLLERS, lambda it: it.controllers, "p-controller", KEYS),
    "LoginSet": Part(LoginSetSync, LOGINSETS, lambda it: it.loginsets, "p", OF_SLURM),
    "RestApi": Part(RestApiSync, RESTAPIS, lambda it: it.restapis, "p-restapi", OF_SLURM),
    "Accounting": Part(AccountingSync, ACCOUNTINGS, lambda it: it.accountings, "p-accounting", KEYS),
    "NodeSet": Part(NodeSetSync, NODESETS, lambda it: it.nodesets, "slurm-workers-slurm", OF_SLURM),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
async def test_a_part_says_whose_service_is_in_its_way_and_goes_on_when_it_is_gone(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, part: Part
) -> None:
    await foreign_service(kube, namespace, part.taken)
    async with parts_bed.working(control_plane, namespace, part.sync) as bed:
        await bed.controller() if part.spec is OF_SLURM else await bed.keys()
        await bed.make(part.kind, "p", **part.spec)
        store = part.store(bed.world)
        refusal = (
            f"Service {part.taken} already exists and does not belong to Isthmus: it is managed by "
            "Helm as part of web"
        )
        await until_told(bed, store, "p", saying=refusal)
        await parts_bed.until_recorded(kube, namespace, refusal)
        assert (await kube.get(SERVICES, Key(namespace, part.taken))).metadata.owner_references == ()
        await kube.delete(SERVICES, Key(namespace, part.taken))
        await bed.there(bed.world.services, part.taken)
        await until_well(bed, store, "p")


QUOTAS: Kind[Partial] = Kind(Partial, "v1", "resourcequotas", "ResourceQuota")
PODS_OF = {
    "Controller": "slurmctld",
    "LoginSet": "login",
    "RestApi": "slurmrestd",
    "Accounting": "MariaDB",
}


@pytest.mark.parametrize("name", PODS_OF)
async def test_a_part_says_why_its_pods_are_not_created(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a StatefulSet says of it is an Event, and what a Deployment says a condition."""
    part = PARTS[name]
    monkeypatch.setattr(kindsync, "PATIENCE", SOON)
    monkeypatch.setattr(sys.modules[part.sync.__module__], "PATIENCE", SOON, raising=False)
    monkeypatch.setattr(parts, "_AGAIN_S", SOON)
    quota = {"metadata": {"namespace": namespace, "name": "none"}, "spec": {"hard": {"pods": "0"}}}
    await kube.create(QUOTAS, quota)
    async with parts_bed.working(control_plane, namespace, part.sync) as bed:
        await bed.controller() if part.spec is OF_SLURM else await bed.keys()
        await bed.make(part.kind, "p", **part.spec)
        store = part.store(bed.world)
        await until_told(bed, store, "p", saying=f"{PODS_OF[name]}: pods cannot be created: ")
        assert "exceeded quota: none" in told(bed, store, "p", "Degraded")[1]

        def tried() -> set[str]:
            workloads = (*bed.world.statefulsets.values(), *bed.world.deployments.values())
            return {it.metadata.annotations.get(names.TRIED_AT_ANNOTATION, "") for it in workloads} - {""}

        # It is touched again and again: by itself, Kubernetes would wait ever longer before it tries.
        await eventually(lambda: bool(tried()), within=60)
        before = tried()
        await eventually(lambda: bool(tried() - before), within=60)
        await kube.delete(QUOTAS, bed.key("none"))
        await until_well(bed, store, "p")
        await eventually(lambda: len(bed.world.pods) > 0, within=60)  # another cache, which may be behind


async def test_what_the_api_server_refuses_is_told_without_paths(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    async with parts_bed.working(control_plane, namespace, RestApiSync) as bed:
        await bed.controller()
        await bed.make(RESTAPIS, "p", **OF_SLURM, service={"spec": {"type": "Nonsense"}})
        await until_told(bed, bed.world.restapis, "p", saying="Nonsense")
        message = told(bed, bed.world.restapis, "p", "Degraded")[1]
        assert message.startswith(f"cannot change services/p-restapi in namespace {namespace}: ")
        assert "/api/" not in message
        await kube.merge_patch(RESTAPIS, bed.key("p"), {"spec": {"service": {"spec": None}}})
        await until_well(bed, bed.world.restapis, "p")


# Secrets of others


async def test_secrets_of_other_products_are_not_read(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    async with parts_bed.working(control_plane, namespace, RestApiSync) as bed:
        both: list[tuple[Kind[Any], Any]] = [(SECRETS, bed.world.secrets), (CONFIGMAPS, bed.world.configmaps)]
        for kind, store in both:
            for name, manager in (("theirs", "Helm"), ("ours", "isthmus")):
                labels = {names.COMPONENT_LABEL: "database", names.MANAGED_BY_LABEL: manager}
                await kube.create(kind, {"metadata": bed.meta(name, labels=labels)})
            await bed.there(store, "ours")
            assert bed.key("theirs") not in store
