"""Tells people what became of a node: hooks of Slack and Alertmanager, any HTTP server (JSON), and mail.

    loop ──► put (never waits) ──► queue, bounded ──► one worker: dated, sent, again after a pause, given up

A node in one phase is told once, until it is in another. Nothing is kept over a restart: the phase stands in the
node's record and in its Event, and whoever wants to know it for certain asks Prometheus. Addresses of hooks are
secrets, so they appear in no log and in no error.
"""

import asyncio
import smtplib
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import aiohttp
import msgspec
import structlog
from prometheus_client import Counter

from isthmus.errors import IsthmusError, Terminal
from isthmus.model.health import Receiver
from isthmus.model.meta import Key

log = structlog.get_logger()

_MAX_WAITING: Final = 1000
_MAX_REMEMBERED: Final = 10_000
_ATTEMPTS: Final = 5
_FIRST_PAUSE_S: Final = 1.0
_TIMEOUT_S: Final = 15.0
_FIRING_FOR: Final = timedelta(days=7)
"""Alertmanager forgets an alert that is not sent again; we send once, so it has to hold by itself."""

_OK: Final = range(200, 300)
_WORTH_ANOTHER_TRY: Final = frozenset({408, 425, 429, *range(500, 600)})


Address = Callable[[], str]
"""Where a receiver is, asked when something is sent: its Secret may be read late, or change. Empty if unknown."""

Addressed = Mapping[str, tuple[Receiver, Address]]
"""Receivers by name, with their addresses."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notification about a node."""

    cluster: Key
    node: str
    phase: str
    message: str
    machine: str = ""
    at: datetime


class _Delivery(msgspec.Struct, frozen=True):
    receiver: Receiver
    address: Address
    notice: Notice

    def __repr__(self) -> str:
        return f"_Delivery({self.receiver.name}, {self.notice.node}, {self.notice.phase})"


