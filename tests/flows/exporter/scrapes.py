"""An exporter at work, and what it shows."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from isthmus.domain.exporter.sets import MetricSet
from isthmus.exporter.exporter import Exporter
from isthmus.exporter.metrics import ExporterMetrics
from isthmus.exporter.settings import Settings
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import connect
from tests.bed.slurm import SlurmBed
from tests.bed.waiting import PATIENCE

Labels = tuple[str, ...]


class Scrape:
    """The series of one scrape."""

    def __init__(self, page: bytes) -> None:
        self.page = page
        self.samples = [
            sample for family in text_string_to_metric_families(page.decode()) for sample in family.samples
        ]

    def of(self, name: str, *labels: str, **wanted: str) -> Mapping[Labels, float]:
        """Add up the series of a name by these labels, of those that have the wanted values."""
        found: Counter[Labels] = Counter()
        for sample in self.samples:
            if sample.name == name and all(sample.labels[label] == value for label, value in wanted.items()):
                found[tuple(sample.labels[label] for label in labels)] += sample.value  # type: ignore[assignment] # a sum
        return dict(found)

    def value(self, name: str, **wanted: str) -> float | None:
        found = self.of(name, **wanted)
        return sum(found.values()) if found else None

    @property
    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}


@asynccontextmanager
async def exporting(
    bed: SlurmBed, *, url: str = "", alias: MetricSet | None = None, **settings: Any
) -> AsyncIterator[Exporter]:
    """Run an exporter that asks often."""
    async with connect([url or bed.rest_url], MintedTokens(bed.jwt_key)) as client:
        exporter = Exporter(
            client, Settings(**{"interval": 1.0, **settings}), ExporterMetrics(CollectorRegistry()), alias=alias
        )
        task = asyncio.get_running_loop().create_task(exporter.run())
        try:
            yield exporter
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def until(exporter: Exporter, good: Callable[[Scrape], object], *, within: float = PATIENCE) -> Scrape:
    """Scrape until what is shown is good; an assertion or a command of Slurm's that fails is a "not yet"."""
    failure: AssertionError | RuntimeError | None = None
    try:
        async with asyncio.timeout(within):
            while True:
                exporter.looks.scraped("a test")
                scrape = Scrape(exporter.page.render())
                try:
                    # Commands of Slurm take a while, and the exporter has to go on meanwhile.
                    if await asyncio.to_thread(good, scrape):
                        return scrape
                except (AssertionError, RuntimeError) as error:
                    failure = error
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise failure or AssertionError("not within the time") from None
