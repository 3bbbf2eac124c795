"""Tells the API server where our webhooks are, and keeps their certificates.

Only writes that change the specification of one of our kinds wait for us, and deletion in the foreground of what is
drained first. With every replica of ours dead these are refused; status, scale, labels, finalizers and the usual
deletion go on, so whatever there is can be used and taken away.

The chart has the same in its own language, and a test compares the two. What is here is for who runs the operator
without the chart.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.kube import crd
from isthmus.kube.client import Client
from isthmus.kube.crd import Conversion
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.operator import crds
from isthmus.operator.webhook import CONVERT, DRAIN, DRAINED_FIRST, KINDS, VALIDATE
from isthmus.runtime.certkeeper import CertificateKeeper
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.trust import DEFINITIONS, VALIDATING, Target

NAME: Final = "isthmus-operator-webhook"
"""Of the configuration and of the Service."""

WEBHOOK: Final = "clusters.slurm.isthmus.dev"
DRAIN_WEBHOOK: Final = "drain.slurm.isthmus.dev"

CHANGES: Final = {
    "stays": "!has(object.metadata.deletionTimestamp)",
    "spec-changes": 'request.operation == "CREATE" || object.spec != oldObject.spec',
}
"""In CEL: which writes concern us, by names that the API server shows."""

FOREGROUND: Final = {
    "in-the-foreground": (
        'has(request.options.propagationPolicy) && request.options.propagationPolicy == "Foreground"'
    )
}

_TIMEOUT: Final = 10


class Place(msgspec.Struct, frozen=True):
    """Where our webhook server is: a Service in the operator's own namespace, or a URL for the API server."""

    namespace: str
    name: str = NAME
    url: str = ""

    @property
    def secret(self) -> Key:
        """Where the certificates are kept."""
        return Key(self.namespace, f"{self.name}-tls")

    @property
    def conversion(self) -> Conversion:
        """Where objects are converted."""
        return Conversion(namespace=self.namespace, service=self.name, path=CONVERT)

    def client_config(self, path: str) -> dict[str, Any]:
        """Say how the API server gets there."""
        if self.url:
            return {"url": self.url + path}
        return {"service": {"name": self.name, "namespace": self.namespace, "path": path, "port": 443}}


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
            DRAIN_WEBHOOK,
            place.client_config(DRAIN),
            rules(DRAINED_FIRST, ["DELETE"]),
            conditions=FOREGROUND,
            side_effects="NoneOnDryRun",
        ),
    ]
    if namespaces:
        named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
        for webhook in webhooks:
            webhook["namespaceSelector"] = {"matchExpressions": [named]}
    return {"metadata": {"name": place.name}, "webhooks": webhooks}


def _webhook(
    name: str,
    client_config: dict[str, Any],
    rules: list[dict[str, Any]],
    *,
    conditions: Mapping[str, str],
    side_effects: str,
) -> dict[str, Any]:
    return {
        "name": name,
        "clientConfig": client_config,
        "rules": rules,
        "matchPolicy": "Equivalent",
        "matchConditions": [{"name": name, "expression": text} for name, text in conditions.items()],
        "failurePolicy": "Fail",
        "timeoutSeconds": _TIMEOUT,
        "sideEffects": side_effects,
        "admissionReviewVersions": ["v1"],
    }


def rules(kinds: Iterable[Kind[Any]], operations: Sequence[str]) -> list[dict[str, Any]]:
    """List kinds, for the API server."""
    by_version: dict[tuple[str, str], list[str]] = {}
    for kind in kinds:
        by_version.setdefault((kind.group, kind.version), []).append(kind.plural)
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
    configuration = validating(place, namespaces=namespaces)
    await client.apply(VALIDATING, configuration, manager=names.FIELD_MANAGER, force=True)


async def unregister(client: Client, place: Place) -> None:
    """Have the API server ask us no more. The kinds stay, and with them every cluster."""
    await client.delete_all(VALIDATING, fields=f"metadata.name={place.name}")


def certificates(client: Client, place: Place, *, metrics: Metrics, hosts: Sequence[str] = ()) -> CertificateKeeper:
    """Make the keeper of the certificates: for the Service, and for other `hosts` that lead to it."""
    service = f"{place.name}.{place.namespace}"
    return CertificateKeeper(
        client,
        place.secret,
        names=[place.name, service, f"{service}.svc", *hosts],
        targets=[Target(VALIDATING, place.name), *(Target(DEFINITIONS, name) for name in crds.converted())],
        metrics=metrics,
    )
