"""Machines that Slurm, Kubernetes or both know, as rows: for the page and for `isthmus nodes`."""

from collections.abc import Mapping

from isthmus.bridge.cache.world import World
from isthmus.domain.languages.hostlist import natural_key
from isthmus.domain.views import rows
from isthmus.domain.views.rows import Row
from isthmus.model.health import NodeHealth
from isthmus.model.meta import Key


def node_rows(world: World, healths: Mapping[str, NodeHealth]) -> tuple[Row, ...]:
    """Every machine once, under its name in Slurm if it has one there."""
    names = {*(it.name for it in world.slurm_nodes.values()), *(it.name for it in world.nodes)}
    found = (node_row(world, name, healths.get(name)) for name in sorted(names, key=natural_key))
    return tuple(it for it in found if it is not None)


def node_row(world: World, name: str, health: NodeHealth | None) -> Row | None:
    """The machine of this name; None where there is none, or where it is shown under its name in Slurm."""
    slurm = world.slurm_nodes.get(name)
    kube_name = world.map.kube_name(name) if slurm else name
    kube = world.nodes.get(Key("", kube_name)) if kube_name else None
    if slurm is None and (kube is None or _is_in_slurm(world, name)):
        return None
    pods = [it for it in world.pods.by("node", kube_name) if not it.finished] if kube_name else []
    return rows.node_row(
        name, slurm, kube, pods=len(pods), pod_milli=sum(map(rows.pod_milli_cpu, pods)), health=health
    )


def _is_in_slurm(world: World, kube_name: str) -> bool:
    known = world.slurm_nodes
    names = world.map.slurm_names(kube_name) | {kube_name}
    return any(it in known and world.map.kube_name(it) == kube_name for it in names)
