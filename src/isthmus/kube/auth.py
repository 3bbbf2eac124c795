"""Who we are to the API server, and how each kind of proof is renewed.

A source of credentials answers two questions. `headers()` comes before every request and must be cheap: it returns
the same mapping object for as long as the proof is the same. `renew()` comes after a 401 and says whether there is
now something else to try. Nothing here shows a secret in its repr.
"""

import asyncio
import json
import os
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from isthmus.clock import utc_now
from isthmus.errors import Retry, Terminal
from isthmus.kube.errors import UNREADABLE
from isthmus.model.base import Data

TOKEN_AGE = 60.0
"""A service account token lives an hour and its file is replaced long before: once a minute is often enough."""

_EXEC_TIMEOUT = 60.0
_EXEC_MARGIN = timedelta(seconds=10)
_TAIL = 400


class Certificate(msgspec.Struct, frozen=True):
    """A client certificate and its key, in PEM; the paths, if any, from which both can be read again."""

    chain: bytes
    key: bytes
    chain_path: Path | None = None
    key_path: Path | None = None

    def __repr__(self) -> str:
        return f"Certificate({self.chain_path or 'inline'})"

    def reread(self) -> "Certificate":
        """Read the files again, for certificates that are renewed in place."""
        return Certificate(
            chain=self.chain_path.read_bytes() if self.chain_path else self.chain,
            key=self.key_path.read_bytes() if self.key_path else self.key,
            chain_path=self.chain_path,
            key_path=self.key_path,
        )


class Credentials(Protocol):
    @property
    def certificate(self) -> Certificate | None:
        """The client certificate that came with it, if any."""

    async def headers(self) -> Mapping[str, str]:
        """Headers that prove who we are."""

    async def renew(self) -> bool:
        """Look for a newer proof; say whether there is one."""


class Fixed:
    """A proof that never changes: a token, a password, a certificate, or none at all."""

    def __init__(self, authorization: str = "", *, certificate: Certificate | None = None) -> None:
        self._headers = {"Authorization": authorization} if authorization else {}
        self._certificate = certificate

    @classmethod
    def token(cls, token: str, *, certificate: Certificate | None = None) -> "Fixed":
        return cls(_bearer(token, "the kubeconfig"), certificate=certificate)

    @classmethod
    def password(cls, user: str, password: str, *, certificate: Certificate | None = None) -> "Fixed":
        return cls("Basic " + b64encode(f"{user}:{password}".encode()).decode(), certificate=certificate)

    def __repr__(self) -> str:
        return f"Fixed({'certificate' if self._certificate else 'header' if self._headers else 'anonymous'})"

    @property
    def certificate(self) -> Certificate | None:
        """The certificate as last read."""
        return self._certificate

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    async def renew(self) -> bool:
        """Read a certificate's files again; all else stays as it is."""
        if self._certificate is None:
            return False
        fresh = self._certificate.reread()
        changed = fresh.chain != self._certificate.chain
        if changed:
            self._certificate = fresh
            self._headers = dict(self._headers)  # a new object: the client sees that the proof changed
        return changed


class TokenFile:
    """A token in a file that someone else replaces before it expires."""

    def __init__(
        self, path: Path, *, certificate: Certificate | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.certificate = certificate
        self._path = path
        self._clock = clock
        self._token = ""
        self._read_at = -TOKEN_AGE
        self._headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"

    async def headers(self) -> Mapping[str, str]:
        """Return the token, read again once a minute."""
        if self._clock() - self._read_at >= TOKEN_AGE:
            self._read()
        return self._headers

    async def renew(self) -> bool:
        """Read the file now; say whether the token is another."""
        return self._read()

    def _read(self) -> bool:
        try:
            token = self._path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            if not self._token:
                raise Retry(f"the token file {self._path} cannot be read: {error}") from error
            token = self._token  # as good as it was; if the server thinks otherwise, it says so
        self._read_at = self._clock()
        if token == self._token:
            return False
        self._headers = {"Authorization": _bearer(token, str(self._path))}
        self._token = token
        return True


class _ExecStatus(Data, frozen=True):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(Data, frozen=True):
    status: _ExecStatus
    api_version: str = ""


class Exec:
    """A program that prints credentials, run again when they expire or are refused."""

    def __init__(
        self,
        command: str,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        api_version: str = "client.authentication.k8s.io/v1",
        cluster: Mapping[str, object] | None = None,
        install_hint: str = "",
        interactive: bool = False,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._argv = [command, *arguments]
        self._environment = dict(environment or {})
        self._api_version = api_version
        self._cluster = cluster
        self._install_hint = install_hint
        self._interactive = interactive
        self._now = now
        self._lock = asyncio.Lock()
        self._headers: Mapping[str, str] | None = None
        self._expires: datetime | None = None
        self.certificate: Certificate | None = None

    def __repr__(self) -> str:
        return f"Exec({self._argv[0]!r})"

    async def headers(self) -> Mapping[str, str]:
        """Return what the program printed, running it first if that has expired."""
        if self._headers is None or self._expired():
            async with self._lock:
                if self._headers is None or self._expired():
                    await self._run()
        return self._headers or {}

    async def renew(self) -> bool:
        """Run the program again, unless someone else just did."""
        before = self._headers
        async with self._lock:
            if self._headers is before:
                await self._run()
        return True

    def _expired(self) -> bool:
        return self._expires is not None and self._now() >= self._expires - _EXEC_MARGIN

    async def _run(self) -> None:
        printed = await self._output()
        try:
            credential = msgspec.json.decode(printed, type=_ExecCredential)
        except UNREADABLE as error:
            # The output may hold a secret, so the error says where it went wrong and never what stood there.
            raise Terminal(f"{self._argv[0]} did not print an ExecCredential") from error
        status = credential.status
        if credential.api_version != self._api_version:
            raise Terminal(f"{self._argv[0]} returned {credential.api_version!r}, not {self._api_version}")
        if not status.token and not status.client_certificate_data:
            raise Terminal(f"{self._argv[0]} returned neither a token nor a certificate")
        self._headers = {"Authorization": _bearer(status.token, self._argv[0])} if status.token else {}
        self._expires = status.expiration_timestamp
        if status.client_certificate_data:
            self.certificate = Certificate(status.client_certificate_data.encode(), status.client_key_data.encode())

    async def _output(self) -> bytes:
        spec: dict[str, object] = {"interactive": self._interactive}
        if self._cluster is not None:
            spec["cluster"] = self._cluster
        info = {"apiVersion": self._api_version, "kind": "ExecCredential", "spec": spec}
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                env={**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": json.dumps(info)},
                stdin=None if self._interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise Terminal(
                f"cannot run the credential plugin {self._argv[0]}: {error.strerror}",
                remedy=self._install_hint or "install it, or choose another user in the kubeconfig",
            ) from error
        try:
            async with asyncio.timeout(_EXEC_TIMEOUT):
                printed, complained = await process.communicate()
        except TimeoutError as error:
            raise Retry(f"{self._argv[0]} returned no credentials within {_EXEC_TIMEOUT:.0f} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            tail = complained.decode("utf-8", "replace").strip()[-_TAIL:]
            raise Retry(f"{self._argv[0]} ended with {process.returncode}: {tail}")
        return printed


def _bearer(token: str, source: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Terminal(f"the token from {source} is empty or contains invalid characters")
    return f"Bearer {token}"
