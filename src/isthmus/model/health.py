"""The health of Slurm nodes: what was found (NodeHealth), and what is done about it (HealthPolicy).

`domain.health` decides by them. A NodeHealth exists only for a node with a finding, and for a week after it.
"""

from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta

from isthmus.model.base import Data, Kind
from isthmus.model.meta import Object, ObjectMeta
from isthmus.model.schema import IntOrString, Rule, keyed_by, rules
from isthmus.model.slinky import ReportedStatus

GROUP: Final = "isthmus.dev"
VERSION: Final = "v1alpha1"

Source = Literal[
    "check", "prolog", "epilog", "healthcheck", "condition", "notReady", "device", "maintenance", "human"
]
"""Who found it: an ActiveCheck; a passive check by where it ran; a condition or taint of the Kubernetes node; a
kubelet that does not answer; a tainted device; a maintenance notice; somebody who drained the node in Slurm."""

Phase = Literal["Suspect", "Waiting", "Draining", "Repairing", "Testing", "OutOfService", "Recovered"]
"""Suspect: recorded, nothing is done. Waiting: something would be done, and a limit forbids it. Draining: jobs
finish. Repairing: a rung of the ladder is at work. Testing: the check that condemned it runs again. OutOfService: a
human decides. Recovered: in use again."""

Rung = Literal["restartPod", "resetDevice", "reboot", "replace"]

Proof = Literal["gone", "test", "slurmTest", "repair", "machine"]
"""What returns a node that is drained for a finding: it has been gone for healthyDelay; its test passes, beside
Slurm or as a job of Slurm; a rung of the ladder was completed; it runs on another machine."""

