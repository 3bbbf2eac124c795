"""The parts of each Slurm cluster, from all custom resources of a namespace."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.domain.operator import clusterparts
from isthmus.domain.operator.clusterparts import Child
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.slurmfiles import Inputs, Workers, files
from isthmus.errors import Terminal
from isthmus.model.base import Kind
from isthmus.model.jailedconfig import JailedConfig
from isthmus.model.slinky import (
    ACCOUNTINGS,
    CONTROLLERS,
    LOGINSETS,
    NODESETS,
    RESTAPIS,
    Accounting,
    Controller,
    LoginSet,
    NodeSet,
    RestApi,
)
from isthmus.model.soperator import NEBIUS_NODESETS, SLURM_CLUSTERS, SlurmCluster
from isthmus.model.soperator import NodeSet as NebiusNodeSet

KINDS: Final[tuple[Kind[Any], ...]] = (
    SLURM_CLUSTERS,
    NEBIUS_NODESETS,
    CONTROLLERS,
    NODESETS,
    LOGINSETS,
    RESTAPIS,
    ACCOUNTINGS,
)

Objects = Mapping[Kind[Any], Mapping[str, Any]]
"""Structs by kind and name, all of one namespace."""


class ClusterObjects(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster: its Controller, and everything that belongs to it."""

    controller: Controller
    accounting: Accounting | None = None
    nodesets: Mapping[str, NodeSet] = {}
    loginsets: Mapping[str, LoginSet] = {}
    restapis: Mapping[str, RestApi] = {}
    settings: Settings = Settings()

    def files(self, present: Mapping[str, Iterable[str]]) -> dict[str, str]:
        """Slurm's files; `present` are the Slurm nodes that there are, by NodeSet."""
        workers = (Workers.of(it, present=present.get(name, ())) for name, it in self.nodesets.items())
        inputs = Inputs(
            controller=self.controller,
            settings=self.settings,
            workers=tuple(workers),
            accounting=self.accounting,
            version=self.controller.status.slurm_version,
            places=None,
        )
        return files(inputs)


class Clusters(msgspec.Struct, frozen=True):
    by_name: Mapping[str, ClusterObjects]
    """By the name of the Controller."""
    problems: tuple[str, ...] = ()
    """Why something cannot be carried out as it is written."""


def clusters_of(objects: Objects, *, settings: Settings, configs: Iterable[JailedConfig] = ()) -> Clusters:
    """Put clusters together: what is made from a SlurmCluster counts as it would be made from it now."""
    problems: list[str] = []
    parts: dict[Kind[Any], dict[str, Any]] = {kind: dict(objects.get(kind, {})) for kind in KINDS}
    given = tuple(configs)
    for cluster in parts[SLURM_CLUSTERS].values():
        try:
            for child in _children(cluster, objects, settings, given, problems):
                _put(child, parts)
        except Terminal as error:
            problems.append(f"SlurmCluster {cluster.metadata.name}: {error.line}")
    found = {
        name: ClusterObjects(
            controller=controller,
            accounting=_accounting(controller, parts),
            nodesets=_of(controller, parts[NODESETS], parts),
            loginsets=_of(controller, parts[LOGINSETS], parts),
            restapis=_of(controller, parts[RESTAPIS], parts),
            settings=settings,
        )
        for name, controller in parts[CONTROLLERS].items()
    }
    return Clusters(found, tuple(problems))


def _children(
    cluster: SlurmCluster,
    objects: Objects,
    settings: Settings,
    configs: tuple[JailedConfig, ...],
    problems: list[str],
) -> Iterator[Child]:
    """What a SlurmCluster and its NodeSets become. NodeSets of others are not ours to make."""
    name = cluster.metadata.name
    prefix = cluster.status.name_prefix or ""
    nodesets = [it for it in objects.get(NEBIUS_NODESETS, {}).values() if _names(it, cluster, objects)]
    mine = [it for it in configs if it.metadata.labels.get(names.INSTANCE_LABEL) == name]
    made = clusterparts.parts_of(
        cluster,
        nodesets,
        prefix=prefix,
        settings=settings,
        written=[path for it in mine for path in it.status.files],
        promised=[item.path for it in mine for item in it.spec.items],
        workers=objects.get(NODESETS, {}).get(f"{prefix}worker"),
    )
    problems += [f"SlurmCluster {name}: {it}" for it in made.problems]
    yield from made.children
    for nodeset in nodesets:
        child, told = clusterparts.nodeset_part(nodeset, cluster, prefix=prefix)
        problems += [f"NodeSet {nodeset.metadata.name}: {it}" for it in told.problems]
        yield child


def _put(child: Child, parts: dict[Kind[Any], dict[str, Any]]) -> None:
    """Take the place of a part that is there; its uid, and what it says of itself, stay."""
    if child.kind not in parts:
        return
    made = msgspec.convert(child.manifest, child.kind.type)
    there = parts[child.kind].get(child.key.name)
    if there is not None:
        spec = made.spec
        if child.scaled:
            spec = msgspec.structs.replace(spec, replicas=there.spec.replicas)
        made = msgspec.structs.replace(there, spec=spec)
    parts[child.kind][child.key.name] = made


def _names(nodeset: NebiusNodeSet, cluster: SlurmCluster, objects: Objects) -> bool:
    """Whether a NodeSet of slurm.nebius.ai is of a cluster: that which it names, or the only one there is."""
    if named := nodeset.spec.cluster_name:
        return named == cluster.metadata.name
    return len(objects.get(SLURM_CLUSTERS, {})) == 1


def _of(
    controller: Controller, listed: Mapping[str, Any], parts: Mapping[Kind[Any], Mapping[str, Any]]
) -> dict[str, Any]:
    """The parts of a Controller, and those that name none where it is the only one."""
    name = controller.metadata.name
    alone = len(parts[CONTROLLERS]) == 1
    return {
        key: it
        for key, it in listed.items()
        if it.spec.controller_ref.name == name or (alone and not it.spec.controller_ref.name)
    }


def _accounting(controller: Controller, parts: Mapping[Kind[Any], Mapping[str, Any]]) -> Accounting | None:
    reference = controller.spec.accounting_ref
    found: Accounting | None = parts[ACCOUNTINGS].get(reference.name) if reference else None
    return found
