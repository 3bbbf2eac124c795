"""Findings of a node over time: observations of this moment, merged with what is recorded.

    observed                                        recorded                    becomes
    yes                                             no                          new
    yes, later than it was last seen                yes                         seen again: its count grows
    yes, at the same time                           yes                         unchanged: nothing is written
    yes, no later than a human or a test ended it   ended                       unchanged: it is over (a drain by a
                                                                                check is always new: it was lifted)
    yes                                             cleared, of the same time   there again: it was only not shown
    no                                              yes                         cleared now

While we hold a node, a finding that must be proved to be over is not cleared by silence: a check that no longer
runs on a drained node says nothing.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from isthmus.domain.health.view import Observation
from isthmus.model.health import Finding, Proof

MAX_FINDINGS: Final = 16
MAX_CHARS: Final = 512

TESTED: Final[frozenset[Proof]] = frozenset({"test", "slurmTest"})

_ESCAPE: Final = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_Id = tuple[str, str]


def sanitised(text: str, most: int = MAX_CHARS) -> str:
    """One printable line. Evidence comes from programs on broken nodes, and may be anything."""
    plain = "".join(it if it.isprintable() else " " for it in _ESCAPE.sub("", text[: 8 * most]))
    return " ".join(plain.split())[:most].rstrip()


def merge(
    recorded: tuple[Finding, ...],
    observed: Iterable[Observation],
    *,
    now: datetime,
    held: bool = False,
    listening: bool = True,
) -> tuple[Finding, ...]:
    """Bring findings up to date. What changes nothing returns what was recorded.

    Who is not `listening`, as while Slurm does not answer, takes silence for nothing.
    """
    seen = _latest(observed)
    if not seen and all(it.cleared for it in recorded):
        return recorded
    merged = [
        _seen(it, found)
        if (found := seen.pop((it.source, it.check), None))
        else _not_seen(it, now, held=held)
        if listening
        else it
        for it in recorded
    ]
    merged.extend(map(as_finding, seen.values()))
    return _bounded(merged)


def passed(findings: tuple[Finding, ...], checks: Mapping[str, datetime], *, now: datetime) -> tuple[Finding, ...]:
    """End those whose check has passed on the node since it failed."""
    if not checks:
        return findings
    return tuple(
        dismissed(it, now)
        if it.cleared is None and it.proof in TESTED and checks.get(it.check, _NEVER) > _last(it)
        else it
        for it in findings
    )


def dismissed(finding: Finding, now: datetime) -> Finding:
    """End a finding: its test has passed, or a human has overruled it."""
    return replace(finding, cleared=now, dismissed=True)


def active(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(it for it in findings if it.cleared is None)


def _latest(observed: Iterable[Observation]) -> dict[_Id, Observation]:
    """The last observation for each finding: a source may see one thing in several ways."""
    latest: dict[_Id, Observation] = {}
    for it in observed:
        id_ = (it.source, sanitised(it.check))
        if id_ not in latest or it.at > latest[id_].at:
            latest[id_] = it
    return latest


def as_finding(seen: Observation) -> Finding:
    """A finding as it is recorded first."""
    return Finding(
        source=seen.source,
        check=sanitised(seen.check),
        evidence=sanitised(seen.evidence or seen.reason),
        devices=_devices(seen),
        first_seen=seen.at,
        last_seen=seen.at,
        wants=seen.wants,
        proof=_proof(seen),
    )


def _seen(finding: Finding, seen: Observation) -> Finding:
    if finding.cleared is None:
        return _again(finding, seen, came=finding.first_seen) if seen.at > _last(finding) else _same(finding, seen)
    if finding.dismissed:
        anew = seen.by_drain or seen.at > max(finding.cleared, _last(finding))
        return _again(finding, seen, came=seen.at) if anew else finding
    if seen.at > _last(finding):
        return _again(finding, seen, came=seen.at)
    return replace(finding, cleared=None)


def _again(finding: Finding, seen: Observation, *, came: datetime | None) -> Finding:
    new = as_finding(seen)
    return replace(new, first_seen=came, count=finding.count + 1)


def _same(finding: Finding, seen: Observation) -> Finding:
    """Changes that call for another reaction, without a later time; other evidence is not worth a write."""
    devices, proof = _devices(seen), _proof(seen)
    if (finding.devices, finding.wants, finding.proof) == (devices, seen.wants, proof):
        return finding
    return replace(finding, devices=devices, wants=seen.wants, proof=proof)


def _not_seen(finding: Finding, now: datetime, *, held: bool) -> Finding:
    if finding.cleared is not None or (held and finding.proof != "gone"):
        return finding
    return replace(finding, cleared=now)


def _bounded(findings: list[Finding]) -> tuple[Finding, ...]:
    """Keep those that are there, then the newest. The order stays, so that nothing changes at rest."""
    if len(findings) <= MAX_FINDINGS:
        return tuple(findings)
    ranked = sorted(findings, key=lambda it: (it.cleared is None, _last(it), it.source, it.check), reverse=True)
    kept = {(it.source, it.check) for it in ranked[:MAX_FINDINGS]}
    return tuple(it for it in findings if (it.source, it.check) in kept)


def _devices(seen: Observation) -> tuple[str, ...]:
    return tuple(sorted({sanitised(it) for it in seen.devices}))


def _proof(seen: Observation) -> Proof:
    if seen.test:
        return "slurmTest" if seen.in_slurm else "test"
    return seen.proof


def _last(finding: Finding) -> datetime:
    return finding.last_seen or _NEVER
