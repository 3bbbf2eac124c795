"""Tells receivers how nodes did in checks whose reactions ask for it (`notify`), once for each result.

What checks found before this process began is not told again.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from isthmus.clock import utc_now
from isthmus.domain.health.activechecks.results import CheckResult, results
from isthmus.health.notifications import Notice, Notifications
from isthmus.health.receivers import Receivers
from isthmus.model.activecheck import ActiveCheck
from isthmus.model.health import HealthPolicy
from isthmus.model.meta import Key

if TYPE_CHECKING:
    from datetime import datetime


class CheckNotices:
    def __init__(self, notifications: Notifications, receivers: Receivers) -> None:
        self._notifications = notifications
        self._receivers = receivers
        self._began: datetime | None = None
        self._told: dict[tuple[Key, str, str], datetime] = {}

    def tell(self, cluster: Key, policy: HealthPolicy | None, checks: Iterable[ActiveCheck]) -> None:
        """Report what is new in the results of a cluster's checks."""
        began = self._began = self._began or utc_now()  # a standby begins when it leads
        found = [it for check in checks for it in results(check)]
        known = {(cluster, it.check, it.node) for it in found}
        self._told = {it: at for it, at in self._told.items() if it[0] != cluster or it in known}
        for result in found:
            if result.notify and result.at > self._told.get((cluster, result.check, result.node), began):
                self._told[cluster, result.check, result.node] = result.at
                self._send(cluster, policy, result)

    def _send(self, cluster: Key, policy: HealthPolicy | None, result: CheckResult) -> None:
        told = f"{result.check} {result.result.lower()}"
        notice = Notice(
            cluster=cluster,
            node=result.node,
            phase=result.result,
            message=f"{told}: {result.evidence}" if result.evidence else told,
            at=utc_now(),
        )
        chosen = {
            name: it
            for name, it in self._receivers.of(policy, cluster).items()
            if not result.receivers or name in result.receivers
        }
        self._notifications.put(notice, chosen, always=True)
