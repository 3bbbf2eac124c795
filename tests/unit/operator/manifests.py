"""Custom resources as people write them, for tests of what is let in."""

from typing import Any

Manifest = dict[str, Any]

KEYS: Manifest = {
    "slurmKeyRef": {"name": "slurm-auth-slurm", "key": "slurm.key"},
    "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"},
}


def written(api_version: str, kind: str, name: str, spec: Manifest, **metadata: Any) -> Manifest:
    """Put a manifest together."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def slinky(kind: str, name: str = "slurm", **spec: Any) -> Manifest:
    """Write a part of a cluster, with what it cannot do without."""
    needed: Manifest = {
        "Controller": KEYS,
        "Accounting": KEYS,
        "RestApi": {"controllerRef": {"name": "slurm"}},
        "Token": {"username": "slurm", "jwtKeyRef": KEYS["jwtKeyRef"]},
    }.get(kind, {"controllerRef": {"name": "slurm"}})
    return written("slinky.slurm.net/v1beta1", kind, name, needed | spec)


def cluster(name: str = "correct-cpu-cluster", **spec: Any) -> Manifest:
    """Write a whole cluster."""
    return written("slurm.nebius.ai/v1", "SlurmCluster", name, spec)


def nebius_nodeset(name: str = "gpus", **spec: Any) -> Manifest:
    """Write workers of a whole cluster."""
    return written("slurm.nebius.ai/v1alpha1", "NodeSet", name, spec)


ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0examplekeyexamplekeyexamplekeyexample someone@somewhere"
