"""Flags that several commands have, so that they are called and explained alike everywhere."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer

from isthmus.errors import Terminal

STDIN: Final = "-"

Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="Path of the kubeconfig. [default: KUBECONFIG, the pod, ~/.kube/config]", metavar="FILE"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

MetricsAddress = Annotated[
    str, typer.Option(help="Address of the metrics server; 0 disables it.", metavar="ADDRESS")
]
HealthAddress = Annotated[
    str, typer.Option(help="Address of the server of /healthz and /readyz.", metavar="ADDRESS")
]
Namespaces = Annotated[
    str, typer.Option(help="Namespaces to watch, separated by commas. [default: all]", metavar="NAMES")
]
LeaderElect = Annotated[
    bool, typer.Option("--leader-elect/--no-leader-elect", help="Elect a leader among replicas.")
]
LeaseNamespace = Annotated[
    str, typer.Option(help="Namespace of the Lease. [default: that of this pod]", metavar="NAME")
]
Verbosity = Annotated[
    str, typer.Option("--v", "-v", help="Log level: a number (4 logs everything) or a name.", metavar="LEVEL")
]


def text_of(file: str) -> str:
    """The content of a file that is given by name; - is standard input."""
    try:
        return sys.stdin.read() if file == STDIN else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Terminal(f"{file} cannot be read: {getattr(error, 'strerror', '') or 'it is not text'}") from error


def words(text: str) -> tuple[str, ...]:
    """Read words that are separated by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def show_json(found: object) -> None:
    """Print what `Json` asks for."""
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(found)).decode())


def show(found: object, lines: Iterable[str], *, json: bool) -> None:
    """Print what was found, for programs or for people."""
    if json:
        show_json(found)
        return
    for line in lines:
        typer.echo(line)
