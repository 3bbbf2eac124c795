"""All controllers of the operator at work in one namespace on a real API server; no kubelet, no Slurm.

async with working(kubeconfig, namespace) as bed:
    await bed.quiet()                 # everybody has heard of everything, and has nothing to do
    await bed.objects()               # what there is, without what changes by itself
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from isthmus import names
from isthmus.domain.operator.manifests.common import MANAGER
from isthmus.domain.operator.manifests.controller_scripts import KEYS_REVISION
from isthmus.kube.client import collection
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.model.objects import (
    BUDGETS,
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFULSETS,
)
from isthmus.model.slinky import ACCOUNTINGS, CONTROLLERS, LOGINSETS, NODESETS, RESTAPIS, TOKENS
from isthmus.model.storage import CLAIMS
from isthmus.model.workload import OWN_JOBS
from isthmus.operator.world import World
from isthmus.processes.operator import _workers
from isthmus.runtime.controller import Controller
from isthmus.runtime.metrics import Metrics
from tests.flows.operator.parts_bed import until_quiet
from tests.flows.working import at_work, seated

PARTS: Final[tuple[Kind[Any], ...]] = (CONTROLLERS, NODESETS, LOGINSETS, RESTAPIS, ACCOUNTINGS, TOKENS)
MADE: Final[tuple[Kind[Any], ...]] = (
    *(*PARTS, STATEFULSETS, DEPLOYMENTS, DAEMONSETS, SERVICES, CONFIGMAPS, SECRETS, CLAIMS, OWN_JOBS),
    *(SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, BUDGETS),
)
"""Kinds of which a cluster consists; pods are told apart by their owners."""

_BY_THEMSELVES: Final = frozenset(("resourceVersion", "generation", "managedFields", "uid", "creationTimestamp"))
_ALLOCATED: Final = frozenset(("clusterIP", "clusterIPs", "healthCheckNodePort"))
_MOMENTS: Final = frozenset(
    (
        names.CHANGED_AT_ANNOTATION,
        "deployment.kubernetes.io/revision",
        "deprecated.daemonset.template.generation",
    )
)
_SALTED: Final = frozenset(
    (
        names.SPEC_HASH_ANNOTATION,
        names.TEMPLATE_HASH_ANNOTATION,
        names.SLURMDBD_CONF_HASH_ANNOTATION,
        names.CONFIG_HASH_ANNOTATION,
        KEYS_REVISION,
    )
)
"""Hashes of secrets: with another uid of the custom resource, they are others."""


class Bed:
    """The controllers, and what they made."""

    def __init__(self, world: World, controllers: list[Controller[Any]], writes: list[str]) -> None:
        self.world = world
        self.kube = world.kube
        self.namespace = world.namespace
        self._queues = [it.queue for it in controllers]
        self._writes = writes

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    def _rests(self) -> bool:
        """Whether nobody has anything to do but to look again later."""
        for queue in self._queues:
            now, due = queue._clock(), queue._backlog.next_due()
            if queue.taken or queue._backlog.ready_count(now) or (due is not None and due <= now + 1.5):
                return False
        return True

    async def quiet(self) -> None:
        """Wait until all have heard of everything, and nobody has anything to do."""
        await until_quiet(self.world, self._rests, self._writes)

    async def objects(self) -> dict[str, Any]:
        """Read everything that was made, as far as we decide it, by kind and name."""
        found = {}
        for kind in MADE:
            where = f"{collection(kind, self.namespace)}?labelSelector={names.MANAGED_BY_LABEL}%3D{MANAGER}"
            for it in json.loads(await self.kube.raw(where))["items"]:
                found[f"{kind.name} {it['metadata']['name']}"] = _decided(it)
        return found

    def workers(self) -> set[str]:
        """Name the worker pods that there are."""
        return {it.metadata.name for it in self.world.pods.values() if "worker" in it.metadata.labels.values()}


def unsalted(found: Any) -> Any:
    """Leave out hashes that are others when the custom resource is made again under its name."""
    if not isinstance(found, dict):
        return found
    return {key: unsalted(value) for key, value in found.items() if key not in _SALTED}


def _decided(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out what changes by itself, is allocated by Kubernetes, or is random."""
    metadata = {key: value for key, value in found["metadata"].items() if key not in _BY_THEMSELVES}
    annotations = {key: value for key, value in metadata.pop("annotations", {}).items() if key not in _MOMENTS}
    if annotations:
        metadata["annotations"] = annotations
    if owners := metadata.pop("ownerReferences", None):
        metadata["ownerReferences"] = sorted(f"{it['kind']} {it['name']}" for it in owners)
    rest = {key: value for key, value in found.items() if key not in {"metadata", "status"}}
    if "clusterIP" in rest.get("spec", {}):
        spec = {key: value for key, value in rest["spec"].items() if key not in _ALLOCATED}
        spec["ports"] = [{key: value for key, value in it.items() if key != "nodePort"} for it in spec["ports"]]
        rest["spec"] = spec
    if metadata["labels"].get(names.COMPONENT_LABEL) == "token":
        rest["data"] = sorted(rest["data"])
    return {"metadata": metadata, **rest}


@asynccontextmanager
async def working(kubeconfig: Path, namespace: str) -> AsyncIterator[Bed]:
    """Run all controllers until the block ends."""
    async with seated(kubeconfig, namespace) as (world, recorder, writes):
        workers = list(_workers(world, recorder, Metrics()))
        async with at_work(world, recorder, workers):
            yield Bed(world, [it for it in workers if isinstance(it, Controller)], writes)
