"""One exporter: what it reads of Slurm, what it makes of that, and the page that shows it.

    poller ─► jobs, nodes ─► sums ─► aggregates ─┐
    diag ─► controller ──────────────────────────┼─► page
    partitions, licences, shares … (periodic) ───┘

When Slurm is asked is the business of `looks`.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Final, TypeVar

from isthmus.domain.exporter import metricsets, tables
from isthmus.domain.exporter.catalog import SOPERATOR
from isthmus.domain.exporter.folding import Limits
from isthmus.domain.exporter.sets import MetricSet
from isthmus.errors import IsthmusError
from isthmus.exporter.accounted import AccountedJobs
from isthmus.exporter.aggregates import Aggregates
from isthmus.exporter.contact import ContactFamilies
from isthmus.exporter.controller import Controller
from isthmus.exporter.jobhistory import JobHistory
from isthmus.exporter.jobs import Gate, JobSums, PerJob
from isthmus.exporter.looks import Looks
from isthmus.exporter.metrics import ExporterMetrics
from isthmus.exporter.nodes import Nodes
from isthmus.exporter.page import Collector, Page
from isthmus.exporter.periodic import Periodic
from isthmus.exporter.settings import Settings
from isthmus.exporter.slimrecords import Slimmer, SlimRecords
from isthmus.exporter.topology import Topology
from isthmus.exporter.users import UserNames
from isthmus.slurm.accounting import Accounting
from isthmus.slurm.client import Client
from isthmus.slurm.poller import Poller
from isthmus.tasks import TaskGroup

_IDLE: Final = 120.0
"""Seconds between two lists of jobs' states while nothing that is counted changes."""

_REFRESH: Final = 3.0
"""Seconds between two looks at why a job waits, each in its turn. A list of all jobs would tell it of all at once,
but 10,000 jobs in full are 60 MB, and nothing else is read while slurmrestd writes them.
"""

_ACCOUNTING_PART: Final = 2
"""Of slurmdbd, whose lists are long, less is asked: once in so many intervals."""

_USERS_INTERVAL: Final = 5.0
"""Seconds between two looks for users without a name, which cost nothing while there is none."""

_SOPERATORS: Final = tuple(f"# HELP {family.name} " for family in SOPERATOR)

FoundT = TypeVar("FoundT")


