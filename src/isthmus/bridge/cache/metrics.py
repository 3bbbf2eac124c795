"""Gauges of the bridge's caches, read when Prometheus scrapes, in every replica that has caches.

While Slurm does not answer, the last values stay; before Slurm has been read, there are none. So it never looks
as if there were no jobs.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from isthmus import names
from isthmus.bridge.cache.jobs import OurJob, OurJobs
from isthmus.bridge.cache.orphans import Orphans
from isthmus.bridge.cache.world import World
from isthmus.domain.bridge import jobstates
from isthmus.domain.bridge.jobstates import Phase
from isthmus.runtime.metrics import Metrics, Readings
from isthmus.slurm.auth import TokenError, TokenSource, expiry

_STATES: Final = {Phase.WAITING: "pending", Phase.RUNNING: "running", Phase.SUSPENDED: "running"}


class WorldMetrics:
    def __init__(
        self,
        world: World,
        tokens: TokenSource,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._poller = world.poller
        self._tokens = tokens
        self._jobs = _JobCounts(world.jobs)
        self._orphans = Orphans(world, clock=clock)
        self._clock = clock
        self._now = now
        metrics.read(names.BRIDGE_JOBS, self._read_jobs, "state")
        metrics.read(names.ORPHANS, self._read_orphans)
        metrics.read(names.BRIDGE_SLURM, lambda: [((), float(self._poller.contact.in_touch))])
        metrics.read(names.BRIDGE_LAST_CONTACT, self._read_contact)
        metrics.read(names.BRIDGE_TOKEN_EXPIRY, self._read_token)

    def _read_jobs(self) -> Readings:
        if not self._poller.has_read:
            return []
        return [((state,), float(self._jobs.counts[state])) for state in ("pending", "running")]

    def _read_orphans(self) -> Readings:
        return [((), float(self._orphans.count()))] if self._poller.has_read else []

    def _read_contact(self) -> Readings:
        heard = self._poller.heard_at
        return [] if heard is None else [((), self._now() - (self._clock() - heard))]

    def _read_token(self) -> Readings:
        try:
            ends = expiry(self._tokens.token())
        except TokenError:
            return []
        return [] if ends is None else [((), ends)]


class _JobCounts:
    """Our jobs by state, counted as they change."""

    def __init__(self, jobs: OurJobs) -> None:
        self.counts: Counter[str] = Counter()
        for ours in jobs:
            self._changed(ours.job_id, None, ours)
        jobs.on_change(self._changed)

    def _changed(self, _job_id: int, before: OurJob | None, after: OurJob | None) -> None:
        for ours, step in ((before, -1), (after, 1)):
            if ours and (state := _STATES.get(jobstates.phase(ours.job.job_state))):
                self.counts[state] += step
