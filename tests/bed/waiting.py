"""Waiting in tests: for a condition, never for a time. There is one way to wait, and it tells what it saw.

    eventually(site.states, "three idle workers", holds=lambda it: it == wanted)
    pod = eventually(lambda: find("web"), "the pod web to be there")

`observe` looks at the world, `holds` judges what was seen; without it, anything that is true will do. A timeout
says what was waited for and what was seen last: look at the whole (the states of all nodes), judge in `holds`.

"Not now" is a command that fails, a connection that is refused, a program that hangs: these are tried again. All
else (a missing key, a wrong type, a failed assertion) is a mistake in the test or an answer that nobody expected,
and is raised at once: write `status.get("phase")` where a field may be missing for a while.
"""

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

from tests.bed.commands import CommandError

T = TypeVar("T")

PATIENCE = 180.0
"""Seconds: far more than anything takes on a machine that does nothing else."""

NOT_NOW = (CommandError, OSError, subprocess.TimeoutExpired)
"""What may go wrong while it is looked at, and be well a moment later."""

_SHORTEST, _LONGEST = 0.05, 1.0
_SHARE = 0.1
_PAUSE_PER_LOOK = 2.0
_MAX_CHARS = 4000


def eventually(
    observe: Callable[[], T], what: str, *, holds: Callable[[T], object] = bool, within: float = PATIENCE
) -> T:
    """Look again and again until what is seen holds, and return it; say what was seen last if that does not come.

    The longer it takes, the rarer the looks: nobody waits for more than a tenth too long, or for two looks. A look
    is often a program in a pod, which takes its processor time from what is waited for. A process that was held up
    looks once more before it gives up.
    """
    began = time.monotonic()
    seen, failure = "nothing", ""
    while True:
        looked = time.monotonic()
        elapsed = looked - began
        try:
            value = observe()
        except NOT_NOW as error:
            failure = f"{type(error).__name__}: {error}"
        else:
            if holds(value):
                return value
            seen, failure = value if isinstance(value, str) else repr(value), ""
        if elapsed >= within:
            raise AssertionError(story(what, within, seen, failure))
        dear = (time.monotonic() - looked) * _PAUSE_PER_LOOK
        time.sleep(min(max(_SHORTEST, elapsed * _SHARE, dear), _LONGEST))


def story(what: str, within: float, seen: str, failure: str = "") -> str:
    """What was waited for and what was seen."""
    lines = [f"waited in vain for {within:g} s for {what}"]
    if failure:
        lines.append(f"the last look failed: {_short(failure)}")
    lines.append(f"{'seen before that' if failure else 'seen last'}: {_short(seen)}")
    return "\n".join(lines)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]} … ({len(text)} characters)"
