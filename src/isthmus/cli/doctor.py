"""`isthmus doctor`: what is wrong with Slurm clusters, the bridge and this machine, why, and what to do."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import connection
from isthmus.cli.flags import Json, Kubeconfig, show
from isthmus.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isthmus.domain.diagnosis import Finding, Fix
    from isthmus.inspect.doctor import Report
    from isthmus.kube.client import Client


def doctor(
    name: Annotated[
        str, typer.Argument(help="Name of a cluster. [default: all, the bridge, this machine]", metavar="NAME")
    ] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace to examine. [default: all]", metavar="NAME")
    ] = "",
    kubeconfig: Kubeconfig = None,
    *,
    fix: Annotated[
        bool, typer.Option("--fix", help="Offer safe repairs, one by one, and examine everything again.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --fix: repair without asking.")] = False,
    json: Json = False,
) -> None:
    """Examine Slurm clusters, the bridge, and this machine.

    Of clusters: names, keys, clocks, storage, images, placement, nodes, accounting, the operator. Of the bridge:
    webhooks, certificates, tokens, nodes, returned allocations, policies. Of this machine: local clusters, disks,
    and whether Slurm answers it.
    """
    report = _examine(name, namespace, kubeconfig)
    repairs = [it.fix for it in report.findings if it.fix] if fix else []
    if repairs:
        if not (yes or _is_asked()):
            raise Terminal("--fix asks before each repair, and there is no terminal to ask on", remedy="add --yes")
        for line in lines(report):
            typer.echo(line, err=True)
        for it in repairs:
            if yes or typer.confirm(f"{_sentence(it.what)}?", err=True):
                _repair(it, kubeconfig)
        report = _examine(name, namespace, kubeconfig)
    show(report, lines(report), json=json)
    if not report.well:
        raise typer.Exit(1)


def _is_asked() -> bool:
    """Whether there is somebody to answer."""
    return sys.stdin.isatty()


def _examine(name: str, namespace: str, kubeconfig: Path | None) -> "Report":
    import time

    from isthmus.domain.diagnosis import Facts
    from isthmus.domain.diagnosis.facts import HostFacts
    from isthmus.inspect import doctor as apps
    from isthmus.inspect.hostfacts import host_facts

    everything = not (name or namespace)
    host = connection.run(host_facts(now=time.time())) if everything else HostFacts()
    if everything and not connection.is_set_up(kubeconfig):
        typer.echo("isthmus: Kubernetes is not examined: there is no kubeconfig here; set KUBECONFIG", err=True)
        return apps.report(Facts(host=host))

    async def look(client: "Client") -> "Report":
        return await apps.examine(client, namespace=namespace, name=name, now=time.time(), host=host)

    return connection.with_client(look, kubeconfig)


def _repair(fix: "Fix", kubeconfig: Path | None) -> None:
    from isthmus.cli.render import progress
    from isthmus.inspect import repairs

    if fix.repair not in repairs.IN_KUBERNETES:
        with progress() as shown:
            repairs.on_this_machine(fix, shown)
        return

    async def repair(client: "Client") -> None:
        await repairs.in_kubernetes(client, fix)

    connection.with_client(repair, kubeconfig)
    typer.echo(f"{typer.style('✓', fg='green')} {_sentence(fix.what)}", err=True)


def lines(report: "Report") -> "Iterator[str]":
    """Write a report for people: the gravest first, each with its cause and its remedy."""
    examined = (*report.clusters, *report.others)
    yield f"Examined: {', '.join(examined) or 'this machine; no Slurm cluster was found'}"
    grave = [it for it in report.findings if it.grave]
    for finding in (*grave, *(it for it in report.findings if not it.grave)):
        yield from _told(finding)
    if not report.findings:
        yield f"{typer.style('✓', fg='green')} no problem found"
    elif not grave:
        yield f"{typer.style('✓', fg='green')} no error found"
    if any(it.fix for it in report.findings):
        yield ""
        yield "What is marked + can be repaired now: isthmus doctor --fix"


def _told(finding: "Finding") -> "Iterator[str]":
    sign, colour = ("✗", "red") if finding.grave else ("!", "yellow")
    yield ""
    yield f"{typer.style(sign, fg=colour)} {finding.area}: {finding.what}"
    yield f"    where  {finding.where}"
    yield f"    why    {finding.why}"
    yield from (f"    → {step}" for step in finding.remedy)
    if finding.fix:
        yield f"    + {_sentence(finding.fix.what)}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
