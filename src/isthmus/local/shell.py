"""Runs programs, and turns their failure into a sentence with the end of what they printed."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from isthmus.errors import Terminal

_TAIL_LINES = 12


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | int | None = None,
    log: Path | None = None,
    timeout: float = 3600,
    remedy: str = "",
) -> str:
    """Run a program to its end and return what it printed on standard output.

    `env` is added to our own environment. `stdin` is a text, or the descriptor of an open file. With `log`,
    everything that it prints is kept there instead (and nothing is returned); the end of it is in the error all
    the same.
    """
    words = [os.fspath(word) for word in argv]
    text = stdin if isinstance(stdin, str) else None
    try:
        with log.open("ab") if log else open(os.devnull, "ab") as sink:  # noqa: PTH123 - devnull is not a path of ours
            done = subprocess.run(
                words,
                check=False,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                input=text,
                stdin=None if text is not None else subprocess.DEVNULL if stdin is None else int(stdin),
                stdout=sink if log else subprocess.PIPE,
                stderr=subprocess.STDOUT if log else subprocess.PIPE,
                text=True,
                errors="replace",
                timeout=timeout,
            )
    except OSError as error:
        absent = isinstance(error, FileNotFoundError) and error.filename == words[0]
        why = "is not on this machine" if absent else f"cannot be run: {error.strerror} ({error.filename})"
        raise Terminal(f"the program {words[0]} {why}", remedy=remedy) from error
    except subprocess.TimeoutExpired as error:
        raise Terminal(f"{words[0]} did not end within {timeout:.0f} s", remedy=remedy) from error
    if done.returncode:
        printed = log.read_text(errors="replace") if log else f"{done.stdout}{done.stderr}"
        tail = "\n".join(f"    {line}" for line in printed.strip().splitlines()[-_TAIL_LINES:])
        named = words[words.index("--") + 1 :] if words[0] == "nsenter" and "--" in words else words
        raise Terminal(f"{' '.join(named[:3])} … ended with {done.returncode}:\n{tail}", remedy=remedy)
    return done.stdout or ""
