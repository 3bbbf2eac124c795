"""`isthmus rebooter`: the process on every machine that drains and reboots it."""

from enum import StrEnum
from typing import Annotated

import typer

from isthmus.cli.flags import HealthAddress, Kubeconfig, MetricsAddress
from isthmus.cli.loglevels import level


class Method(StrEnum):
    """How pods are taken off the machine."""

    EVICT = "evict"
    DRAIN = "drain"


def rebooter(
    *,
    node_name: Annotated[
        str,
        typer.Option(envvar=["NODE_NAME", "REBOOTER_NODE_NAME"], help="The Node of this machine.", metavar="NAME"),
    ],
    eviction_method: Annotated[
        Method,
        typer.Option(
            envvar="REBOOTER_EVICTION_METHOD",
            help="evict: by a taint, ignoring disruption budgets; drain: by evictions, respecting them.",
        ),
    ] = Method.EVICT,
    reboot_command: Annotated[
        str,
        typer.Option(
            envvar="REBOOTER_COMMAND",
            help="Command that reboots the machine; kernel reboots without one, as reboot -f does. "
            "[default: nsenter --target=1 --mount -- systemctl reboot]",
            metavar="WORDS",
            show_default=False,
        ),
    ] = "",
    max_concurrent_reboots: Annotated[
        int,
        typer.Option(
            envvar="REBOOTER_MAX_CONCURRENT", help="Machines that may be down at the same time.", metavar="N", min=1
        ),
    ] = 1,
    ignore_protection: Annotated[
        bool, typer.Option(envvar="REBOOTER_IGNORE_PROTECTION", help="Reboot even while Slurm jobs are running.")
    ] = False,
    reconcile_timeout: Annotated[
        str, typer.Option(help="How often to check without an event.", metavar="DURATION")
    ] = "1m",
    kubeconfig: Kubeconfig = None,
    metrics_bind_address: MetricsAddress = ":8080",
    health_probe_bind_address: HealthAddress = ":8081",
    log_level: Annotated[str, typer.Option(help="debug, info, warn or error.", metavar="LEVEL")] = "info",
    log_format: Annotated[
        str, typer.Option(help="json or plain. [default: plain on a terminal, else json]", metavar="FORMAT")
    ] = "",
) -> None:
    """Drain and reboot this machine, as conditions of its Node ask."""
    import shlex

    from isthmus.domain.languages.gotime import parse_duration
    from isthmus.processes import rebooter as app
    from isthmus.runtime import logs, loop

    options = app.Options(
        node=node_name,
        method=eviction_method.value,
        command=tuple(shlex.split(reboot_command)) or app.COMMAND,
        max_concurrent=max_concurrent_reboots,
        ignore_protection=ignore_protection,
        recheck=parse_duration(reconcile_timeout),
        kubeconfig=kubeconfig,
        metrics_address=metrics_bind_address,
        health_address=health_probe_bind_address,
    )
    form: logs.Form | None = None if not log_format else "json" if log_format == "json" else "text"
    logs.configure(level=level("warning" if log_level == "warn" else log_level), form=form)
    loop.run(app.run(options))
