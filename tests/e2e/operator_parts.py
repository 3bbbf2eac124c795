"""A Slurm cluster from its parts, one by one, as e2e tests of single parts need it."""

import json
import secrets
from base64 import b64encode
from typing import Any

from tests.bed.operator_ground import OperatorGround

API = "slinky.slurm.net/v1beta1"
KEYS: dict[str, Any] = {
    "slurmKeyRef": {"name": "slurm-key", "key": "slurm.key"},
    "jwtKeyRef": {"name": "jwt-key", "key": "jwt.key"},
}
OF_SLURM: dict[str, Any] = {"controllerRef": {"name": "slurm"}}
SMALL = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}


def part(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """Make a custom resource."""
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def secret(name: str, **data: bytes) -> dict[str, Any]:
    """Make a Secret; underscores in keys become dots."""
    encoded = {key.replace("_", "."): b64encode(value).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}


def keys() -> list[dict[str, Any]]:
    """Make the keys of a cluster."""
    return [
        secret("slurm-key", slurm_key=secrets.token_bytes(1024)),
        secret("jwt-key", jwt_key=secrets.token_bytes(32)),
    ]


def apply(ground: OperatorGround, namespace: str, *manifests: dict[str, Any]) -> None:
    """Make all of these at once."""
    ground.apply({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, namespace)


def patch(ground: OperatorGround, namespace: str, what: str, change: dict[str, Any]) -> None:
    """Change an object, such as loginset/login."""
    ground.kubectl("patch", what, f"--namespace={namespace}", "--type=merge", f"--patch={json.dumps(change)}")


def ssh_port(ground: OperatorGround, namespace: str) -> str:
    """Tell under which port of nodes people log in.

    Tests let the API server choose it. One that they ask for may be taken for minutes by nobody: a server that was
    too slow to answer does not always give it back.
    """
    return str(ground.get("service/login", namespace)["spec"]["ports"][0]["nodePort"])


def uid(ground: OperatorGround, namespace: str, pod: str) -> str:
    """Tell which pod of that name there is."""
    return str(ground.get(f"pod/{pod}", namespace)["metadata"]["uid"])
