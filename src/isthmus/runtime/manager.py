"""One process: what it starts, in which order, when it is ready, and how it ends.

    start   servers ─► caches ─► (all read once) ─► workers everywhere ─► leader's workers, if elected
    end     readiness goes ─► workers finish what they have begun ─► lease given back ─► caches ─► servers

Servers come first, so that probes and metrics answer while caches fill, and go last. Caches are kept warm in every
replica, so a new leader starts to work at once. On SIGTERM or SIGINT the process ends in order; work that is not
done within the grace time is cancelled. If anything that should run forever ends with an error, the process does.
"""

import asyncio
import gc
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol

import structlog

from isthmus.runtime.election import Election
from isthmus.runtime.health import Check, Checks

log = structlog.get_logger()

# A connection that breaks and is made again does not justify sending requests elsewhere.
_TOLERATED_SILENCE = 10.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Contact(Protocol):
    """Whether a cache is being kept up to date, since when, and if not, why not."""

    @property
    def in_touch(self) -> bool: ...

    @property
    def since(self) -> float:
        """Since when, by `time.monotonic`."""

    @property
    def trouble(self) -> str: ...


class Cache(Protocol):
    """Something that is kept up to date while it runs: an informer, a poller, certificates."""

    @property
    def contact(self) -> Contact: ...

    @property
    def synced(self) -> asyncio.Event | Callable[[], Awaitable[None]]:
        """Set, or done, when everything has been read once."""

    async def run(self) -> Any:
        """Keep it up to date until cancelled."""


class Worker(Protocol):
    """Something that works on what caches hold: a controller."""

    async def run(self) -> None:
        """Work until drained, or cancelled and perhaps run again."""

    def drain(self) -> None:
        """Begin nothing new."""


class Manager:
    """Runs the parts of a process. Add all of them, then `run`."""

    def __init__(
        self,
        *,
        election: Election | None = None,
        grace: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._election = election
        self._grace = grace
        self._clock = clock
        self._servers: list[AbstractAsyncContextManager[Any]] = []
        self._caches: dict[str, Cache] = {}
        self._workers: list[Worker] = []
        self._leader_workers: list[Worker] = []
        self._checks: dict[str, Callable[[], Check]] = {"process": self._check_process}
        self._started = False
        self._stopping = asyncio.Event()
        self._unread: set[str] = set()

    @property
    def checks(self) -> Checks:
        """What readiness depends on, also if it is added later: for `server.health_routes`."""
        return self._checks

    def serve(self, server: AbstractAsyncContextManager[Any]) -> None:
        """Add a server: `server.serve(…)`, not entered yet."""
        self._servers.append(server)

    def cache(self, name: str, cache: Cache) -> None:
        """Add a cache. The process is ready only while the cache is up to date."""
        self._caches[name] = cache
        self._unread.add(name)
        self._checks[name] = lambda: self._check_cache(name)

    def work(self, worker: Worker) -> None:
        """Add a worker that every replica runs."""
        self._workers.append(worker)

    def lead(self, worker: Worker) -> None:
        """Add a worker that only the leader runs; every replica does, if there is no election."""
        (self._leader_workers if self._election else self._workers).append(worker)

    def check(self, name: str, check: Callable[[], Check]) -> None:
        """Add something that readiness depends on."""
        self._checks[name] = check

    def stop(self) -> None:
        """End in order, as for SIGTERM."""
        log.info("stopping", grace=self._grace)
        self._stopping.set()

    async def run(self) -> None:
        """Run everything until stopped."""
        self._hear_signals()
        try:
            async with AsyncExitStack() as servers:
                for server in self._servers:
                    await servers.enter_async_context(server)
                self._started = True
                await self._run_caches()
        finally:
            self._ignore_signals()

    async def _run_caches(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            caches = [tasks.create_task(cache.run()) for cache in self._caches.values()]
            if await self._all_synced():
                # What the caches hold now stays for long: the collector need not walk through it every time.
                gc.collect()
                gc.freeze()
                log.info("ready to work", caches=len(caches))
                await self._run_workers()
            for cache in caches:
                cache.cancel()

    async def _all_synced(self) -> bool:
        """Wait for all caches; False if the process is to stop before."""
        async with asyncio.TaskGroup() as tasks:
            either: list[asyncio.Task[Any]] = [
                tasks.create_task(self._read_caches()),
                tasks.create_task(self._stopping.wait()),
            ]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for task in either:
                task.cancel()
        return not self._stopping.is_set()

    async def _read_caches(self) -> None:
        for name, cache in self._caches.items():
            synced = cache.synced
            await (synced.wait() if isinstance(synced, asyncio.Event) else synced())
            self._unread.discard(name)

    async def _run_workers(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(worker.run()) for worker in self._workers]
            if self._election:
                working.append(tasks.create_task(self._election.run(self._lead)))
            await self._stopping.wait()
            for worker in (*self._workers, *self._leader_workers):
                worker.drain()
            if self._election:
                self._election.withdraw()
            if working:
                _, late = await asyncio.wait(working, timeout=self._grace)
                for task in late:
                    task.cancel()
                if late:
                    log.warning("cancelled work that did not finish in time", tasks=len(late), grace=self._grace)

    async def _lead(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for worker in self._leader_workers:
                tasks.create_task(worker.run())

    def _hear_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        self._ignore_signals()  # A second signal does what it does to any program.
        self.stop()

    def _ignore_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _check_process(self) -> Check:
        if self._stopping.is_set():
            return Check(ok=False, sentence="is stopping")
        if not self._started:
            # Health is served before all is put together: until then, checks that would say no may be missing.
            return Check(ok=False, sentence="is starting")
        return Check(ok=True, sentence="runs")

    def _check_cache(self, name: str) -> Check:
        contact = self._caches[name].contact
        if name in self._unread:
            return Check(ok=False, sentence=f"has not been read yet{_because(contact)}")
        silence = 0.0 if contact.in_touch else self._clock() - contact.since
        if silence > _TOLERATED_SILENCE:
            return Check(ok=False, sentence=f"out of touch for {silence:.0f} s{_because(contact)}")
        return Check(ok=True, sentence="up to date")


def _because(contact: Contact) -> str:
    return f": {contact.trouble}" if contact.trouble else ""
