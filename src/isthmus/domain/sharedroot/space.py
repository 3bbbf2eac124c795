"""Whether there is room for a plan, before anything is written."""

from typing import Final

import msgspec

from isthmus.domain.sharedroot.plans import Plan

_BLOCK: Final = 4096
IN_FLIGHT: Final = 512 << 20
"""What is written at most before the files that it replaces are gone."""


class Need(msgspec.Struct, frozen=True):
    """Bytes and files that a plan adds."""

    size: int
    files: int


def need(plan: Plan) -> Need:
    """Count what a plan needs, in whole blocks."""
    written = freed = files = 0
    for step in plan.of("place", "replace"):
        if step.goal is None or step.goal.leader:
            continue
        written += _blocks(step.goal.held or step.goal.size) or _BLOCK
        if step.action == "place":
            files += 1
        elif step.root is not None:
            freed += _blocks(step.root.size)
    return Need(max(written - freed, 0) + min(freed, IN_FLIGHT), files)


def _blocks(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def readable(size: float) -> str:
    """Write a size as people do."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:  # noqa: PLR2004 - the next unit begins there
            return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"  # noqa: PLR2004 - one digit says little
        size /= 1000
    return f"{size:.1f} GB"
