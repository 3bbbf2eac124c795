"""Kubernetes programs for the beds: those of ISTHMUS_BINARIES, as with --binaries, or those of the cache."""

import os
from collections.abc import Iterable
from pathlib import Path

from isthmus.local import binaries
from isthmus.local.progress import PlainProgress


def given() -> Path | None:
    """The directory of ready programs, if there is one."""
    directory = os.environ.get("ISTHMUS_BINARIES")
    return Path(directory) if directory else None


def programs(names: Iterable[str]) -> dict[str, Path]:
    return binaries.ensure(names, PlainProgress(), given=given())


def program(name: str) -> Path:
    return programs([name])[name]
