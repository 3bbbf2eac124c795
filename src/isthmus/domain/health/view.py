"""What is known of a cluster's nodes at one moment, for decisions about their health.

Every decision is a pure function of a `ClusterView`. Who decides something that could cost a job asks
`slurm_in_touch` first: what Slurm said an hour ago proves nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Literal

import msgspec

from isthmus.model.health import HealthPolicySpec, NodeHealth, Source
from isthmus.model.meta import Key
from isthmus.model.node import Node
from isthmus.model.pod import Pod
from isthmus.model.slurm import Node as SlurmNode


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong with a node right now, as its source shows it; what is over is left out."""

    source: Source
    check: str
    evidence: str = ""
    devices: tuple[str, ...] = ()
    at: datetime
    """When the source saw it; the same finding with a later time counts again."""
    wants: Literal["", "comment", "drain"] = ""
    """What the source itself asks for, as the reactions of an ActiveCheck do."""
    reason: str = ""
    """The words for Slurm that the source asks for; ours if empty."""
    test: bool = False
    """Whether the check can be run again on this node."""
    in_slurm: bool = False
    """Whether it runs as a job of Slurm: its test then needs a node that is open, in a reservation."""
    by_drain: bool = False
    """Whether a drain in Slurm shows it. Such a one ends with its drain: if it is seen again, it is new."""
    proof: Literal["gone", "repair", "machine"] = "gone"
    """What returns the node where no test can: see `model.health.Proof`."""


class TestView(msgspec.Struct, frozen=True):
    """How the test of a node stands."""

    __test__: ClassVar[bool] = False
    """For pytest, which takes it for a test by its name."""

    job: str
    result: Literal["running", "passed", "failed", "error"]
    detail: str = ""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A Slurm node, the pod and the machine below it, and what we recorded of it."""

    name: str
    slurm: SlurmNode | None = None
    nodeset: str = ""
    """The NodeSet, or "external" for a node of the bridge."""
    block: str = ""
    pod: Pod | None = None
    pod_ready: bool = False
    machine: Node | None = None
    neighbours: tuple[str, ...] = ()
    """Other Slurm nodes on the same machine."""
    health: NodeHealth | None = None
    observations: tuple[Observation, ...] = ()
    test: TestView | None = None
    passed: Mapping[str, datetime] = {}
    """When checks passed on it, as far as they say so; that proves as much as a test of ours."""
    reserved: bool = False
    """Whether our private reservation holds it."""
    operator_holds: str = ""
    """Why the operator wants it drained (cordoned, being removed), as a reason for Slurm; empty if it does not."""


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    cluster: Key
    now: datetime
    policy: HealthPolicySpec
    nodes: Mapping[str, NodeView]
    slurm_in_touch: bool
    """Whether what is said of Slurm holds now: it answers, and has answered since we last wrote to it."""
    slurm_forgot: bool = False
    """Whether slurmctld is another one than at the last decision.

    One that was killed forgets the drains of its last seconds: an open node was not resumed by anybody.
    """
    can_reserve: bool = True
    """Whether we can make reservations: by Slurm's API (25.05 and later), or by a command in a worker pod."""
    rebooting: frozenset[str] = frozenset()
    """Machines of all clusters that are being rebooted."""
    first: bool = False
    """Whether this process has not decided anything yet: the previous one may have ended before it notified."""
