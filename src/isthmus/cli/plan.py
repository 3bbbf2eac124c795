"""`isthmus plan -f FILE`: what a change would do, before it is applied."""

from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import connection
from isthmus.cli.flags import Json, Kubeconfig, show, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isthmus.domain.operator.preview import Effect, NodeJobs
    from isthmus.inspect.plan import Outlook
    from isthmus.kube.client import Client

_SIGNS = {
    "drain": ("~", "yellow"),
    "restart": ("~", "yellow"),
    "less": ("-", "red"),
    "more": ("+", "green"),
    "config": ("~", "blue"),
    "note": ("·", "bright_black"),
}
_NAMED = 6


def plan(
    file: Annotated[
        str,
        typer.Option(
            "--filename", "-f", help="Manifests of clusters or their parts; - for standard input.", metavar="FILE"
        ),
    ],
    *,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", help="Where a manifest names none. [default: the kubeconfig's]", metavar="NAME"
        ),
    ] = "",
    kubeconfig: Kubeconfig = None,
    json: Json = False,
) -> None:
    """Show what applying manifests would do, and change nothing.

    Which pods restart, which nodes drain, whose jobs are waited for, what Slurm reads again, and what Kubernetes,
    the operator or Slurm would refuse. Ends with 1 if something is refused.
    """
    import time

    from isthmus.inspect import plan as inspect

    manifests = inspect.read(text_of(file), file)

    async def look(client: "Client") -> "Outlook":
        return await inspect.plan(client, manifests, namespace=namespace or connection.namespace(kubeconfig))

    found = connection.with_client(look, kubeconfig)
    show(found, lines(found, file, now=time.time()), json=json)
    if not found.works:
        raise typer.Exit(1)


def lines(found: "Outlook", file: str, *, now: float) -> "Iterator[str]":
    """What a person reads: what changes, what follows, what is refused."""
    for it in found.objects:
        yield f"{it.kind} {it.name}{': new' if it.is_new else '' if it.fields else ': unchanged'}"
        yield from (f"  {field}" for field in it.fields)
        yield from (f"  {typer.style('!', fg='yellow')} {warning}" for warning in it.warnings)
    for cluster, effects in found.effects.items():
        yield ""
        yield f"Cluster {cluster}:"
        for effect in effects:
            yield from _effect(effect, now)
    for title, refused in (("Kubernetes refuses it:", found.refused), ("Slurm refuses it:", found.slurm_refuses)):
        if refused:
            yield ""
            yield title
            yield from (f"  {typer.style('✗', fg='red')} {it}" for it in refused)
    yield from (f"{typer.style('?', fg='magenta')} not known: {it}" for it in found.unknown)
    yield ""
    if not found.works:
        yield "Nothing was changed. As it stands, this change would be refused."
    elif found.effects:
        yield f"Nothing was changed. To do this: kubectl apply --server-side -f {file}"
    else:
        yield "This changes nothing: no pod, node or job is affected."


def _effect(effect: "Effect", now: float) -> "Iterator[str]":
    sign, colour = _SIGNS[effect.mark]
    yield f"  {typer.style(sign, fg=colour)} {effect.what}"
    yield from (f"      {line}" for line in effect.lines)
    yield from (f"      {_node(it, now)}" for it in effect.nodes)


def _node(node: "NodeJobs", now: float) -> str:
    from isthmus.domain.bridge.explain import ago

    if not node.jobs:
        return f"{node.name}: no job"
    ids = ", ".join(map(str, node.jobs[:_NAMED])) + (" …" if len(node.jobs) > _NAMED else "")
    who = f" of {', '.join(filter(None, node.users))}" if any(node.users) else ""
    when = f"done within {ago(max(0.0, node.until - now))}" if node.until else "without a time limit"
    return f"{node.name}: job{'s' if len(node.jobs) > 1 else ''} {ids}{who}, {when}"
