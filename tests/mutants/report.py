"""What is said of the faults: a line for each as it is judged, the survivors, and a table. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from tests.mutants.judging import Verdict


def line(verdict: Verdict) -> str:
    """Say what became of one fault."""
    return f"{verdict.outcome:9} {verdict.ring:6} {verdict.kind:19} {verdict.place} {verdict.noticed_by}".rstrip()


def figures(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Count."""
    by = Counter(it.ring for it in verdicts if it.outcome == "detected")
    outcomes = Counter(it.outcome for it in verdicts)
    return {
        "mutants": len(verdicts),
        "detected by unit and properties": by["unit"],
        "detected by flows": by["flows"],
        "survived": outcomes["survived"],
        "not run by these tests": outcomes["not run"],
        "rate": _rate(outcomes["detected"], len(verdicts)),
        "rate of those that tests run": _rate(outcomes["detected"], outcomes["detected"] + outcomes["survived"]),
    }


def _rate(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def text(verdicts: Sequence[Verdict]) -> str:
    """Show each fault that went unnoticed, and the table."""
    missed = [it for it in verdicts if it.outcome != "detected"]
    blocks = [
        f"{it.place}: {it.outcome}, {_asked(it)}\n{it.diff}\n" for it in sorted(missed, key=lambda it: it.place)
    ]
    table = [f"{name:34}{value:>7}" + (" %" if "rate" in name else "") for name, value in figures(verdicts).items()]
    return "\n".join((*blocks, *table))


def _asked(verdict: Verdict) -> str:
    if not verdict.asked:
        return "no test of these rings runs it"
    more = f", {verdict.left_out} more run it" if verdict.left_out else ""
    return f"{verdict.asked} tests passed{more} ({verdict.kind})"


def as_json(seed: int, verdicts: Sequence[Verdict]) -> str:
    """Say the same to machines."""
    data = {
        "seed": seed,
        **figures(verdicts),
        "verdicts": [{"outcome": it.outcome, **_plain(it)} for it in verdicts],
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def _plain(verdict: Verdict) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(verdict)
    return plain
