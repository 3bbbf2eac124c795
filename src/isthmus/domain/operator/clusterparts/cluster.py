"""From a SlurmCluster to its parts: which there are, how they are called, and what was noticed on the way."""

import re
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from isthmus.domain.operator import partnames
from isthmus.domain.operator.clusterparts import files, root
from isthmus.domain.operator.clusterparts.configwriter import writers
from isthmus.domain.operator.clusterparts.daemons import Child, Maker, jail_source, resting, worker_count
from isthmus.domain.operator.clusterparts.exporter import exporters
from isthmus.domain.operator.clusterparts.notes import Notes
from isthmus.domain.operator.clusterparts.workers import nodeset_workers
from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.manifests.populate import Filling
from isthmus.model.slinky import NODESETS
from isthmus.model.slinky import NodeSet as SlinkyNodeSet
from isthmus.model.soperator import INERT, INERT_IN_NODESET, NodeSet, SlurmCluster

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")


_OF_EPHEMERAL_NODES: Final = frozenset({"autoscale", "ephemeralTopologyWaitTimeout", "initialNumberEphemeralNodes"})
_PORTS: Final = {
    "slurmNodes.controller.slurmctld.port": partnames.SLURMCTLD_PORT,
    "slurmNodes.worker.slurmd.port": partnames.SLURMD_PORT,
    "slurmNodes.accounting.slurmdbd.port": partnames.SLURMDBD_PORT,
    "slurmNodes.rest.rest.port": partnames.SLURMRESTD_PORT,
}
"""Ports that cannot be changed; naming them has no effect."""


class Parts(msgspec.Struct, frozen=True):
    """The parts of a cluster, and what was noticed while they were made."""

    children: tuple[Child, ...]
    secrets: tuple[Child, ...]
    """Secrets with keys that are made once; their creator puts random bytes under the key named in `keys`."""
    problems: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    workers: int = 0
    """How many workers it is to have, NodeSets included."""
    filling: Filling | None = None
    """What its shared root is filled from, if it has one."""


def prefix(cluster: SlurmCluster, others: Iterable[SlurmCluster], taken: Collection[str] = ()) -> str:
    """Decide what the names of a cluster's parts begin with: nothing for the first of its namespace.

    `taken` are names of NodeSets, LoginSets and StatefulSets of the namespace that are not this cluster's.
    """
    if cluster.status.name_prefix is not None:
        return cluster.status.name_prefix
    mine = (cluster.metadata.creation_timestamp, cluster.metadata.name)
    first = all(
        it.status.name_prefix != ""
        and (it.status.name_prefix is not None or (it.metadata.creation_timestamp, it.metadata.name) > mine)
        for it in others
    )
    plain = first and not {"controller", "worker", "login"} & set(taken)
    return "" if plain else f"{cluster.metadata.name}-"


def parts_of(
    cluster: SlurmCluster,
    nodesets: Iterable[NodeSet] = (),
    *,
    prefix: str,
    settings: Settings,
    drained: bool = False,
    written: Collection[str] = (),
    promised: Collection[str] = (),
    monitored: bool = True,
    workers: SlinkyNodeSet | None = None,
) -> Parts:
    """Make everything that a cluster consists of; `nodesets` are those of slurm.nebius.ai that name it.

    `written` are files that JailedConfigs have put onto its shared root: scripts that Slurm can run. `promised` are
    those that they are to put there. `monitored`: whether there can be PodMonitors and ServiceMonitors. `workers`
    is the NodeSet of the cluster's own workers as it is, which others may scale.
    While it rests, workers and login nodes go first; slurmctld and the others once all workers are `drained`.
    """
    notes = Notes()
    sets = sorted((it for it in nodesets if not it.metadata.deletion_timestamp), key=lambda it: it.metadata.name)
    if not _NAME.fullmatch(cluster.metadata.name):
        notes.refuse(
            f"metadata.name {cluster.metadata.name!r}: host names are made from it, so it has at most 40 "
            "letters, digits and hyphens, and starts with a letter"
        )
    maker = Maker(
        cluster,
        sets,
        prefix,
        settings,
        notes,
        written=written,
        promised=promised,
        monitored=monitored,
        workers=workers,
    )
    children = list(maker.storage())
    if not (resting(cluster) and drained):
        children += [*maker.controller(), *maker.accounting(), maker.restapi()]
    children += [*maker.own_workers(), maker.login()]
    filling = maker.filling()
    children += writers(
        cluster, sets, jail=filling.root if filling else None, prefix=prefix, settings=settings, notes=notes
    )
    children += exporters(cluster, prefix=prefix, settings=settings, monitored=monitored, notes=notes)
    without_effect = files.fields_set(cluster.spec, INERT)
    if not cluster.spec.slurm_nodes.exporter.enabled:
        without_effect = [path for path in without_effect if not path.startswith("slurmNodes.exporter.")]
    if cluster.spec.slurm_config.suspend_time is not None and not any(it.spec.ephemeral_nodes for it in sets):
        without_effect.append("slurmConfig.suspendTime (no NodeSet has ephemeralNodes)")
    notes.ignored += without_effect
    nodes = cluster.spec.slurm_nodes
    ports = (nodes.controller.slurmctld, nodes.worker.slurmd, nodes.accounting.slurmdbd, nodes.rest.rest)
    notes.ignored += [
        f"{path} (it is {usual})"
        for (path, usual), given in zip(_PORTS.items(), ports, strict=True)
        if given.port not in {None, usual}
    ]
    return Parts(
        children=tuple(children),
        secrets=tuple(maker.secrets()),
        problems=tuple(dict.fromkeys(notes.problems)),
        ignored=tuple(sorted(notes.ignored)),
        unresolved=tuple(dict.fromkeys(notes.unresolved)),
        filling=filling,
        workers=maker.worker_count + (0 if resting(cluster) else sum(it.spec.replicas for it in sets)),
    )


def nodeset_part(nodeset: NodeSet, cluster: SlurmCluster, *, prefix: str) -> tuple[Child, Parts]:
    """Make the NodeSet of slinky.slurm.net for one of slurm.nebius.ai, and return what was noticed."""
    notes = Notes()
    meta = nodeset.metadata
    notes.ignored += files.fields_set(nodeset.spec, INERT_IN_NODESET)
    if not nodeset.spec.ephemeral_nodes:
        unused = files.fields_set(nodeset.spec, _OF_EPHEMERAL_NODES)
        notes.ignored += [f"{it} (ephemeralNodes is false)" for it in unused]
    if nodeset.spec.slurmd.port != partnames.SLURMD_PORT:
        notes.ignored.append(f"slurmd.port (it is {partnames.SLURMD_PORT})")
    if meta.name == f"{prefix}worker" and worker_count(cluster, (nodeset,)) > 0:
        notes.refuse(
            "the cluster's own workers (slurmNodes.worker) already have this name; set slurmNodes.worker.size "
            f"of {cluster.metadata.name} to 0, or choose another name"
        )
    manifest = {
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": common.labels("slurmd", meta.name, "worker", cluster=cluster.metadata.name),
        },
        "spec": nodeset_workers(
            nodeset,
            controller=cluster.metadata.name,
            replicas=0 if resting(cluster) else nodeset.spec.replicas,
            jail=jail_source(cluster, prefix, notes),
            shared=root.shares(cluster),
            notes=notes,
            suspend_time=cluster.spec.slurm_config.suspend_time,
        ),
    }
    told = Parts((), (), problems=tuple(notes.problems), ignored=tuple(sorted(notes.ignored)))
    return Child(NODESETS, manifest), told
