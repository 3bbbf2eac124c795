"""What a new SlurmCluster gets where its manifest says nothing.

Only when it is created: a cluster that exists keeps what it has, also through upgrades of the operator.
"""

from collections.abc import Iterator
from typing import Any

Operation = dict[str, Any]
"""One step of a JSON patch."""


def of_new_cluster(manifest: dict[str, Any]) -> Iterator[Operation]:
    """Give it a shared root, and an SSH port that is reached from outside."""
    spec = manifest.get("spec")
    if spec is None:
        spec = {}
        yield _add("/spec", {})
    if "populateJail" not in spec:
        yield _add("/spec/populateJail", {})
    nodes = spec.get("slurmNodes")
    login = (nodes or {}).get("login")
    if (login or {}).get("sshdServiceType") or (login or {}).get("sshdServiceNodePort"):
        return
    if nodes is None:
        yield _add("/spec/slurmNodes", {})
    if login is None:
        yield _add("/spec/slurmNodes/login", {})
    yield _add("/spec/slurmNodes/login/sshdServiceType", "NodePort")


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}
