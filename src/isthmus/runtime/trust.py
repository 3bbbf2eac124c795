"""Configures which authority the API server trusts when it calls our webhooks.

Webhook configurations and CRDs are installed with an empty `caBundle`; it is filled in here, and corrected
whenever it changes.
"""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any, NamedTuple

import structlog

from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.base import Data, Kind
from isthmus.model.meta import Object

log = structlog.get_logger()


class ClientConfig(Data, frozen=True):
    """How the API server reaches a webhook."""

    ca_bundle: str = ""


class Webhook(Data, frozen=True):
    """One entry of a webhook configuration."""

    name: str
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(Object, frozen=True):
    """A validating or mutating webhook configuration."""

    webhooks: tuple[Webhook, ...] = ()


class ConversionWebhook(Data, frozen=True):
    """Where a CRD's objects are converted."""

    client_config: ClientConfig | None = None


class Conversion(Data, frozen=True):
    """How a CRD's objects are converted."""

    strategy: str = "None"
    webhook: ConversionWebhook | None = None


class DefinitionSpec(Data, frozen=True):
    """What a CRD defines."""

    conversion: Conversion = Conversion()


class Definition(Object, frozen=True):
    spec: DefinitionSpec = DefinitionSpec()


VALIDATING = Kind(
    WebhookConfiguration,
    "admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
MUTATING = Kind(
    WebhookConfiguration,
    "admissionregistration.k8s.io/v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
DEFINITIONS = Kind(
    Definition, "apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


class Target(NamedTuple):
    """Something with a `caBundle`: its kind (VALIDATING, MUTATING or DEFINITIONS) and its name."""

    kind: Kind[Any]
    name: str


async def trust(client: Client, target: Target, bundle: bytes) -> None:
    """Make the API server trust these authorities (PEM) wherever the target leads to."""
    try:
        found: WebhookConfiguration | Definition = await client.get(target.kind, target.name)
        if patch := list(_corrections(found, b64encode(bundle).decode())):
            await client.json_patch(target.kind, target.name, patch)
            log.info("updated the CA bundle", kind=target.kind.name, name=target.name)
    except NotFound:
        log.debug("not installed yet", kind=target.kind.name, name=target.name)


def _corrections(found: WebhookConfiguration | Definition, bundle: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON patch that puts the bundle where it belongs; nothing if it is there already."""
    if isinstance(found, WebhookConfiguration):
        for position, webhook in enumerate(found.webhooks):
            if webhook.client_config.ca_bundle != bundle:
                # Positions shift when the list is edited meanwhile: the name makes sure.
                yield {"op": "test", "path": f"/webhooks/{position}/name", "value": webhook.name}
                yield {"op": "add", "path": f"/webhooks/{position}/clientConfig/caBundle", "value": bundle}
        return
    conversion = found.spec.conversion
    client_config = conversion.webhook.client_config if conversion.webhook else None
    if conversion.strategy == "Webhook" and client_config and client_config.ca_bundle != bundle:
        yield {"op": "add", "path": "/spec/conversion/webhook/clientConfig/caBundle", "value": bundle}
