"""What every struct has in common, and how a kind of object is named in the Kubernetes API.

`kube` is generic over `Kind`: it knows no particular kind, and a new one costs a struct and one line:

    PODS = Kind(Pod, "v1", "pods", "Pod")
    JOBS = Kind(Job, "batch/v1", "jobs", "Job")
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

EMPTY: Final[Mapping[str, str]] = MappingProxyType({})
"""The mapping of every object that has none: one for all, where `{}` would be one for each of 50,000 pods."""


class Data(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of all structs. `frozen=True` is repeated in each subclass because type checkers do not inherit it.

    Without garbage collection: decoded JSON holds no cycles, and a cache of 50,000 pods would otherwise stop the
    process for a second each time the collector passes through it.
    """


class ListMeta(Data, frozen=True):
    """Where a list stands: its version, and the token of the next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Listing(Data, Generic[T], frozen=True):
    """One page, or all, of the objects of a kind."""

    items: tuple[T, ...] = ()
    metadata: ListMeta = ListMeta()

    @property
    def version(self) -> str:
        """The version from which a watch continues this list without a gap."""
        return self.metadata.resource_version


class _RawListing(Data, frozen=True):
    items: tuple[msgspec.Raw, ...] = ()
    metadata: ListMeta = ListMeta()


RAW_LISTING: Final = msgspec.json.Decoder(_RawListing)
"""Reads a page without looking into its objects: the way to find the one that does not fit its struct."""


@dataclass(frozen=True, eq=False, repr=False)
class Kind(Generic[T]):
    """A kind of object: the struct it decodes to, and its place in the API.

    `api_version` is written as in a manifest (`v1`, `apps/v1`). Compared by identity: each kind is one constant.
    """

    type: type[T]
    api_version: str
    plural: str
    name: str
    namespaced: bool = True
    decoder: msgspec.json.Decoder[T] = field(init=False)
    list_decoder: msgspec.json.Decoder[Listing[T]] = field(init=False)

    def __post_init__(self) -> None:
        # Made here and not on first use: a struct that cannot be decoded is found when its module is imported.
        object.__setattr__(self, "decoder", msgspec.json.Decoder(self.type))
        listing: Any = Listing
        object.__setattr__(self, "list_decoder", msgspec.json.Decoder(listing[self.type]))

    def __repr__(self) -> str:
        return f"Kind({self.plural}.{self.api_version})"

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def root(self) -> str:
        """The URL path under which the group and version are served."""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
