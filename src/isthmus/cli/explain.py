"""`isthmus explain pod/NAME`: why does it wait, and what can I do."""

from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.bridge import Config, SlurmRestApi
from isthmus.cli.flags import Json, Kubeconfig, show
from isthmus.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isthmus.domain.bridge.explain import Gate
    from isthmus.inspect.explain import Explanation

_SIGNS = {
    "passed": ("✓", "green"),
    "waiting": ("…", "yellow"),
    "refused": ("✗", "red"),
    "unknown": ("?", "magenta"),
}
_AHEAD = ("·", "bright_black")
_INDENT = 14


def explain(
    target: Annotated[str, typer.Argument(help="pod/NAME, NAME, or job/ID of a Slurm job.", metavar="TARGET")],
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", help="Namespace of the pod. [default: the kubeconfig's]", metavar="NAME"),
    ] = "",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    slurm_rest_api: SlurmRestApi = None,
    *,
    json: Json = False,
) -> None:
    """Show each gate from admission to running: passed, waiting or refused, why, and what to do."""
    import asyncio
    import time

    from isthmus.bridge.config import load
    from isthmus.inspect import explain as apps
    from isthmus.inspect import snapshot
    from isthmus.model.meta import Key

    kind, name = _target(target)
    settings = load(config, overrides={"slurmRestApi": slurm_rest_api})

    async def look() -> "Explanation":
        async with snapshot.look(settings, kubeconfig=kubeconfig, namespace=namespace) as found:
            if kind == "job":
                return await apps.explain_job(found, settings, int(name), now=time.time())
            return await apps.explain_pod(found, settings, Key(found.namespace, name), now=time.time())

    found = asyncio.run(look())
    show(found, _lines(found), json=json)


def _target(text: str) -> tuple[str, str]:
    kind, _, name = text.rpartition("/")
    kind = {"": "pod", "po": "pod", "pods": "pod", "jobs": "job"}.get(kind, kind)
    if kind == "job" and not (name.isascii() and name.isdigit()):
        raise Terminal(
            f"{name!r} is not the id of a Slurm job",
            remedy="explain one of the Job's pods: isthmus explain pod/NAME",
        )
    if kind not in {"pod", "job"} or not name:
        raise Terminal(f"{text!r} cannot be explained", remedy="write pod/NAME, NAME, or job/ID")
    return kind, name


def _lines(found: "Explanation") -> "Iterator[str]":
    job = f", Slurm job {found.job_id}" if found.job_id else ""
    group = f", of {found.group}" if found.group else ""
    yield f"Pod {found.pod}{group}{job}"
    for gate in found.gates:
        yield from gate_lines(gate)
    if found.siblings:
        yield f"Other pods of its group: {len(found.siblings)}"
        yield from (f"  {sibling}" for sibling in found.siblings)


def gate_lines(gate: "Gate", *, styled: bool = True) -> "Iterator[str]":
    """A gate with its sign, and what to do about it on a line of its own."""
    sign, colour = _SIGNS.get(gate.mark, _AHEAD)
    yield f"  {typer.style(sign, fg=colour) if styled else sign} {gate.name:<11} {gate.text}".rstrip()
    if gate.remedy:
        yield f"{' ' * _INDENT}  → {gate.remedy}"
