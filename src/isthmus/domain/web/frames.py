"""Server-sent events, and the last ones of them, so that a viewer who was away for a moment misses nothing."""

from collections import deque
from typing import Final

_MAX_BYTES: Final = 4 << 20
_MAX_FRAMES: Final = 600


def frame(event: str, data: bytes) -> bytes:
    """Write an event. JSON of ours has no line breaks, which would end it."""
    return b"event: %s\ndata: %s\n\n" % (event.encode(), data)


class Ring:
    """The latest frames by their versions, which follow each other without a gap."""

    def __init__(self, *, max_bytes: int = _MAX_BYTES, max_frames: int = _MAX_FRAMES) -> None:
        self._frames: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._max_bytes, self._max_frames = max_bytes, max_frames

    def add(self, version: int, sent: bytes) -> None:
        self._frames.append((version, sent))
        self._bytes += len(sent)
        while self._frames and (self._bytes > self._max_bytes or len(self._frames) > self._max_frames):
            _, dropped = self._frames.popleft()
            self._bytes -= len(dropped)

    def since(self, version: int, *, latest: int) -> list[bytes] | None:
        """What came after a version; None if that is not known any more, or never was."""
        if version == latest:
            return []
        if version > latest or not self._frames or self._frames[0][0] > version + 1:
            return None
        return [sent for number, sent in self._frames if number > version]
