import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog

from isthmus.errors import Retry, Terminal, Wait
from isthmus.runtime.controller import Controller, most_urgent
from isthmus.runtime.metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def count(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"controller": "pods", **labels})


async def run_until(controller: Controller[str], condition: asyncio.Event) -> None:
    """Run a controller until the condition holds, then let it drain."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(controller.run())
        await condition.wait()
        controller.drain()


def failing_until(attempts: int, error: Exception, succeeded: asyncio.Event) -> Callable[[str], Awaitable[None]]:
    """Fail so many times, then succeed."""
    left = attempts

    async def reconcile(_key: str) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise error
        succeeded.set()

    return reconcile


@pytest.mark.parametrize("error", [Retry("the server is away"), ValueError("a bug"), TimeoutError()], ids=repr)
async def test_a_failed_key_is_tried_again_until_it_succeeds(metrics: Metrics, error: Exception) -> None:
    succeeded = asyncio.Event()
    controller = Controller("pods", failing_until(2, error, succeeded), metrics=metrics)
    controller.queue.add("a")
    await run_until(controller, succeeded)
    assert count(metrics, "controller_runtime_reconcile_total", result="error") == 2
    assert count(metrics, "controller_runtime_reconcile_total", result="success") == 1
    assert count(metrics, "controller_runtime_reconcile_errors_total") == 2
    assert count(metrics, "controller_runtime_reconcile_panics_total") == (
        2 if isinstance(error, ValueError) else 0
    )
    assert controller.queue.failures("a") == 0


async def test_waiting_is_not_a_failure_and_comes_back_in_time(metrics: Metrics) -> None:
    succeeded = asyncio.Event()
    controller = Controller("pods", failing_until(3, Wait("not yet", after=0.01), succeeded), metrics=metrics)
    controller.queue.add("a")
    await run_until(controller, succeeded)
    assert count(metrics, "controller_runtime_reconcile_total", result="requeue_after") == 3
    assert count(metrics, "controller_runtime_reconcile_errors_total") == 0


async def test_a_terminal_error_leaves_the_key_alone_until_it_is_added_again(metrics: Metrics) -> None:
    seen: list[str] = []
    refused, accepted = asyncio.Event(), asyncio.Event()

    async def reconcile(key: str) -> None:
        seen.append(key)
        if key == "probe":
            refused.set()
        elif seen.count("bad") == 1:
            raise Terminal("this can never work")
        else:
            accepted.set()

    controller = Controller("pods", reconcile, metrics=metrics, workers=1)
    controller.queue.add("bad")
    controller.queue.add("probe", after=0.2)  # longer than the first back-off
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(controller.run())
        await refused.wait()
        assert seen == ["bad", "probe"]
        assert count(metrics, "controller_runtime_terminal_reconcile_errors_total") == 1
        controller.queue.add("bad")
        await accepted.wait()
        controller.drain()


async def test_a_key_that_hangs_or_fails_never_stops_the_others(metrics: Metrics) -> None:
    good = {f"good-{n}" for n in range(50)}
    seen: set[str] = set()
    all_seen = asyncio.Event()

    async def reconcile(key: str) -> None:
        if key == "cancelled":
            hopeless: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            hopeless.cancel()
            await hopeless
        elif key == "bug":
            raise KeyError(key)
        elif key == "hangs":
            await asyncio.Event().wait()
        seen.add(key)
        if seen >= good:
            all_seen.set()

    controller = Controller("pods", reconcile, metrics=metrics, workers=2, limit=0.05)
    for key in ["cancelled", "bug", "hangs", *sorted(good)]:
        controller.queue.add(key)
    await run_until(controller, all_seen)
    assert seen == good
    assert count(metrics, "controller_runtime_active_workers") == 0


async def test_one_key_is_never_reconciled_twice_at_a_time(metrics: Metrics) -> None:
    under_way = 0
    passes = 0
    enough = asyncio.Event()

    async def reconcile(key: str) -> None:
        nonlocal under_way, passes
        assert under_way == 0
        under_way += 1
        passes += 1
        if passes < 20:
            controller.queue.add(key)
            controller.queue.add(key)
        else:
            enough.set()
        await asyncio.sleep(0)
        under_way -= 1

    controller: Controller[str] = Controller("pods", reconcile, metrics=metrics, workers=8)
    controller.queue.add("a")
    await run_until(controller, enough)
    assert passes == 20
    assert count(metrics, "controller_runtime_reconcile_panics_total") == 0


async def test_every_line_of_a_reconcile_says_what_it_is_about(metrics: Metrics) -> None:
    bound: dict[str, object] = {}
    seen = asyncio.Event()

    async def reconcile(key: str) -> None:
        bound[key] = structlog.contextvars.get_contextvars()
        if len(bound) == 2:
            seen.set()

    controller = Controller("pods", reconcile, metrics=metrics)
    controller.queue.add("a")
    controller.queue.add("b")
    await run_until(controller, seen)
    assert bound == {key: {"controller": "pods", "key": key} for key in "ab"}
    assert structlog.contextvars.get_contextvars() == {}


async def test_draining_lets_the_reconcile_under_way_finish(metrics: Metrics) -> None:
    begun, finish = asyncio.Event(), asyncio.Event()
    finished: list[str] = []

    async def reconcile(key: str) -> None:
        begun.set()
        await finish.wait()
        finished.append(key)

    controller = Controller("pods", reconcile, metrics=metrics, workers=1)
    controller.queue.add("under way")
    controller.queue.add("waiting")
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(controller.run())
        await begun.wait()
        assert count(metrics, "controller_runtime_active_workers") == 1
        controller.drain()
        finish.set()
    assert finished == ["under way"]


async def test_a_controller_that_was_cancelled_takes_up_its_keys_when_it_runs_again(metrics: Metrics) -> None:
    begun, finished = asyncio.Event(), asyncio.Event()

    async def reconcile(_key: str) -> None:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        finished.set()

    controller = Controller("pods", reconcile, metrics=metrics)
    controller.queue.add("a")
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(controller.run())
        await begun.wait()
        first.cancel()
    await run_until(controller, finished)


def test_of_several_errors_the_most_urgent_decides() -> None:
    bug, retry, terminal = ValueError("bug"), Retry("away"), Terminal("never")
    soon, late = Wait("soon", after=1), Wait("late", after=9)
    nested = ExceptionGroup("acting", [terminal, ExceptionGroup("inner", [late, retry])])
    assert most_urgent(nested) is retry
    assert most_urgent(ExceptionGroup("acting", [late, soon, terminal])) is soon
    assert most_urgent(ExceptionGroup("acting", [retry, bug])) is bug
    assert most_urgent(terminal) is terminal


def test_metrics_stand_at_zero_from_the_start(metrics: Metrics) -> None:
    async def reconcile(_key: str) -> None:
        """Do nothing."""

    Controller("pods", reconcile, metrics=metrics, workers=7)
    for result in ("success", "requeue_after", "error"):
        assert count(metrics, "controller_runtime_reconcile_total", result=result) == 0
    assert count(metrics, "controller_runtime_reconcile_time_seconds_count") == 0
    assert count(metrics, "controller_runtime_max_concurrent_reconciles") == 7


async def test_a_worker_that_is_cancelled_while_its_reconcile_fails_ends(metrics: Metrics) -> None:
    """Before Python 3.13 a task group that fails at that moment swallows the cancellation."""
    moments: list[asyncio.Future[None]] = []

    async def fail_after(moment: "asyncio.Future[None]") -> None:
        await moment
        raise Retry("the server is away")

    async def reconcile(_key: str) -> None:
        moments.append(asyncio.get_running_loop().create_future())
        async with asyncio.TaskGroup() as group:
            group.create_task(fail_after(moments[-1]))

    controller = Controller("pods", reconcile, metrics=metrics, workers=1)
    controller.queue.add("a")
    run = asyncio.ensure_future(controller.run())
    while not moments:  # noqa: ASYNC110 - a list tells nobody
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    run.cancel()
    moments[-1].set_result(None)
    _, late = await asyncio.wait({run}, timeout=1.0)
    run.cancel()  # So that the test ends, though it has failed.
    assert not late
    assert len(controller.queue) == 1, "the key under way is not kept for the next run"
