r"""One path as it is in an image, in the root or in the manifest, and how it is written down.

The manifest and the journal are lines of JSON, an entry each. File names are bytes, and JSON is text: what is not
UTF-8 is written as `\xNN`, and so is the backslash itself.
"""

import re
import stat
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

Kind = Literal["file", "directory", "symlink", "fifo", "other", "absent"]
"""`other` is a device or a socket: nothing that is copied. `absent` is in journals alone: about to be removed."""

_KINDS: Final[dict[int, Kind]] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
}
_ESCAPED: Final = re.compile(rb"\\x([0-9a-f]{2})")


def kind_of(mode: int) -> Kind:
    """What `st_mode` says."""
    return _KINDS.get(stat.S_IFMT(mode), "other")


class Entry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A path below the root, and all that a copy of it has to have in common with it."""

    path: str
    kind: Kind
    mode: int = 0
    """The permissions, with setuid, setgid and sticky; of a symbolic link, nothing."""
    uid: int = 0
    gid: int = 0
    size: int = 0
    held: int = 0
    """Of a file with holes: the bytes that it takes on a disk."""
    mtime: int = 0
    """In nanoseconds."""
    digest: str = ""
    """SHA-256 of a file's content; empty until it has been read."""
    target: str = ""
    """Where a symbolic link leads."""
    xattrs: dict[str, bytes] = {}
    """Capabilities and access lists among them. JSON holds them in base64."""
    leader: str = ""
    """Of a file with several names: the first of them, as a path. Empty for that one, and for all other files."""

    @property
    def parent(self) -> str:
        """The directory; empty for the root itself."""
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def same_content(self, other: "Entry | None") -> bool:
        """Whether both have the same content, regardless of the owner. Of files, both must have been read."""
        if other is None or self.kind != other.kind:
            return False
        if self.kind == "file":
            return self.size == other.size and bool(self.digest) and self.digest == other.digest
        return self.target == other.target

    def same_attributes(self, other: "Entry") -> bool:
        """Whether both have the same owner, mode and extended attributes; symbolic links have none."""
        return self.kind == "symlink" or (self.mode, self.uid, self.gid, self.xattrs) == (
            other.mode,
            other.uid,
            other.gid,
            other.xattrs,
        )

    def same(self, other: "Entry | None") -> bool:
        """Whether both are the same in everything but their times."""
        return other is not None and self.same_content(other) and self.same_attributes(other)

    def same_look(self, other: "Entry") -> bool:
        """Whether both look the same without reading them: size and time."""
        return (self.kind, self.size, self.mtime) == (other.kind, other.size, other.mtime)


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Entry)


def to_line(entry: Entry) -> bytes:
    fields = {name: shown(getattr(entry, name)) for name in ("path", "target", "leader")}
    if fields["path"] != entry.path or fields["target"] != entry.target or fields["leader"] != entry.leader:
        entry = msgspec.structs.replace(entry, **fields)
    return _ENCODER.encode(entry) + b"\n"


def from_lines(lines: Iterable[bytes]) -> Iterator[Entry]:
    """Read entries, up to the first incomplete line: its writer was killed."""
    for line in lines:
        try:
            entry = _DECODER.decode(line)
        except msgspec.DecodeError:
            return
        if b"\\" in line:
            fields = {name: _from_text(getattr(entry, name)) for name in ("path", "target", "leader")}
            entry = msgspec.structs.replace(entry, **fields)
        yield entry


def shown(name: str) -> str:
    """Write a name so that any program can print it."""
    escaped = name.replace("\\", "\\x5c")
    return escaped.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _from_text(text: str) -> str:
    raw = _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), text.encode())
    return raw.decode("utf-8", "surrogateescape")
