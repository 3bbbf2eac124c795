"""Something that is wrong, described so that it can be fixed."""

from typing import Literal

import msgspec

Area = Literal[
    "kinds",
    "operator",
    "access",
    "parts",
    "placing",
    "images",
    "storage",
    "root",
    "starting",
    "names",
    "auth",
    "clock",
    "configuration",
    "registration",
    "nodes",
    "accounting",
    "rest",
    "bridge",
    "health",
    "host",
]

Repair = Literal["trust", "reconfigure", "up", "watches"]
"""What the doctor can do itself: nothing that ends a job, a pod or a session."""


class Fix(msgspec.Struct, frozen=True):
    """A safe repair."""

    repair: Repair
    what: str
    """What is going to be done, for who is asked."""
    target: str = ""
    """Of which cluster or installation: NAME or NAMESPACE/NAME."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, where, why, and what to do."""

    area: Area
    what: str
    where: str
    why: str
    remedy: tuple[str, ...]
    """Sentences and commands, in the order in which they are to be done."""
    grave: bool = True
    """Whether the cluster does not work because of it; otherwise it is only worth knowing."""
    subjects: tuple[str, ...] = ()
    """What it is about, such as `pod login-0` or `LoginSet login`: what they lack follows from it."""
    fix: Fix | None = None
    """How `isthmus doctor --fix` repairs it, if it can."""
