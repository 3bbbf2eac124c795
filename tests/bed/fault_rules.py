"""What can be done to a request or a connection, and which ones it is done to."""

import asyncio
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Delay:
    """Pass everything on, but later."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """End the connection: before anything is passed on, or after so many bytes of the answer."""

    after_bytes: int | None
    reset: bool


@dataclass(frozen=True)
class Hang:
    """Go silent with the connection open: at once, or after so many bytes of the answer."""

    after_bytes: int | None


@dataclass(frozen=True)
class Respond:
    """Answer in the part's place; the part never sees the request."""

    raw: bytes
    status: int


@dataclass(frozen=True)
class Duplicate:
    """Send the part's answer twice on one connection, as slurmrestd does when it timed out."""


@dataclass(frozen=True)
class LoseAnswer:
    """Let the part do the work and answer in full, then drop the connection without a word of it."""


@dataclass(frozen=True)
class HoldBack:
    """End the connection at once, and pass the request on all the same when the event comes."""

    until: asyncio.Event


Fault = HoldBack | Delay | Cut | Hang | Respond | Duplicate | LoseAnswer


@dataclass
class Rule:
    """One fault and what it strikes. `used` counts the strikes; `times` bounds them, None for no bound."""

    fault: Fault
    method: str
    path: str
    times: int | None
    used: int = 0

    def strikes(self, method: str, target: str) -> bool:
        """Say whether this rule is for that request, which it may give with or without its query."""
        if self.times is not None and self.used >= self.times:
            return False
        return matches(method, target, self.method, self.path)

    def remove(self) -> None:
        """Strike no more."""
        self.times = self.used


@dataclass
class Exchange:
    """One request that reached the proxy (in bytes mode: one connection) and what became of it.

    `status` is what the part or the proxy answered, None as long as nobody has. `fault` is the rule that struck.
    """

    method: str
    path: str
    status: int | None = None
    fault: Fault | None = None

    def __str__(self) -> str:
        struck = f"  ← {self.fault}" if self.fault else ""
        return f"{self.method} {self.path} → {self.status or 'no answer'}{struck}"


def matches(method: str, target: str, method_pattern: str, path_pattern: str) -> bool:
    """Say whether patterns hold for a request; the path's may leave the query out."""
    path = target.partition("?")[0]
    return fnmatchcase(method, method_pattern) and (
        fnmatchcase(target, path_pattern) or fnmatchcase(path, path_pattern)
    )
