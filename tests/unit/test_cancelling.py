"""Whoever goes on after failures ends when it is cancelled, also in the middle of one."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from isthmus.errors import Retry
from isthmus.kube.informer import Informer
from isthmus.model.pod import PODS
from isthmus.runtime.controller import Controller
from isthmus.runtime.metrics import Metrics
from isthmus.slurm.poller import Poller


class Failing:
    """Work in a task group that has failed, but is not through before it is told to."""

    def __init__(self) -> None:
        self.has_failed = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, *_: object) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._fail())
                tasks.create_task(self._linger())
        except* Retry as failures:
            raise failures.exceptions[0] from None

    async def _fail(self) -> None:
        raise Retry("away")

    async def _linger(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.has_failed.set()
            await self.go.wait()


def controller(work: Failing) -> Coroutine[Any, Any, None]:
    made: Controller[str] = Controller("pods", work, metrics=Metrics())
    made.queue.add("a")
    return made.run()


def poller(work: Failing) -> Coroutine[Any, Any, None]:
    return Poller(None)._loop("states", work)  # type: ignore[arg-type] # asks nobody


def informer(work: Failing) -> Coroutine[Any, Any, None]:
    made = Informer(None, PODS)  # type: ignore[arg-type] # asks nobody
    made._list = work  # type: ignore[method-assign]
    return made.run()


@pytest.mark.parametrize("loop", [controller, poller, informer])
async def test_a_loop_that_is_cancelled_while_it_fails_ends(
    loop: Callable[[Failing], Coroutine[Any, Any, None]],
) -> None:
    work = Failing()
    running = asyncio.ensure_future(loop(work))
    await work.has_failed.wait()
    running.cancel()
    work.go.set()
    await asyncio.wait({running}, timeout=60)
    assert running.cancelled()
