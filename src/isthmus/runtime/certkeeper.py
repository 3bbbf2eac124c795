"""Creates and renews the certificates of a webhook server.

    Secret ◄── made and renewed by whichever replica is first; the others take what it made
      ├──► the listener of this process: connections from now on are shown the new certificate
      └──► `caBundle` of the webhook configurations and CRDs that lead to it

All replicas do all of this, leader or not: admission must not wait for an election.
"""

import asyncio
import os
import ssl
import time
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, Self

import msgspec
import structlog

from isthmus.errors import IsthmusError, Retry
from isthmus.kube.client import Client
from isthmus.kube.errors import AlreadyExists, Conflict, NotFound
from isthmus.kube.informer import Contact
from isthmus.model.base import EMPTY, Kind
from isthmus.model.meta import Key, Object
from isthmus.runtime.certs import Lives, Material, expiry, renew
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.trust import Target, trust

log = structlog.get_logger()

_INTERVAL = 30.0
_INTERVAL_IN_TROUBLE = 1.0
_ATTEMPTS = 5


class Secret(Object, frozen=True):
    """A Secret; values are base64."""

    data: Mapping[str, str] = EMPTY

    def __repr__(self) -> str:
        return f"Secret({self.metadata.key})"


SECRETS = Kind(Secret, "v1", "secrets", "Secret")


class Place(msgspec.Struct, frozen=True):
    """Where a webhook server is: a Service in our own namespace."""

    namespace: str
    name: str

    @property
    def secret(self) -> Key:
        """Where the certificates are kept. Not under our name, where cert-manager leaves slurm-bridge's behind."""
        return Key(self.namespace, f"{self.name}-tls")


class CertificateKeeper:
    """The certificates of one server, which clients reach under `names`; `context` is for its listener."""

    def __init__(
        self,
        client: Client,
        secret: Key,
        *,
        names: Sequence[str],
        targets: Sequence[Target],
        metrics: Metrics,
        lives: Lives = Lives(),  # noqa: B008 - frozen
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.synced = asyncio.Event()
        self._client = client
        self._secret = secret
        self._names = tuple(names)
        self._targets = tuple(targets)
        self._lives = lives
        self._now = now
        self._expiry = metrics.certificate_expiry
        self._shown: Material | None = None
        self.contact = Contact(in_touch=False, since=time.monotonic(), trouble="not started")

    @classmethod
    def of_service(
        cls, client: Client, place: Place, *, targets: Sequence[Target], metrics: Metrics, hosts: Sequence[str]
    ) -> Self:
        """Make the keeper for a Service, and for other `hosts` that lead to it."""
        service = f"{place.name}.{place.namespace}"
        reached = [place.name, service, f"{service}.svc", *hosts]
        return cls(client, place.secret, names=reached, targets=targets, metrics=metrics)

    async def run(self) -> NoReturn:
        """Look every half minute, and do what is needed."""
        while True:
            try:
                await self.refresh()
                self._heard("")
            except IsthmusError as error:
                self._heard(error.what)
                log.warning("cannot renew the certificates", secret=str(self._secret), error=str(error))
            await asyncio.sleep(_INTERVAL if self.contact.in_touch else _INTERVAL_IN_TROUBLE)

    async def refresh(self) -> None:
        """Do once what is needed now. `synced` is set when there is a certificate to show."""
        material = await self._agree()
        if material != self._shown:
            show(self.context, material)
            self._shown = material
            ends = expiry(material.chain)
            self._expiry.set(ends.timestamp())
            log.info("serving a new certificate", ends=ends.isoformat(timespec="seconds"), names=list(self._names))
        self.synced.set()
        for target in self._targets:
            try:
                await trust(self._client, target, material.bundle)
            except IsthmusError as error:
                log.warning("cannot update the CA of a webhook", target=target.name, error=str(error))

    def _heard(self, trouble: str) -> None:
        if trouble or not self.contact.in_touch:
            since = self.contact.since if trouble and not self.contact.in_touch else time.monotonic()
            self.contact = Contact(in_touch=not trouble, since=since, trouble=trouble)

    async def _agree(self) -> Material:
        """Come to the same material as every other replica."""
        for _ in range(_ATTEMPTS):
            try:
                secret = await self._client.get(SECRETS, self._secret)
            except NotFound:
                secret = None
            there = _material(secret) if secret else None
            wanted = renew(there, self._names, now=self._now(), lives=self._lives)
            if there == wanted:
                return wanted
            try:
                await self._store(wanted, secret)
            except (AlreadyExists, Conflict):
                continue  # Another replica was faster: take what it made.
            return wanted
        raise Retry(f"the Secret {self._secret} changes too often to be updated")

    async def _store(self, material: Material, secret: Secret | None) -> None:
        content = {
            "ca.crt": material.bundle,
            "ca.key": material.authority_keys,
            "tls.crt": material.chain,
            "tls.key": material.key,
        }
        data = {name: b64encode(value).decode() for name, value in content.items()}
        metadata: dict[str, Any] = {"namespace": self._secret.namespace, "name": self._secret.name}
        if secret is None:
            await self._client.create(SECRETS, {"metadata": metadata, "type": "kubernetes.io/tls", "data": data})
            return
        patch = {"metadata": {"resourceVersion": secret.metadata.resource_version}, "data": data}
        await self._client.merge_patch(SECRETS, self._secret, patch)


def show(context: ssl.SSLContext, material: Material) -> None:
    """Show a certificate on connections from now on; open ones keep the old one."""
    # OpenSSL reads files only. This one is in memory, so the key touches no disk and none need be writable.
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(material.key + material.chain)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _material(secret: Secret) -> Material | None:
    """Read a Secret; None if it holds anything else, which is then replaced."""
    try:
        bundle, keys, chain, key = (
            b64decode(secret.data[name], validate=True) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")
        )
    except (KeyError, NotBase64):
        return None
    return Material(bundle=bundle, authority_keys=keys, chain=chain, key=key)
