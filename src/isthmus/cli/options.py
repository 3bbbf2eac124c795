"""Options that several commands share."""

from typing import Annotated

import typer

DEFAULT_NAME = "isthmus"

Name = Annotated[
    str | None,
    typer.Option(
        "--name", envvar="ISTHMUS_NAME", help="Name of the cluster; optional if there is only one.", metavar="NAME"
    ),
]


def chosen(name: str | None) -> str:
    """The cluster that is meant: the one named, the default one, or the only one there is."""
    from isthmus.local import state

    there = every()
    if name:
        return state.check_name(name)
    return there[0] if len(there) == 1 else DEFAULT_NAME


def every() -> list[str]:
    """All clusters of this machine. Only root can see them; other users get an error instead of an empty list."""
    from isthmus.local import host, state

    host.check_root()
    return state.names()
