"""Objects from which manifests are made in tests."""

from typing import Any, TypeVar

import msgspec

from isthmus.model.slinky import Controller

T = TypeVar("T")


def controller(**spec: Any) -> Controller:
    keys = {"slurmKeyRef": {"name": "k", "key": "slurm.key"}, "jwtKeyRef": {"name": "k", "key": "jwt.key"}}
    manifest = {"metadata": {"name": "slurm", "namespace": "hpc", "uid": "c"}, "spec": {**keys, **spec}}
    return msgspec.convert(manifest, Controller)


def part(kind: type[T], name: str, **spec: Any) -> T:
    """A part that belongs to that Controller."""
    metadata = {"name": name, "namespace": "hpc", "uid": name[0]}
    return msgspec.convert({"metadata": metadata, "spec": {"controllerRef": {"name": "slurm"}, **spec}}, kind)