_Text = Annotated[str, Meta(max_length=512)]
_Duration = Annotated[str, Meta(max_length=32, pattern=r"^([0-9]+(\.[0-9]+)?(ms|[smhd]))+$")]
_Name = Annotated[str, Meta(max_length=253, pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")]
_Share = Annotated[
    IntOrString,
    rules(
        Rule(
            "type(self) == int ? self >= 0 : self.matches('^([0-9]|[1-9][0-9]|100)%$')",
            "write a number of nodes, or a share from 0% to 100%",
        )
    ),
]


class Finding(Data, frozen=True):
    """Something that is wrong with a node, by one source and check."""

    source: Source
    check: _Text
    """The check, condition or taint; for a drain by an administrator, the user."""
    evidence: _Text = ""
    devices: tuple[_Text, ...] = ()
    first_seen: datetime | None = None
    """When it came, this time."""
    last_seen: datetime | None = None
    """When it was last newly seen, not when it was last looked at: a finding that lasts is not written again."""
    count: int = 1
    """How often it came."""
    cleared: datetime | None = None
    """Since when it is no longer seen, or its test has passed."""
    dismissed: bool = False
    """Whether a passed test or an administrator ended it: only later evidence brings it back."""
    wants: Literal["", "comment", "drain"] = ""
    """What the source itself requests."""
    proof: Proof = "gone"


class RepairStep(Data, frozen=True):
    """One rung of the ladder that was tried on the node."""

    rung: Rung
    started: datetime
    ended: datetime | None = None
    outcome: _Text = ""
    target: str = ""
    """The uid of the pod or machine on which it was begun: another one shows that it is done."""


class NodeHealthSpec(Data, frozen=True):
    """Which node it is about."""

    cluster: str
    """The SlurmCluster, or the Controller."""
    node: str
    """The node's name in Slurm."""


class NodeHealthStatus(Data, frozen=True):
    phase: Phase | None = None
    since: datetime | None = None
    """Since when it is in this phase."""
    message: _Text = ""
    """Reason, and next step."""
    machine: str = ""
    """The Kubernetes node that it runs on."""
    nodeset: str = ""
    block: str = ""
    """The NodeSet and the topology block for whose limits it counts, also while it has no pod."""
    reason: _Text = ""
    """The drain reason in Slurm; empty while the node is not drained by node health."""
    drained: datetime | None = None
    """When Slurm was first seen with this reason; an open node without it was not drained yet, and one with it was
    opened by somebody."""
    tried: int = 0
    """Rungs of the ladder that are behind it since it was drained."""
    comment: _Text = ""
    """The comment in Slurm, if node health wrote it."""
    findings: Annotated[tuple[Finding, ...], Meta(max_length=16)] = ()
    steps: Annotated[tuple[RepairStep, ...], Meta(max_length=16)] = ()
    test: str = ""
    """The Job of the test that runs, or the last one."""


class NodeHealth(Data, frozen=True):
    """What is wrong with a Slurm node, and what is done about it."""

    spec: NodeHealthSpec
    metadata: ObjectMeta = ObjectMeta()
    status: NodeHealthStatus = NodeHealthStatus()


class Match(Data, frozen=True):
    """Which findings a rule is for; what is left out matches all."""

    sources: Annotated[tuple[Source, ...], Meta(max_length=16)] = ()
    checks: Annotated[tuple[_Text, ...], Meta(max_length=64)] = ()
    """Names of checks, with * and ? as in file names."""
    evidence: Annotated[str, Meta(max_length=512)] = ""
    """A part of the evidence, such as [hardware_problem]."""


class PolicyRule(Data, frozen=True):
    """What is done about some findings. The first rule that matches counts."""

    action: Literal["ignore", "record", "comment", "drain", "repair"]
    """record: only shown. comment: also in Slurm's comment. drain: no new jobs until it is over. repair: drained,
    and the ladder is climbed."""
    match: Match = Match()
    confirmations: Annotated[int, Meta(ge=1, le=100)] = 1
    """How often it must be found before action is taken."""
    job_deadline: _Duration | None = None
    """How long running jobs may continue before they are requeued; without it, there is no limit."""
    ladder: Annotated[tuple["LadderStep", ...], Meta(max_length=8)] | None = None
    """Instead of the policy's."""


class LadderStep(Data, frozen=True):
    rung: Rung
    timeout: _Duration = "15m"
    """How long it may take until the node is ready for its test."""


class Window(Data, frozen=True):
    """When machines may be rebooted or replaced."""

    start: Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    end: Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    days: Annotated[tuple[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], ...], Meta(max_length=7)] = ()
    """On which days it begins; all if empty."""
    time_zone: Annotated[str, Meta(max_length=64)] = "UTC"


class Storm(Data, frozen=True):
    """When a check that suddenly fails on many nodes is itself suspect."""

    share: _Share = "33%"
    """Share of the cluster's nodes on which one check newly fails; at least three nodes."""
    within: _Duration = "5m"
    cooldown: _Duration = "30m"
    """How long nothing is done for its findings after the last of them."""


class Limits(Data, frozen=True):
    """How many nodes may be out at a time, whatever is found."""

    max_unavailable: _Share = "20%"
    """Nodes of a NodeSet that are held at a time, at least one."""
    max_unavailable_per_block: _Share | None = None
    """Nodes of one topology block that are held at a time."""
    max_reboots: Annotated[int, Meta(ge=0, le=1000)] = 1
    """Machines that are rebooted at a time, in all of Kubernetes."""
    max_steps_per_week: Annotated[int, Meta(ge=1, le=16)] = 4
    """Repairs tried on a node within a week before manual action is required."""
    windows: Annotated[tuple[Window, ...], Meta(max_length=16)] = ()
    storm: Storm = Storm()


class SecretKey(Data, frozen=True):
    name: _Name
    key: Annotated[str, Meta(min_length=1, max_length=253)]


class Receiver(Data, frozen=True):
    """A receiver of notifications."""

    name: _Name
    format: Literal["slack", "alertmanager", "json", "mail"] = "json"
    url_secret: SecretKey | None = None
    """Where to send it; addresses of hooks are secrets."""
    mail: Annotated[str, Meta(max_length=254)] = ""
    """The address, for the format mail; url_secret is then smtp://user:password@host:port."""
    phases: Annotated[tuple[Phase, ...], Meta(max_length=8)] = ("Draining", "OutOfService", "Recovered")


class HealthPolicySpec(Data, frozen=True):
    """What is done about findings. The defaults are careful: machines are neither rebooted nor replaced."""

    slurm_cluster_ref_name: _Name = ""
    """The cluster that it is for; empty for all of the namespace that have no policy of their own."""
    mode: Literal["enforce", "shadow"] = "enforce"
    """shadow: findings are recorded with what would be done, and nothing is."""
    paused: bool = False
    """Start no new drain or repair; `isthmus health pause` sets it."""
    rules: Annotated[tuple[PolicyRule, ...], Meta(max_length=64)] = ()
    """Tried in order, before the built-in ones: checks and node conditions are repaired, humans are left alone."""
    ladder: Annotated[tuple[LadderStep, ...], Meta(max_length=8)] = (LadderStep(rung="restartPod", timeout="5m"),)
    healthy_delay: _Duration = "30s"
    """How long a finding that no test can check must have been gone."""
    test_timeout: _Duration = "30m"
    limits: Limits = Limits()
    receivers: Annotated[tuple[Receiver, ...], Meta(max_length=16), keyed_by("name")] = ()


class HealthPolicyStatus(ReportedStatus, frozen=True):
    storms: Annotated[tuple[_Text, ...], Meta(max_length=16)] = ()
    """Checks whose findings are not acted on, with the reason."""
    held: int = 0
    """Nodes that node health holds."""


class HealthPolicy(Object, frozen=True):
    spec: HealthPolicySpec = HealthPolicySpec()
    status: HealthPolicyStatus = HealthPolicyStatus()


NODE_HEALTHS = Kind(NodeHealth, f"{GROUP}/{VERSION}", "nodehealths", "NodeHealth")
HEALTH_POLICIES = Kind(HealthPolicy, f"{GROUP}/{VERSION}", "healthpolicies", "HealthPolicy")
