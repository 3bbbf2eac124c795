"""The keys by which Slurm's daemons know each other, and how they are changed while jobs run.

Daemons read them from slurm.jwks, of which we make one key set per cluster. A key is known by its `kid`, which we
derive from the key itself, so that the same key has the same name everywhere. One key is used for signing; every
key in the set is accepted. A new key comes in three steps, and between any two of them it is made sure that all
daemons have read the set as it is now:

    {old*}  ──announce──►  {old*, new}  ──switch──►  {old, new*}  ──retire──►  {new*}

The set itself is the only memory: whatever happened before, the next step follows from the set and the key that
the user wants, so nothing is lost when the operator is killed between two steps. A daemon that missed a step still
shares a key with all others.
"""

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from isthmus.errors import Terminal

FILE: Final = "slurm.jwks"
PLAIN_FILE: Final = "slurm.key"
JWT_FILE: Final = "jwt.key"
MUNGE_FILE: Final = "munge.key"

_MIN_BYTES: Final = 16
"""Slurm ends when it reads a shorter key."""
_MAX_BYTES: Final = 4096

_CREDENTIALS: Final = 120
"""Seconds for which nodes accept the credential of a job step where AuthInfo says nothing; nothing lives longer."""
_SHORTEST_CREDENTIALS: Final = 5
"""Slurm takes its default instead of a shorter time."""
_MARGIN: Final = 5.0
"""Seconds by which clocks of nodes may be apart."""


class BadKey(Terminal):
    """What should be a key is none."""


class _Entry(msgspec.Struct, frozen=True):
    kid: str
    k: str
    use: str = ""


class _Document(msgspec.Struct, frozen=True):
    keys: tuple[_Entry, ...]


class AuthKey(msgspec.Struct, frozen=True):
    kid: str
    secret: bytes

    def __repr__(self) -> str:
        return f"<key {self.kid}>"

    @classmethod
    def of(cls, secret: bytes, *, where: str) -> "AuthKey":
        """Take a user's key; `where` names it in errors."""
        if not _MIN_BYTES <= len(secret) <= _MAX_BYTES:
            raise BadKey(
                f"the key in {where} has {len(secret)} bytes",
                remedy=f"use {_MIN_BYTES} to {_MAX_BYTES} random bytes, such as head -c 1024 /dev/urandom",
            )
        return cls(hashlib.sha256(b"kid of a Slurm key\0" + secret).hexdigest()[:16], secret)


class KeySet(msgspec.Struct, frozen=True):
    """The keys that a cluster accepts, oldest first, and the one that it signs with."""

    keys: tuple[AuthKey, ...]
    signing: str

    @classmethod
    def only(cls, key: AuthKey) -> "KeySet":
        """Make the set of a cluster whose key was never changed."""
        return cls((key,), key.kid)

    @property
    def fingerprint(self) -> str:
        """Distinguishes sets without revealing keys: the kids, with a star at the one in use."""
        return ",".join(f"{key.kid}*" if key.kid == self.signing else key.kid for key in self.keys)

    def knows(self, kid: str) -> bool:
        return any(key.kid == kid for key in self.keys)

    def write(self) -> bytes:
        """Write slurm.jwks."""
        entries = [
            {
                "alg": "HS256",
                "kty": "oct",
                "kid": key.kid,
                "k": urlsafe_b64encode(key.secret).decode(),
                **({"use": "default"} if key.kid == self.signing else {}),
            }
            for key in self.keys
        ]
        return msgspec.json.encode({"keys": entries})

    @classmethod
    def read(cls, document: bytes) -> "KeySet | None":
        """Read what we wrote; None if the content is not a key set."""
        try:
            entries = msgspec.json.decode(document, type=_Document).keys
            keys = tuple(AuthKey(entry.kid, urlsafe_b64decode(entry.k)) for entry in entries)
        except (msgspec.DecodeError, ValueError):
            return None
        signing = [entry.kid for entry in entries if entry.use == "default"]
        return cls(keys, signing[0]) if keys and len(signing) == 1 else None


def file_of_others(content: bytes) -> str:
    """The file name under which daemons look for the key of an external Slurm: a key set, or a plain key.

    A key set of ours would not do in the place of a plain key: it says by name which key a message was signed with.
    """
    return FILE if content.lstrip().startswith(b"{") else PLAIN_FILE


def credential_seconds(auth_info: str) -> int:
    """How long what was signed with a key may be presented: `cred_expire` of AuthInfo, as Slurm reads it."""
    found = re.search(r"cred_expire=\s*(\d+)", auth_info, re.ASCII)
    seconds = int(found[1]) if found else 0
    return seconds if seconds >= _SHORTEST_CREDENTIALS else _CREDENTIALS


def until_expired(
    lifetime: int, *, changed_at: float, taken_at: float | None, all_since: float | None, now: float
) -> float:
    """In how many seconds no credential is valid any more that was signed with the old key.

    slurmctld alone makes credentials, and none with the old key since it took the new one into use. An operator
    that was started later does not know when that was, but since when all daemons had it. Times are seconds since
    1970.
    """
    since = taken_at if taken_at is not None else all_since
    return max(changed_at, since or 0.0) + lifetime + _MARGIN - now


Step = Literal["announce", "switch", "retire"]


def next_step(held: KeySet, wanted: AuthKey) -> Step | None:
    """The next step towards a set with the wanted key alone; None if it is that already."""
    if not held.knows(wanted.kid):
        return "announce"
    if held.signing != wanted.kid:
        return "switch"
    return "retire" if len(held.keys) > 1 else None


def after(held: KeySet, wanted: AuthKey, *, step: Step) -> KeySet:
    match step:
        case "announce":
            return KeySet((*held.keys, wanted), held.signing)
        case "switch":
            return KeySet(held.keys, wanted.kid)
        case "retire":
            return KeySet.only(wanted)


def back(held: KeySet, wanted: AuthKey) -> KeySet:
    """Sign with an older key again, because some daemons do not know the new one."""
    older = next(key for key in held.keys if key.kid != wanted.kid)
    return KeySet(held.keys, older.kid)


def union(held: Iterable[KeySet], own: AuthKey) -> KeySet:
    """Make the set of slurmdbd, which serves clusters that may be at different steps: it accepts all their keys.

    It signs with a key that all of them accept; its own is preferred.
    """
    sets = tuple(held)
    known = {key.kid: key for one in sets for key in one.keys} | {own.kid: own}
    common = [kid for kid in (own.kid, *sorted(known)) if all(one.knows(kid) for one in sets)]
    return KeySet(tuple(known[kid] for kid in sorted(known)), common[0] if common else own.kid)
