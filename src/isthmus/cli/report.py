"""`isthmus report`: what jobs and pods used, by user, account, partition or week."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import connection
from isthmus.cli.flags import Kubeconfig, show_json
from isthmus.errors import Terminal

if TYPE_CHECKING:
    from isthmus.domain.exporter.report import Line, Report
    from isthmus.kube.client import Client


class By(StrEnum):
    USER = "user"
    ACCOUNT = "account"
    PARTITION = "partition"
    QOS = "qos"
    NAMESPACE = "namespace"
    KIND = "kind"
    DAY = "day"
    WEEK = "week"


class Output(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def report(
    *,
    by: Annotated[By, typer.Option(help="What to group by.")] = By.USER,
    since: Annotated[
        str, typer.Option(help="Begin: 7d, 12h, or 2026-11-01 in UTC. [default: 7d]", metavar="TIME")
    ] = "",
    until: Annotated[str, typer.Option(help="End, in the same formats. [default: now]", metavar="TIME")] = "",
    user: Annotated[str, typer.Option(help="Only jobs of this user.", metavar="NAME")] = "",
    account: Annotated[str, typer.Option(help="Only jobs of this account.", metavar="NAME")] = "",
    partition: Annotated[str, typer.Option(help="Only jobs in this partition.", metavar="NAME")] = "",
    kind: Annotated[str, typer.Option(help="Only `slurm` or only `pod`.", metavar="KIND")] = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="Format.")] = Output.TABLE,
    sort: Annotated[
        str, typer.Option(help="Column to sort by, descending. [default: cpu_hours]", metavar="COLUMN")
    ] = "",
    cluster: Annotated[
        str, typer.Option(help="Name of the SlurmCluster; optional if there is only one.", metavar="NAME")
    ] = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of the cluster. [default: all]", metavar="NAME")
    ] = "",
    exporter: Annotated[
        str, typer.Option(help="URL of an exporter's monitoring port, instead of Kubernetes.", metavar="URL")
    ] = "",
    store: Annotated[
        Path | None, typer.Option(help="File of an exporter, instead of Kubernetes.", metavar="FILE")
    ] = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show what jobs and pods used: efficiency, success rate, wait times, idle allocations.

    Success is the part of the ended jobs that completed. An allocation is idle that used less than 5 % of its CPUs
    and lasted longer than 10 minutes. Efficiency needs accounting.
    """
    import asyncio
    import time

    from isthmus.domain.exporter.report import parse
    from isthmus.inspect import report as reports

    given = {
        "by": by.value,
        "since": since,
        "until": until,
        "user": user,
        "account": account,
        "partition": partition,
        "kind": kind,
    }
    parameters = {name: value for name, value in given.items() if value}
    parse(parameters, now=time.time())
    if exporter and store:
        raise Terminal("--exporter and --store cannot be used together", remedy="give one of them")

    async def ask(client: "Client") -> "Report":
        return await reports.from_cluster(client, parameters, cluster=cluster, namespace=namespace)

    if store:
        found = reports.from_store(store, parameters)
    elif exporter:
        found = asyncio.run(reports.from_exporter(exporter, parameters))
    else:
        found = connection.with_client(ask, kubeconfig)
    _show(_sorted(found, sort), output)


def _sorted(found: "Report", column: str) -> "Report":
    import msgspec

    if not column:
        return found
    columns = found.total.__struct_fields__
    if column not in columns:
        raise Terminal(f"there is no column {column[:40]!r}", remedy=f"use one of {', '.join(columns)}")

    def largest_first(line: "Line") -> tuple[bool, float]:
        value = getattr(line, column)
        return value is None, -(value or 0)

    if column == "group":
        lines = sorted(found.lines, key=lambda line: line.group)
    else:
        lines = sorted(found.lines, key=largest_first)
    return msgspec.structs.replace(found, lines=tuple(lines))


def _show(found: "Report", output: Output) -> None:
    from isthmus.cli.render import table

    if output is Output.JSON:
        show_json(found)
    elif output is Output.CSV:
        _csv(found)
    elif not found.lines:
        typer.echo("No job ended in this period.")
    else:
        heads = (found.by.upper(), "JOBS", "SUCCESS", "CPU-H", "GPU-H", "CPU EFF", "MEM EFF", "WAIT", "P95", "IDLE")
        lines = found.lines if len(found.lines) == 1 else (*found.lines, found.total)
        table(heads, [_cells(line) for line in lines])


def _cells(line: "Line") -> tuple[str, ...]:
    return (
        line.group or "-",
        str(line.jobs),
        _percent(line.success_rate),
        f"{line.cpu_hours:.1f}",
        f"{line.gpu_hours:.1f}",
        _percent(line.cpu_efficiency),
        _percent(line.memory_efficiency),
        _duration(line.wait_mean),
        _duration(line.wait_p95),
        str(line.idle),
    )


def _csv(found: "Report") -> None:
    """Numbers as they are; an empty cell is what is not known."""
    import csv
    import sys

    columns = found.total.__struct_fields__
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow((found.by, *columns[1:]))
    for line in found.lines:
        values = (getattr(line, column) for column in columns)
        writer.writerow(["" if value is None else value for value in values])


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _duration(seconds: float | None) -> str:
    from isthmus.domain.bridge.explain import ago

    return "-" if seconds is None else ago(seconds)
