"""Webhooks that a real API server calls, with certificates that nobody installed."""

import asyncio
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from isthmus.errors import Terminal
from isthmus.kube.client import Client
from isthmus.kube.errors import ApiError
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.runtime import server
from isthmus.runtime.certkeeper import SECRETS, CertificateKeeper
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.reviews import Admission, AdmissionRequest
from isthmus.runtime.trust import DEFINITIONS, MUTATING, VALIDATING, Target
from tests.flows.kube.conftest import CONFIG_MAPS, config_map

HOST = "127.0.0.1"
DAY = timedelta(days=1)

DENIED = "must not be called bad"
NOT_REACHED = "failed calling webhook"


class Clock:
    """The keeper's idea of the time; the API server has its own."""

    def __init__(self) -> None:
        self.real = datetime.now(UTC)
        self.now = self.real

    def __call__(self) -> datetime:
        return self.now

    def set(self, *, days_ago: float) -> None:
        self.now = self.real - days_ago * DAY


class Bed:
    """A webhook server in this process, and what it takes to make the API server call it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.name = namespace  # of everything that has no namespace
        self.clock = Clock()
        self.port = 0
        self.keeper = self.make_keeper()

    def make_keeper(self) -> CertificateKeeper:
        return CertificateKeeper(
            self.client,
            Key(self.namespace, "certificates"),
            names=[HOST, "webhook.isthmus.svc"],
            targets=[Target(VALIDATING, self.name), Target(MUTATING, self.name), Target(DEFINITIONS, self.crd)],
            metrics=Metrics(),
            now=self.clock,
        )

    @property
    def group(self) -> str:
        return f"{self.namespace}.example.org"

    @property
    def crd(self) -> str:
        return f"things.{self.group}"

    def url(self, path: str) -> str:
        return f"https://{HOST}:{self.port}{path}"

    async def register(self, kind: Kind[Any], path: str, *, name: str = "", **more: Any) -> None:
        """Have the ConfigMaps of our namespace reviewed."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
        webhook = {
            "name": "configmaps.example.org",
            "clientConfig": {"url": self.url(path)},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30,
            **more,
        }
        await self.client.create(kind, {"metadata": {"name": name or self.name}, "webhooks": [webhook]})

    async def shown(self) -> x509.Certificate:
        """Make a new connection and look at the certificate."""
        pem = await asyncio.to_thread(ssl.get_server_certificate, (HOST, self.port))
        return x509.load_pem_x509_certificate(pem.encode())

    async def authorities(self) -> int:
        secret = await self.client.get(SECRETS, Key(self.namespace, "certificates"))
        return len(x509.load_pem_x509_certificates(b64decode(secret.data["ca.crt"])))

    async def verdict(self, name: str) -> str:
        """What the API server says to a ConfigMap of this name; nothing if it would take it."""
        manifest = config_map(self.namespace, name)
        manifest["metadata"]["labels"] = {"called": name}
        try:
            await self.client.create(CONFIG_MAPS, manifest, dry_run=True)
        except ApiError as error:
            return error.what
        return ""

    async def until_verdict(self, name: str, verdict: str) -> None:
        """Wait for what the API server will say once it has noticed what was registered."""
        async with asyncio.timeout(60):
            while verdict not in await self.verdict(name):  # noqa: ASYNC110 - another process makes it true
                await asyncio.sleep(0.01)

    async def until_noticed(self) -> None:
        """Wait until the API server goes by what was changed so far: it learns of one change after the other."""
        name = f"{self.name}-last"
        await self.register(VALIDATING, "/", name=name, objectSelector={"matchLabels": {"called": "last"}})
        await self.until_verdict("last", NOT_REACHED)
        await self.client.delete(VALIDATING, name)

    async def shake_hands(self) -> None:
        """Connect anew, trusting what the API server was told to trust and nothing else."""
        found = await self.client.get(VALIDATING, self.name)
        trusting = ssl.create_default_context(cadata=b64decode(found.webhooks[0].client_config.ca_bundle).decode())
        _, writer = await asyncio.open_connection(HOST, self.port, ssl=trusting)
        writer.transport.abort()


async def deny_bad(request: AdmissionRequest) -> Admission:
    if request.name == "bad":
        raise Terminal("a ConfigMap must not be called bad")
    return Admission()


async def mark(_request: AdmissionRequest) -> Admission:
    return Admission(patch=[{"op": "add", "path": "/data", "value": {"marked": "yes"}}], warnings=["it was marked"])


def convert(thing: dict[str, Any], version: str) -> dict[str, Any]:
    """In v1 a thing has a size, in v2 it has an extent."""
    fields = dict(thing["spec"])
    old, new = ("size", "extent") if version.endswith("/v2") else ("extent", "size")
    fields[new] = fields.pop(old)
    return {**thing, "apiVersion": version, "spec": fields}


