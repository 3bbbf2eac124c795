"""A Slurm cluster from its parts, one by one, as e2e tests of single parts need it."""

import secrets
from base64 import b64encode
from typing import Any

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
