"""Accounts of the root and of a new image in one file: users' own stay as they are, and new ones of the image join.

A newer image may bring a daemon with a user of its own, and that daemon does not start without it. Nothing that is
in the root's file is changed or removed.
"""

from collections.abc import Iterator
from typing import Final

FILES: Final = frozenset(f"etc/{name}" for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid"))
_NUMBERED: Final = frozenset({"etc/passwd", "etc/group"})


def merged(path: str, root: bytes, image: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Add to the root's lines those of the image whose name they lack; also names that could not be added.

    A name whose ID the root gives to another user is left out: the two would own each other's files.
    """
    numbered = path in _NUMBERED
    names = {name for name, _, _ in _lines(root)}
    numbers = {number for _, number, _ in _lines(root)}
    added: list[bytes] = []
    refused: list[str] = []
    for name, number, line in _lines(image):
        if name in names:
            continue
        if numbered and number in numbers:
            refused.append(name.decode("utf-8", "replace"))
        else:
            added.append(line + b"\n")
    if not added:
        return root, tuple(refused)
    ended = root if not root or root.endswith(b"\n") else root + b"\n"
    return ended + b"".join(added), tuple(refused)


def renumbered(root: bytes, image: bytes) -> dict[int, int]:
    """Map the image's numbers of users or groups to those that the same names have in the root, where they differ.

    Two builds of an image may number the users of daemons differently, and the root keeps its own numbers.
    """
    ours = dict(_numbers(root))
    return {theirs: ours[name] for name, theirs in _numbers(image) if ours.get(name, theirs) != theirs}


def _numbers(text: bytes) -> Iterator[tuple[bytes, int]]:
    return ((name, int(number)) for name, number, _ in _lines(text) if number.isdigit())


def _lines(text: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield name, number and the line itself; files without numbers have other things in that place."""
    for line in text.splitlines():
        fields = line.split(b":")
        if fields[0].strip() and not line.startswith(b"#"):
            yield fields[0], fields[2] if len(fields) > 2 else b"", line  # noqa: PLR2004 - name:password:number
