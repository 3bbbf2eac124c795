"""Pods, as far as placing and following them needs."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import field

from isthmus.model.base import EMPTY, Data, Kind
from isthmus.model.meta import ConditionStatus, Object


class ClaimPart(Data, frozen=True):
    """A claim of the pod that a container uses, or one request of it."""

    name: str
    request: str = ""


class Resources(Data, frozen=True):
    """What is asked for, as quantities (`domain.languages.quantity`).

    Of containers, limits are not needed: where one stands without a request, the API server makes it the request.
    """

    requests: Mapping[str, str] = EMPTY
    limits: Mapping[str, str] = EMPTY
    claims: tuple[ClaimPart, ...] = ()


class ContainerPort(Data, frozen=True):
    """A port of a container; `host_port` is 0 unless it takes one of its node's."""

    host_port: int = 0
    host_ip: str = field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(Data, frozen=True):
    """One container; an init container with `restart_policy` "Always" runs beside the others."""

    name: str = ""
    resources: Resources = Resources()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class Toleration(Data, frozen=True):
    """A taint that the pod tolerates; no key means any, no effect means every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(Data, frozen=True):
    """One comparison with a label or field of a node."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Data, frozen=True):
    """All of these must hold."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Data, frozen=True):
    """One of these terms must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class Preference(Data, frozen=True):
    """A preference; only its presence is read."""


class NodeAffinity(Data, frozen=True):
    """Which nodes the pod can run on at all, and which it would like."""

    required: NodeSelector | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[Preference, ...] = field(name="preferredDuringSchedulingIgnoredDuringExecution", default=())


class LabelSelector(Data, frozen=True):
    """Which objects, by their labels; all of it must hold, and an empty one selects everything."""

    match_labels: Mapping[str, str] = EMPTY
    match_expressions: tuple[Requirement, ...] = ()


class PodAffinityTerm(Data, frozen=True):
    """Near, or away from, pods with these labels, in the sense of a label of nodes."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None


class PodAffinity(Data, frozen=True):
    """Which other pods must be near, or must not be, and which had better."""

    required: tuple[PodAffinityTerm, ...] = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=())
    preferred: tuple[Preference, ...] = field(name="preferredDuringSchedulingIgnoredDuringExecution", default=())


class Affinity(Data, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(Data, frozen=True):
    """How pods are to be spread; `when_unsatisfiable` is DoNotSchedule or ScheduleAnyway."""

    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"


class SchedulingGroup(Data, frozen=True):
    """The built-in PodGroup that a pod belongs to."""

    pod_group_name: str = ""


class ResourceClaimUse(Data, frozen=True):
    """A claim on devices: one that is there, or one that is made for the pod from a template."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class SchedulingGate(Data, frozen=True):
    """Someone who still holds the pod back from being placed."""

    name: str


class ClaimSource(Data, frozen=True):
    """The volume claim that a volume uses."""

    claim_name: str


class Ephemeral(Data, frozen=True):
    """Says that the volume's claim is made for the pod, as `POD-VOLUME`."""


class Volume(Data, frozen=True):
    """A volume of a pod, of which only claims bear on placement. An ephemeral one has a claim named after it."""

    name: str
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Ephemeral | None = None


class PodSpec(Data, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    hostname: str = ""
    scheduler_name: str = ""
    node_selector: Mapping[str, str] = EMPTY
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    overhead: Mapping[str, str] = EMPTY
    volumes: tuple[Volume, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    host_network: bool = False
    service_account_name: str = ""
    active_deadline_seconds: int = 0
    scheduling_group: SchedulingGroup | None = None
    resources: Resources = Resources()
    """Of the pod as a whole; where given, it stands for the sum of its containers."""
    resource_claims: tuple[ResourceClaimUse, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()


class PodCondition(Data, frozen=True):
    """A condition of a pod, without its times: pods have five each, and their times are not read."""

    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""


class Terminated(Data, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""


class Waiting(Data, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerState(Data, frozen=True):
    terminated: Terminated | None = None
    waiting: Waiting | None = None


class ContainerStatus(Data, frozen=True):
    """What became of a container, and of the one before it."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: bool = False


class ResourceClaimStatus(Data, frozen=True):
    """The claim that was made for a pod; None if it needs none after all."""

    name: str = ""
    resource_claim_name: str | None = None


class ExtendedClaimStatus(Data, frozen=True):
    """The claim that holds the devices of a pod's extended resources."""

    resource_claim_name: str = ""


class PodStatus(Data, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    pod_ip: str = field(name="podIP", default="")
    start_time: datetime | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[ResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedClaimStatus | None = None


class Pod(Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """Whether all its containers ended for good."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def bound(self) -> bool:
        return bool(self.spec.node_name)

    @property
    def leaving(self) -> bool:
        """Whether it is being deleted."""
        return self.metadata.deletion_timestamp is not None


PODS = Kind(Pod, "v1", "pods", "Pod")
