"""What can be done for a NodeSet, as values: `decision` lists them, `operator.nodesets.runner` carries them out.

Each says why, in words for an Event, a reason in Slurm or the log. Actions on many nodes are one request to Slurm.
"""

from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from isthmus.domain.operator.nodeset.identity import Identity
from isthmus.model.meta import Key, OwnerReference
from isthmus.model.slurm import ReservationRequest

DrainCause = Literal["scale_in", "rollout", "repair", "deletion", "cordon", "terminating"]
"""Why a node is drained; `terminating` if others deleted its pod."""

ReplacementCause = Literal["rollout", "repair", "ended"]


class SetFinalizers(msgspec.Struct, frozen=True):
    """Let the NodeSet carry these finalizers."""

    finalizers: tuple[str, ...]


class CreatePods(msgspec.Struct, frozen=True):
    """Create these pods, each with its claims."""

    slots: tuple[Identity, ...]


class SaveVictims(msgspec.Struct, frozen=True):
    """Write the victims into the status before they are drained, so that the next leader chooses the same."""

    victims: tuple[str, ...]


class SetOwners(msgspec.Struct, frozen=True):
    """Give a claim these owners, if it is still at that version."""

    key: Key
    version: str
    owners: tuple[OwnerReference, ...]


class Drain(msgspec.Struct, frozen=True):
    """Let Slurm give these nodes no more jobs."""

    slurm_names: tuple[str, ...]
    reason: str
    """With our prefix: reasons without it belong to others."""
    cause: DrainCause


class Undrain(msgspec.Struct, frozen=True):
    """Let Slurm use these nodes again."""

    slurm_names: tuple[str, ...]
    reason: str = ""


class DeletePod(msgspec.Struct, frozen=True):
    """Delete this very pod; only ever one of which no job can be lost, or whose jobs policy has given up."""

    name: str
    uid: str
    why: str
    event: str = "SuccessfulDelete"
    """The reason of the Event."""
    cause: ReplacementCause | None = None
    """Why another pod replaces it, so that its claims stay; None if none does."""
    left_behind: bool = False
    """Its Slurm node starts anew, and its slurmd is from before: jobs that Slurm gave it have not begun."""
    version: str = ""
    """Delete it only at this version: for a pod without a node, which must not get one in the same moment."""


class Protect(msgspec.Struct, frozen=True):
    """Keep evictions away from a pod."""

    name: str
    uid: str


class Unprotect(msgspec.Struct, frozen=True):
    """Let a pod be evicted."""

    name: str
    uid: str


class SetDeadline(msgspec.Struct, frozen=True):
    """Write onto a pod when the last of its jobs ends; None takes it away."""

    name: str
    uid: str
    deadline: datetime | None


class DeleteRecord(msgspec.Struct, frozen=True):
    """Delete the record of a node that does not come back."""

    slurm_name: str
    why: str


class ReviseRecord(msgspec.Struct, frozen=True):
    """Update the records of these nodes: None leaves a field as it is."""

    slurm_names: tuple[str, ...]
    features: tuple[str, ...] | None = None
    topology: str | None = None


class RequeueJobs(msgspec.Struct, frozen=True):
    """Requeue jobs, because their nodes are removed and the policy says so."""

    jobs: tuple[int, ...]
    why: str
    cleared: tuple[str, ...] = ()
    """The nodes on which there are no other jobs: an older Slurm requeues by setting them down."""


class CancelJobs(msgspec.Struct, frozen=True):
    """Cancel jobs, because their nodes are removed and the policy says so."""

    jobs: tuple[int, ...]
    why: str


class SaveReservation(msgspec.Struct, frozen=True):
    """Make a reservation in Slurm, or change it."""

    request: ReservationRequest


class DeleteReservation(msgspec.Struct, frozen=True):
    name: str


Action: TypeAlias = (
    SetFinalizers
    | CreatePods
    | SaveVictims
    | SetOwners
    | Drain
    | Undrain
    | DeletePod
    | Protect
    | Unprotect
    | SetDeadline
    | DeleteRecord
    | ReviseRecord
    | RequeueJobs
    | CancelJobs
    | SaveReservation
    | DeleteReservation
)
