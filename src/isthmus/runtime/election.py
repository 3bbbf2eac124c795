"""Leadership by a Lease of coordination.k8s.io: carries out what `candidate` decides, and runs the leader's work.

Work begins when the lease is won. When it is lost, the work is cancelled, and has `Terms.notice` seconds to end; a
process whose work does not end by then is ended by its `Fuse`, before another can begin. When the work ends by
itself, the lease is given back, so that the next leader need not wait; it is never given back before.

Give the election a client of its own: in the queue behind thousands of other requests, a claim would come too late.
"""

import asyncio
import socket
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from isthmus.errors import IsthmusError
from isthmus.kube.client import Client
from isthmus.kube.errors import AlreadyExists, Conflict, NotFound
from isthmus.model.lease import LEASES, Lease
from isthmus.model.meta import Key, micro_time
from isthmus.runtime.candidate import Candidate, Claim, Read, Record, Rest, Terms
from isthmus.runtime.metrics import Metrics

log = structlog.get_logger()

# A request that hangs must leave time for two more before the deadline.
_REQUESTS_PER_DEADLINE = 3
# The fuse burns through within the notice, after orderly ways of stopping had most of it.
_FUSE_SHARE_OF_NOTICE = 0.8


class Stopper(Protocol):
    """What ends a process that leads for too long; see `fuse`."""

    def set(self, seconds: float) -> None:
        """End the process after so many seconds."""

    def remove(self) -> None:
        """Let the process live."""


