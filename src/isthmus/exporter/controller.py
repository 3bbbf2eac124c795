"""What slurmctld says of itself: gauges as they are, and counters that never fall."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from isthmus.domain.exporter import catalog as c
from isthmus.domain.exporter.counters import Counters
from isthmus.domain.exporter.exposition import Family
from isthmus.domain.exporter.folding import OTHER, Limits
from isthmus.domain.exporter.sets import US, MetricSet
from isthmus.model.slurm import Statistics

_Labels = tuple[str, ...]


class Controller:
    """Takes slurmctld's statistics, one after the other."""

    def __init__(self, sets: Iterable[MetricSet], *, limits: Limits, rpcs: bool) -> None:
        """With `rpcs`, Soperator's counters of requests are there, too."""
        self._measured = [table for each in sets for table in each.statistics]
        self._counters: dict[Family, Counters[_Labels]] = {
            family: Counters(limit=limits.top if "user" in family.labels else limits.series, other=_other(family))
            for family in (*_CYCLES, *(_RPCS if rpcs else ()))
        }
        self._latest: Statistics | None = None
        self._text = ""

    @property
    def folded(self) -> dict[str, int]:
        return {family.name: len(counters.folded) for family, counters in self._counters.items()}

    def take(self, told: Statistics) -> None:
        """Take note of what slurmctld says now."""
        self._latest = told
        readings = _readings(told)
        for family, counters in self._counters.items():
            counters.take(readings[family])
        self._text = ""

    def text(self, _now: float) -> Iterator[str]:
        if self._latest is None:
            return
        if not self._text:
            self._text = "".join(self._write(self._latest))
        yield self._text

    def _write(self, told: Statistics) -> Iterator[str]:
        for table in self._measured:
            value = table.value(told)
            if value is not None:
                yield table.family.text([((), value)])
        yield c.PENDING_RPCS.text([((it.message_type,), it.count) for it in told.pending_rpcs])
        for family, counters in self._counters.items():
            yield family.text(counters.totals.items())


_CYCLES = (c.SCHED_CYCLES, c.SCHED_EXITS, c.BF_CYCLES, c.BF_JOBS, c.BF_EXITS)
_RPCS = (c.RPC_CALLS, c.RPC_SECONDS, c.RPC_USER_CALLS, c.RPC_USER_SECONDS)


def _readings(told: Statistics) -> Mapping[Family, Mapping[_Labels, float]]:
    types, users = told.rpcs_by_message_type, told.rpcs_by_user
    return {
        c.SCHED_CYCLES: {(): told.schedule_cycle_total},
        c.SCHED_EXITS: _reasons(told.schedule_exit),
        c.BF_CYCLES: {(): told.bf_cycle_counter},
        c.BF_JOBS: {(): told.bf_backfilled_jobs},
        c.BF_EXITS: _reasons(told.bf_exit),
        c.RPC_CALLS: {(it.message_type,): it.count for it in types},
        c.RPC_SECONDS: {(it.message_type,): it.total_time / US for it in types},
        c.RPC_USER_CALLS: {(it.user, str(it.user_id)): it.count for it in users},
        c.RPC_USER_SECONDS: {(it.user, str(it.user_id)): it.total_time / US for it in users},
    }


def _reasons(exits: msgspec.Struct) -> dict[_Labels, float]:
    return {(name,): count for name, count in msgspec.structs.asdict(exits).items()}


def _other(family: Family) -> _Labels:
    return tuple(OTHER for _ in family.labels)
