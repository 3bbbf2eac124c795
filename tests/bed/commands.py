"""Programs that tests run, and the one error that says how they failed.

    done = attempt("ssh", "login", "true")         # may fail: look at done.returncode
    text = checked(attempt("helm", "list"))        # has to succeed: what it printed

What runs in a pod gives the same (`Api.exec`), so that whoever waits for it need not know which way it went.
"""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

Done = subprocess.CompletedProcess[str]

PATIENCE = 600.0
"""Seconds. Longer than anything that a test runs takes, and shorter than what a test may take."""


class CommandError(Exception):
    """A program failed, or the API server refused: maybe not for ever. The only failure that a wait looks over."""


def attempt(
    *words: str | Path, stdin: str | None = None, env: Mapping[str, str] | None = None, timeout: float = PATIENCE
) -> Done:
    """Run a program that may fail."""
    return subprocess.run(
        [str(it) for it in words],
        check=False,
        text=True,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        env=env,
        timeout=timeout,
    )


def checked(done: Done) -> str:
    """Return what a program printed; raise with all that it said if it failed."""
    if done.returncode:
        raise CommandError(f"{said(done.args)}: exit code {done.returncode}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


def said(words: Sequence[str]) -> str:
    """Write a command as a person would type it: without the path of the program."""
    return shlex.join([words[0].rpartition("/")[2], *words[1:]])
