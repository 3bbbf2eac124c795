"""Lists in sentences."""

from collections.abc import Iterable


def some(listed: Iterable[str], most: int = 5) -> str:
    """Name the first of many, and count the rest."""
    names = list(listed)
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
