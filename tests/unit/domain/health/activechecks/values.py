"""Checks and Slurm nodes as tests need them."""

from typing import Any

import msgspec

from isthmus.model.activecheck import ActiveCheck
from isthmus.model.slurm import Node


def check(
    name: str = "gpu", *, kind: str = "slurmJob", status: dict[str, Any] | None = None, **spec: Any
) -> ActiveCheck:
    """Make a check, with the fields of its specification as in a manifest."""
    script = {"slurmJobSpec": {"sbatchScript": "#!/bin/bash\ntrue\n"}} if kind == "slurmJob" else {}
    made = {"name": name, "slurmClusterRefName": "slurm", "checkType": kind, **script, **spec}
    metadata = {"name": name, "namespace": "ns", "uid": "u"}
    return msgspec.convert({"metadata": metadata, "spec": made, "status": status or {}}, ActiveCheck, strict=False)


def node(name: str, *states: str, gres: str = "", partitions: tuple[str, ...] = ("main",)) -> Node:
    return Node(name=name, state=states or ("IDLE",), gres=gres, partitions=partitions)
