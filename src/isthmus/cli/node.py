"""`isthmus node exec|stop|start|reboot|cut|heal NAME`: a look into machines, and their failures, on purpose."""

import os
from typing import Annotated

import typer

from isthmus.cli.options import Name, chosen

app = typer.Typer(
    help="Look into, stop, start, reboot, disconnect and reconnect nodes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_Node = Annotated[
    str, typer.Argument(help="The node, such as isthmus-worker2, or worker2 for short.", metavar="NODE")
]


@app.command("exec")
def execute(
    node: _Node,
    command: Annotated[
        list[str] | None, typer.Argument(help="Command and arguments. [default: bash]", metavar="[--] COMMAND...")
    ] = None,
    name: Name = None,
) -> None:
    """Run a command on a node, such as `crictl ps`; without a command, a shell."""
    from isthmus.cli.render import progress
    from isthmus.local import lifecycle

    with progress() as shown:
        words, environment = lifecycle.command_on_node(chosen(name), node, command or ["bash"], shown)
    os.execvpe(words[0], words, {**os.environ, **environment})  # noqa: S606 - no shell in between, as it should be


@app.command()
def stop(node: _Node, name: Name = None) -> None:
    """Switch a node off, as if its power failed."""
    from isthmus.local import lifecycle

    lifecycle.stop_node(chosen(name), node)


@app.command()
def start(node: _Node, name: Name = None) -> None:
    """Switch a node on again."""
    from isthmus.local import lifecycle

    lifecycle.start_node(chosen(name), node)


@app.command()
def reboot(node: _Node, name: Name = None) -> None:
    """Switch a node off and on again."""
    from isthmus.local import lifecycle

    lifecycle.reboot_node(chosen(name), node)


@app.command()
def cut(node: _Node, name: Name = None) -> None:
    """Disconnect a node's network; what runs there keeps running."""
    from isthmus.local import lifecycle

    lifecycle.cut_node(chosen(name), node)


@app.command()
def heal(node: _Node, name: Name = None) -> None:
    """Connect a node's network again."""
    from isthmus.local import lifecycle

    lifecycle.heal_node(chosen(name), node)
