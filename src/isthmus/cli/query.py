"""What the commands for users share: where Slurm and Kubernetes are read from, formats, and exit codes.

| exit code | |
|---|---|
| 0 | everything that is configured here answered |
| 1 | the job or pod does not exist, or the request was refused |
| 2 | wrong arguments |
| 3 | partial output: Slurm or Kubernetes did not answer, see standard error |
| 4 | no output: neither answered |
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from isthmus.cli import connection
from isthmus.cli.bridge import Config, SlurmRestApi
from isthmus.cli.flags import Kubeconfig, show_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Iterable

    from isthmus.inspect.worlds import Observation

T = TypeVar("T")

PARTLY, NOTHING = 3, 4

Cluster = Annotated[
    str,
    typer.Option(
        help="Ask the Slurm cluster of this name in Kubernetes. [default: SLURM_REST_API, squeue, the only one]",
        metavar="NAME",
    ),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Only pods of this namespace.", metavar="NAME")]
PodNamespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace of the pod. [default: the kubeconfig's]", metavar="NAME")
]


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Format.")]


class Sources(NamedTuple):
    """Where to read from: the flags that all these commands have."""

    config: Path | None = None
    slurm_rest_api: str | None = None
    kubeconfig: Path | None = None
    cluster: str = ""
    namespace: str = ""


def with_sources(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags that all have in place of its parameter `where`; a namespace it adds by itself."""

    @functools.wraps(command, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def run(
        *,
        cluster: Cluster = "",
        config: Config = None,
        slurm_rest_api: SlurmRestApi = None,
        kubeconfig: Kubeconfig = None,
        **own: Any,
    ) -> None:
        command(**own, where=Sources(config, slurm_rest_api, kubeconfig, cluster))

    flags = inspect.signature(run, follow_wrapped=False).parameters.values()
    shown = [it for it in inspect.signature(command).parameters.values() if it.name != "where"]
    shown += [it for it in flags if it.kind is it.KEYWORD_ONLY]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # which typer reads
    return run


def query(
    work: "Callable[[Observation], Awaitable[T]]", where: Sources, *, kinds: "Collection[str] | None" = None
) -> T:
    """Read Slurm and Kubernetes once, and do something with the result."""
    from isthmus.bridge.config import load
    from isthmus.inspect import worlds
    from isthmus.slurm import commands

    settings = load(where.config, overrides={"slurmRestApi": where.slurm_rest_api})

    # A machine with Slurm's commands belongs to that Slurm, and not to a cluster that is tried out there.
    local = None if commands.are_here() and not where.cluster else connection.local_kubeconfig()

    async def run() -> T:
        async with worlds.look(
            settings,
            kubeconfig=where.kubeconfig or local,
            namespace=where.namespace,
            cluster=where.cluster,
            kinds=kinds,
        ) as observed:
            return await work(observed)

    return connection.run(run())


def see(where: Sources, *, kinds: "Collection[str]") -> "Observation":
    """Read once; if neither answers, print why and end the command."""

    async def keep(observed: "Observation") -> "Observation":
        return observed

    found = query(keep, where, kinds=kinds)
    if found.blind:
        for line in silence(found, kinds):
            complain(line)
        raise typer.Exit(NOTHING)
    return found


def silence(found: "Observation", kinds: "Collection[str]") -> "Iterable[str]":
    """Which of the two did not answer, and which is not configured."""
    from isthmus.inspect.worlds import KUBERNETES, SLURM

    names = {SLURM: "Slurm", KUBERNETES: "Kubernetes"}
    if SLURM in found.troubles:
        yield f"Slurm cannot be read: {found.troubles[SLURM]}"
    lost = {why: what for what, why in found.troubles.items() if what in kinds and what in {"pods", "nodes"}}
    for why, what in lost.items():
        yield f"{what} of Kubernetes cannot be read: {why}"
    for side, why in found.absent.items():
        yield f"{names[side]} is not shown: {why}"


def conclude(found: "Observation", kinds: "Collection[str]", *, quiet: bool = False) -> None:
    """Print what is missing below the table, and end with the exit code for it."""
    from isthmus.inspect.worlds import SLURM

    lost = {SLURM, *kinds} & set(found.troubles)
    if lost or not quiet:
        for line in silence(found, kinds):
            complain(line)
    if lost:
        raise typer.Exit(PARTLY)


def complain(text: str) -> None:
    typer.echo(f"isthmus: {text}", err=True)


def show_items(items: Sequence[Any], found: "Observation", output: Output, *, ref: "Callable[[Any], str]") -> None:
    """Print for programs: the items, and beside them what could not be read."""
    from isthmus.inspect.worlds import SLURM

    if output is Output.NAME:
        for it in items:
            typer.echo(ref(it))
        return
    troubles = {name: why for name, why in found.troubles.items() if name in {SLURM, "pods", "nodes"}}
    whole = {"items": items, "troubles": troubles, "absent": dict(found.absent)}
    if output is Output.JSON:
        show_json(whole)
        return
    show_yaml(whole)


def show_yaml(found: object) -> None:
    import msgspec
    import yaml

    plain = msgspec.to_builtins(found)
    typer.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1000), nl=False)


def safe(text: str) -> str:
    """A text of users for a terminal: control characters, which could rewrite the screen, are shown as �."""
    return "".join(it if it.isprintable() else "\N{REPLACEMENT CHARACTER}" for it in text)
