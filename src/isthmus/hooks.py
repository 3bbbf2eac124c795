"""What becomes of a fault in code that is told of changes: it is reported, and stops nobody else.

A cache that stood still because one of its readers cannot cope with an object would stop the whole process for the
sake of that object.
"""

import logging
from typing import Final

_log = logging.getLogger(__name__)

_MAX_MESSAGES: Final = 100
_MAX_CHARS: Final = 300
"""So many faults are told apart, by so many characters."""


class Faults:
    """Reports each fault once, however often it comes, as one in the readers of `cache`."""

    def __init__(self, cache: str) -> None:
        self._cache = cache
        self._told: set[str] = set()

    def __call__(self, error: Exception) -> None:
        text = repr(error)[:_MAX_CHARS]
        if text not in self._told and len(self._told) < _MAX_MESSAGES:
            self._told.add(text)
            _log.error("%s: a change was not processed; this is a bug", self._cache, exc_info=error)
