"""Whether the pods of a gang fit into one plain job, or need a component for each kind of them.

Slurm has one size and one set of nodes for all tasks of a job. For a gang whose pods differ, such as a leader
without and workers with GPUs, or pods whose volumes are on different nodes, no such size or set may exist. Slurm's
answer is a heterogeneous job: one submission with several components, which start together and end together.

A plain job is preferred where it will do, because a heterogeneous one has its price: Slurm starts it by backfill
alone, so up to `bf_interval` (30 s) later, and no two components share a node.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from isthmus.domain.bridge import joboptions
from isthmus.domain.kube.feasibility import Constraints, constraints_of
from isthmus.domain.kube.podshape import Shape, largest, shape_of
from isthmus.domain.languages.prose import some
from isthmus.errors import Terminal
from isthmus.model.pod import Pod

MAX_COMPONENTS: Final = 128
"""So many components Slurm takes."""

_ROLE_DIGITS: Final = 12
_REMEDY: Final = "give all of them the same requests, node selector and volumes, or upgrade Slurm to 26.05"


class Part(msgspec.Struct, frozen=True):
    """Pods of a gang that are alike, so that one component suits them all."""

    pods: tuple[Pod, ...]
    constraints: tuple[Constraints, ...]
    """Which nodes they may have: each of these holds."""
    role: str = ""
    """What distinguishes them from the others; empty where any pod of the gang fits."""
    fit: int = 0
    """How many nodes fit them."""
    excluded: str = ""
    """The Slurm nodes that they cannot use, as a host list."""

    @property
    def shape(self) -> Shape:
        """What the largest of them takes."""
        return largest(shape_of(pod) for pod in self.pods)


def parts_of(pods: Sequence[Pod], constraints: Callable[[Pod], Constraints]) -> tuple[Part, ...]:
    """Sort the pods of a gang into those that are alike, in the order of the first of each kind."""
    if len(pods) == 1:
        return (Part((pods[0],), (constraints(pods[0]),)),)
    alike: dict[tuple[object, ...], list[Pod]] = {}
    for pod in pods:
        alike.setdefault((*_size(pod), _own_options(pod), constraints(pod)), []).append(pod)
    if len(alike) == 1:
        return (Part(tuple(pods), (constraints(pods[0]),)),)
    return tuple(Part(tuple(same), (constraints(same[0]),), role_of(same[0])) for same in alike.values())


def role_of(pod: Pod) -> str:
    """Distinguish kinds of pods by their template, so that a pod that replaces another has its role.

    Where its volumes are is left out, because that may become known only while the job waits.
    """
    told = msgspec.json.encode((_size(pod), _own_options(pod), constraints_of(pod)))
    return hashlib.sha256(told).hexdigest()[:_ROLE_DIGITS]


def plan(
    parts: Sequence[Part], *, slots: int, shared: int, exclusive: bool, components: bool, release: str = ""
) -> tuple[Part, ...]:
    """Choose the components of a gang's job with so many `slots`; one component is a plain job.

    `shared` is the number of nodes that fit all of the pods; `components` says whether this Slurm, of this
    `release`, takes several. Raises `Terminal` where it does not and a plain job would never start.
    """
    if len(parts) == 1:
        return tuple(parts)
    # A device that a pod does not need is taken from a pod that does, however many nodes would fit.
    same = len({(tuple(sorted(part.shape.devices.items())), _own_options(part.pods[0])) for part in parts}) == 1
    if (same or not components) and shared >= (slots if exclusive else 1):
        return (_merged(parts),)
    if components and len(parts) <= MAX_COMPONENTS:
        return tuple(parts)
    alone = all(part.fit >= (len(part.pods) if exclusive else 1) for part in parts)
    if components or alone:
        raise Terminal(_refusal(parts, components=components, release=release), remedy=_REMEDY)
    return (_merged(parts),)


def _merged(parts: Sequence[Part]) -> Part:
    constraints = tuple(dict.fromkeys(it for part in parts for it in part.constraints))
    return Part(tuple(pod for part in parts for pod in part.pods), constraints)


def _refusal(parts: Sequence[Part], *, components: bool, release: str) -> str:
    kinds = some((f"{len(part.pods)} like {part.pods[0].metadata.name}" for part in parts), 3)
    told = f"its pods need different nodes ({kinds})"
    if components:
        return f"{told}, and Slurm takes {MAX_COMPONENTS} components at most, not {len(parts)}"
    return f"{told}, which Slurm{f' {release}' if release else ''} cannot give to one job"


def _size(pod: Pod) -> tuple[object, ...]:
    shape = shape_of(pod)
    return shape.milli_cpu, shape.memory, tuple(sorted(shape.devices.items()))


def _own_options(pod: Pod) -> tuple[object, ...]:
    """What the pod's own annotations ask for that the others of its gang need not."""
    asked = joboptions.parse(pod.metadata.annotations, where=f"Pod {pod.metadata.key}")
    return (
        asked.partition,
        asked.reservation,
        asked.constraints,
        asked.gres,
        asked.cpus_per_task,
        asked.memory_per_node,
    )
