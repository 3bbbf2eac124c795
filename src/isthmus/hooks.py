"""What becomes of an error in a hook: it is reported, and other hooks run.

A cache that stood still because one of its readers cannot cope with an object would stop the whole process for the
sake of that object.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, ParamSpec

P = ParamSpec("P")

_log = logging.getLogger(__name__)

_MAX_MESSAGES: Final = 100
_MAX_CHARS: Final = 300
"""At most so many faults are distinguished, by so many characters."""


def call(
    hooks: Iterable[Callable[P, None]],
    failed: Callable[[Exception], None] | None,
    *args: P.args,
    **kwargs: P.kwargs,
) -> None:
    """Call every hook. With `failed`, one that raises is reported there, and the others do not notice."""
    for hook in hooks:
        try:
            hook(*args, **kwargs)
        except Exception as error:
            if failed is None:
                raise
            failed(error)


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
