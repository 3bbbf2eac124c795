"""Custom resource definitions from structs, so that the API server enforces what our code expects."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from msgspec import Struct

from isthmus.errors import Retry, Terminal
from isthmus.kube.client import Client
from isthmus.kube.structural import schema
from isthmus.kube.watch import watch
from isthmus.model.base import Data, Kind
from isthmus.model.meta import Condition, Object, condition


class Column(Struct, frozen=True):
    """A column of `kubectl get`; a priority above 0 shows it with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    priority: int = 0


class ScalePaths(Struct, frozen=True):
    """Where `kubectl scale` and autoscalers find the numbers."""

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str = ".status.selector"


class Version(Struct, frozen=True):
    """One version of a kind. A struct with a field `status` has it as a subresource."""

    name: str
    type: type[Struct]
    columns: tuple[Column, ...] = ()
    scale: ScalePaths | None = None
    served: bool = True
    deprecated: str = ""


class Conversion(Struct, frozen=True):
    """The webhook that converts between versions; `ca` (PEM) may be filled in later."""

    namespace: str
    service: str
    path: str = "/convert"
    port: int = 443
    ca: bytes = b""


def definition(
    group: str,
    kind: str,
    *,
    plural: str,
    versions: Sequence[Version],
    stored: str | None = None,
    namespaced: bool = True,
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    conversion: Conversion | None = None,
) -> dict[str, Any]:
    """Make the definition of a kind. The first version is the one that is stored, unless another is named."""
    stored = stored or versions[0].name
    if [version.name for version in versions].count(stored) != 1:
        raise Terminal(f"{kind}: the storage version {stored} must occur exactly once")
    if len(versions) > 1 and conversion is None and len({version.type for version in versions}) > 1:
        raise Terminal(f"{kind}: versions with different schemas need a conversion")
    names: dict[str, Any] = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    if short_names:
        names["shortNames"] = list(short_names)
    if categories:
        names["categories"] = list(categories)
    spec: dict[str, Any] = {
        "group": group,
        "names": names,
        "scope": "Namespaced" if namespaced else "Cluster",
        "versions": [_version(version, kind, stored=version.name == stored) for version in versions],
    }
    if conversion:
        spec["conversion"] = _conversion(conversion)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": spec,
    }


class _CrdStatus(Data, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class Definition(Object, frozen=True):
    """A CustomResourceDefinition, as far as waiting for it needs."""

    status: _CrdStatus = _CrdStatus()

    @property
    def established(self) -> bool:
        """Whether the API server serves the kind."""
        found = condition(self.status.conditions or (), "Established")
        return found is not None and found.status == "True"


DEFINITIONS: Final = Kind(
    Definition, "apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


async def install(client: Client, manifest: Mapping[str, Any], *, manager: str) -> None:
    """Apply a definition and wait until its kind is served."""
    applied = await client.apply(DEFINITIONS, manifest, manager=manager, force=True)
    if applied.established:
        return
    name = applied.metadata.name
    # From the version of our own write: whatever happened to it since comes too.
    following = watch(
        client,
        DEFINITIONS,
        version=applied.metadata.resource_version,
        fields=f"metadata.name={name}",
        duration=30,
    )
    async with aclosing(following) as batches:
        async for batch in batches:
            if any(isinstance(change, Definition) and change.established for change in batch.changes):
                return
    raise Retry(f"the API server does not serve {name} yet", remedy=f"kubectl describe crd {name}")


def _version(version: Version, kind: str, *, stored: bool) -> dict[str, Any]:
    root = schema(version.type, kind)
    properties = root["properties"]
    if "metadata" in properties:
        properties["metadata"] = {"type": "object"}
    if "status" in properties:
        properties["status"].pop("default", None)  # until someone has looked, there is none
    root["properties"] = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, **properties}
    written: dict[str, Any] = {
        "name": version.name,
        "served": version.served,
        "storage": stored,
        "schema": {"openAPIV3Schema": root},
    }
    subresources: dict[str, Any] = {"status": {}} if "status" in properties else {}
    if version.scale:
        subresources["scale"] = {
            "specReplicasPath": version.scale.spec,
            "statusReplicasPath": version.scale.status,
            "labelSelectorPath": version.scale.selector,
        }
    if subresources:
        written["subresources"] = subresources
    if version.columns:
        written["additionalPrinterColumns"] = [_column(column) for column in version.columns]
    if version.deprecated:
        written |= {"deprecated": True, "deprecationWarning": version.deprecated}
    return written


def _column(column: Column) -> dict[str, Any]:
    written: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        written["description"] = column.description
    if column.priority:
        written["priority"] = column.priority
    return written


def _conversion(conversion: Conversion) -> dict[str, Any]:
    service = {
        "namespace": conversion.namespace,
        "name": conversion.service,
        "path": conversion.path,
        "port": conversion.port,
    }
    config: dict[str, Any] = {"service": service}
    if conversion.ca:
        config["caBundle"] = b64encode(conversion.ca).decode()
    return {"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]}}
