"""What people see: live progress on a terminal, plain lines elsewhere, and tables that pipes can read too."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer

from isthmus.local.progress import PlainProgress, Progress


@contextmanager
def progress() -> Iterator[Progress]:
    """Live on a terminal, otherwise plain lines. After Ctrl-C it prints how to continue."""
    try:
        with _shown() as shown:
            yield shown
    except KeyboardInterrupt:
        typer.echo("\nisthmus: interrupted; run the same command again to continue, or: isthmus down", err=True)
        raise


@contextmanager
def _shown() -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield PlainProgress()
        return
    from isthmus.cli.live import LiveProgress

    with LiveProgress() as live:
        yield live


def columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align columns as kubectl does."""
    widths = [max(len(str(row[column])) for row in (heads, *rows)) for column in range(len(heads))]
    for row in (heads, *rows):
        yield "   ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns."""
    for line in columns(heads, rows):
        typer.echo(line)
