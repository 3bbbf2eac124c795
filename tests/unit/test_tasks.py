"""A task group that fails at the very moment when it is cancelled from outside."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from isthmus.errors import Retry
from isthmus.tasks import TaskGroup, helpers

LIMIT = 60.0


async def fail_after(moment: "asyncio.Future[None]") -> None:
    await moment
    raise Retry("the server is away")


async def in_a_group(moment: "asyncio.Future[None]") -> None:
    try:
        async with TaskGroup() as group:
            group.create_task(fail_after(moment))
    except* Retry:
        pass


async def with_a_helper(moment: "asyncio.Future[None]") -> None:
    with suppress(Retry):
        async with helpers() as group:
            group.create_task(fail_after(moment))


async def by_hand(moment: "asyncio.Future[None]") -> None:
    async with asyncio.timeout(LIMIT):
        await in_a_group(moment)


@pytest.mark.parametrize("work", [in_a_group, with_a_helper, by_hand])
@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_a_cancellation_is_not_lost_to_a_failure(
    work: Callable[["asyncio.Future[None]"], Awaitable[None]], *, cancelled_first: bool
) -> None:
    """Whoever tries again after a failure would do so for ever."""
    moments: list[asyncio.Future[None]] = []

    async def try_for_ever() -> None:
        while True:
            moments.append(asyncio.get_running_loop().create_future())
            await work(moments[-1])

    task = asyncio.ensure_future(try_for_ever())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if cancelled_first:
        task.cancel()
    moments[-1].set_result(None)
    if not cancelled_first:
        await asyncio.sleep(0)  # The task has failed, and the group is about to notice.
        task.cancel()
    _, late = await asyncio.wait({task}, timeout=1.0)
    task.cancel()  # So that the test ends, though it has failed.
    assert not late
    assert len(moments) == 1


async def test_a_failure_without_a_cancellation_stays_one() -> None:
    moment = asyncio.get_running_loop().create_future()
    moment.set_result(None)
    with pytest.raises(ExceptionGroup) as raised:
        async with TaskGroup() as group:
            group.create_task(fail_after(moment))
    assert isinstance(raised.value.exceptions[0], Retry)


async def test_a_timeout_at_the_moment_of_a_failure_is_a_timeout_and_no_more() -> None:
    moment = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError):  # noqa: PT012 - the end of the group is what raises
        async with asyncio.timeout(None) as limit, TaskGroup() as group:
            group.create_task(fail_after(moment))
            await asyncio.sleep(0)
            limit.reschedule(0)
            asyncio.get_running_loop().call_soon(moment.set_result, None)
            await asyncio.sleep(LIMIT)
    await asyncio.sleep(0)  # No cancellation is left behind.
