"""Dynamic resource allocation: devices that drivers publish, classes of them, and claims on them."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from msgspec import field

from isthmus.model.base import EMPTY, Data, Kind
from isthmus.model.meta import Condition, Object, ObjectMeta
from isthmus.model.node import Taint
from isthmus.model.pod import NodeSelector, Toleration

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""On a claim that is allocated: its deletion waits until its devices are free."""
EXTENDED_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
"""On a claim that a scheduler made for extended resources of a pod."""


class Attribute(Data, frozen=True):
    """One of these is set."""

    integer: int | None = field(name="int", default=None)
    boolean: bool | None = field(name="bool", default=None)
    string: str | None = None
    version: str | None = None


class ValidRange(Data, frozen=True):
    """From `min` on, in steps, up to `max`."""

    min: str = "0"
    max: str | None = None
    step: str | None = None


class RequestPolicy(Data, frozen=True):
    """How much of a capacity a request may take: one of several values, or of a range. Requests are rounded up."""

    default: str | None = None
    valid_values: tuple[str, ...] = ()
    valid_range: ValidRange | None = None


class Capacity(Data, frozen=True):
    """How much of something a device has, as a quantity."""

    value: str = "0"
    request_policy: RequestPolicy | None = None


class Counter(Data, frozen=True):
    value: str = "0"


_NO_ATTRIBUTES: Final[Mapping[str, Attribute]] = MappingProxyType({})
_NO_CAPACITY: Final[Mapping[str, Capacity]] = MappingProxyType({})
_NO_COUNTERS: Final[Mapping[str, Counter]] = MappingProxyType({})


class CounterSet(Data, frozen=True):
    """Counters of a pool, of which its devices take their parts: the memory of a GPU, for instance."""

    name: str
    counters: Mapping[str, Counter] = _NO_COUNTERS


class CounterUse(Data, frozen=True):
    """What a device takes of a set of counters while somebody has it."""

    counter_set: str
    counters: Mapping[str, Counter] = _NO_COUNTERS


class Device(Data, frozen=True):
    """A device as its driver describes it."""

    name: str
    attributes: Mapping[str, Attribute] = _NO_ATTRIBUTES
    capacity: Mapping[str, Capacity] = _NO_CAPACITY
    consumes_counters: tuple[CounterUse, ...] = ()
    taints: tuple[Taint, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False
    """Whether several requests may have it at once, each a part of its capacity."""


class Pool(Data, frozen=True):
    """The pool that a slice is part of: so many slices of the highest generation make it up."""

    name: str
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpec(Data, frozen=True):
    driver: str
    pool: Pool
    node_name: str = ""
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Data, frozen=True):
    spec: SliceSpec
    metadata: ObjectMeta = ObjectMeta()


class CelSelector(Data, frozen=True):
    expression: str = ""


class Selector(Data, frozen=True):
    """A condition on devices."""

    cel: CelSelector | None = None


class ClassSpec(Data, frozen=True):
    selectors: tuple[Selector, ...] = ()
    config: tuple[dict[str, Any], ...] = ()
    extended_resource_name: str = ""


class DeviceClass(Object, frozen=True):
    spec: ClassSpec = ClassSpec()


class CapacityRequests(Data, frozen=True):
    """How much a request needs of each capacity of a device, as quantities."""

    requests: Mapping[str, str] = EMPTY


class ExactRequest(Data, frozen=True):
    """What is asked for; the name is that of one alternative of several."""

    device_class_name: str
    name: str = ""
    selectors: tuple[Selector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequests | None = None


class DeviceRequest(Data, frozen=True):
    """A request: exactly this, or the first of several alternatives that can be had."""

    name: str
    exactly: ExactRequest | None = None
    first_available: tuple[ExactRequest, ...] = ()


class DeviceConstraint(Data, frozen=True):
    """What the devices of several requests (of all, if none is named) must have, or must not have, in common."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Data, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[dict[str, Any], ...] = ()


class ClaimSpec(Data, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class Result(Data, frozen=True):
    """One device of an allocation."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool = False
    tolerations: tuple[Toleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(name="shareID", default=None)
    """Of a device that several may have: which part of it this is."""
    consumed_capacity: Mapping[str, str] = EMPTY


class Results(Data, frozen=True):
    results: tuple[Result, ...] = ()
    config: tuple[dict[str, Any], ...] = ()


class Allocation(Data, frozen=True):
    """The devices that a claim has, and the nodes from which they can be used."""

    devices: Results = Results()
    node_selector: NodeSelector | None = None
    allocation_timestamp: datetime | None = None


class Consumer(Data, frozen=True):
    """Who may use a claim; for pods, `resource` is pods."""

    resource: str
    name: str
    uid: str


class DeviceStatus(Data, frozen=True):
    """What a driver says of an allocated device."""

    driver: str
    pool: str
    device: str
    conditions: tuple[Condition, ...] = ()


class ClaimStatus(Data, frozen=True):
    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()
    devices: tuple[DeviceStatus, ...] = ()


class ResourceClaim(Object, frozen=True):
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class ClaimTemplateSpec(Data, frozen=True):
    spec: ClaimSpec = ClaimSpec()


class ResourceClaimTemplate(Object, frozen=True):
    """What claims that are made for pods ask for."""

    spec: ClaimTemplateSpec = ClaimTemplateSpec()


RESOURCE_SLICES = Kind(ResourceSlice, "resource.k8s.io/v1", "resourceslices", "ResourceSlice", namespaced=False)
DEVICE_CLASSES = Kind(DeviceClass, "resource.k8s.io/v1", "deviceclasses", "DeviceClass", namespaced=False)
RESOURCE_CLAIMS = Kind(ResourceClaim, "resource.k8s.io/v1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES = Kind(
    ResourceClaimTemplate, "resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate"
)
