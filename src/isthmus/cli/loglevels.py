"""Log levels of the command line."""

from typing import TYPE_CHECKING, Final

from isthmus.errors import Terminal

if TYPE_CHECKING:
    from isthmus.runtime.logs import Level

_EVERYTHING: Final = 4


def level(text: str) -> "Level":
    """Read how much is to be logged: as klog counts, or in words."""
    levels: dict[str, Level] = {"debug": "debug", "info": "info", "warning": "warning", "error": "error"}
    if text.isascii() and text.isdigit():
        return "debug" if int(text) >= _EVERYTHING else "info"
    if text.lower() not in levels:
        raise Terminal(f"{text!r} is not a log level", remedy=f"write a number, or one of {', '.join(levels)}")
    return levels[text.lower()]
