"""A call in the API version of the server: path, answer, errors.

This is what the calls to slurmctld (`client`) and to slurmdbd (`accounting`) have in common.
"""

import asyncio
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Any, NotRequired, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import msgspec

from isthmus.domain.languages import hostlist
from isthmus.errors import Terminal
from isthmus.slurm.errors import Garbled, Problem, failure
from isthmus.slurm.transport import Transport
from isthmus.slurm.versions import Server, negotiate

PATIENCE = 30.0
"""Seconds of silence before an answer counts as lost; slurmrestd itself gives up on slurmctld earlier."""


class Answer(msgspec.Struct, frozen=True):
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


AnswerT = TypeVar("AnswerT", bound=Answer)
ItemT = TypeVar("ItemT")


class How(TypedDict):
    what: str
    """Names it in errors, such as "cancelling job 7"."""
    body: NotRequired[Any]
    patience: NotRequired[float]
    plugin: NotRequired[str]
    """`slurm` unless given, or `slurmdb`."""
    tolerate: NotRequired[Collection[int]]
    """Error numbers that this caller does not treat as errors."""


class Calls:
    """Calls through one transport; remembers what the server speaks."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._server: Server | None = None
        self._negotiating = asyncio.Lock()
        self._decoders: dict[type[Answer], Callable[[bytes], Any]] = {}

    async def server(self) -> Server:
        """What we talk to; asked once, and again when the server has become another."""
        if self._server is None:
            async with self._negotiating:
                if self._server is None:
                    self._server = await negotiate(self._transport)
        return self._server

    async def call(self, method: str, path: str, kind: type[AnswerT], **how: Unpack[How]) -> AnswerT:
        answer = await self.call_if_changed(method, path, kind, **how)
        if answer is None:
            raise Garbled(
                f"{how['what']} failed: slurmrestd answered that nothing changed, without being asked for changes"
            )
        return answer

    async def call_if_changed(
        self, method: str, path: str, kind: type[AnswerT], **how: Unpack[How]
    ) -> AnswerT | None:
        """Make a call that asks for changes; None says that there are none."""
        what, tolerate = how["what"], how.get("tolerate", ())
        patience, body = how.get("patience", PATIENCE), how.get("body")
        for may_be_another in (True, False):
            server = await self.server()
            address = f"/{how.get('plugin', 'slurm')}/v0.0.{server.api}/{path}"
            reply = await self._transport.request(method, address, body=body, patience=patience)
            if reply.status != HTTPStatus.NOT_FOUND or reply.is_json or not may_be_another:
                break
            # Not the thing but the address is unknown: the server behind it has become another.
            self._server = None
        if reply.status == HTTPStatus.NOT_MODIFIED:
            return None
        answer = self._decode(reply.body, kind, what=what) if reply.is_json else None
        problems = [it for it in answer.errors if it.error_number not in tolerate] if answer else ()
        if error := failure(what, status=reply.status, problems=problems):
            raise error
        if answer is None:
            raise Garbled(f"{what} failed: the response is not JSON")
        return answer

    def _decode(self, body: bytes, kind: type[AnswerT], *, what: str) -> AnswerT:
        if kind not in self._decoders:
            self._decoders[kind] = msgspec.json.Decoder(kind).decode
        try:
            answer: AnswerT = self._decoders[kind](body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Garbled(
                f"{what} failed: the response cannot be decoded ({error})",
                remedy="if this persists, this Slurm may be too new for this Isthmus",
            ) from error
        return answer


def present(items: tuple[ItemT, ...] | None, *, what: str) -> tuple[ItemT, ...]:
    """Insist on a list: some failures come as `"jobs": null`, and must never look like an empty queue."""
    if items is None:
        raise Garbled(f"{what} failed: the response contains no list")
    return items


def in_path(*names: str) -> str:
    """Quote a name for a path, or several as a host list, which in one name would silently mean several nodes."""
    for name in names:
        if not name or hostlist.expand(name) != [name]:
            raise Terminal(f"{name[:60]!r} is not a single name")
    return quote(hostlist.fold(names), safe="")


def in_query(second: float) -> str:
    """Write a second since 1970 in the one way that every version reads."""
    return f"uts{second:.0f}"
