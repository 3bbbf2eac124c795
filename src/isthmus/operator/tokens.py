"""Tokens: each becomes a Secret with a JSON Web Token, replaced before it expires and when its key changes.

The Secret belongs to the Token and is deleted with it. A Secret of others is never written to.
"""

import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Unpack
from uuid import uuid4

from isthmus.domain.kube import conditions
from isthmus.domain.kube.podtrouble import Trouble
from isthmus.domain.operator import tokens
from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.tokens import Issued
from isthmus.kube.errors import NotFound
from isthmus.model.meta import Key
from isthmus.model.objects import SECRETS, Secret
from isthmus.model.slinky import TOKENS, Token
from isthmus.operator import parts
from isthmus.operator.applier import owner_reference
from isthmus.operator.kindsync import KindSync, Tools
from isthmus.operator.world import World
from isthmus.runtime.references import Asker


class _Written(NamedTuple):
    uid: str
    text: bytes


class TokenSync(KindSync[Token]):
    """The controller of Tokens; `workers` are for the leader."""

    def __init__(self, world: World, *, clock: Callable[[], float] = time.time, **tools: Unpack[Tools]) -> None:
        super().__init__(world, TOKENS, world.tokens, **tools)
        self._clock = clock
        self._written: dict[Key, _Written] = {}
        wake = self.controller.queue.add
        world.tokens.on_change(lambda key, *_: wake(key))
        world.secrets.on_change(parts.wakes_owner(TOKENS, wake))

    async def reconcile(self, key: Key) -> None:
        token = self._world.tokens.get(key)
        if token is None or token.metadata.deletion_timestamp is not None:
            self._written.pop(key, None)
            return
        await self._remove_others(token)
        issued, found = await self._make(token)
        await self._report(token, issued, found)
        if issued is not None and token.spec.refresh:
            self.controller.queue.add(key, after=max(issued.renew_at - self._clock(), 0.1))
        elif issued is not None and issued.expires > self._clock():
            self.controller.queue.add(key, after=issued.expires - self._clock() + 0.1)

    async def _make(self, token: Token) -> tuple[Issued | None, Trouble]:
        """Make sure that there is a valid token; return it, and what is wrong."""
        lifetime = tokens.lifetime_of(token)
        key, trouble = self._key(token)
        if not key:
            return None, trouble
        secret = self._secret(token)
        if secret is not None and not _is_ours(secret, token):
            name = secret.metadata.name
            return None, Trouble(wrong=f"Secret {name} belongs to something else: choose another name in secretRef")
        now = self._clock()
        text = self._text(token, secret)
        issued = tokens.read(text, key=key, user=token.spec.username) if text else None
        if secret is not None and secret.immutable:
            if not token.spec.refresh:
                return issued, _of_unchangeable(issued, now)
            # What cannot be changed is made anew.
            with suppress(NotFound):
                await self._world.kube.delete(SECRETS, secret.metadata.key, uid=secret.metadata.uid)
        elif issued is not None and tokens.is_good(issued, lifetime=lifetime, now=now):
            if not token.spec.refresh:
                await self._write(token, text)
            return issued, Trouble()
        fresh = tokens.mint(key, user=token.spec.username, now=now, lifetime=lifetime, unique=str(uuid4())).encode()
        await self._write(token, fresh)
        return Issued(int(now), int(now) + lifetime), Trouble()

    async def _write(self, token: Token, text: bytes) -> None:
        owners = (owner_reference(TOKENS, token),)
        manifest = _manifest(token, text)
        await self._applier.apply(SECRETS, manifest, there=self._world.secrets, owners=owners)
        self._written[token.metadata.key] = _Written(token.metadata.uid, text)

    def _text(self, token: Token, secret: Secret | None) -> bytes:
        """Read the token; until the cache has heard of what we wrote, it may show an older one, or none."""
        written = self._written.get(token.metadata.key)
        key = Key(token.metadata.namespace, tokens.secret_name(token))
        is_shown = self._applier.is_shown(SECRETS, key, there=self._world.secrets)
        if not is_shown and written and written.uid == token.metadata.uid:
            return written.text
        return secret.data.get(tokens.secret_key(token), b"") if secret else b""

    def _key(self, token: Token) -> tuple[bytes, Trouble]:
        reference = token.spec.jwt_key
        if reference is None:
            return b"", Trouble(wrong="jwtKeyRef does not name a key")
        secret = self._world.references.secret(Key(token.metadata.namespace, reference.name), self._asker(token))
        if secret is None:
            return b"", Trouble(wrong=f"there is no Secret {reference.name}, which jwtKeyRef names")
        key = secret.data.get(reference.key, b"")
        if not key:
            return b"", Trouble(
                wrong=f"Secret {reference.name} has no key {reference.key!r}, which jwtKeyRef names"
            )
        return key, Trouble()

    def _secret(self, token: Token) -> Secret | None:
        """Find the Secret, also one that is not ours; what we wrote a moment ago is in our own cache."""
        key = Key(token.metadata.namespace, tokens.secret_name(token))
        return self._world.secrets.get(key) or self._world.references.secret(key, self._asker(token))

    async def _remove_others(self, token: Token) -> None:
        """Remove the Secret of a name that the Token had before."""
        wanted = tokens.secret_name(token)
        for secret in self._world.secrets.by("owner", token.metadata.uid):
            if secret.metadata.name != wanted:
                key = secret.metadata.key
                await self._applier.remove(SECRETS, key, there=self._world.secrets, owner=token)

    async def _report(self, token: Token, issued: Issued | None, found: Trouble) -> None:
        fields: dict[str, Any] = {}
        if issued is not None:
            fields = {"issuedAt": _in_words(issued.issued), "expiresAt": _in_words(issued.expires)}
        name = tokens.secret_name(token)
        held = conditions.summary(
            wrong=found.wrong, missing=found.missing, settled=f"the token is in Secret {name}"
        )
        parts.tell(self._recorder, TOKENS, token, held)
        await self._reporter.report(TOKENS, token, fields, held)

    def _asker(self, token: Token) -> Asker:
        return Asker(self.controller.queue.add, token.metadata.key)


def _is_ours(secret: Secret, token: Token) -> bool:
    return any(owner.uid == token.metadata.uid for owner in secret.metadata.owner_references)


def _of_unchangeable(issued: Issued | None, now: float) -> Trouble:
    if issued is None:
        return Trouble(
            wrong="the token is not signed with this key for this user, and refresh is off: create it again"
        )
    if issued.expires <= now:
        return Trouble(wrong="the token has expired, and refresh is off: create it again")
    return Trouble()


def _manifest(token: Token, text: bytes) -> common.Manifest:
    meta = token.metadata
    marks = common.labels("token", meta.name, "token")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": common.metadata(tokens.secret_name(token), meta.namespace, marks),
        "immutable": not token.spec.refresh,
        "data": {tokens.secret_key(token): b64encode(text).decode()},
    }


def _in_words(seconds: int) -> str:
    return tokens.moment(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")
