"""What Slurm counts: memory (`4G`), trackable resources (`cpu=4,mem=16G,gres/gpu=2`) and GRES (`gpu:a100:2`).

Memory is megabytes here, as everywhere in Slurm; its units are powers of 1,024.
"""

import re

import msgspec

from isthmus.errors import Terminal

_UNITS = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_KIB_PER_MIB = 1024
# Per node (n) or per CPU (c) is how sacct marks requested memory.
_MEMORY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMGTP]?)B?[nc]?", re.ASCII | re.IGNORECASE)
_COUNT = re.compile(r"(\d{1,15})([KMGTP]?)", re.ASCII | re.IGNORECASE)
_TRES_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_.:@-]+)?", re.ASCII)
_GRES = re.compile(
    r"(?:gres[/:])?(?P<name>[A-Za-z][\w.-]*)(?::(?P<type>[A-Za-z][\w.-]*|(?=:)))?"
    r"(?:[:=](?P<count>\d{1,15}[KMGTP]?))?(?:\((?P<place>[^()]*)\))?",
    re.ASCII | re.IGNORECASE,
)


class TresError(Terminal):
    """The text is not an amount, TRES or GRES as Slurm writes them."""


class Gres(msgspec.Struct, frozen=True):
    """So many of a generic resource and, where Slurm knows one, of a type; `place` is its IDX or socket note."""

    name: str
    count: int = 1
    type: str = ""
    place: str = ""

    def __str__(self) -> str:
        return ":".join(part for part in (self.name, self.type, str(self.count)) if part)


def parse_memory(text: str) -> int:
    """Read an amount of memory and return megabytes, rounded up: a request must not shrink."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise TresError(
            f"{text[:40]!r} is not a valid amount of memory",
            remedy="write megabytes, or a number with K, M, G or T",
        )
    kibibytes = float(match[1]) * 1024 ** (_UNITS[match[2].upper() or "M"] - 1)
    return int(-(-kibibytes // _KIB_PER_MIB))


def parse_tres(text: str) -> dict[str, int]:
    """Read `cpu=4,mem=16G,gres/gpu:a100=2` as counts by name; memory is in megabytes."""
    counts: dict[str, int] = {}
    for item in filter(None, text.split(",")):
        name, equals, amount = item.partition("=")
        if not equals or not _TRES_NAME.fullmatch(name):
            raise TresError(f"{item[:40]!r} in the TRES {text[:80]!r} is not name=count")
        counts[name.lower() if "/" not in name else name] = (
            parse_memory(amount) if name.lower() == "mem" else _parse_count(amount, where=text)
        )
    return counts


def parse_gres(text: str) -> tuple[Gres, ...]:
    """Read `gpu:a100:4(S:0-1),nic:2` or `gres/gpu:2`, as nodes and jobs show it; "(null)" and "" are none."""
    if text in {"", "(null)", "N/A"}:
        return ()
    found = []
    # A comma inside parentheses belongs to a list of indexes.
    for item in re.split(r",(?![^()]*\))", text):
        match = _GRES.fullmatch(item)
        if match is None:
            raise TresError(
                f"{item[:40]!r} in {text[:80]!r} is not a valid GRES", remedy="write name[:type][:count]"
            )
        found.append(
            Gres(
                name=match["name"],
                type=match["type"] or "",
                count=_parse_count(match["count"], where=text) if match["count"] else 1,
                place=match["place"] or "",
            )
        )
    return tuple(found)


def _parse_count(text: str, *, where: str) -> int:
    match = _COUNT.fullmatch(text)
    if match is None:
        raise TresError(f"{text[:40]!r} in {where[:80]!r} is not a valid count")
    unit = match[2].upper()
    return int(match[1]) * (1024 ** _UNITS[unit] if unit else 1)
