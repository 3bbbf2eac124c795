"""Leases: who leads, and since when.

Times stay text: an elector must not compare its own wall clock with another machine's, it only watches whether the
record changes. `meta.micro_time` writes them.
"""

from isthmus.model.base import Data, Kind
from isthmus.model.meta import Object


class LeaseSpec(Data, frozen=True):
    """Who holds the lease and for how long after each renewal."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True):
    spec: LeaseSpec = LeaseSpec()


LEASES = Kind(Lease, "coordination.k8s.io/v1", "leases", "Lease")
