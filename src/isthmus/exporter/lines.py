"""One family as lines, a text for each object; joined when somebody asks and a line has changed since."""

from typing import Generic, TypeVar

from isthmus.domain.exporter.exposition import Family

KeyT = TypeVar("KeyT")


class Lines(Generic[KeyT]):
    """The lines of a family by object."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self._lines: dict[KeyT, str] = {}
        self._text: str | None = ""

    def put(self, key: KeyT, line: str) -> None:
        """Take note of an object's line or lines; none if empty."""
        if line:
            if self._lines.get(key) != line:
                self._lines[key] = line
                self._text = None
        else:
            self.drop(key)

    def drop(self, key: KeyT) -> None:
        if self._lines.pop(key, None) is not None:
            self._text = None

    def text(self) -> str:
        if self._text is None:
            self._text = f"{self.family.head}{''.join(self._lines.values())}" if self._lines else ""
        return self._text
