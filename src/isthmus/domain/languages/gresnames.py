"""Which GRES of Slurm an extended resource of Kubernetes is.

Jobs ask for it (`jobspec`) and nodes have it, so both sides must use this one table.

    nvidia.com/gpu, amd.com/gpu                    gpu
    nvidia.com/mig-1g.5gb                          gpu:mig-1g.5gb
    deviceclass.resource.kubernetes.io/CLASS       gpu:CLASS (as slurm-bridge has it); dra.cpu is CPUs, not GRES
    anything else                                  what the configuration says, or nothing that Slurm could account

The type of a MIG slice keeps its `mig-`: Slurm would take `1g` for the number of a thousand million.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from isthmus.errors import Terminal

DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
CPU_DEVICE: Final = f"{DEVICE_CLASS}dra.cpu"
"""CPUs asked for as devices: they count as CPUs."""

NONE: Final = ""
"""Slurm keeps no account of it."""

_GPUS: Final = frozenset({"nvidia.com/gpu", "amd.com/gpu"})
_MIG: Final = "nvidia.com/mig-"
_SHARING: Final = frozenset({"shard", "mps"})
"""GRES that share GPUs by their device files. An external node with one of them ends slurmctld (26.05)."""
_GRES = re.compile(r"[A-Za-z][\w.-]*(?::[A-Za-z][\w.-]*)?", re.ASCII)
_NO_FURTHER: Final[Mapping[str, str]] = MappingProxyType({})


def gres_of(resource: str, further: Mapping[str, str] = _NO_FURTHER) -> str | None:
    """The GRES of a resource, as `name` or `name:type`; `NONE` if it has none, None if unknown.

    `further` is the configured table; it goes before what we know.
    """
    if resource in further:
        return checked(further[resource], resource=resource)
    if resource == CPU_DEVICE:
        return NONE
    if resource in _GPUS:
        return "gpu"
    if resource.startswith(_MIG):
        return f"gpu:{resource.removeprefix('nvidia.com/')}"
    if resource.startswith(DEVICE_CLASS):
        return checked(f"gpu:{resource.removeprefix(DEVICE_CLASS)}", resource=resource)
    return None


def checked(gres: str, *, resource: str) -> str:
    """Refuse what Slurm would not take for the name of a GRES."""
    if gres and not _GRES.fullmatch(gres):
        raise Terminal(
            f"{gres[:60]!r} is not a valid GRES for {resource}", remedy="write name or name:type, such as gpu:a100"
        )
    if gres.partition(":")[0] in _SHARING:
        raise Terminal(
            f"{resource} cannot be the GRES {gres}: that GRES shares device files, which slurmctld does not see",
            remedy="map it to a GRES of its own, such as gpu_share, and add that to GresTypes of slurm.conf",
        )
    return gres
