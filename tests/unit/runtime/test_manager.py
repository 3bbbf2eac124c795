"""The order in which a process starts and ends, and what its readiness says."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec
import pytest

from isthmus.runtime.health import Check, report
from isthmus.runtime.manager import Manager


class Contact(msgspec.Struct, frozen=True):
    in_touch: bool
    since: float = 0.0
    trouble: str = ""


class Diary(list[str]):
    """What happened, in order; whoever waits for an entry is told."""

    def note(self, entry: str) -> None:
        self.append(entry)

    async def until(self, entry: str) -> None:
        async with asyncio.timeout(60):
            while entry not in self:  # noqa: ASYNC110 - a list tells nobody
                await asyncio.sleep(0)


class Cache:
    def __init__(self, diary: Diary, *, synced: bool = True) -> None:
        self.contact = Contact(in_touch=False, trouble="connection refused")
        self.synced = asyncio.Event()
        self._diary = diary
        if synced:
            self.sync()

    def sync(self) -> None:
        self.contact = Contact(in_touch=True)
        self.synced.set()

    async def run(self) -> None:
        self._diary.note("cache runs")
        try:
            await asyncio.Event().wait()
        finally:
            self._diary.note("cache ends")


class Worker:
    def __init__(self, diary: Diary, *, stubborn: bool = False, error: Exception | None = None) -> None:
        self._diary = diary
        self._drained = asyncio.Event()
        self._stubborn = stubborn
        self._error = error

    async def run(self) -> None:
        self._diary.note("worker runs")
        try:
            await self._drained.wait()
            if self._error:
                raise self._error
            if self._stubborn:
                await asyncio.Event().wait()
            self._diary.note("worker finished its work")
        except asyncio.CancelledError:
            self._diary.note("worker was cancelled")
            raise

    def drain(self) -> None:
        self._drained.set()


def server(diary: Diary) -> AbstractAsyncContextManager[None]:
    @asynccontextmanager
    async def serving() -> AsyncIterator[None]:
        diary.note("server runs")
        yield
        diary.note("server ends")

    return serving()


@pytest.fixture
def diary() -> Diary:
    return Diary()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_everything_starts_and_ends_in_order(diary: Diary, number: signal.Signals) -> None:
    manager = Manager()
    manager.lead(Worker(diary))
    manager.cache("pods", Cache(diary))
    manager.serve(server(diary))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(manager.run())
        await diary.until("worker runs")
        assert report(manager.checks)[0]
        os.kill(os.getpid(), number)
        await diary.until("worker finished its work")
        assert not report(manager.checks)[0]
    assert diary == [
        *("server runs", "cache runs", "worker runs"),
        *("worker finished its work", "cache ends", "server ends"),
    ]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_what_is_not_put_together_yet_is_not_ready(diary: Diary) -> None:
    """Health is served from the first moment on, when no check but that of the process is there."""
    manager = Manager()
    assert report(manager.checks) == (False, "[-] process: is starting\n")
    manager.work(Worker(diary))
    await stopped_after("worker runs", manager, diary)


async def test_no_worker_starts_before_every_cache_has_been_read(diary: Diary) -> None:
    manager, late = Manager(), Cache(diary, synced=False)
    manager.work(Worker(diary))
    manager.cache("pods", Cache(diary))
    manager.cache("nodes", late)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(manager.run())
        await diary.until("cache runs")
        ok, text = report(manager.checks)
        assert not ok
        assert "[-] nodes: has not been read yet: connection refused" in text
        assert "worker runs" not in diary
        late.sync()
        await diary.until("worker runs")
        assert report(manager.checks) == (True, "[+] process: runs\n[+] pods: up to date\n[+] nodes: up to date\n")
        manager.stop()


async def test_a_cache_may_also_be_waited_for(diary: Diary) -> None:
    class Poller:
        contact = Contact(in_touch=True)

        async def synced(self) -> None:
            diary.note("asked")

        async def run(self) -> None:
            await asyncio.Event().wait()

    manager = Manager()
    manager.cache("slurm", Poller())
    manager.work(Worker(diary))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(manager.run())
        await diary.until("worker runs")
        manager.stop()
    assert diary[:2] == ["asked", "worker runs"]


async def stopped_after(entry: str, manager: Manager, diary: Diary) -> None:
    """Run a manager, stop it once the diary has an entry, and wait for its end."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(manager.run())
        await diary.until(entry)
        manager.stop()


async def test_a_process_that_never_became_ready_ends_all_the_same(diary: Diary) -> None:
    manager = Manager()
    manager.work(Worker(diary))
    manager.cache("pods", Cache(diary, synced=False))
    await stopped_after("cache runs", manager, diary)
    assert diary == ["cache runs", "cache ends"]


async def test_work_that_is_not_done_in_time_is_cancelled(diary: Diary) -> None:
    manager = Manager(grace=0.02)
    manager.work(Worker(diary, stubborn=True))
    await stopped_after("worker runs", manager, diary)
    assert diary == ["worker runs", "worker was cancelled"]


async def test_a_worker_that_fails_ends_the_process_with_its_error(diary: Diary) -> None:
    manager, failing = Manager(), Worker(diary, error=ValueError("broken"))
    manager.work(failing)
    manager.cache("pods", Cache(diary))
    manager.serve(server(diary))
    failing.drain()
    with pytest.raises(ExceptionGroup) as failure:
        await asyncio.wait_for(manager.run(), 60)
    assert failure.group_contains(ValueError, match="broken")
    assert "cache ends" in diary


async def test_readiness_outlives_a_short_silence_and_not_a_long_one(diary: Diary) -> None:
    now = 1000.0
    manager, cache = Manager(clock=lambda: now), Cache(diary)
    manager.cache("slurm", cache)
    manager.work(Worker(diary))
    manager.check("database", lambda: Check(ok=True, sentence="answers"))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(manager.run())
        await diary.until("worker runs")
        cache.contact = Contact(in_touch=False, since=995.0, trouble="no route to host")
        assert report(manager.checks)[0]
        now = 1012.0
        ok, text = report(manager.checks)
        assert not ok
        assert text.splitlines() == [
            "[+] process: runs",
            "[-] slurm: out of touch for 17 s: no route to host",
            "[+] database: answers",
        ]
        manager.stop()
