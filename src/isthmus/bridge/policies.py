"""The kind BridgePolicy, as the API server is to serve and enforce it."""

from typing import Any, Final

from isthmus.kube.crd import Column, Version, definition
from isthmus.model.policy import GROUP, POLICIES, VERSION, BridgePolicy

_COLUMNS: Final = (
    Column("Namespaces", ".spec.namespaces", description="Namespaces it applies to"),
    Column("Accounts", ".spec.accounts.allowed", description="Accounts that may be charged"),
    Column("Partitions", ".spec.partitions.allowed", description="Partitions that jobs may use"),
    Column("Users", ".spec.users.allowed", description="Slurm users that jobs may run as"),
    Column("Age", ".metadata.creationTimestamp", type="date"),
    Column("Service accounts", ".spec.serviceAccounts", description="Only pods with one of these", priority=1),
    Column("Account", ".spec.accounts.default", description="Account of pods that request none", priority=1),
    Column("Partition", ".spec.partitions.default", description="Partition of pods that request none", priority=1),
    Column("User", ".spec.users.default", description="Slurm user of pods that request none", priority=1),
)


def crd() -> dict[str, Any]:
    """Make the definition, for `kube.crd.install` and for the charts."""
    return definition(
        GROUP,
        POLICIES.name,
        plural=POLICIES.plural,
        versions=[Version(VERSION, BridgePolicy, columns=_COLUMNS)],
        namespaced=False,
        short_names=("bpol",),
        categories=("slurm",),
    )
