"""Where things lie on this machine: the cache that survives, and the state that `down` removes."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """Everything that can be made again: binaries, images, downloads. Safe to delete while nothing runs."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "isthmus"


def state_dir() -> Path:
    """One directory per running cluster; empty when none runs."""
    return Path("/var/lib/isthmus")
