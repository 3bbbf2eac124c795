"""Runs a passive check again on one node: by the framework's own runner, in the worker pod, while it is drained.

    exit code 0   passed
    exit code 1   failed: the check found the node wanting
    another       error: it says nothing about the node

What is under way is known to this process alone. After a crash the next one finds a node in Testing whose test is
not there, and starts it again, which costs time and nothing else.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
import structlog

from isthmus.domain.health.view import TestView
from isthmus.errors import IsthmusError
from isthmus.kube import stream
from isthmus.kube.client import Client
from isthmus.model.meta import Key

log = structlog.get_logger()

RUNNER: Final = "/opt/slurm_scripts/check_runner.py"

_CONTAINER: Final = "slurmd"
_TIMEOUT_S: Final = 600.0
_FAILED: Final = 1
_MAX_DETAIL_CHARS: Final = 400
_MAX_HEARD_BYTES: Final = 65_536
_MAX_KEPT: Final = 2000


Execute = Callable[[Key, Sequence[str], Callable[[bytes], object]], Awaitable[int]]
"""Runs a command in the slurmd container of a pod, passes on what it prints, and returns its exit code."""


def in_pods(kube: Client) -> Execute:
    """Run commands by the API server, as `kubectl exec` does."""

    async def execute(pod: Key, command: Sequence[str], hear: Callable[[bytes], object]) -> int:
        return await stream.execute(kube, pod, command, container=_CONTAINER, stdout=hear)

    return execute


class PassiveTest(msgspec.Struct, frozen=True):
    """Which check runs where, and under which name the result is asked for."""

    cluster: Key
    job: str
    check: str
    pod: Key = Key("", "")


class PassiveTests:
    """A worker that runs tests beside everything else; `finished` is called after each, with its cluster."""

    def __init__(self, execute: Execute, finished: Callable[[PassiveTest, TestView], None]) -> None:
        self._execute = execute
        self._finished = finished
        self._tasks: asyncio.TaskGroup | None = None
        self._waiting: list[PassiveTest] = []
        self._running: set[asyncio.Task[None]] = set()
        self._drained = asyncio.Event()
        self._results: OrderedDict[tuple[Key, str], TestView] = OrderedDict()

    def result(self, cluster: Key, job: str) -> TestView | None:
        return self._results.get((cluster, job))

    def start(self, test: PassiveTest) -> None:
        """Begin a test, unless one of its name has begun."""
        if (test.cluster, test.job) in self._results:
            return
        self._keep(test, TestView(test.job, "running"))
        if self._tasks is None:
            self._waiting.append(test)
        else:
            self._begin(test, self._tasks)

    def fail(self, test: PassiveTest, why: str) -> None:
        """Note that a test cannot be run: an error, and no verdict about the node."""
        view = TestView(test.job, "error", why)
        if self.result(test.cluster, test.job) != view:
            self._keep(test, view)
            self._finished(test, view)

    def _begin(self, test: PassiveTest, tasks: asyncio.TaskGroup) -> None:
        task = tasks.create_task(self._run(test))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def run(self) -> None:
        """Run tests until drained or cancelled; what is cut off is forgotten, and may be started again."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                waiting, self._waiting = self._waiting, []
                for test in waiting:
                    self._begin(test, tasks)
                await self._drained.wait()
                for task in tuple(self._running):
                    task.cancel()
        finally:
            self._tasks = None

    def drain(self) -> None:
        self._drained.set()

    async def _run(self, test: PassiveTest) -> None:
        said = bytearray()

        def hear(piece: bytes) -> None:
            said.extend(piece)
            del said[:-_MAX_HEARD_BYTES]  # the end says why

        command = ("python3", "-IS", RUNNER, "--check", test.check)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                code = await self._execute(test.pod, command, hear)
        except asyncio.CancelledError:
            self._results.pop((test.cluster, test.job), None)
            raise
        except IsthmusError as error:
            view = TestView(test.job, "error", error.what[:_MAX_DETAIL_CHARS])
        except TimeoutError:
            view = TestView(test.job, "error", f"it did not end within {_TIMEOUT_S:.0f} s")
        else:
            detail = _last_words(said)
            if code == 0:
                view = TestView(test.job, "passed", detail)
            elif code == _FAILED:
                view = TestView(test.job, "failed", detail or f"{test.check} failed")
            else:
                view = TestView(test.job, "error", detail or f"the check ended with {code}")
        log.info("a test ended", test=test.job, check=test.check, result=view.result, detail=view.detail)
        self._keep(test, view)
        self._finished(test, view)

    def _keep(self, test: PassiveTest, view: TestView) -> None:
        self._results[test.cluster, test.job] = view
        self._results.move_to_end((test.cluster, test.job))
        if len(self._results) > _MAX_KEPT:
            self._results.popitem(last=False)


def _last_words(said: bytearray) -> str:
    """The last line that was printed: it says why, where a check says anything."""
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    return "".join(it for it in lines[-1] if it.isprintable())[:_MAX_DETAIL_CHARS].strip() if lines else ""
