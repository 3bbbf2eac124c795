"""What can be done for the health of nodes, as values: `decision` lists them, `health.runner` carries them out.

Their order counts: what is recorded before an act lets the next leader go on after a crash between the two.
"""

from typing import Literal, TypeAlias

import msgspec

from isthmus.model.health import NodeHealthStatus, Rung
from isthmus.model.meta import Key


class Record(msgspec.Struct, frozen=True):
    """Write what is known of a node; the object is created with the first finding."""

    node: str
    status: NodeHealthStatus


class Forget(msgspec.Struct, frozen=True):
    """Delete the record of a node that has been well for long, or is gone."""

    node: str


class Drain(msgspec.Struct, frozen=True):
    """Let Slurm give these nodes no more jobs. A reason that is not ours stays: see `reasons`."""

    nodes: tuple[str, ...]
    reason: str


class Release(msgspec.Struct, frozen=True):
    """Give up our hold on these nodes: undrain them or, where the operator holds them too, leave its reason."""

    nodes: tuple[str, ...]
    reason: str = ""
    """The operator's; the nodes stay drained with it."""


class Comment(msgspec.Struct, frozen=True):
    """Set Slurm's comment of a node; empty takes ours away."""

    node: str
    text: str


class Reserve(msgspec.Struct, frozen=True):
    """Keep a node for its test, then open it: others cannot use it until `Unreserve`."""

    node: str


class Unreserve(msgspec.Struct, frozen=True):
    node: str


class RunTest(msgspec.Struct, frozen=True):
    """Run a check again on one node."""

    node: str
    check: str
    source: str
    job: str
    """The name that the test has, so that it is started once."""


class Requeue(msgspec.Struct, frozen=True):
    """Put the jobs of a node back into the queue."""

    node: str
    why: str


class Climb(msgspec.Struct, frozen=True):
    """Begin a rung of the ladder. Only for a node without jobs."""

    node: str
    rung: Rung
    pod: Key | None = None
    pod_uid: str = ""
    machine: str = ""
    devices: tuple[str, ...] = ()


class SetCondition(msgspec.Struct, frozen=True):
    """Show something as a condition of the machine."""

    machine: str
    type: str
    status: Literal["True", "False"]
    reason: str
    message: str


class Notify(msgspec.Struct, frozen=True):
    """Notify: an Event, a metric, and the receivers of the policy."""

    node: str
    phase: str
    message: str
    warning: bool = True


Action: TypeAlias = (
    Record
    | Forget
    | Drain
    | Release
    | Comment
    | Reserve
    | Unreserve
    | RunTest
    | Requeue
    | Climb
    | SetCondition
    | Notify
)
