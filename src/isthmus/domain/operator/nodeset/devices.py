"""The devices behind a node's GRES: where their files are, so that Slurm can give each job its own.

    resources of the pod    nvidia.com/gpu: 2          spec.devices    example.org/npu → npu, /dev/npu[0-9]*
                 └──────────────┬───────────────────────────┘
    a Source per GRES       gpu|-|2|nvidia|nvidia_gpu_env|/dev/nvidia[0-9]*
                                │   ISTHMUS_DEVICES, in the pod (`manifests.devicefiles`)
    gres.conf of the node   Name=gpu Flags=nvidia_gpu_env File=/dev/nvidia3

How many devices a node has is known here, from its resources; which ones is known in the pod alone. A GRES without
a source is counted and nothing else, which is right for bandwidth or licences, and wrong for devices.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from isthmus.domain.languages import gresnames
from isthmus.domain.operator.nodeset.shape import PARTS_OF_GPUS, resources_of, shape_of
from isthmus.model.base import Data
from isthmus.model.slinky import DeviceFiles, NodeSet

NODE_GRES: Final = "/etc/slurm/node-gres.conf"
"""What gres.conf includes: on a worker the devices that it found, beside slurmctld what nodes have that are not up.

A path with a directory is read where it is, and not sent to nodes by slurmctld.
"""

Finder = Literal["files", "nvidia", "mig", "share", "guess"]
"""How a pod finds the devices: by their files; of these, the ones that NVIDIA's runtime gave to the container; by
MIG's files below /dev/nvidia-caps; by those of the GPUs that it shares; or as NVIDIA's, if there are any.
"""

_NVIDIA_FILES: Final = "/dev/nvidia[0-9]*"
_RENDERERS: Final = "/dev/dri/renderD[0-9]*"
_MIG: Final = "nvidia.com/mig-"


class Source(Data, frozen=True):
    """Where the devices of one GRES come from."""

    name: str
    kind: str
    """Slurm's Type; empty if it has none."""
    count: int
    finder: Finder
    flags: str = ""
    """Which variables of vendors Slurm sets for jobs; empty for all."""
    files: tuple[str, ...] = ()
    """Glob patterns."""

    def line(self) -> str:
        """Write it for the pod; `-` stands for nothing."""
        words = (self.name, self.kind or "-", str(self.count), self.finder, self.flags or "-", " ".join(self.files))
        return "|".join(words)


_KNOWN: Final[Mapping[str, tuple[Finder, str, tuple[str, ...]]]] = {
    "nvidia.com/gpu": ("nvidia", "nvidia_gpu_env", (_NVIDIA_FILES,)),
    "amd.com/gpu": ("files", "amd_gpu_env", (_RENDERERS,)),
}


def sources(nodeset: NodeSet) -> tuple[Source, ...]:
    """Say where each GRES of a NodeSet's nodes comes from; those that are only counted are left out.

    Where the author wrote the lines of gres.conf, there is nothing to find.
    """
    if nodeset.spec.gres_config:
        return ()
    named = {gres.partition(":")[0]: resource for resource, gres in _by_resource(nodeset)}
    exact = {gres: resource for resource, gres in _by_resource(nodeset)}
    given = {it.resource: it for it in nodeset.spec.devices}
    found = []
    for gres, count in shape_of(nodeset).gres:
        name, _, kind = gres.partition(":")
        resource = exact.get(gres) or named.get(name, "")
        finder, flags, files = _source(resource, name, given)
        if finder is not None:
            found.append(Source(name, kind, _number(count), finder, flags, files))
    return tuple(_with_one_flag(found))


def _number(count: str) -> int:
    """Read a count as Slurm does: none is one, and 1K is 1024."""
    digits = count.rstrip("KMG")
    return int(digits or "1") << {"": 0, "K": 10, "M": 20, "G": 30}[count[len(digits) :]]


def _by_resource(nodeset: NodeSet) -> Iterator[tuple[str, str]]:
    further = {it.resource: it.gres for it in nodeset.spec.devices if it.gres}
    for resource in resources_of(nodeset):
        if gres := gresnames.gres_of(resource, further):
            yield resource, gres


def _source(
    resource: str, name: str, given: Mapping[str, DeviceFiles]
) -> tuple[Finder | None, str, tuple[str, ...]]:
    if name in PARTS_OF_GPUS:
        return "share", "", ()
    if theirs := given.get(resource):
        return "files", theirs.flags, theirs.files
    if resource.startswith(_MIG):
        return "mig", "nvidia_gpu_env", ()
    if resource in _KNOWN:
        return _KNOWN[resource]
    # The author of extraConf alone says that there are GPUs.
    return ("guess", "", (_NVIDIA_FILES,)) if name == "gpu" else (None, "", ())


def _with_one_flag(found: list[Source]) -> Iterator[Source]:
    """Slurm wants the same flags for all lines of a GRES; where vendors differ, all variables are set."""
    flags: dict[str, set[str]] = {}
    for it in found:
        flags.setdefault(it.name, set()).add(it.flags)
    for it in found:
        same = len(flags[it.name]) == 1
        yield it if same else Source(it.name, it.kind, it.count, it.finder, "", it.files)
