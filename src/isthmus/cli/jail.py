"""`isthmus jail populate|plan|refresh`: the shared root and the image it comes from.

Exit codes are for the Job that runs this: 1 is worth another try, 3 is not before somebody has changed something.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from isthmus.cli.bridge import Json
from isthmus.errors import IsthmusError, Terminal

app = typer.Typer(
    help="Fill and refresh the shared root, and look at it.", no_args_is_help=True, rich_markup_mode=None
)

_REFUSED: Final = 3
_Source = Annotated[str, typer.Option(help="The image, unpacked or mounted.", metavar="DIR")]
_Root = Annotated[str, typer.Option(help="The shared root.", metavar="DIR")]
_Image = Annotated[str, typer.Option(help="What the image is called. [default: its directory]", metavar="NAME")]


@app.command()
def populate(source: _Source = "/source", root: _Root = "/mnt/jail", image: _Image = "") -> None:
    """Fill an empty root from an image; goes on where an earlier run was ended, and keeps what is not ours."""
    import time

    from isthmus.apps import jail

    with _exit_codes():
        jail.populate(source, root, image=image, say=_say, clock=time.monotonic)


@app.command()
def plan(
    source: _Source = "/source",
    root: _Root = "/mnt/jail",
    *,
    all_paths: Annotated[bool, typer.Option("--all", help="Show every path, not only the first.")] = False,
    json: Json = False,
) -> None:
    """Show what a refresh would do, without doing it."""
    from isthmus.apps import jail

    with _exit_codes():
        summary = jail.plan(source, root)
    if json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(summary)).decode())
    else:
        for line in jail.plan_lines(summary, all_paths=all_paths):
            typer.echo(line)


@app.command()
def refresh(source: _Source = "/source", root: _Root = "/mnt/jail", image: _Image = "") -> None:
    """Bring a root to another image: keeps homes, accounts and what users changed. See first: isthmus jail plan."""
    import time

    from isthmus.apps import jail

    with _exit_codes():
        jail.refresh(source, root, image=image, say=_say, clock=time.monotonic)


def _say(line: str) -> None:
    print(line, flush=True)


@contextmanager
def _exit_codes() -> Iterator[None]:
    from isthmus.apps import jail

    try:
        yield
    except IsthmusError as error:
        jail.tell_kubernetes(error)
        print(f"isthmus: {error}", file=sys.stderr)
        raise typer.Exit(_REFUSED if isinstance(error, Terminal) else 1) from error
