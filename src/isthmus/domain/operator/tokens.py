"""Tokens in Secrets: whose, until when, and when to make a new one.

All that is known of a token stands in the token itself, so nothing has to be remembered: it is kept as long as it
is for the right user, signed with the right key and young enough, and replaced otherwise.

    issued ─────────────── 4/5 ──────── expires
           keep                replace
"""

import hashlib
import re
from datetime import UTC, datetime
from typing import Any, Final

import jwt
import msgspec

from isthmus.domain.languages.gotime import parse_duration
from isthmus.model.slinky import Token

ISSUER: Final = "slurm-operator"
SECRET_KEY: Final = "SLURM_JWT"  # noqa: S105 - the name of a key of a Secret, not what is in it
DEFAULT_LIFETIME: Final = 900
MIN_LIFETIME_S: Final = 60
MAX_LIFETIME_S: Final = 10 * 365 * 86400
_RENEW_AT: Final = 0.8
_APART: Final = 10
"""Seconds by which the clocks of two operators may differ."""

_NAME: Final = re.compile(r"[^a-z0-9.-]")
_MAX_NAME_CHARS: Final = 253


class Issued(msgspec.Struct, frozen=True):
    issued: int
    expires: int

    @property
    def renew_at(self) -> float:
        """When it is time for another, in seconds since 1970."""
        return self.issued + (self.expires - self.issued) * _RENEW_AT


def lifetime_of(token: Token) -> int:
    """The lifetime in whole seconds, within sensible bounds."""
    wanted = parse_duration(token.spec.lifetime) if token.spec.lifetime else DEFAULT_LIFETIME
    return int(min(max(wanted, MIN_LIFETIME_S), MAX_LIFETIME_S))


def secret_name(token: Token) -> str:
    """Name of the Secret. Characters that a name cannot have are replaced, and a hash keeps such names apart."""
    given = token.spec.secret_ref
    if given:
        return given.name
    name, user = token.metadata.name, token.spec.username
    plain = f"{name}-jwt-{user}"
    valid = _NAME.sub("-", plain.lower()).strip("-.")
    if valid == plain and len(valid) <= _MAX_NAME_CHARS:
        return plain
    digest = hashlib.sha256(plain.encode()).hexdigest()[:8]
    return f"{valid[: _MAX_NAME_CHARS - len(digest) - 1].rstrip('-.')}-{digest}"


def secret_key(token: Token) -> str:
    """Name of the key of the Secret that holds the token."""
    given = token.spec.secret_ref
    return given.key if given else SECRET_KEY


def mint(key: bytes, *, user: str, now: float, lifetime: int, unique: str) -> str:
    issued = int(now)
    claims = {
        "sun": user,
        "iss": ISSUER,
        "jti": unique,
        "iat": issued,
        "nbf": issued,
        "exp": issued + lifetime,
    }
    return jwt.encode(claims, key, algorithm="HS256")


def read(text: bytes, *, key: bytes, user: str) -> Issued | None:
    """Read a token; None unless it is this user's and signed with this key."""
    try:
        claims: dict[str, Any] = jwt.decode(
            text,
            key,
            algorithms=["HS256"],
            options={"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_iss": False},
        )
        issued = Issued(int(claims["iat"]), int(claims["exp"]))
    except (jwt.InvalidTokenError, KeyError, ValueError, TypeError):
        return None
    return issued if claims.get("sun") == user else None


def is_good(issued: Issued | None, *, lifetime: int, now: float) -> bool:
    """Whether a token can stay. One from the future was made by a clock that was set back since."""
    if issued is None or issued.expires - issued.issued != lifetime:
        return False
    return issued.issued <= now + _APART and now < issued.renew_at


def moment(seconds: float) -> datetime:
    """Write a time for a status."""
    return datetime.fromtimestamp(seconds, UTC)
