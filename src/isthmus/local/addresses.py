"""Which addresses a cluster uses. All lie in 198.18.0.0/15, the range set aside for tests of networks.

The range is cut into sixteen slots, one per cluster. Within a slot:

    198.18.0.0/24      nodes: the host at .1, the control plane at .2, workers from .3
    198.18.4.0/22      services: the API server at .1, DNS at .10
    198.18.16.0/20     pods, a /24 per node
"""

import ipaddress
from dataclasses import dataclass

_RANGE = ipaddress.IPv4Network("198.18.0.0/15")
_SLOTS = list(_RANGE.subnets(new_prefix=19))
SLOTS = len(_SLOTS)
_FIRST_POD_SUBNET = 16
MAX_NODES = 32 - _FIRST_POD_SUBNET


@dataclass(frozen=True)
class Addresses:
    """The addresses of the cluster in one slot. Node 0 is the control plane."""

    slot: int

    @property
    def _subnets(self) -> list[ipaddress.IPv4Network]:
        return list(_SLOTS[self.slot].subnets(new_prefix=24))

    @property
    def whole(self) -> str:
        return str(_SLOTS[self.slot])

    @property
    def host(self) -> str:
        """The host's own end of the cluster's network."""
        return str(self._subnets[0][1])

    def node(self, index: int) -> str:
        return str(self._subnets[0][2 + index])

    @property
    def services(self) -> str:
        return f"{self._subnets[4].network_address}/22"

    @property
    def api_service(self) -> str:
        """The Service `kubernetes`: always the first of the range."""
        return str(self._subnets[4][1])

    @property
    def dns_service(self) -> str:
        return str(self._subnets[4][10])

    def pods(self, index: int) -> str:
        """The range of the pods of a node."""
        return str(self._subnets[_FIRST_POD_SUBNET + index])

    @property
    def all_pods(self) -> str:
        """The range of the pods of all nodes."""
        return f"{self._subnets[_FIRST_POD_SUBNET].network_address}/20"
