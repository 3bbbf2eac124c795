"""A small provider of OpenID Connect on a loopback address, as far as a login by code needs one.

    with provider(client="isthmus") as it:
        it.issuer, it.ca, it.flags       # for who trusts it; flags are the API server's
        it.refuses = True                # nobody gets a token any more

Whoever types a name into its form is that person. It checks what a real one checks: the client, its secret, where
the code goes, and the verifier (PKCE). Tokens hold for `lifetime` seconds.
"""

import asyncio
import base64
import hashlib
import html
import secrets
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import jwt
import trustme
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.bed.addresses import loopback_address

PORT: Final = 8443
SECRET: Final = "of the client"
_FORM: Final = '<form method="post"><label>Name <input name="name"></label>{}<button>Sign in</button></form>'


class Provider:
    """What it knows, and what it has been asked."""

    def __init__(self, address: str, directory: Path, *, client: str, lifetime: float) -> None:
        self.issuer = f"https://{address}:{PORT}"
        self.client, self.lifetime = client, lifetime
        self.refuses = False
        self.renewals = 0
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, str] = {}
        authority = trustme.CA()
        self.ca = directory / "oidc-ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(address).configure_cert(self.tls)

    @property
    def flags(self) -> tuple[str, ...]:
        """By which an API server trusts its tokens, and calls people by their e-mail addresses."""
        said = {"issuer-url": self.issuer, "client-id": self.client, "ca-file": self.ca, "username-claim": "email"}
        return tuple(f"--oidc-{name}={value}" for name, value in said.items())

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/.well-known/openid-configuration", self._metadata),
            web.get("/keys", self._keys),
            web.get("/login", self._login),
            web.post("/login", self._consent),
            web.post("/token", self._token),
        ]

    async def _metadata(self, _: web.Request) -> web.Response:
        paths = {"authorization_endpoint": "login", "token_endpoint": "token", "jwks_uri": "keys"}
        found = {name: f"{self.issuer}/{path}" for name, path in paths.items()}
        return web.json_response(
            {"issuer": self.issuer, "id_token_signing_alg_values_supported": ["RS256"], **found}
        )

    async def _keys(self, _: web.Request) -> web.Response:
        key = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return web.json_response({"keys": [{**key, "kid": "1", "use": "sig", "alg": "RS256"}]})

    async def _login(self, request: web.Request) -> web.Response:
        hidden = "".join(
            f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
            for name, value in request.query.items()
        )
        return web.Response(text=_FORM.format(hidden), content_type="text/html")

    async def _consent(self, request: web.Request) -> web.Response:
        asked = {name: str(value) for name, value in (await request.post()).items()}
        back = asked["redirect_uri"]
        if asked["name"] == "nobody":
            raise web.HTTPFound(f"{back}?{urlencode({'error': 'access_denied', 'state': asked['state']})}")
        code = secrets.token_urlsafe()
        self._codes[code] = asked
        raise web.HTTPFound(f"{back}?{urlencode({'code': code, 'state': asked['state']})}")

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        if self.refuses or (form["client_id"], form["client_secret"]) != (self.client, SECRET):
            return web.json_response({"error": "invalid_client"}, status=401)
        if form["grant_type"] == "refresh_token":
            self.renewals += 1
            return self._answer(self._refresh.pop(form["refresh_token"]))
        asked = self._codes.pop(form["code"])
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (challenge, form["redirect_uri"]) != (asked["code_challenge"], asked["redirect_uri"]):
            return web.json_response({"error": "invalid_grant"}, status=400)
        return self._answer(asked["name"], nonce=asked["nonce"])

    def _answer(self, name: str, **more: Any) -> web.Response:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": self.client, "sub": name, "email": name, "iat": now, **more}
        claims |= {"exp": now + int(self.lifetime), "email_verified": True}
        token = jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "1"})
        refresh = secrets.token_urlsafe()
        self._refresh[refresh] = name
        return web.json_response({"id_token": token, "refresh_token": refresh, "token_type": "Bearer"})


@contextmanager
def provider(directory: Path, *, client: str = "isthmus", lifetime: float = 600) -> Iterator[Provider]:
    with loopback_address() as address:
        found = Provider(address, directory, client=client, lifetime=lifetime)
        loop = asyncio.new_event_loop()
        app = web.Application()
        app.add_routes(found.routes())
        runner = web.AppRunner(app)
        loop.run_until_complete(runner.setup())
        loop.run_until_complete(web.TCPSite(runner, address, PORT, ssl_context=found.tls).start())
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield found
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.run_until_complete(runner.cleanup())
            loop.close()
