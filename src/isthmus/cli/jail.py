"""`isthmus jail populate|plan|refresh|verify|status`: the shared root and the image it comes from.

Exit codes are for the Job that runs this: 1 is worth another try, 3 is not before somebody has changed something.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from isthmus.cli.flags import Json, show_json
from isthmus.errors import IsthmusError, Terminal

app = typer.Typer(help="Fill, refresh and inspect the shared root.", no_args_is_help=True, rich_markup_mode=None)

_REFUSED: Final = 3
_Source = Annotated[str, typer.Option(help="Directory of the image, unpacked or mounted.", metavar="DIR")]
_Root = Annotated[str, typer.Option(help="Directory of the shared root.", metavar="DIR")]
_All = Annotated[bool, typer.Option("--all", help="Show every path, not only the first.")]
_Image = Annotated[str, typer.Option(help="Name of the image. [default: its directory]", metavar="NAME")]


@app.command()
def populate(source: _Source = "/source", root: _Root = "/mnt/jail", image: _Image = "") -> None:
    """Fill an empty root from an image; continues an interrupted run, and keeps files that it did not write."""
    import time

    from isthmus.processes import sharedroot

    with _exit_codes():
        sharedroot.populate(source, root, image=image, say=_say, clock=time.monotonic)


@app.command()
def plan(
    source: _Source = "/source",
    root: _Root = "/mnt/jail",
    *,
    all_paths: _All = False,
    json: Json = False,
) -> None:
    """Show what a refresh would do, without doing it."""
    from isthmus.processes import sharedroot

    with _exit_codes():
        summary = sharedroot.plan(source, root)
    if json:
        show_json(summary)
    else:
        for line in sharedroot.plan_lines(summary, all_paths=all_paths):
            typer.echo(line)


@app.command()
def refresh(
    source: _Source = "/source",
    root: _Root = "/mnt/jail",
    image: _Image = "",
    restore: Annotated[
        list[str] | None,
        typer.Option(
            help="Restore this path from the image, whatever users changed there; repeatable.", metavar="PATH"
        ),
    ] = None,
) -> None:
    """Update a root to another image; keeps homes, accounts and what users changed. Preview: isthmus jail plan."""
    import time

    from isthmus.processes import sharedroot

    with _exit_codes():
        sharedroot.refresh(source, root, image=image, say=_say, clock=time.monotonic, restored=restore or ())


@app.command()
def verify(root: _Root = "/mnt/jail", *, all_paths: _All = False, json: Json = False) -> None:
    """Read the whole root and compare it with its manifest: what users changed, and what is damaged."""
    import time

    from isthmus.processes import sharedroot

    with _exit_codes():
        found = sharedroot.verify(root, say=_complain, clock=time.monotonic)
    if json:
        show_json(found)
    else:
        for line in sharedroot.verified_lines(found, all_paths=all_paths):
            typer.echo(line)
    if not found.well:
        raise typer.Exit(1)


@app.command()
def status(root: _Root = "/mnt/jail", *, json: Json = False) -> None:
    """Show whether a root is filled, from which image, and who is working on it."""
    from isthmus.processes import sharedroot

    with _exit_codes():
        found = sharedroot.status(root)
    if json:
        show_json(found)
    else:
        for line in sharedroot.status_lines(found):
            typer.echo(line)


def _say(line: str) -> None:
    print(line, flush=True)


def _complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _exit_codes() -> Iterator[None]:
    from isthmus.processes import sharedroot

    try:
        yield
    except IsthmusError as error:
        sharedroot.tell_kubernetes(error)
        print(f"isthmus: {error}", file=sys.stderr)
        raise typer.Exit(_REFUSED if isinstance(error, Terminal) else 1) from error
