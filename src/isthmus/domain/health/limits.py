"""How much may be done at a time, whatever is found.

    share     of a NodeSet, and of a topology block: nodes that we hold
    window    when machines may be rebooted or replaced
    reboots   machines at a time, in all of Kubernetes
    storm     a check that condemns many nodes within minutes is not believed until it has been quiet for a while

Texts that say which limit holds a node back depend on settings alone: at rest, nothing is written.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from isthmus.domain.health.policies import Policy
from isthmus.domain.health.view import NodeView
from isthmus.model.health import Finding, Window

STORM_FLOOR: Final = 3
"""Fewer nodes than this are no storm, however small the cluster."""

MACHINE_CLAIM: Final = "machine_repair"
"""The check of a finding that says: the machine is about to be rebooted or replaced for another node's sake."""

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def share_of(setting: int | str, total: int) -> int:
    """Read a number or a percentage of all: rounded down, but at least one unless it is zero."""
    if isinstance(setting, int):
        return setting
    percent = int(setting.removesuffix("%"))
    return max(1, total * percent // 100) if percent else 0


class Budget:
    """How many more nodes may be held. Counts what is held when the decision begins, and what it takes."""

    def __init__(self, policy: Policy, nodes: Iterable[NodeView]) -> None:
        self._share = policy.spec.limits.max_unavailable
        self._block_share = policy.spec.limits.max_unavailable_per_block
        self._total: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._block_total: Counter[str] = Counter()
        self._block_held: Counter[str] = Counter()
        for node in nodes:
            nodeset, block = _groups(node)
            self._total[nodeset] += 1
            self._block_total[block] += 1
            if node.health is not None and node.health.status.reason:
                self._held[nodeset] += 1
                self._block_held[block] += 1

    def refusal(self, node: NodeView) -> str:
        """Why a node cannot be held now; empty if it can. It depends on settings alone, so it stays the same."""
        nodeset, block = _groups(node)
        most = share_of(self._share, self._total[nodeset])
        if self._held[nodeset] >= most:
            return f"at most {most} nodes of NodeSet {nodeset or '-'} may be out (maxUnavailable)"
        if self._block_share is not None and block:
            most = share_of(self._block_share, self._block_total[block])
            if self._block_held[block] >= most:
                return f"at most {most} nodes of block {block} may be out (maxUnavailablePerBlock)"
        return ""

    def take(self, node: NodeView) -> None:
        nodeset, block = _groups(node)
        self._held[nodeset] += 1
        self._block_held[block] += 1


def _groups(node: NodeView) -> tuple[str, str]:
    """The NodeSet and the block of a node; without a pod, as recorded."""
    known = node.health.status if node.health else None
    return node.nodeset or (known.nodeset if known else ""), node.block or (known.block if known else "")


def closed_because(windows: tuple[Window, ...], now: datetime) -> str:
    """Why no window is open; empty if one is, or if there are none."""
    if not windows or any(_is_open(it, now) for it in windows):
        return ""
    unknown = [it.time_zone for it in windows if _zone(it.time_zone) is None]
    if len(unknown) == len(windows):
        return f"time zone {unknown[0]} of the maintenance window is not known; write a name such as Europe/Berlin"
    return "no maintenance window is open"


def storms(
    policy: Policy, nodes: Mapping[str, tuple[Finding, ...]], *, total: int, now: datetime
) -> dict[str, datetime]:
    """Checks that are suspect, and until when, by what all nodes' findings say. Humans are never suspect."""
    came: dict[str, list[datetime]] = {}
    oldest = now - timedelta(seconds=policy.storm_cooldown + policy.storm_within)
    for found in nodes.values():
        for it in found:
            if (
                it.source != "human"
                and it.check != MACHINE_CLAIM
                and it.first_seen is not None
                and it.first_seen > oldest
            ):
                came.setdefault(it.check, []).append(it.first_seen)
    share = policy.spec.limits.storm.share
    least = share if isinstance(share, int) else math.ceil(total * int(share.removesuffix("%")) / 100)
    least = max(STORM_FLOOR, least)
    suspect = {
        check: last + timedelta(seconds=policy.storm_cooldown)
        for check, times in came.items()
        if (last := _last_of_burst(times, least, timedelta(seconds=policy.storm_within)))
    }
    return {check: until for check, until in suspect.items() if until > now}


def _last_of_burst(times: list[datetime], least: int, within: timedelta) -> datetime | None:
    """The last of so many times within a period, if there are so many."""
    if len(times) < least:
        return None
    times.sort()
    bursts = zip(times, times[least - 1 :], strict=False)
    return max((last for first, last in bursts if last - first <= within), default=None)


def _is_open(window: Window, now: datetime) -> bool:
    zone = _zone(window.time_zone)
    if zone is None:
        return False
    local = now.astimezone(zone)
    clock = f"{local:%H:%M}"
    if window.start < window.end:
        return window.start <= clock < window.end and _begins(window, local)
    if clock >= window.start:
        return _begins(window, local)
    return clock < window.end and _begins(window, local - timedelta(days=1))


def _begins(window: Window, day: datetime) -> bool:
    return not window.days or _DAYS[day.weekday()] in window.days


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
