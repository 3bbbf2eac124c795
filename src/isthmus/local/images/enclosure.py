"""Runs a program where its mounts and processes end with it, and with us, even by SIGKILL."""

import os
from collections.abc import Mapping, Sequence

from isthmus.errors import Terminal
from isthmus.local.shell import run

SOURCE_DATE_EPOCH = 1_793_491_200
"""2026-11-01. No file in an image is newer, so that the hour of a build does not show in it."""

ENCLOSED = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "--"),
)
"""Put before a program: the kernel then ends it when its parent dies, and with it everything that it started."""

_PASSED_ON = ("http_proxy", "https_proxy", "no_proxy")


def run_enclosed(argv: Sequence[str], purpose: str, *, env: Mapping[str, str], stdin: str = "") -> None:
    """Run a program to its end, with an environment that is the same on every machine plus `env`.

    `purpose` completes "could not …" when it fails.
    """
    settings = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        "SOURCE_DATE_EPOCH": str(SOURCE_DATE_EPOCH),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        **env,
    }
    words = [*ENCLOSED, "env", "-i", *(f"{name}={value}" for name, value in settings.items()), *argv]
    try:
        run(words, stdin=stdin)
    except Terminal as error:
        _, _, printed = error.what.partition("\n")
        raise Terminal(f"could not {purpose}:\n{printed or error.what}", remedy=_remedy(printed)) from error


def _remedy(printed: str) -> str:
    if "No space left" in printed:
        return "free space in the cache directory, or set XDG_CACHE_HOME to one on another disk"
    return "if packages could not be fetched, check that `apt-get update` works on this machine, then retry"
