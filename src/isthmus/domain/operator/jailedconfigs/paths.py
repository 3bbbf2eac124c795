"""Paths in the shared root that files may be written to.

The definition of the kind refuses most of this at admission. The writer of the file checks again,
because that one is root.
"""

from collections.abc import Iterable
from typing import Final

from isthmus.errors import Terminal

_MAX_BYTES: Final = 1024
_MAX_NAME_BYTES: Final = 255
_NOT_OURS: Final = {
    ".isthmus": "where the state of the shared root is kept",
    "proc": "which is not a directory of the shared root",
    "sys": "which is not a directory of the shared root",
    "dev": "which is not a directory of the shared root",
}


def parts(path: str) -> tuple[str, ...]:
    """Take a path apart into the names of directories and, last, of the file; raises what is wrong with it."""
    if not path.startswith("/"):
        raise Terminal(
            f"path {path!r} is not absolute", remedy="write the full path in the shared root, starting with /"
        )
    try:
        length = len(path.encode())
    except UnicodeEncodeError as error:
        raise Terminal(f"path {path!r} is not a valid file name", remedy="choose another path") from error
    if length > _MAX_BYTES:
        raise Terminal(f"path {path[:80]!r}… has {length} bytes", remedy=f"use at most {_MAX_BYTES}")
    found = tuple(path[1:].split("/"))
    for name in found:
        if name in {"", ".", ".."}:
            told = f"the part {name!r}" if name else "an empty part"
            raise Terminal(f"path {path!r} has {told}", remedy="write each directory once, and the file last")
        if any(ord(letter) < ord(" ") or letter == "\x7f" for letter in name):
            raise Terminal(f"path {path!r} has control characters", remedy="choose another path")
        if len(name.encode()) > _MAX_NAME_BYTES:
            raise Terminal(
                f"path {path[:80]!r}… has a component that is too long", remedy=f"use {_MAX_NAME_BYTES} bytes"
            )
    if found[0] in _NOT_OURS:
        raise Terminal(
            f"path {path!r} is in /{found[0]}, {_NOT_OURS[found[0]]}", remedy="choose a path outside of it"
        )
    return found


def covering(path: str, mounts: Iterable[str]) -> str:
    """Find the sub-mount, if any, that lies over a path on nodes, so that what is below it is never seen."""
    return next((it for it in mounts if path == it or path.startswith(f"{it.rstrip('/')}/")), "")
