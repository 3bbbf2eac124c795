"""What a Slurm job of ours carries, so that everything can be found again from Slurm alone.

It stands in the job's `admin_comment`, which only SlurmUser, root and operators can write: users cannot make a
job look like ours, or one of ours like another's. Several Kubernetes clusters may share one Slurm, and other
tools write there, too; a job is ours only if its marker names our cluster.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from isthmus.domain.bridge.groups import GroupKey
from isthmus.errors import Terminal
from isthmus.model.meta import Key
from isthmus.model.pod import Pod

_VERSION: Final = 1


class Marker(msgspec.Struct, frozen=True, gc=False):
    """Whose job it is: of which cluster, of which group, for which pods when it was submitted.

    `uid` is that of the pod, or for a gang of the object that makes it one. Members of a gang may be replaced
    later, so `uids` says who was there in the beginning, and not more.
    """

    cluster: str
    kind: str
    namespace: str
    name: str
    uid: str
    pods: tuple[str, ...] = ()
    """As `namespace/name`, the way slurm-bridge writes it."""
    uids: tuple[str, ...] = ()
    slots: int = 1
    """How many pods it has room for."""
    packed: bool = False
    """Whether several of them may be on one node."""
    shared: bool = False
    """Whether pods of other jobs may be on its nodes; Slurm does not always tell."""
    role: str = ""
    """Of a component of a heterogeneous job: which pods it is for (`components.role_of`). All else is its own."""
    isthmus: int = _VERSION

    @property
    def group(self) -> GroupKey:
        """The group, as in the pods' own labels."""
        return GroupKey(self.kind, self.namespace, self.name)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The pods that it was submitted for."""
        return tuple(Key.parse(pod) for pod in self.pods)


_decode = msgspec.json.Decoder(Marker).decode
_encode = msgspec.json.Encoder().encode


def mark(
    group: GroupKey,
    uid: str,
    pods: Sequence[Pod],
    *,
    cluster: str,
    slots: int = 1,
    packed: bool = False,
    shared: bool = False,
    role: str = "",
) -> Marker:
    return Marker(
        cluster=cluster,
        kind=group.kind,
        namespace=group.namespace,
        name=group.name,
        uid=uid,
        pods=tuple(str(pod.metadata.key) for pod in pods),
        uids=tuple(pod.metadata.uid for pod in pods),
        slots=slots,
        packed=packed,
        shared=shared,
        role=role,
    )


def write(marker: Marker) -> str:
    """Write the marker as the admin comment of a job."""
    return _encode(marker).decode()


def read(admin_comment: str | None) -> Marker | None:
    """Read a marker; None for anything else."""
    if not admin_comment or '"isthmus"' not in admin_comment:
        return None
    try:
        marker = _decode(admin_comment)
        _ = marker.keys
    except (msgspec.MsgspecError, RecursionError, Terminal):
        return None
    return marker if marker.isthmus == _VERSION and marker.cluster and marker.uid else None


def comment(pods: Sequence[Pod], *, asked: str | None = None) -> str:
    """Write the comment that users see in `scontrol show job` and `sacct`: which pods, and their own comment."""
    first = str(pods[0].metadata.key)
    told = first if len(pods) == 1 else f"{first} and {len(pods) - 1} more"
    return f"{told}: {asked}"[:_MAX_COMMENT_CHARS] if asked else told


_MAX_COMMENT_CHARS: Final = 700
"""Slurm takes 1,024 characters; the submission key and the outcome need their share."""
