"""Login by a provider of OpenID Connect that the API server trusts, too: nobody has to paste a token.

    browser ──► begin ──► provider: who are you? ──► browser, with a code ──► finish ──► provider: code for token
                                                                                │
                                                       session ◄── TokenReview ─┘

The provider's token is worth what the API server says of it, as any other that is pasted: signature, audience and
end are for it to judge. What belongs to the flow is checked here: that it was begun in this browser (a cookie, and
`state`), by this process (the code verifier, PKCE), and that the token is from it (`nonce`).
"""

import secrets
import ssl
import time
from base64 import urlsafe_b64encode
from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
import jwt
import msgspec
import structlog

from isthmus.errors import Retry, Terminal

log = structlog.get_logger()

BEGIN: Final = "/api/oidc/begin"
RETURN: Final = "/api/oidc/return"
COOKIE: Final = "__Host-isthmus-oidc"

_LIFETIME: Final = 600.0
"""Seconds in which somebody has to have logged in there."""

_MAX_BEGUN: Final = 10_000
_TIMEOUT: Final = aiohttp.ClientTimeout(total=15)
_RENEW_BEFORE: Final = 30.0
_REPEATED: Final = 3600.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    issuer: str
    client_id: str
    secret: Path | None = None
    """With the client's secret; a public client has none."""
    scopes: str = "openid email profile offline_access"
    ca: Path | None = None
    """Who signed the provider's certificate, where the system does not know them."""
    url: str
    """How browsers reach the page."""


class Tokens(NamedTuple):
    id_token: str
    refresh_token: str = ""

    def __repr__(self) -> str:
        return "Tokens()"


class _Metadata(msgspec.Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str


class _Answer(msgspec.Struct, frozen=True):
    id_token: str = ""
    refresh_token: str = ""
    error: str = ""
    error_description: str = ""


class _Begun(NamedTuple):
    verifier: str
    nonce: str
    until: float


class NotBegunError(Terminal):
    """The answer is to nothing that was asked here."""


class Provider:
    """One provider, and the logins that are under way there."""

    def __init__(self, settings: Settings) -> None:
        if not settings.issuer.startswith("https://"):
            raise Terminal(f"the issuer {settings.issuer!r} is not an https:// URL", remedy="correct --oidc-issuer")
        self._settings = settings
        self._tls = ssl.create_default_context(cafile=str(settings.ca) if settings.ca else None)
        self._metadata: tuple[float, _Metadata] | None = None
        self._begun: OrderedDict[str, _Begun] = OrderedDict()

    async def begin(self) -> tuple[str, str]:
        """Where to send a browser, and the state that it has to bring back."""
        metadata = await self._discover()
        state, verifier, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        self._begun[state] = _Begun(verifier, nonce, time.monotonic() + _LIFETIME)
        if len(self._begun) > _MAX_BEGUN:
            self._begun.popitem(last=False)
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect,
            "scope": self._settings.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in metadata.authorization_endpoint else "?"
        return f"{metadata.authorization_endpoint}{joint}{urlencode(query)}", state

    async def finish(self, code: str, *, state: str, held: str) -> Tokens:
        """Exchange a code for tokens. `held` is the state in the browser's cookie."""
        begun = self._begun.pop(state, None)
        if (
            begun is None
            or not secrets.compare_digest(state.encode(), held.encode())
            or begun.until < time.monotonic()
        ):
            raise NotBegunError("this login was not started here, or took too long", remedy="log in again")
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self._redirect}
        tokens = await self._ask(form | {"code_verifier": begun.verifier})
        if _claim(tokens.id_token, "nonce") != begun.nonce:
            raise NotBegunError("the provider's token does not belong to this login", remedy="log in again")
        return tokens

    async def renewed(self, held: Tokens) -> Tokens:
        """Tokens that hold for a while; the same if these do, or if there is no way to get others."""
        ends = _claim(held.id_token, "exp")
        if not held.refresh_token or not isinstance(ends, int | float) or ends - time.time() > _RENEW_BEFORE:
            return held
        found = await self._ask({"grant_type": "refresh_token", "refresh_token": held.refresh_token})
        return Tokens(found.id_token, found.refresh_token or held.refresh_token)

    @property
    def _redirect(self) -> str:
        return f"{self._settings.url.rstrip('/')}{RETURN}"

    async def _ask(self, form: dict[str, str]) -> Tokens:
        metadata = await self._discover()
        form = form | {"client_id": self._settings.client_id}
        if self._settings.secret:
            form["client_secret"] = _read(self._settings.secret)
        answer = msgspec.convert(await self._json("POST", metadata.token_endpoint, form), _Answer)
        if not answer.id_token:
            why = answer.error_description or answer.error or "it sent no id_token"
            raise Terminal(f"{self._settings.issuer} refuses it: {why[:200]}", remedy="log in again")
        return Tokens(answer.id_token, answer.refresh_token)

    async def _discover(self) -> _Metadata:
        if self._metadata and self._metadata[0] > time.monotonic():
            return self._metadata[1]
        issuer = self._settings.issuer
        found = await self._json("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        try:
            metadata = msgspec.convert(found, _Metadata)
        except msgspec.ValidationError as error:
            raise Terminal(f"{issuer} does not say where to log in: {error}") from error
        if metadata.issuer != issuer:
            raise Terminal(f"{issuer} calls itself {metadata.issuer}", remedy="set --oidc-issuer to that")
        self._metadata = (time.monotonic() + _REPEATED, metadata)
        return metadata

    async def _json(self, method: str, url: str, form: dict[str, str] | None = None) -> Any:
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT, trust_env=True) as session,
                session.request(
                    method, url, data=form, ssl=self._tls, headers={"Accept": "application/json"}
                ) as answer,
            ):
                return msgspec.json.decode(await answer.read())
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            raise Retry(f"{self._settings.issuer} does not answer: {error}", remedy="try again later") from error


def _read(secret: Path) -> str:
    try:
        return secret.read_text().strip()
    except OSError as error:
        raise Terminal(f"the client's secret {secret} cannot be read: {error.strerror}") from error


def _claim(token: str, name: str) -> object:
    """A claim of a token whose signature is not for us to verify."""
    try:
        return jwt.decode(token, options={"verify_signature": False}).get(name)
    except jwt.InvalidTokenError:
        return None
