"""Tokens for slurmrestd: minted from the cluster's key, read from a file that rotates, or from the environment.

A token is a JSON Web Token over the raw bytes of jwt.key; its claim `sun` names the user whose rights it carries.
Tokens stand in a header of each request and nowhere else: not in logs, not in repr, not in error texts.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import jwt

from isthmus.errors import Terminal

_LIFETIME = 900.0
"""Seconds for which a minted token holds: short, since it cannot be taken back."""

_RENEW_AT = 2 / 3
"""The part of its lifetime after which a token is replaced, so that clocks may differ by minutes."""

_JSON_WEB_TOKEN = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*){2}", re.ASCII)

Clock = Callable[[], float]


class TokenError(Terminal):
    """There is no token to be had."""


class TokenSource(Protocol):
    """Where tokens come from. Asked before every request, so it keeps what it has while that is good."""

    def token(self) -> str: ...

    def renew(self) -> bool:
        """Forget the token because slurmrestd refused it; return whether there may be another."""


class MintedTokens:
    """Tokens that we sign ourselves for one user, with the cluster's key: a file that may change, or its bytes."""

    def __init__(
        self, key: Path | bytes, *, user: str = "root", lifetime: float = _LIFETIME, clock: Clock = time.time
    ) -> None:
        self._key = key
        self._user = user
        self._lifetime = lifetime
        self._clock = clock
        self._token = ""
        self._renew_after = 0.0

    def token(self) -> str:
        """Give the current token, or sign a new one when two thirds of its life are over."""
        now = self._clock()
        # A clock that was set back makes the token one from the future, which Slurm refuses as well.
        if not self._token or not self._renew_after - self._lifetime * _RENEW_AT <= now < self._renew_after:
            self._token = mint(self._read(), user=self._user, now=now, lifetime=self._lifetime)
            self._renew_after = now + self._lifetime * _RENEW_AT
        return self._token

    def renew(self) -> bool:
        """Sign again with the key as it is now: it may have been replaced."""
        self._token = ""
        return True

    def _read(self) -> bytes:
        return self._key if isinstance(self._key, bytes) else read_key(self._key)

    def __repr__(self) -> str:
        where = "in memory" if isinstance(self._key, bytes) else os.fspath(self._key)
        return f"MintedTokens(user={self._user!r}, key={where!r})"


class FileToken:
    """A token in a file, which another process replaces before it expires."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._token = ""

    def token(self) -> str:
        """Give what is in the file, read again whenever the file is another."""
        try:
            status = self._path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if stamp != self._stamp:
                text = self._path.read_text(encoding="ascii", errors="replace")
                # `scontrol token > file` empties the file at once and fills it a moment later.
                if text or not self._token:
                    self._token = checked(text, where=str(self._path))
                    self._stamp = stamp
        except OSError as error:
            raise TokenError(
                f"the token file {self._path} cannot be read: {error.strerror}",
                remedy="check its path and permissions, and that the process that writes it runs",
            ) from error
        return self._token

    def renew(self) -> bool:
        """Read the file again; another token in it is worth a second try."""
        refused, self._stamp = self._token, None
        return self.token() != refused

    def __repr__(self) -> str:
        return f"FileToken(path={os.fspath(self._path)!r})"


class EnvironmentToken:
    """A token from SLURM_JWT, as `scontrol token` prints it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        if not environment.get("SLURM_JWT"):
            raise TokenError("the environment has no SLURM_JWT", remedy="export $(scontrol token)")
        self._token = checked(environment["SLURM_JWT"], where="SLURM_JWT")

    def token(self) -> str:
        return self._token

    def renew(self) -> bool:
        """Our environment does not change, so there is no other."""
        return False

    def __repr__(self) -> str:
        return "EnvironmentToken()"


def mint(key: bytes, *, user: str, now: float, lifetime: float) -> str:
    """Sign a token."""
    issued = int(now)
    return jwt.encode({"iat": issued, "exp": issued + int(lifetime), "sun": user}, key, algorithm="HS256")


def expiry(token: str) -> float | None:
    """Read when a token expires, in seconds since 1970; None if it does not say, or is not a JSON Web Token."""
    try:
        found = jwt.decode(token, options={"verify_signature": False}).get("exp")
    except jwt.InvalidTokenError:
        return None
    return float(found) if isinstance(found, int | float) else None


def read_key(path: Path) -> bytes:
    """Read the cluster's key: every byte of the file counts, a line break at its end included."""
    try:
        key = path.read_bytes()
    except OSError as error:
        raise TokenError(
            f"the key {path} cannot be read: {error.strerror}", remedy="run as the user who owns jwt.key"
        ) from error
    if not key:
        raise TokenError(f"the key {path} is empty", remedy="make one: dd if=/dev/random of=jwt.key bs=32 count=1")
    return key


def checked(token: str, *, where: str) -> str:
    """Refuse what cannot be a token before it reaches a header; the text itself is not repeated."""
    token = token.strip().removeprefix("SLURM_JWT=")
    if not _JSON_WEB_TOKEN.fullmatch(token):
        raise TokenError(f"{where} does not contain a JSON Web Token", remedy="write what scontrol token prints")
    return token
