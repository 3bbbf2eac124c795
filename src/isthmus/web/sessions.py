"""Sessions: a random id in a cookie that scripts cannot read, and all else in the memory of this process.

The token stays here and is looked at again now and then, so that a token that expired or was taken back ends the
session. After a restart everybody logs in anew; nothing is written anywhere.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from isthmus.errors import IsthmusError
from isthmus.web.access import Access, Person
from isthmus.web.oidc import Provider, Tokens

_LIFETIME: Final = 12 * 3600.0
_REVIEW: Final = 600.0
"""Seconds between two reviews of a token: a thousand viewers are two reviews a second."""

_RETRY: Final = 30.0
_MAX_SESSIONS: Final = 10_000

log = structlog.get_logger()


class Session:
    """Somebody who is logged in, until the token ends."""

    def __init__(self, tokens: Tokens, person: Person, *, now: float) -> None:
        self.tokens = tokens
        self.person = person
        self.csrf = secrets.token_urlsafe(24)
        self.began = now
        self.reviewed = now
        self.renewing = asyncio.Lock()
        self.renewable_from = now
        """When the provider may be asked for another token: not at once again after it has failed to give one."""

    @property
    def token(self) -> str:
        """By which the API server knows who this is."""
        return self.tokens.id_token

    def __repr__(self) -> str:
        return f"Session(user={self.person.user.username!r})"


class Sessions:
    def __init__(
        self,
        access: Access,
        *,
        namespaces: Callable[[], Iterable[str]],
        provider: Provider | None = None,
    ) -> None:
        self.provider = provider
        """Where people can log in without a token of their own."""
        self._access = access
        self._namespaces = namespaces
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    async def begin(self, tokens: Tokens) -> tuple[str, Session] | None:
        """Log in; None if the token is nobody's."""
        person = await self._access.person(tokens.id_token, namespaces=self._namespaces())
        if person is None:
            return None
        session_id = secrets.token_urlsafe(32)
        session = Session(tokens, person, now=time.monotonic())
        self._sessions[session_id] = session
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session_id, session

    async def find(self, session_id: str, *, afresh: bool = False) -> Session | None:
        """Find a session that still holds; `afresh` reviews its token in any case."""
        session = self._sessions.get(session_id)
        if session is None:
            return None
        now = time.monotonic()
        if now - session.began > _LIFETIME:
            self.end(session_id)
            return None
        if await self._renewed(session) or afresh or now - session.reviewed > _REVIEW:
            try:
                person = await self._access.person(session.token, namespaces=self._namespaces())
            except IsthmusError:
                if afresh:
                    raise
                return session  # the API server is away: what was true is shown, and nothing can be done anyway
            if person is None:
                self.end(session_id)
                return None
            session.person, session.reviewed = person, now
        return session

    async def _renewed(self, session: Session) -> bool:
        """Get another token if this one is about to end; without one, the session ends with it."""
        if self.provider is None or time.monotonic() < session.renewable_from:
            return False
        async with session.renewing:  # a token for renewal is good once
            try:
                before, session.tokens = session.tokens, await self.provider.renewed(session.tokens)
            except IsthmusError as error:
                log.info("token not renewed", user=session.person.user.username, error=error.what)
                session.renewable_from = time.monotonic() + _RETRY
                return False
        return session.tokens != before

    def end(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)
