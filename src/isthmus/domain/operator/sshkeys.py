"""SSH public keys as users paste them: valid ones are taken, others are reported without their content."""

import binascii
import re
from base64 import b64decode
from typing import Final, NamedTuple

_TYPE: Final = re.compile(
    r"(?:^|(?<=\s))((?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]+)[ \t]+([A-Za-z0-9+/]+={0,2})(?=\s|$)", re.ASCII
)
"""A key's kind and its bytes; before them options may stand, behind them a comment."""

_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_MAX_CHARS: Final = 8192
"""Characters of a line that sshd reads."""


class Keys(NamedTuple):
    """Lines for authorized_keys, and what was not taken, and why."""

    lines: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def __add__(self, other: object) -> "Keys":
        if not isinstance(other, Keys):
            return NotImplemented
        return Keys((*self.lines, *other.lines), (*self.problems, *other.problems))


def read(text: str, *, where: str) -> Keys:
    """Read keys, one in a line; blank lines and comments are passed over. `where` names the place in problems."""
    if "PRIVATE KEY" in text:
        return Keys(problems=(f"{where} contains a private key; use the public one, whose file ends in .pub",))
    found: list[str] = []
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()  # noqa: PLW2901 - only the stripped line is meant from here on
        if not line or line.startswith("#"):
            continue
        if trouble := _trouble(line):
            problems.append(f"line {number} of {where} {trouble}")
        else:
            found.append(line)
    return Keys(tuple(dict.fromkeys(found)), tuple(problems))


def _trouble(line: str) -> str:
    """Why a line is not a public key; empty if it is one."""
    if _UNPRINTABLE.search(line):
        return "contains control characters"
    if len(line) > _MAX_CHARS:
        return f"is longer than {_MAX_CHARS} characters"
    for found in _TYPE.finditer(line):
        try:
            content = b64decode(found[2], validate=True)
        except binascii.Error:
            continue
        # The bytes begin with the kind again: four bytes of its length, then its name.
        kind = found[1].encode()
        if content.startswith(len(kind).to_bytes(4, "big") + kind):
            return ""
    return "is not a public key; expected: ssh-ed25519 AAAA… comment"
