"""What happened to jobs and nodes, as counters and histograms, and what finished jobs used.

    poller ─► ledgers ─► text                       at once, in memory
                 │
                 ├─► checkpoint ─┐                  every 15 s, and at the end
    slurmdbd ────┴─► usage ──────┴─► SQLite ─► report   once a minute

Counting begins when everything has been read once: what is there then happened before. From then on each run of a
job counts once (`domain/exporter/jobledger.py`), also across restarts if there is a directory.
"""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final, Literal, NoReturn

import msgspec
import structlog
from aiohttp import web

from isthmus.domain.exporter import jobrun, report, unseen
from isthmus.domain.exporter.folding import Limits
from isthmus.domain.exporter.jobledger import JobLedger
from isthmus.domain.exporter.jobrun import JobRun
from isthmus.domain.exporter.nodeledger import NodeLedger
from isthmus.errors import IsthmusError, Terminal
from isthmus.exporter import checkpoint, usage
from isthmus.exporter.database import Database
from isthmus.model.slurm import ENDED, Job, Node
from isthmus.model.slurmdb import PastJob
from isthmus.slurm.accounting import Accounting
from isthmus.slurm.poller import Poller

_SAVE_EVERY: Final = 15.0
_ACCOUNTS_EVERY: Final = 60.0
_PRUNE_EVERY: Final = 600.0
_LOOK_BACK_EVERY: Final = 3600.0
_OVERLAP: Final = 60.0
"""slurmdbd is asked again about so many seconds: a job may reach it a little late."""

_MAX_AGE: Final = 90 * 86400.0
_MAX_BYTES: Final = 500_000_000
_MAX_BYTES_IN_MEMORY: Final = 20_000_000

log = structlog.get_logger()


