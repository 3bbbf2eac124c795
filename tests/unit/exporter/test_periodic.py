"""Readings that are repeated."""

import asyncio
from functools import partial

from prometheus_client import CollectorRegistry

from isthmus.errors import Retry
from isthmus.exporter.metrics import ExporterMetrics
from isthmus.exporter.periodic import Periodic


class _Source:
    """Answers when it is told to, with a number that grows, or fails."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def read(self) -> str:
        self.asked += 1
        number = self.asked
        await self.answers.wait()
        if self.fails:
            raise Retry("Slurm is away")
        return f"text {number}"


def _periodic(source: _Source, clock: list[float]) -> Periodic:
    metrics = ExporterMetrics(CollectorRegistry()).collector("diag")
    pause = partial(asyncio.sleep, 0.001)
    return Periodic("diag", source.read, pause=pause, metrics=metrics, clock=lambda: clock[0])


def _told(periodic: Periodic) -> tuple[str, float | None, str]:
    return "".join(periodic.text(0.0)), periodic.age, periodic.trouble


async def test_a_reading_that_fails_leaves_the_text_and_lets_it_age() -> None:
    source, clock = _Source(), [100.0]
    periodic = _periodic(source, clock)
    assert periodic.age is None
    await periodic.read()
    assert _told(periodic) == ("text 1", 0.0, "")
    clock[0] = 130.0
    source.fails = True
    await periodic.read()
    assert _told(periodic) == ("text 1", 30.0, "Slurm is away")
    assert periodic._metrics.errors._value.get() == 1
    source.fails = False
    await periodic.read()
    assert _told(periodic) == ("text 3", 0.0, "")


async def test_a_slow_reading_is_not_repeated_while_it_is_under_way() -> None:
    source = _Source()
    source.answers.clear()
    periodic = _periodic(source, [0.0])
    task = asyncio.get_running_loop().create_task(periodic.run())
    async with asyncio.timeout(10):
        while periodic._metrics.skipped._value.get() < 3:  # noqa: ASYNC110 - a counter sends no events
            await asyncio.sleep(0.001)
    assert source.asked == 1
    source.answers.set()
    async with asyncio.timeout(10):
        while source.asked < 2:  # noqa: ASYNC110 - a counter sends no events
            await asyncio.sleep(0.001)
    task.cancel()
