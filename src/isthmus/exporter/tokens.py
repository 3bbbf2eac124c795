"""Tokens that `scontrol token` makes: for an exporter that runs beside Slurm, where the user may ask for one."""

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Final

from isthmus.errors import Terminal
from isthmus.slurm.auth import TokenError, checked

_LIFETIME: Final = 1800.0
_RENEW_AT: Final = 2 / 3
_WITHIN: Final = 30.0
_USER: Final = re.compile(r"[a-z_][a-z0-9_.-]{0,63}\$?", re.ASCII | re.IGNORECASE)


class ScontrolToken:
    """A token for one user, made anew when two thirds of its life are over or slurmrestd refuses it."""

    def __init__(
        self,
        user: str = "",
        *,
        program: Sequence[str] = ("scontrol",),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if user and not _USER.fullmatch(user):
            raise Terminal(f"{user[:64]!r} is not a valid user name", remedy="set --user to a user of Slurm")
        wanted = [f"username={user}"] if user else []
        self._words = [*program, "token", f"lifespan={_LIFETIME:.0f}", *wanted]
        self._clock = clock
        self._token = ""
        self._renew_after = 0.0

    def token(self) -> str:
        """Give a token that is good now."""
        if not self._token or self._clock() >= self._renew_after:
            self._token = checked(self._make(), where="the output of scontrol token")
            self._renew_after = self._clock() + _LIFETIME * _RENEW_AT
        return self._token

    def renew(self) -> bool:
        self._token = ""
        return True

    def _make(self) -> str:
        remedy = "run the exporter where scontrol works, as a user who may have tokens, or use --token-file"
        try:
            done = subprocess.run(self._words, capture_output=True, text=True, timeout=_WITHIN, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TokenError(f"scontrol token failed: {error}", remedy=remedy) from error
        if done.returncode:
            raise TokenError(f"scontrol token failed: {done.stderr.strip()[:200]}", remedy=remedy)
        return done.stdout

    def __repr__(self) -> str:
        return "ScontrolToken()"
