"""Whether a process can do its work, as named checks that anyone can read.

A check is a function that looks at what is known already and answers at once with yes or no and a sentence. It
never asks another machine, so that a probe costs nothing and cannot hang.
"""

from collections.abc import Callable, Mapping

import msgspec


class Check(msgspec.Struct, frozen=True):
    ok: bool
    sentence: str


Checks = Mapping[str, Callable[[], Check]]


def report(checks: Checks) -> tuple[bool, str]:
    """Run all checks; say whether all are well, and describe each in a line."""
    found = {name: check() for name, check in checks.items()}
    lines = [f"[{'+' if check.ok else '-'}] {name}: {check.sentence}" for name, check in found.items()]
    return all(check.ok for check in found.values()), "\n".join([*lines, ""])