def clock() -> float:
    """Seconds that also pass while the machine is suspended, which `time.monotonic` leaves out."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Election:
    """One process's part in an election. Its identity is new each time, so no two processes ever share one."""

    def __init__(
        self,
        client: Client,
        lease: Key,
        *,
        metrics: Metrics,
        fuse: Stopper,
        terms: Terms = Terms(),  # noqa: B008 - frozen
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """`labels` are for who looks for the Lease and does not know its name."""
        self.lease = lease
        self._labels = dict(labels or {})
        self._client = client
        self._candidate = Candidate(f"{socket.gethostname()}_{uuid.uuid4()}", terms)
        self._terms = terms
        self._patience = terms.deadline / _REQUESTS_PER_DEADLINE
        self._fuse = fuse
        self._gauge = metrics.leading(lease.name)
        self._trouble = ""
        self._withdrawn = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Election {self.lease}: {self._candidate!r}>"

    @property
    def identity(self) -> str:
        """What stands in the Lease while we lead."""
        return self._candidate.identity

    def leads(self) -> bool:
        """Whether this process leads at this moment."""
        return self._candidate.leads(clock())

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Campaign, and do the work whenever we lead, until it once ends by itself.

        If leadership is lost the work is cancelled, and begun again when it is won back.
        """
        while not self._withdrawn.is_set():
            if not self.leads():
                await self._step(until=self._withdrawn)
            elif await self._reign(work):
                return
        if self.leads():
            await self._give_back()  # Won after we withdrew.

    def withdraw(self) -> None:
        """Stop campaigning. Work that is under way continues until it ends."""
        self._withdrawn.set()

    async def _reign(self, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Work until the work ends (True) or leadership does (False)."""
        log.info("leading", lease=str(self.lease), identity=self.identity)
        self._gauge.set(1)
        self._set_fuse()
        try:
            if not self.leads():
                return False  # We stood still in the lines above for as long as we might lead: no fuse is set.
            async with asyncio.TaskGroup() as tasks:
                working = tasks.create_task(work())
                renewing = tasks.create_task(self._renew())
                await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
                ended = working.done()
                working.cancel()
                renewing.cancel()
            if not ended:
                log.error(
                    "no longer leading",
                    lease=str(self.lease),
                    reason=self._trouble or "another process holds the lease",
                )
            return ended
        finally:
            # Here the work is over, whichever way: nothing that it began is still under way.
            self._gauge.set(0)
            self._fuse.remove()
            await self._give_back()

    async def _renew(self) -> None:
        while self.leads():
            await self._step(until=asyncio.Event())
            self._set_fuse()

    async def _step(self, *, until: asyncio.Event) -> None:
        """Take the next step; a rest ends early when `until` is set."""
        now = clock()
        step = self._candidate.plan(now)
        if not isinstance(step, Rest):
            await self._carry_out(step)
            return
        end = min(step.until, self._candidate.leads_until) if self._candidate.leads(now) else step.until
        with suppress(TimeoutError):
            async with asyncio.timeout(end - now):
                await until.wait()

    async def _carry_out(self, step: Read | Claim) -> None:
        started = clock()
        patience = self._patience
        if self._candidate.leads(started):
            patience = min(patience, self._candidate.leads_until - started)
        try:
            async with asyncio.timeout(patience):
                if isinstance(step, Read):
                    lease = await self._client.get(LEASES, self.lease)
                    self._candidate.saw(_record(lease), clock())
                else:
                    lease = await self._write(step)
                    self._candidate.stored(_record(lease), started=started, now=clock())
            self._trouble = ""
        except (Conflict, AlreadyExists):
            self._candidate.refused(clock())
        except asyncio.CancelledError:
            self._candidate.refused(clock())
            raise
        except (IsthmusError, TimeoutError) as error:
            if isinstance(error, NotFound) and isinstance(step, Read):
                self._candidate.saw(None, clock())
            elif isinstance(error, NotFound) and isinstance(step, Claim) and step.version is not None:
                self._candidate.refused(clock())
            else:
                self._candidate.failed(clock())
                self._complain(error)

    async def _write(self, claim: Claim) -> Lease:
        now = micro_time(datetime.now(UTC))
        spec: dict[str, Any] = {
            "holderIdentity": claim.holder,
            "leaseDurationSeconds": self._terms.duration,
            "leaseTransitions": claim.transitions,
            "renewTime": now,
        }
        if claim.taken_over:
            spec["acquireTime"] = now
        if claim.version is None:
            metadata = {"namespace": self.lease.namespace, "name": self.lease.name, "labels": self._labels}
            return await self._client.create(LEASES, {"metadata": metadata, "spec": spec})
        patch = {"metadata": {"resourceVersion": claim.version, "labels": self._labels}, "spec": spec}
        return await self._client.merge_patch(LEASES, self.lease, patch)

    async def _give_back(self) -> None:
        """Free the lease. If that fails, the others wait until it runs out, and no harm is done."""
        if self.leads() and isinstance(step := self._candidate.plan(clock()), Read):
            await self._carry_out(step)  # A claim was cut short by the end of the work: find out what came of it.
        try:
            try:
                await self._resign()
            except Conflict:
                await self._carry_out(Read())  # It was stored after we looked.
                await self._resign()
        except (IsthmusError, TimeoutError) as error:
            log.warning("could not release the lease", lease=str(self.lease), error=str(error))

    async def _resign(self) -> None:
        claim = self._candidate.resign(clock())
        if claim is None:
            return
        try:
            async with asyncio.timeout(self._patience):
                await self._write(claim)
        finally:
            self._candidate.refused(clock())
        log.info("released the lease", lease=str(self.lease))

    def _set_fuse(self) -> None:
        if self.leads():
            burns_at = self._candidate.leads_until + self._terms.notice * _FUSE_SHARE_OF_NOTICE
            self._fuse.set(burns_at - clock())

    def _complain(self, error: IsthmusError | TimeoutError) -> None:
        said = str(error) or "no answer in time"
        if said != self._trouble:
            log.warning("cannot renew the lease", lease=str(self.lease), error=said, leading=self.leads())
        self._trouble = said


def _record(lease: Lease) -> Record:
    return Record(
        holder=lease.spec.holder_identity or "",
        duration=lease.spec.lease_duration_seconds or 0,
        transitions=lease.spec.lease_transitions or 0,
        version=lease.metadata.resource_version,
    )
