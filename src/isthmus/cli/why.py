"""`isthmus why JOB|POD`: why it waits, what blocks it, when it may start, what would help."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.completion import complete_targets
from isthmus.cli.explain import gate_lines
from isthmus.cli.flags import show_json
from isthmus.cli.query import PodNamespace, Sources, query, safe, show_yaml, with_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isthmus.inspect.why import Why
    from isthmus.inspect.worlds import Observation


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


Target = Annotated[
    str,
    typer.Argument(
        help="A job of Slurm (12, 12_3, job/12) or a pod (NAME, pod/NAME, pod/NAMESPACE/NAME).",
        metavar="JOB|POD",
        autocompletion=complete_targets,
    ),
]


@with_sources
def why(
    target: Target,
    *,
    namespace: PodNamespace = "",
    output: Annotated[Format, typer.Option("--output", "-o", help="Format.")] = Format.TEXT,
    where: Sources,
) -> None:
    """Explain why a job or a pod waits, gate by gate: what blocks it, when it may start, and what would help.

    On a login node this needs only Slurm's own commands.
    """
    import time

    from isthmus.bridge.config import load
    from isthmus.domain.views import targets
    from isthmus.inspect import why as inspect

    asked = targets.parse(target)
    settings = load(where.config)

    async def explain(observed: "Observation") -> "Why":
        return await inspect.why(observed, settings, asked, now=time.time())

    found = query(explain, where._replace(namespace=namespace))
    if output is Format.JSON:
        show_json(found)
    elif output is Format.YAML:
        show_yaml(found)
    else:
        for line in lines(found, now=time.time()):
            typer.echo(line)


def lines(found: "Why", *, now: float, styled: bool = True) -> "Iterator[str]":
    """What a person reads."""
    from isthmus.domain.bridge.explain import ago

    job = f", Slurm job {found.job}" if found.ref.startswith("pod/") and found.job else ""
    yield safe(f"{found.title}{job}: {found.state}")
    for gate in found.gates:
        yield from gate_lines(gate, styled=styled)
    if found.estimate.at:
        yield f"Expected start: in {ago(found.estimate.at - now)}; {safe(found.estimate.text)}"
    elif found.estimate.text:
        yield f"Expected start: unknown; {safe(found.estimate.text)}"
    if found.blockers:
        yield "Blocked by:"
        yield from (f"  {safe(it.text)}" for it in found.blockers)
    if found.helps:
        yield "What would help:"
        yield from (f"  {safe(it)}" for it in found.helps)
    if len(found.pods) > 1 or (found.pods and found.ref.startswith("job/")):
        yield f"Pods: {', '.join(map(safe, found.pods[:8]))}{' …' if len(found.pods) > 8 else ''}"  # noqa: PLR2004 - a line of them