@pytest.fixture
async def bed(client: Client, namespace: str) -> AsyncIterator[Bed]:
    bed = Bed(client, namespace)
    metrics = Metrics()
    routes = [
        server.admission_route("/validate", deny_bad, metrics=metrics),
        server.admission_route("/mutate", mark, metrics=metrics),
        server.conversion_route("/convert", convert, metrics=metrics),
    ]
    async with server.serve(routes, host=HOST, port=0, tls=bed.keeper.context) as port:
        bed.port = port
        yield bed
        for kind in (VALIDATING, MUTATING):
            await client.delete_all(kind, fields=f"metadata.name={bed.name}")


async def test_the_api_server_trusts_a_webhook_after_one_refresh(bed: Bed) -> None:
    await bed.register(VALIDATING, "/validate")
    await bed.until_verdict("good", NOT_REACHED)
    await bed.keeper.refresh()
    await bed.until_verdict("bad", DENIED)
    assert await bed.verdict("good") == ""


async def test_a_bundle_that_somebody_emptied_is_filled_in_again(bed: Bed) -> None:
    await bed.register(VALIDATING, "/validate")
    await bed.keeper.refresh()
    await bed.until_verdict("bad", DENIED)
    await bed.client.json_patch(
        VALIDATING, bed.name, [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]
    )
    await bed.until_verdict("good", NOT_REACHED)
    await bed.keeper.refresh()
    await bed.until_verdict("bad", DENIED)


async def test_a_mutating_webhook_changes_what_is_stored(bed: Bed) -> None:
    await bed.register(MUTATING, "/mutate")
    await bed.until_verdict("some", NOT_REACHED)
    await bed.keeper.refresh()
    async with asyncio.timeout(60):
        while await bed.verdict("some"):  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.01)
    stored = await bed.client.create(CONFIG_MAPS, config_map(bed.namespace, "some"))
    assert stored["data"] == {"marked": "yes"}


async def test_objects_are_converted_between_versions(bed: Bed) -> None:
    def version(name: str, field: str, *, storage: bool) -> dict[str, Any]:
        spec = {"type": "object", "properties": {field: {"type": "integer"}}}
        schema = {"type": "object", "properties": {"spec": spec}}
        return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}

    definition = {
        "metadata": {"name": bed.crd},
        "spec": {
            "group": bed.group,
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [version("v1", "size", storage=True), version("v2", "extent", storage=False)],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": {"url": bed.url("/convert")}, "conversionReviewVersions": ["v1"]},
            },
        },
    }
    await bed.client.create(DEFINITIONS, definition)
    try:
        await bed.keeper.refresh()
        one = Kind(dict[str, Any], f"{bed.group}/v1", "things", "Thing")
        two = Kind(dict[str, Any], f"{bed.group}/v2", "things", "Thing")
        key = Key(bed.namespace, "it")
        body = {"metadata": {"namespace": bed.namespace, "name": "it"}, "spec": {"size": 7}}
        async with asyncio.timeout(60):
            while True:
                try:  # the API server takes a moment to serve a new kind, and another to learn the bundle
                    await bed.client.create(one, body)
                    assert (await bed.client.get(two, key))["spec"] == {"extent": 7}
                    break
                except ApiError:
                    with suppress(ApiError):
                        await bed.client.delete_all(one, namespace=bed.namespace)
    finally:
        await bed.client.delete(DEFINITIONS, bed.crd)


async def test_replicas_that_start_together_agree(bed: Bed) -> None:
    keepers = [bed.keeper, *(bed.make_keeper() for _ in range(5))]
    await asyncio.gather(*(keeper.refresh() for keeper in keepers))
    assert len({keeper._shown for keeper in keepers}) == 1
    assert await bed.authorities() == 1


async def test_authority_and_certificate_are_replaced_while_the_api_server_goes_on_calling(bed: Bed) -> None:
    await bed.register(VALIDATING, "/validate")
    bed.clock.set(days_ago=250)
    await bed.keeper.refresh()
    first = await bed.shown()

    bed.clock.set(days_ago=30)  # the first certificate ended long ago
    await bed.keeper.refresh()
    second = await bed.shown()
    assert second.serial_number != first.serial_number
    assert second.issuer == first.issuer
    await bed.until_verdict("bad", DENIED)

    bed.clock.set(days_ago=5)  # the authority has less than a third of its year left
    await bed.keeper.refresh()
    for _ in range(10):
        assert await bed.verdict("good") == ""
    await bed.shake_hands()
    assert await bed.shown() == second
    assert await bed.authorities() == 2

    await bed.until_noticed()
    bed.clock.set(days_ago=0)  # the new authority has settled
    await bed.keeper.refresh()
    for _ in range(10):
        assert await bed.verdict("good") == ""
    await bed.shake_hands()
    third = await bed.shown()
    assert third.issuer != second.issuer


async def test_a_secret_that_was_tampered_with_is_made_anew(bed: Bed) -> None:
    await bed.register(VALIDATING, "/validate")
    await bed.keeper.refresh()
    await bed.until_verdict("bad", DENIED)
    before = await bed.shown()
    rubbish = {"ca.crt": "cnViYmlzaA==", "tls.crt": "cnViYmlzaA=="}
    await bed.client.merge_patch(SECRETS, Key(bed.namespace, "certificates"), {"data": rubbish})
    await bed.keeper.refresh()
    await bed.until_verdict("bad", DENIED)
    assert await bed.shown() != before
