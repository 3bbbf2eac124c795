"""Soperator's series for each job from slurmdbd instead of slurmctld: of the jobs of a span of time."""

import time
from typing import Final

from isthmus.domain.exporter.pastjobs import as_job, is_stale
from isthmus.exporter.jobs import PerJob
from isthmus.slurm.accounting import Accounting

_AHEAD: Final = 300
"""Seconds by which slurmdbd's clock may be ahead of ours."""


class AccountedJobs:
    """Reads jobs from slurmdbd, and shows them."""

    def __init__(
        self,
        accounting: Accounting,
        families: PerJob,
        *,
        lookback: float,
    ) -> None:
        self._accounting = accounting
        self._families = families
        self._lookback = lookback
        self._shown: set[int] = set()

    async def read(self) -> str:
        """Read them once. What it shows stands in the families of jobs, so this has no text of its own."""
        now = time.time()
        found = await self._accounting.jobs(since=int(now - self._lookback), until=int(now) + _AHEAD)
        jobs = {job.job_id: as_job(job) for job in found if not is_stale(job, now=now)}
        for gone in self._shown - set(jobs):
            self._families.drop(gone)
        for job in jobs.values():
            self._families.put(job)
        self._shown = set(jobs)
        return ""
