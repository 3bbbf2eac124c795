"""Families that repeat a list which Slurm gives: partitions, reservations, licences, fair shares, limits, pings."""

from collections.abc import Iterable, Iterator
from typing import Final

from isthmus.domain.exporter import catalog as c
from isthmus.domain.exporter.exposition import Family, Row
from isthmus.domain.exporter.folding import Folded, Limits, fold, largest
from isthmus.domain.exporter.sets import US
from isthmus.model.slurm import License, Partition, Ping, Reservation, Share
from isthmus.model.slurmdb import Association

Table = list[tuple[Family, Folded]]

_COUNTED_TRES: Final = ("cpu", "node", "gres/gpu")


def text(table: Table) -> str:
    return "".join(family.text(found.rows) for family, found in table)


def partitions(found: Iterable[Partition], limits: Limits) -> Table:
    up = [((it.name,), float("UP" in it.partition.state)) for it in found]
    return [(c.PARTITION_UP, fold(c.PARTITION_UP.labels, up, limits))]


def reservations(found: Iterable[Reservation], limits: Limits) -> Table:
    kept = list(found)
    soonest = {(it.name,): -float(it.end_time.value or 0) for it in kept}
    return [
        (family, largest(family.labels, rows, limits, by=soonest))
        for family, rows in (
            (c.RESERVATION_NODES, [((it.name,), float(it.node_count)) for it in kept]),
            (c.RESERVATION_START, [((it.name,), float(it.start_time.value or 0)) for it in kept]),
            (c.RESERVATION_END, [((it.name,), float(it.end_time.value or 0)) for it in kept]),
        )
    ]


def licenses(found: Iterable[License], limits: Limits) -> Table:
    kept = list(found)
    return [
        (family, fold(family.labels, rows, limits))
        for family, rows in (
            (c.LICENSES, [((it.name,), float(it.total)) for it in kept]),
            (c.LICENSES_USED, [((it.name,), float(it.used)) for it in kept]),
            (c.LICENSES_RESERVED, [((it.name,), float(it.reserved)) for it in kept]),
        )
    ]


def shares(found: Iterable[Share], limits: Limits, *, alias: Family | None = None) -> Table:
    """Write fair shares. An account has a line of its own; a user one for each account, and for partitions more.

    The account at the top, root, competes with nobody: its share is a number next to 0, and no ratio.
    """
    accounts = [it for it in found if "USER" not in it.type and it.name and it.parent]
    users = [it for it in found if "USER" in it.type and not it.partition]
    usage = {(it.name,): _value(it.effective_usage.value) for it in accounts}
    of_users = {(it.parent, it.name): _value(it.usage_normalized.value) for it in users}
    table: Table = []
    for family in (c.FAIR_SHARE, *((alias,) if alias else ())):
        table.append((family, largest(family.labels, _factors(accounts, users), limits, by=usage)))
    rows = [((it.parent, it.name), _value(it.fairshare.factor.value)) for it in users]
    table.append((c.FAIR_SHARE_USER, largest(c.FAIR_SHARE_USER.labels, rows, limits, by=of_users)))
    for family, values in (
        (c.ACCOUNT_SHARES, [((it.name,), _value(it.shares_normalized.value)) for it in accounts]),
        (c.ACCOUNT_USAGE, list(usage.items())),
    ):
        table.append((family, largest(family.labels, values, limits, by=usage)))
    return table


def _factors(accounts: Iterable[Share], users: Iterable[Share]) -> Iterator[Row]:
    """Give the factor of each account. With Fair Tree only users have one; then it is the mean of theirs."""
    members: dict[str, list[float]] = {}
    for user in users:
        members.setdefault(user.parent, []).append(_value(user.fairshare.factor.value))
    for account in accounts:
        if factor := account.fairshare.factor.value:
            yield (account.name,), factor
        elif factors := members.get(account.name):
            yield (account.name,), sum(factors) / len(factors)


def account_limits(found: Iterable[Association], limits: Limits) -> Table:
    rows: list[Row] = []
    for association in found:
        if association.user or association.partition:
            continue
        rows += [((association.account, name), value) for name, value in limits_of(association)]
    return [(c.ACCOUNT_LIMIT, largest(c.ACCOUNT_LIMIT.labels, rows, limits, by=dict(rows)))]


def limits_of(association: Association) -> Iterator[tuple[str, float]]:
    """Give the limits that an association as a whole has."""
    jobs = association.max.jobs.per
    for name, limit in (("jobs", jobs.count), ("submitted jobs", jobs.submitted)):
        if limit.set and limit.value is not None:
            yield name, limit.value
    for tres in association.max.tres.total:
        name = f"{tres.type}/{tres.name}" if tres.name else tres.type
        if name in _COUNTED_TRES:
            yield name, tres.count


def pings(found: Iterable[Ping], _limits: Limits) -> Table:
    kept = list(found)
    return [
        (c.CONTROLLER_UP, Folded([((it.hostname,), float(it.answers)) for it in kept], 0)),
        (c.CONTROLLER_LATENCY, Folded([((it.hostname,), it.latency / US) for it in kept if it.answers], 0)),
    ]


def _value(found: float | None) -> float:
    return 0.0 if found is None else float(found)