class JobHistory:
    """Follows the stores of a poller while it runs."""

    def __init__(
        self,
        poller: Poller,
        *,
        directory: Path | None,
        limits: Limits,
        accounting: Accounting | None,
        cluster: str = "",
        max_age: float = _MAX_AGE,
        max_bytes: int = _MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without a directory, counters begin at 0 with each start; `cluster` is what rows of usage say."""
        self._poller = poller
        self._accounting = accounting
        self._cluster = cluster
        self._max_age = max_age
        self._max_bytes = max_bytes if directory else min(max_bytes, _MAX_BYTES_IN_MEMORY)
        self._clock = clock
        self._limits = limits
        self._jobs = JobLedger(limits)
        self._nodes = NodeLedger(limits)
        self._database = Database(directory, usage.SCHEMA + checkpoint.SCHEMA)
        self._restored = self._begun = self._compared = False
        self._ended: list[JobRun] = []
        self._settled: list[JobRun] = []
        """What the next checkpoint writes: runs whose end was seen, and runs that the accounts had alone."""
        self._asked_until = 0.0
        self._looked_back = 0.0
        self._accounts: Literal["", "answer", "fail"] = ""
        """How slurmdbd is: empty if it never answered."""
        self._told = ""
        self._saved: checkpoint.Checkpoint | None = None
        poller.jobs.on_change(self._job_changed)
        poller.nodes.on_change(self._node_changed)

    @property
    def folded(self) -> Mapping[str, int]:
        """How many label sets of each family are counted under "other"."""
        return {it.family.name: it.folded for it in (*self._jobs.tallies, *self._nodes.tallies)}

    def text(self, now: float) -> Iterable[str]:
        """Write all families; nothing before anything is known."""
        if not self._restored and not self._begun:
            return
        self._advance(now)
        for tally in (*self._jobs.tallies, *self._nodes.tallies):
            yield tally.text()

    async def run(self) -> NoReturn:
        """Count, save, and read usage until cancelled; what was counted last is saved then."""
        try:
            await self._restore()
            await self._poller.synced()
            self._begin()
            await self._work()
        finally:
            await asyncio.shield(self._finish())

    # Counting

    def _begin(self) -> None:
        now = self._clock()
        if not self._restored:
            # Slurm counts time in whole seconds.
            self._jobs.since = self._asked_until = now // 1
        for job in self._poller.jobs.values():
            self._see(job, before=not self._restored)
        for node in self._poller.nodes.values():
            self._nodes.see(node, now=now)
        self._begun = True
        self._compare()

    def _compare(self) -> None:
        """Find out who has left since the checkpoint, as soon as all jobs have been read."""
        if not self._compared and self._poller.knows_jobs_since(0):
            self._jobs.keep_only(self._poller.jobs.values(), now=self._clock())
            self._compared = True

    def _job_changed(self, _job_id: int, old: Job | None, new: Job | None) -> None:
        if not self._begun:
            return
        if new is not None:
            # Where jobs are very many, old ones are read for a while after the start.
            old_news = not self._poller.knows_jobs_since(0) and (new.submit_time.value or 0) < self._jobs.since
            self._see(new, before=old_news)
        elif old is not None:
            self._jobs.gone(old, now=self._clock())

    def _see(self, job: Job, *, before: bool) -> None:
        ends = job.has_ended and not self._jobs.has_ended(job)
        requeued = self._jobs.see(job, now=self._clock(), before=before)
        if requeued or ends:
            run = jobrun.of_record(job, cluster=self._cluster)
            if requeued:
                now = int(self._clock())
                self._ended.append(
                    msgspec.structs.replace(
                        run, submit=requeued.submit, state=jobrun.REQUEUED, start=0, elapsed=0, end=now
                    )
                )
            if ends:
                self._ended.append(run)

    def _node_changed(self, name: str, _old: Node | None, new: Node | None) -> None:
        if not self._begun:
            return
        now = self._clock()
        self._advance(now)
        if new is None:
            self._nodes.gone(name)
        else:
            self._nodes.see(new, now=now)

    def _advance(self, now: float) -> None:
        self._nodes.advance(now, in_touch=self._begun and self._poller.contact.in_touch)

    # Keeping

    async def _restore(self) -> None:
        try:
            saved = await self._database.run(checkpoint.read)
            if saved is not None:
                self._asked_until = checkpoint.restore(saved, self._jobs, self._nodes)
                self._restored = True
        except IsthmusError as error:
            log.warning("counters begin at 0", error=str(error))
        except msgspec.MsgspecError as error:
            self._jobs, self._nodes = JobLedger(self._limits), NodeLedger(self._limits)
            log.warning("counters begin at 0, since what was saved cannot be read", error=str(error))

    async def _work(self) -> NoReturn:
        due = dict.fromkeys((self._read_accounts, self._prune), self._clock())
        every = {self._read_accounts: _ACCOUNTS_EVERY, self._prune: _PRUNE_EVERY}
        while True:
            self._compare()
            for task, when in due.items():
                if self._clock() >= when:
                    due[task] = self._clock() + every[task]
                    await self._try(task)
            self._give_up()
            await self._try(self.save)
            await asyncio.sleep(_SAVE_EVERY)

    async def _try(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except IsthmusError as error:
            # The same every minute, where there is no slurmdbd, would fill the log.
            if str(error) != self._told:
                self._told = str(error)
                log.warning("the history of jobs is incomplete for now, will retry", error=self._told)

    async def save(self) -> None:
        if not self._begun:
            return
        self._advance(self._clock())
        ended, settled = self._ended, self._settled
        self._ended, self._settled = [], []
        taken = checkpoint.take(self._jobs, self._nodes, asked_until=self._asked_until)
        if taken == self._saved and not ended and not settled:
            return

        def write(connection: sqlite3.Connection) -> None:
            checkpoint.write(connection, taken, ended=ended, settled=settled)

        try:
            await self._database.run(write)
        except BaseException:
            self._ended, self._settled = ended + self._ended, settled + self._settled
            raise
        self._saved = taken

    async def _finish(self) -> None:
        await self._try(self.save)
        await self._database.close()

    async def _prune(self) -> None:
        before = self._clock() - self._max_age
        deleted = await self._database.run(
            lambda connection: usage.prune(connection, before=before, max_bytes=self._max_bytes)
        )
        if deleted:
            log.info("deleted the oldest rows of usage", rows=deleted)

    # Accounts

    async def _read_accounts(self) -> None:
        """Read what ended since the last time, in one question, and count what nobody saw."""
        if self._accounting is None:
            return
        now = self._clock()
        since = await self._ask_since(now)
        try:
            past = await self._accounting.jobs(since=int(since), until=int(now + _OVERLAP), ended=True)
        except IsthmusError:
            self._accounts = self._accounts and "fail"
            raise
        runs = [jobrun.of_account(job) for job in past if _is_over(job)]
        # What was seen to end goes first: a row that is not there would be taken for a run that nobody saw.
        await self.save()

        def merge(connection: sqlite3.Connection) -> list[tuple[JobRun, bool]]:
            usage.merge(connection, runs)
            return usage.uncounted(connection)

        uncounted = await self._database.run(merge)
        self._accounts = "answer"
        self._asked_until = now
        if self._compared and self._poller.contact.in_touch:
            # Rows that wait for the next checkpoint are settled already.
            waiting = {run.key for run in (*self._ended, *self._settled)}
            fresh = [it for it in uncounted if it[0].key not in waiting]
            self._settled += unseen.settle(self._jobs, fresh, listed=self._is_listed, now=now)

    async def _ask_since(self, now: float) -> float:
        """Choose how far back to ask: a little, and now and then as far as runs have no usage yet."""
        since = self._asked_until - _OVERLAP
        if now - self._looked_back >= _LOOK_BACK_EVERY:
            self._looked_back = now
            oldest = await self._database.run(lambda connection: usage.oldest_untold(connection, now=now))
            since = min(since, oldest or since)
        return since

    def _is_listed(self, run: JobRun) -> bool:
        return run.job_id in self._poller.jobs

    def _give_up(self) -> None:
        """Let runs that will not be reported end as unknown. This waits while slurmdbd does not answer."""
        if self._accounts != "fail":
            patience = unseen.GIVEN_UP_BY_ACCOUNTS_AFTER if self._accounting else unseen.GIVEN_UP_AFTER
            self._ended += unseen.give_up(self._jobs, patience=patience, now=self._clock())

    # Report

    async def report(self, query: report.Query) -> report.Report:
        return await self._database.run(lambda connection: report.report(usage.select(connection, query), query))

    def routes(self) -> list[web.RouteDef]:
        """Serve `GET /api/v1/report`."""
        return [web.get("/api/v1/report", self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            query = report.parse(dict(request.query), now=self._clock())
            await self.save()
            found = await self.report(query)
        except Terminal as error:
            return _json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        except IsthmusError as error:
            return _json({"error": str(error)}, HTTPStatus.SERVICE_UNAVAILABLE)
        return _json(found, HTTPStatus.OK)


def _json(content: object, status: HTTPStatus) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), status=status, content_type="application/json")


def _is_over(job: PastJob) -> bool:
    """Whether a run has ended. slurmdbd gives one that runs an end, too: that of the span it was asked for."""
    states = job.state.current
    return bool(job.time.end) and (not ENDED.isdisjoint(states[:1]) or jobrun.REQUEUED.upper() in states)