class Exporter:
    """Follows one Slurm cluster while it runs."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        metrics: ExporterMetrics,
        *,
        alias: MetricSet | None = None,
        topology: Topology | None = None,
    ) -> None:
        """With `alias`, the names of another exporter take the place of Soperator's."""
        self._client = client
        self._alias = alias
        self._settings = settings
        self._metrics = metrics
        self.accounting = Accounting(client.calls)
        self._history: JobHistory | None = None
        self._folded: dict[str, dict[str, int]] = {}
        sets = (metricsets.OWN, alias or metricsets.SOPERATOR)
        limits = settings.limits

        users = UserNames()
        self.poller = Poller(
            client,
            idle=_IDLE,
            nodes_idle=_IDLE,
            refresh=_REFRESH,
            rounds=None,
            records=SlimRecords(client, Slimmer()),
            slim=users.named,
        )
        self._jobs = JobSums(self.poller.jobs)
        self._nodes = Nodes(self.poller.nodes, [table for each in sets for table in each.nodes])
        self._aggregates = Aggregates(
            sets, jobs=self._jobs.sums, nodes=self._nodes.sums, waiting=self._jobs.waiting, limits=limits
        )
        self._controller = Controller(sets, limits=limits, rpcs=alias is None)
        self.looks = Looks(self.poller)
        diag = self._periodic("diag", self._read_diag, pause=self.looks.until_next)
        others = [
            self._listed("pings", client.ping, tables.pings),
            self._listed("partitions", client.partitions, tables.partitions),
            self._listed("reservations", client.reservations, tables.reservations),
            self._listed("licenses", client.licenses, tables.licenses),
            self._listed(
                "shares",
                client.shares,
                lambda found, bounds: tables.shares(found, bounds, alias=alias.fair_share if alias else None),
            ),
        ]
        accounting = self._listed(
            "associations",
            self.accounting.associations,
            tables.account_limits,
            interval=settings.interval * _ACCOUNTING_PART,
        )
        if topology and alias is None:
            others.append(self._periodic("topology", lambda: topology.read(self.poller.nodes)))
        names = self._periodic("users", lambda: users.read(self.poller, self.accounting), interval=_USERS_INTERVAL)
        self._readers = [diag, *others, accounting, names]
        of_jobs = [self._aggregates.of_jobs, *self._per_job(alias, topology)]
        self.contact = ContactFamilies(self.poller, self._readers, diag=diag, accounting=accounting)
        self.collectors: list[Collector] = [
            self.contact,
            self._nodes,
            self._controller,
            *others,
            accounting,
            Gate(lambda: self.poller.as_of("nodes") is not None, self._aggregates.of_nodes),
            Gate(lambda: self.poller.knows_jobs_since(0), *of_jobs),
        ]
        self.page = Page(self.collectors, folded=self._all_folded, metrics=metrics, scraped=self.looks.scraped)
        self._drained = asyncio.Event()

    def _per_job(
        self, alias: MetricSet | None, topology: Topology | None
    ) -> Iterator[Callable[[float], Iterable[str]]]:
        if alias is not None or not self._settings.per_job:
            return
        families = PerJob(place_of=topology.place_of) if topology else PerJob()
        if self._settings.job_source == "controller":
            families.follow(self.poller.jobs)
            if topology:
                topology.on_change(lambda: families.put_all(self.poller.jobs.values()))
        else:
            source = AccountedJobs(self.accounting, families, lookback=self._settings.lookback)
            self._readers.append(self._periodic("accounting_jobs", source.read))
        yield families.text

    def follow(self, history: JobHistory) -> None:
        """Show what happened, too, and run what keeps it."""
        self._history = history
        self.collectors.append(_WithoutSoperators(history) if self._alias else history)

    async def run(self) -> None:
        """Read until `drain` is called."""
        async with TaskGroup() as group:
            tasks = [group.create_task(reader.run()) for reader in self._readers]
            tasks.append(group.create_task(self.poller.run()))
            tasks.append(group.create_task(self._freeze()))
            if self._history:
                tasks.append(group.create_task(self._history.run()))
            await self._drained.wait()
            for task in tasks:
                task.cancel()

    def drain(self) -> None:
        self._drained.set()

    async def _freeze(self) -> None:
        """Spare the garbage collector what stays for long: a pass through it would hold up a scrape."""
        await self.poller.synced()
        self.page.render()
        gc.collect()
        gc.freeze()

    async def _read_diag(self) -> str:
        try:
            told = await self._client.diagnose()
        except IsthmusError:
            self.looks.missed()
            raise
        self._controller.take(told)
        self.looks.take(told)
        return ""

    def _listed(
        self,
        name: str,
        read: Callable[[], Awaitable[FoundT]],
        table_of: Callable[[FoundT, Limits], tables.Table],
        *,
        interval: float | None = None,
    ) -> Periodic:
        async def text() -> str:
            table = table_of(await read(), self._settings.limits)
            self._folded[name] = {family.name: found.folded for family, found in table}
            return tables.text(table)

        return self._periodic(name, text, interval=interval)

    def _periodic(
        self,
        name: str,
        read: Callable[[], Awaitable[str]],
        *,
        interval: float | None = None,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> Periodic:
        return Periodic(
            name,
            read,
            pause=pause or partial(asyncio.sleep, interval or self._settings.interval),
            inflight=self._settings.inflight,
            metrics=self._metrics.collector(name),
            clock=time.monotonic,
        )

    def _all_folded(self) -> dict[str, int]:
        found = {**self._aggregates.folded, **self._controller.folded}
        for each in self._folded.values():
            found |= each
        if self._history:
            found |= self._history.folded
        return found


class _WithoutSoperators:
    """A collector without the families that have Soperator's names."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def text(self, now: float) -> Iterator[str]:
        return (text for text in self._collector.text(now) if not text.startswith(_SOPERATORS))
