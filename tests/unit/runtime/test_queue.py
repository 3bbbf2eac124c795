import asyncio
import time

import pytest

from isthmus.runtime.metrics import Metrics
from isthmus.runtime.queue import Backoff, Pace, Queue


class Clock:
    """Stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def queue(metrics: Metrics, clock: Clock) -> Queue[str]:
    return Queue(metrics=metrics.queue("pods"), clock=clock)


def sample(metrics: Metrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"name": "pods"})


def test_backoff_doubles_up_to_its_limit() -> None:
    backoff = Backoff(first=0.5, limit=10.0)
    assert [backoff.delay(n) for n in (1, 2, 3, 4, 5, 6, 100_000)] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_pace_lets_a_burst_through_and_then_spaces_evenly() -> None:
    pace = Pace(per_second=10, burst=3)
    assert [round(pace.reserve(5.0), 6) for _ in range(5)] == [0.0, 0.0, 0.0, 0.1, 0.2]
    assert pace.reserve(6.0) == 0.0, "the bucket fills up again with time"


def test_each_failure_in_a_row_doubles_the_pause_and_success_resets_it(queue: Queue[str], clock: Clock) -> None:
    pauses = []
    for _ in range(4):
        pauses.append(queue.retry("a"))
        assert queue.take() is None
        clock.now += pauses[-1]
        assert queue.take() == "a"
        queue.done("a")
    assert pauses == [0.05, 0.1, 0.2, 0.4]
    queue.forget("a")
    assert queue.retry("a") == 0.05


def test_many_keys_that_fail_at_once_are_spread_out(metrics: Metrics, clock: Clock) -> None:
    queue: Queue[int] = Queue(metrics=metrics.queue("pods"), pace=Pace(per_second=10, burst=5), clock=clock)
    pauses = [queue.retry(key) for key in range(15)]
    assert pauses[:5] == [0.05] * 5
    assert pauses[-1] == pytest.approx(1.0)


async def test_a_worker_that_waits_is_woken_by_an_add(queue: Queue[str]) -> None:
    async with asyncio.TaskGroup() as tasks:
        taken = tasks.create_task(anext(queue))
        await asyncio.sleep(0)
        queue.add("a")
    assert taken.result() == "a"


async def test_a_worker_that_waits_is_woken_when_a_delay_is_over(metrics: Metrics) -> None:
    # The clock goes only when both are added: a pause between the two would make the sooner one the later one.
    still: float | None = time.monotonic()
    queue: Queue[str] = Queue(
        metrics=metrics.queue("pods"), clock=lambda: time.monotonic() if still is None else still
    )
    queue.add("later", after=0.03)
    queue.add("sooner", after=0.01)
    still = None
    assert [await anext(queue), await anext(queue)] == ["sooner", "later"]


async def test_no_key_is_stranded_when_the_worker_that_was_woken_for_it_is_cancelled(queue: Queue[str]) -> None:
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(anext(queue))
        second = tasks.create_task(anext(queue))
        await asyncio.sleep(0)
        queue.add("a")  # wakes the first worker, which is cancelled before it gets to run
        first.cancel()
    assert second.result() == "a"


async def test_closing_ends_the_workers_and_drops_what_waits(queue: Queue[str]) -> None:
    async def work() -> list[str]:
        return [key async for key in queue]

    async with asyncio.TaskGroup() as tasks:
        workers = [tasks.create_task(work()) for _ in range(3)]
        await asyncio.sleep(0)
        queue.add("later", after=10.0)
        queue.close()
        queue.add("too late")
    assert [worker.result() for worker in workers] == [[], [], []]
    assert queue.take() is None


def test_metrics_stand_at_zero_from_the_start_and_then_count(
    queue: Queue[str], metrics: Metrics, clock: Clock
) -> None:
    assert [sample(metrics, name) for name in ("workqueue_depth", "workqueue_adds_total")] == [0.0, 0.0]
    assert sample(metrics, "workqueue_retries_total") == 0.0
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert sample(metrics, "workqueue_adds_total") == 3.0
    assert sample(metrics, "workqueue_depth") == 2.0
    clock.now += 2.0
    assert queue.take() == "a"
    assert sample(metrics, "workqueue_queue_duration_seconds_sum") == 2.0
    clock.now += 3.0
    assert sample(metrics, "workqueue_unfinished_work_seconds") == 3.0
    assert sample(metrics, "workqueue_longest_running_processor_seconds") == 3.0
    queue.done("a")
    assert sample(metrics, "workqueue_work_duration_seconds_sum") == 3.0
    assert sample(metrics, "workqueue_unfinished_work_seconds") == 0.0
