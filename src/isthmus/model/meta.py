"""The parts that all Kubernetes objects share: metadata, owners, conditions, and the key of an object."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol, TypeVar

from isthmus.errors import Terminal
from isthmus.model.base import EMPTY, Data


class Key(NamedTuple):
    """Which object of a kind: its namespace (empty where the kind has none) and its name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @classmethod
    def parse(cls, text: str) -> "Key":
        """Read `namespace/name`, or `name` alone for a kind without namespaces."""
        namespace, slash, name = text.rpartition("/")
        if not name or "/" in namespace or (slash and not namespace):
            raise Terminal(f"{text!r} does not name an object", remedy="write namespace/name, or name alone")
        return cls(namespace, name)


class OwnerReference(Data, frozen=True):
    """The object that this one belongs to and is removed with."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Data, frozen=True):
    """Name, identity, version and marks of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: Mapping[str, str] = EMPTY
    annotations: Mapping[str, str] = EMPTY
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """The key under which stores and queues hold the object."""
        return Key(self.namespace, self.name)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, of which there is one at most."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class HasMeta(Protocol):
    """Anything that a cache can hold."""

    @property
    def metadata(self) -> ObjectMeta:
        """Where its key comes from."""


class Object(Data, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class Partial(Object, frozen=True):
    """An object of any kind, of which only the metadata is read."""

    api_version: str = ""
    kind: str = ""


ConditionStatus = Literal["True", "False", "Unknown"]
"""It holds, it does not, or it is not known."""


class Condition(Data, frozen=True):
    """One observation about an object."""

    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class HasConditions(Protocol):
    @property
    def conditions(self) -> tuple[Condition, ...]: ...


class Reported(HasMeta, Protocol):
    """Anything with a status that holds conditions."""

    @property
    def status(self) -> HasConditions: ...


class _Typed(Protocol):
    @property
    def type(self) -> str: ...


_C = TypeVar("_C", bound=_Typed)


def condition(conditions: Iterable[_C], type_: str) -> _C | None:
    return next((found for found in conditions if found.type == type_), None)


def micro_time(moment: datetime) -> str:
    """Write a time as the API's MicroTime, which insists on exactly six digits of fraction."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
