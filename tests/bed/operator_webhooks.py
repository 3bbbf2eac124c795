"""Webhooks of the operator as the API server is to know them, which the chart has in its own language.

Tests compare the chart with this, and register webhooks of their own by it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from isthmus import names
from isthmus.kube import crd
from isthmus.kube.client import Client
from isthmus.kube.crd import Conversion
from isthmus.model.base import Kind
from isthmus.model.soperator import SLURM_CLUSTERS
from isthmus.operator import crds
from isthmus.operator.webhook import COMPLETE, CONVERT, DRAIN, DRAINED_FIRST, KINDS, SCALE, SCALED, VALIDATE
from isthmus.runtime.certkeeper import Place as Service
from isthmus.runtime.trust import MUTATING, VALIDATING

NAME: Final = "isthmus-operator-webhook"

DEFAULTS_WEBHOOK: Final = "defaults.slurm.isthmus.dev"
WEBHOOK: Final = "clusters.slurm.isthmus.dev"
SCALE_WEBHOOK: Final = "scale.slurm.isthmus.dev"
DRAIN_WEBHOOK: Final = "drain.slurm.isthmus.dev"

CHANGES: Final = {
    "stays": "!has(object.metadata.deletionTimestamp)",
    "spec-changes": 'request.operation == "CREATE" || object.spec != oldObject.spec',
}
"""In CEL: which writes concern us, by names that the API server shows."""

SIZES: Final = {"size-changes": "object.spec != oldObject.spec"}

FOREGROUND: Final = {
    "in-the-foreground": (
        'has(request.options.propagationPolicy) && request.options.propagationPolicy == "Foreground"'
    )
}

_TIMEOUT: Final = 10


class Place(Service, frozen=True):
    """Where the server of a test is: the Service of the chart, or a URL for the API server."""

    name: str = NAME
    url: str = ""

    @property
    def conversion(self) -> Conversion:
        return Conversion(namespace=self.namespace, service=self.name, path=CONVERT)

    def client_config(self, path: str) -> dict[str, Any]:
        if self.url:
            return {"url": self.url + path}
        return {"service": {"name": self.name, "namespace": self.namespace, "path": path, "port": 443}}


def mutating(place: Place, *, namespaces: Sequence[str] = ()) -> dict[str, Any]:
    """Make the MutatingWebhookConfiguration; with `namespaces`, for these alone."""
    created = rules([SLURM_CLUSTERS], ["CREATE"])
    webhook = _webhook(DEFAULTS_WEBHOOK, place.client_config(COMPLETE), created, conditions={}, side_effects="None")
    webhook["reinvocationPolicy"] = "Never"
    return {"metadata": {"name": place.name}, "webhooks": _limited([webhook], namespaces)}


def validating(place: Place, *, namespaces: Sequence[str] = ()) -> dict[str, Any]:
    """Make the ValidatingWebhookConfiguration; with `namespaces`, for these alone."""
    webhooks = [
        _webhook(
            WEBHOOK,
            place.client_config(VALIDATE),
            rules(KINDS, ["CREATE", "UPDATE"]),
            conditions=CHANGES,
            side_effects="None",
        ),
        _webhook(
            SCALE_WEBHOOK,
            place.client_config(SCALE),
            rules(SCALED, ["UPDATE"], subresource="/scale"),
            conditions=SIZES,
            side_effects="None",
            failure_policy="Ignore",
        ),
        _webhook(
            DRAIN_WEBHOOK,
            place.client_config(DRAIN),
            rules(DRAINED_FIRST, ["DELETE"]),
            conditions=FOREGROUND,
            side_effects="NoneOnDryRun",
        ),
    ]
    return {"metadata": {"name": place.name}, "webhooks": _limited(webhooks, namespaces)}


def _limited(webhooks: list[dict[str, Any]], namespaces: Sequence[str]) -> list[dict[str, Any]]:
    if namespaces:
        named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
        for webhook in webhooks:
            webhook["namespaceSelector"] = {"matchExpressions": [named]}
    return webhooks


def _webhook(
    name: str,
    client_config: dict[str, Any],
    rules: list[dict[str, Any]],
    *,
    conditions: Mapping[str, str],
    side_effects: str,
    failure_policy: str = "Fail",
) -> dict[str, Any]:
    matching = [{"name": name, "expression": text} for name, text in conditions.items()]
    return {
        "name": name,
        "clientConfig": client_config,
        "rules": rules,
        "matchPolicy": "Equivalent",
        **({"matchConditions": matching} if matching else {}),
        "failurePolicy": failure_policy,
        "timeoutSeconds": _TIMEOUT,
        "sideEffects": side_effects,
        "admissionReviewVersions": ["v1"],
    }


def rules(kinds: Iterable[Kind[Any]], operations: Sequence[str], *, subresource: str = "") -> list[dict[str, Any]]:
    """List kinds, for the API server."""
    by_version: dict[tuple[str, str], list[str]] = {}
    for kind in kinds:
        by_version.setdefault((kind.group, kind.version), []).append(kind.plural + subresource)
    return [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": list(operations),
            "resources": resources,
            "scope": "Namespaced",
        }
        for (group, version), resources in by_version.items()
    ]


async def register(client: Client, place: Place, *, namespaces: Sequence[str] = ()) -> None:
    """Have the API server serve our kinds and ask us about them. Certificates are filled in by the keeper."""
    for manifest in crds.definitions(conversion=place.conversion):
        if "conversion" in manifest["spec"]:
            manifest["spec"]["conversion"]["webhook"]["clientConfig"] = place.client_config(CONVERT)
        await crd.install(client, manifest, manager=names.FIELD_MANAGER)
    for kind, configuration in (
        (VALIDATING, validating(place, namespaces=namespaces)),
        (MUTATING, mutating(place, namespaces=namespaces)),
    ):
        await client.apply(kind, configuration, manager=names.FIELD_MANAGER, force=True)


async def unregister(client: Client, place: Place) -> None:
    """Have the API server ask us no more. The kinds stay, and with them every cluster."""
    for kind in (VALIDATING, MUTATING):
        await client.delete_all(kind, fields=f"metadata.name={place.name}")
