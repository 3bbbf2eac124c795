"""The cluster-wide lock of reboots: a Lease per machine that may be down at a time.

The holder is a machine, not a process: it keeps the lock while it is down. One that never comes back loses it when
its time is over. Unlike an election, this compares clocks of different machines; against a time of half an hour it
does not matter that they differ by seconds.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from isthmus import names
from isthmus.clock import utc_now
from isthmus.domain.health.reboots import Lock
from isthmus.errors import Retry
from isthmus.kube.client import Client
from isthmus.kube.errors import AlreadyExists, NotFound
from isthmus.model.lease import LEASES, Lease
from isthmus.model.meta import Key, micro_time

TTL: Final = 1800
"""Seconds for which a machine has the lock after it was last heard of."""
_RENEWALS: Final = 3


class RebootLock:
    """The lock as one machine uses it. `limit` machines can have it at a time."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        machine: str,
        limit: int = 1,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._machine = machine
        self._now = now
        suffixes = ("", *(f"-{number}" for number in range(2, limit + 1)))
        self._keys = tuple(Key(namespace, f"{names.REBOOT_LEASE}{it}") for it in suffixes)

    async def look(self) -> Lock:
        """See who has it; renew it if it is ours."""
        leases = [await self._read(key) for key in self._keys]
        for lease in leases:
            if lease and self._holder(lease) == self._machine:
                await self._renew(lease)
                return Lock(held=True)
        holders = [self._holder(it) for it in leases if it is not None]
        taken = tuple(it for it in holders if it)
        return Lock(free=len(taken) < len(self._keys), holders=taken)

    async def take(self) -> None:
        """Take it; `Retry` if somebody else was faster."""
        moment = micro_time(self._now())
        times = {"acquireTime": moment, "renewTime": moment, "leaseDurationSeconds": TTL}
        for key in self._keys:
            lease = await self._read(key)
            spec = {"holderIdentity": self._machine, **times}
            if lease is None:
                try:
                    await self._client.create(LEASES, {"metadata": key._asdict(), "spec": spec})
                except AlreadyExists as error:
                    raise Retry(f"another machine took {key.name}") from error
                return
            if not self._holder(lease):
                spec["leaseTransitions"] = (lease.spec.lease_transitions or 0) + 1
                await self._write(lease, spec)
                return
        raise Retry("other machines hold the reboot lock")

    async def release(self) -> None:
        for key in self._keys:
            lease = await self._read(key)
            if lease and lease.spec.holder_identity == self._machine:
                await self._write(lease, {"holderIdentity": None, "acquireTime": None, "renewTime": None})

    def _holder(self, lease: Lease) -> str:
        """Who has it now; empty if nobody, or one whose time is over."""
        spec = lease.spec
        if not (spec.holder_identity and spec.renew_time):
            return ""
        end = datetime.fromisoformat(spec.renew_time) + timedelta(seconds=spec.lease_duration_seconds or TTL)
        return spec.holder_identity if self._now() < end else ""

    async def _renew(self, lease: Lease) -> None:
        renewed = datetime.fromisoformat(lease.spec.renew_time or "")
        if (self._now() - renewed).total_seconds() > TTL / _RENEWALS:
            await self._write(lease, {"renewTime": micro_time(self._now())})

    async def _read(self, key: Key) -> Lease | None:
        with suppress(NotFound):
            return await self._client.get(LEASES, key)
        return None

    async def _write(self, lease: Lease, spec: dict[str, object]) -> None:
        """Change a Lease, if nobody else has done so since."""
        meta = lease.metadata
        await self._client.merge_patch(
            LEASES, meta.key, {"metadata": {"resourceVersion": meta.resource_version}, "spec": spec}
        )
