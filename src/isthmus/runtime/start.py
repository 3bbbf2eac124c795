"""Waits for what a process has to know before it can start, however long that takes.

`/readyz` tells meanwhile what is missing, and SIGTERM ends the process as it does later.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import structlog

from isthmus.errors import IsthmusError
from isthmus.runtime.health import Check
from isthmus.runtime.manager import Manager

log = structlog.get_logger()

_PAUSE_FIRST: Final = 0.2
_MAX_PAUSE_S: Final = 5.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

T = TypeVar("T")


class StoppedError(Exception):
    """The process is to end before it has begun."""


async def answer_of(ask: Callable[[], Awaitable[T]], *, what: str, manager: Manager) -> T:
    """Ask until there is an answer; raises `StoppedError` on SIGTERM."""
    question = _Question(what, ask)
    manager.check(what, question.check)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    try:
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(question.answer())
            ending = tasks.create_task(stopped.wait())
            await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
            asking.cancel()
            ending.cancel()
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
    if asking.cancelled():
        raise StoppedError
    return asking.result()


class _Question(Generic[T]):
    """A question that is asked over and over, and why it has no answer yet."""

    def __init__(self, what: str, ask: Callable[[], Awaitable[T]]) -> None:
        self._what = what
        self._ask = ask
        self._trouble = "not contacted yet"

    async def answer(self) -> T:
        pause = _PAUSE_FIRST
        while True:
            try:
                found = await self._ask()
            except IsthmusError as error:
                if error.what != self._trouble:
                    log.warning("cannot start yet", waiting_for=self._what, error=str(error))
                self._trouble = error.what
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE_S)
            else:
                self._trouble = ""
                return found

    def check(self) -> Check:
        return Check(ok=not self._trouble, sentence=f"not known yet: {self._trouble}" if self._trouble else "known")
