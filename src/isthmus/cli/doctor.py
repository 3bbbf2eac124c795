"""`isthmus doctor`: what is wrong with Slurm clusters in Kubernetes, why, and what to do."""

from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.flags import Json, Kubeconfig, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isthmus.domain.diagnosis import Finding
    from isthmus.inspect.doctor import Report
    from isthmus.kube.client import Client


def doctor(
    name: Annotated[str, typer.Argument(help="Name of a cluster. [default: all]", metavar="NAME")] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace to examine. [default: all]", metavar="NAME")
    ] = "",
    kubeconfig: Kubeconfig = None,
    *,
    json: Json = False,
) -> None:
    """Examine Slurm clusters: names, keys, clocks, storage, images, placement, nodes, accounting, the operator."""
    import time

    from isthmus.cli.reach import with_client
    from isthmus.inspect import doctor as apps

    async def look(client: "Client") -> "Report":
        return await apps.examine(client, namespace=namespace, name=name, now=time.time())

    report = with_client(look, kubeconfig)
    show(report, lines(report), json=json)
    if not report.well:
        raise typer.Exit(1)


def lines(report: "Report") -> "Iterator[str]":
    """Write a report for people: the gravest first, each with its cause and its remedy."""
    examined = ", ".join(report.clusters) or "no cluster: none exists"
    yield f"Examined: {examined}"
    grave = [it for it in report.findings if it.grave]
    for finding in (*grave, *(it for it in report.findings if not it.grave)):
        yield from _told(finding)
    if not report.findings:
        yield f"{typer.style('✓', fg='green')} no problem found"
    elif not grave:
        yield f"{typer.style('✓', fg='green')} no error found"


def _told(finding: "Finding") -> "Iterator[str]":
    sign, colour = ("✗", "red") if finding.grave else ("!", "yellow")
    yield ""
    yield f"{typer.style(sign, fg=colour)} {finding.area}: {finding.what}"
    yield f"    where  {finding.where}"
    yield f"    why    {finding.why}"
    yield from (f"    → {step}" for step in finding.remedy)
