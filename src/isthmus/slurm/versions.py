"""Which API version a slurmrestd speaks, and what only newer ones can do.

Every difference between the versions that we know stands here; the types in `model.slurm` read them all.

    v0.0.40   Slurm 23.11   job states are lists, jobs/state
    v0.0.41   Slurm 24.05   a job tells its CPUs on each node, and whether it has the whole node
    v0.0.42   Slurm 24.11   ping says whether a slurmctld responds, not only UP or DOWN; cancelling a job that
                            is not there, or is over, is told so
    v0.0.43   Slurm 25.05   reservations can be made, changed and deleted; asking for changed nodes no longer fails
                            when nodes changed but their partitions did not; a group may be named (before, the name
                            instead of the number ended slurmrestd)
    v0.0.44   Slurm 25.11   nodes can be made; external jobs; the nodes of a job can be read by themselves
    v0.0.45   Slurm 26.05   ping no longer says UP or DOWN; a job can be put back into the queue; the components of
                            a heterogeneous job may be external
"""

import enum
import re
from http import HTTPStatus

import msgspec

from isthmus.slurm.errors import Problem, UnknownVersion, Unsupported, failure
from isthmus.slurm.transport import Transport

_RELEASES = {40: "23.11", 41: "24.05", 42: "24.11", 43: "25.05", 44: "25.11", 45: "26.05"}
_OFFERED = re.compile(rb'"/slurm/v0\.0\.(\d{1,4})/')


class Feature(enum.Enum):
    """What not every version can do: the first that can, and how an error names it."""

    NODE_CHANGES = (43, "asking for nodes that changed")
    RESERVATIONS = (43, "making, changing and deleting reservations")
    GROUP_NAMES = (43, "submitting for a group by its name")
    NEW_NODES = (44, "making nodes")
    EXTERNAL_JOBS = (44, "external jobs")
    ALLOCATIONS = (44, "reading the nodes of a job by themselves")
    REQUEUE = (45, "putting a job back into the queue")
    EXTERNAL_COMPONENTS = (45, "heterogeneous external jobs")

    @property
    def since(self) -> int:
        """The first API version with it."""
        return self.value[0]


class Server(msgspec.Struct, frozen=True):
    """The slurmrestd that we talk to."""

    api: int
    """The last part of the API version: 45 for v0.0.45."""
    release: str = ""
    cluster: str = ""

    def has(self, feature: Feature) -> bool:
        return self.api >= feature.since

    def require(self, feature: Feature) -> None:
        """Refuse a call that this server would not know, with the versions that matter."""
        if not self.has(feature):
            raise Unsupported(
                f"{feature.value[1]} needs Slurm {_RELEASES[feature.since]} (API v0.0.{feature.since}); "
                f"this is Slurm {self.release or _RELEASES[self.api]} (API v0.0.{self.api})",
                remedy="upgrade Slurm, or do not use this feature",
            )


class _Version(msgspec.Struct, frozen=True):
    release: str = ""
    cluster: str = ""


class _Meta(msgspec.Struct, frozen=True):
    slurm: _Version = _Version()


class _PingAnswer(msgspec.Struct, frozen=True):
    meta: _Meta = _Meta()
    errors: tuple[Problem, ...] = ()


async def negotiate(transport: Transport) -> Server:
    """Find the newest API version that the server and we both know.

    Ping is asked because it is answered even while slurmctld is away.
    """
    for api in reversed(_RELEASES):
        reply = await transport.request("GET", f"/slurm/v0.0.{api}/ping/")
        if reply.status == HTTPStatus.NOT_FOUND:
            continue
        answer = msgspec.json.decode(reply.body, type=_PingAnswer) if reply.is_json else _PingAnswer()
        if error := failure(
            f"asking {transport.endpoint} for its version", status=reply.status, problems=answer.errors
        ):
            raise error
        return Server(api=api, release=answer.meta.slurm.release, cluster=answer.meta.slurm.cluster)
    raise await _unknown(transport)


async def _unknown(transport: Transport) -> UnknownVersion:
    oldest, newest = min(_RELEASES), max(_RELEASES)
    known = f"v0.0.{oldest} to v0.0.{newest} (Slurm {_RELEASES[oldest]} to {_RELEASES[newest]})"
    specification = await transport.request("GET", "/openapi/v3")
    offered = sorted({int(version) for version in _OFFERED.findall(specification.body)})
    if not offered:
        return UnknownVersion(
            f"{transport.endpoint} serves no Slurm API that Isthmus supports ({known})",
            remedy="check that it is a slurmrestd with the plugin openapi/slurmctld",
        )
    speaks = ", ".join(f"v0.0.{version}" for version in offered)
    too_old = offered[-1] < oldest
    return UnknownVersion(
        f"{transport.endpoint} is too {'old' if too_old else 'new'}: it serves {speaks}, and Isthmus supports "
        f"{known}",
        remedy="upgrade Slurm" if too_old else "upgrade Isthmus",
    )
