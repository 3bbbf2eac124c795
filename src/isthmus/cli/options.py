"""Options that several commands share."""

from typing import Annotated

import typer

DEFAULT_NAME = "isthmus"

Name = Annotated[
    str | None,
    typer.Option(
        "--name", envvar="ISTHMUS_NAME", help="Which cluster; not needed when there is one.", metavar="NAME"
    ),
]


def chosen(name: str | None) -> str:
    """The cluster that is meant: the one named, the default one, or the only one there is."""
    from isthmus.local import state

    if name:
        return state.check_name(name)
    there = state.names()
    return there[0] if len(there) == 1 else DEFAULT_NAME
