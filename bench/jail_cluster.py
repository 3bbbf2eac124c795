"""A change of configuration on a shared root, in a Slurm cluster in pods: how long until every node has it."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench import operator_cluster
from isthmus.errors import Terminal
from tests.bed.operator_ground import OperatorGround

_NAMESPACE = "hpc"
_CONFIG = "jailedconfig/scripts"
_PAUSE = 0.05
_WITHIN = 60.0


@contextmanager
def cluster() -> Iterator[OperatorGround]:
    """Bring up a Slurm cluster with a shared root, and a JailedConfig that everybody has read."""
    with operator_cluster.cluster() as ground:
        operator_cluster.first_job(ground)
        operator_cluster.settle(ground)
        ground.apply(_scripts("0"), _NAMESPACE)
        ground.apply(_JAILED, _NAMESPACE)
        _until_read(ground, "")
        yield ground


def change(ground: OperatorGround, content: str) -> float:
    """Change the ConfigMap, and wait until Slurm and all its nodes have read what came of it."""
    before = str(_status(ground)["filesHash"])
    began = time.monotonic()
    ground.apply(_scripts(content), _NAMESPACE)
    _until_read(ground, before)
    return time.monotonic() - began


_JAILED: dict[str, Any] = {
    "apiVersion": "slurm.nebius.ai/v1alpha1",
    "kind": "JailedConfig",
    "metadata": {"name": "scripts", "labels": {"app.kubernetes.io/instance": "demo"}},
    "spec": {
        "configMap": {"name": "scripts"},
        "items": [{"key": "check.sh", "path": "/opt/slurm_scripts/check.sh", "mode": 0o755}],
        "updateActions": ["Reconfigure"],
    },
}


def _scripts(content: str) -> dict[str, Any]:
    data = {"check.sh": f"#!/bin/sh\n# {content}\n"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": data}


def _status(ground: OperatorGround) -> dict[str, Any]:
    found: dict[str, Any] = ground.get(_CONFIG, _NAMESPACE).get("status", {})
    return found


def _until_read(ground: OperatorGround, before: str) -> None:
    deadline = time.monotonic() + _WITHIN
    while not _is_read(status := _status(ground), before):
        if time.monotonic() > deadline:
            told = f"{json.dumps(status)}\n{ground.story(_NAMESPACE)}"
            raise Terminal(f"the change was not on every node within {_WITHIN:.0f} s\n{told}")
        time.sleep(_PAUSE)


def _is_read(status: dict[str, Any], before: str) -> bool:
    held = {it["type"]: it["status"] for it in status.get("conditions", ())}
    written = status.get("filesHash", "")
    is_told = written not in {"", before} and written == status.get("reconfiguredHash")
    return bool(is_told) and held.get("UpdateActionsCompleted") == "True"
