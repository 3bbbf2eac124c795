"""Names that the shell completes: jobs, pods and nodes that there are now.

A shell waits for the answer, so nothing is said of errors: no name is an answer, too. What typer has for this is
private to it, and typer is pinned.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from isthmus.inspect.worlds import Observation


def complete_targets(incomplete: str) -> list[tuple[str, str]]:
    """Jobs by their ids, pods as pod/NAMESPACE/NAME, with what they are beside them."""
    import time

    from isthmus.inspect import worlds

    observed = _seen(worlds.JOB_KINDS)
    if observed is None:
        return []
    found = worlds.entries(observed, now=time.time())
    prefix = "job/" if "job/".startswith(incomplete[:4]) and incomplete else ""
    named = (
        (f"{prefix}{it.label.partition('_[')[0]}" if it.ref.startswith("job/") else it.ref, it) for it in found
    )
    return [(name, f"{it.name} {it.state}") for name, it in named if name.startswith(incomplete)]


def complete_nodes(incomplete: str) -> list[str]:
    from isthmus.inspect import worlds

    observed = _seen(worlds.NODE_KINDS)
    rows = worlds.node_rows(observed) if observed else ()
    return [row[0] for row in rows if row[0].startswith(incomplete)]


def _seen(kinds: "Collection[str]") -> "Observation | None":
    from isthmus.cli.query import Sources, query
    from isthmus.errors import IsthmusError

    async def keep(observed: "Observation") -> "Observation":
        return observed

    try:
        return query(keep, Sources(), kinds=kinds)
    except (IsthmusError, OSError, typer.Exit):
        return None


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="Your shell.", metavar="bash|zsh|fish")],
) -> None:
    """Print the completion script of a shell: source <(isthmus completion bash).

    Names of jobs, pods and nodes are those of this moment.
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="isthmus", complete_var="_ISTHMUS_COMPLETE", shell=shell.value)
    typer.echo(script)


def words_for(app: typer.Typer, before: "Sequence[str]", beginning: str) -> "Iterator[tuple[str, str]]":
    """What may come next, and what it is."""
    from typer._completion_classes import BashComplete
    from typer.main import get_command

    complete = BashComplete(get_command(app), {}, app.info.name or "", "")
    for item in complete.get_completions(list(before), beginning):
        yield item.value, item.help or ""