class _Undelivered(Exception):  # noqa: N818 - it says what became of it
    def __init__(self, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


class Notifications:
    """A worker that sends what is put into it."""

    def __init__(
        self,
        *,
        counter: Counter | None = None,
        first_pause: float = _FIRST_PAUSE_S,
    ) -> None:
        self._counter = counter
        self._first_pause = first_pause
        self._waiting: asyncio.Queue[_Delivery | None] = asyncio.Queue(_MAX_WAITING)
        self._told: OrderedDict[tuple[Key, str, str], str] = OrderedDict()

    def put(self, notice: Notice, receivers: Addressed, *, always: bool = False) -> None:
        """Notify those receivers that want this phase.

        `always` is for receivers that are named explicitly: they are notified of every phase.
        """
        for receiver, address in receivers.values():
            identity = (notice.cluster, notice.node, receiver.name)
            if not always:
                if notice.phase not in receiver.phases or self._told.get(identity) == notice.phase:
                    continue
                self._remember(identity, notice.phase)
            try:
                self._waiting.put_nowait(_Delivery(receiver, address, notice))
            except asyncio.QueueFull:
                self._count(receiver, "dropped")
                log.warning("dropped a notification: too many wait", receiver=receiver.name, node=notice.node)

    def _remember(self, identity: tuple[Key, str, str], phase: str) -> None:
        self._told[identity] = phase
        self._told.move_to_end(identity)
        if len(self._told) > _MAX_REMEMBERED:
            self._told.popitem(last=False)

    async def run(self) -> None:
        """Send until drained, and then what still waits."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session:
            while (delivery := await self._waiting.get()) is not None:
                await self._deliver(session, delivery)

    def drain(self) -> None:
        with suppress(asyncio.QueueFull):
            self._waiting.put_nowait(None)

    async def _deliver(self, session: aiohttp.ClientSession, it: _Delivery) -> None:
        pause = self._first_pause
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._send(session, it)
            except _Undelivered as failed:
                last = failed.final or attempt == _ATTEMPTS
                log.warning(
                    "failed to notify" if last else "failed to notify, will retry",
                    receiver=it.receiver.name,
                    node=it.notice.node,
                    error=str(failed),
                )
                if last:
                    self._count(it.receiver, "failed")
                    return
                await asyncio.sleep(pause)
                pause *= 4
            else:
                self._count(it.receiver, "sent")
                return

    async def _send(self, session: aiohttp.ClientSession, it: _Delivery) -> None:
        url = it.address()
        if not url:
            raise _Undelivered("its address is not known: look at the Secret that urlSecret names")
        if it.receiver.format == "mail":
            await _mail(it, url)
            return
        body = _body(it.receiver, it.notice)
        try:
            async with session.post(_target(it.receiver, url), json=body, allow_redirects=False) as answer:
                if answer.status not in _OK:
                    final = answer.status not in _WORTH_ANOTHER_TRY
                    raise _Undelivered(f"it answered {answer.status}", final=final)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            # Not the text: it would contain the address.
            raise _Undelivered(f"it was not reached ({type(error).__name__})") from None

    def _count(self, receiver: Receiver, result: str) -> None:
        if self._counter is not None:
            self._counter.labels(receiver.format, result).inc()


def _target(receiver: Receiver, url: str) -> str:
    """The address; of an Alertmanager, its base will do."""
    if receiver.format == "alertmanager" and not urlsplit(url).path.strip("/"):
        return url.rstrip("/") + "/api/v2/alerts"
    return url


def _body(receiver: Receiver, notice: Notice) -> Any:
    if receiver.format == "slack":
        return {"text": _sentence(notice)}
    if receiver.format == "alertmanager":
        return [_alert(notice)]
    return {
        "namespace": notice.cluster.namespace,
        "cluster": notice.cluster.name,
        "node": notice.node,
        "machine": notice.machine,
        "phase": notice.phase,
        "message": notice.message,
        "time": _moment(notice.at),
    }


def _alert(notice: Notice) -> dict[str, Any]:
    """An alert of a node: one for all its phases, so that the last of them resolves it."""
    over = notice.phase == "Recovered"
    return {
        "labels": {
            "alertname": "IsthmusNodeHealth",
            "namespace": notice.cluster.namespace,
            "cluster": notice.cluster.name,
            "node": notice.node,
        },
        "annotations": {"summary": _sentence(notice), "phase": notice.phase, "description": notice.message},
        "startsAt": _moment(notice.at),
        "endsAt": _moment(notice.at if over else notice.at + _FIRING_FOR),
    }


def _sentence(notice: Notice) -> str:
    return f"Node {notice.node} of {notice.cluster} is {notice.phase}: {notice.message}"


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Server(msgspec.Struct, frozen=True):
    host: str
    port: int
    user: str
    password: str
    tls: bool

    def __repr__(self) -> str:
        return f"_Server({self.host}:{self.port})"


def mail_server(url: str) -> _Server:
    """Read smtp://user:password@host:port; smtps:// is encrypted from the first byte."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in {"smtp", "smtps"}:
        raise Terminal("the address of the mail server is not valid", remedy="write smtp://user:password@host:port")
    user, tls = unquote(parts.username or ""), parts.scheme == "smtps"
    port = port or (465 if tls else 587 if user else 25)
    return _Server(host, port, user, unquote(parts.password or ""), tls)


async def _mail(it: _Delivery, url: str) -> None:
    try:
        server = mail_server(url)
        await asyncio.to_thread(_hand_in, server, _letter(it))
    except IsthmusError as error:
        raise _Undelivered(error.line, final=True) from None
    except smtplib.SMTPResponseException as error:
        raise _Undelivered(f"the mail server answered {error.smtp_code}", final=error.smtp_code >= 500) from None  # noqa: PLR2004 - SMTP's "never"
    except (smtplib.SMTPException, OSError) as error:
        raise _Undelivered(f"the mail server was not reached ({type(error).__name__})") from None


def _letter(it: _Delivery) -> EmailMessage:
    notice = it.notice
    letter = EmailMessage()
    letter["From"] = f"isthmus@{_domain(it.receiver.mail)}"
    letter["To"] = it.receiver.mail
    letter["Subject"] = f"{notice.node}: {notice.phase} ({notice.cluster})"
    letter["Message-ID"] = f"<{notice.at.timestamp():.6f}.{notice.node}.{notice.phase}@isthmus>"
    machine = f"Kubernetes node: {notice.machine}\n" if notice.machine else ""
    letter.set_content(f"{_sentence(notice)}\n\n{machine}Time: {_moment(notice.at)}\n")
    return letter


def _domain(address: str) -> str:
    return address.rpartition("@")[2] or "localhost"


def _connection(server: _Server) -> smtplib.SMTP:
    if server.tls:
        verified = ssl.create_default_context()
        return smtplib.SMTP_SSL(server.host, server.port, timeout=_TIMEOUT_S, context=verified)
    return smtplib.SMTP(server.host, server.port, timeout=_TIMEOUT_S)


def _hand_in(server: _Server, letter: EmailMessage) -> None:
    with _connection(server) as connection:
        if not server.tls:
            connection.ehlo_or_helo_if_needed()
            if connection.has_extn("starttls"):
                # Without a password there is nothing to protect that would not be sent in the clear otherwise.
                connection.starttls(context=ssl.create_default_context() if server.user else None)
        if server.user:
            connection.login(server.user, server.password)
        connection.send_message(letter)
