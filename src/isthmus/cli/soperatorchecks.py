"""`isthmus soperatorchecks`: the process that finds, repairs, tests and returns bad nodes."""

from typing import Annotated

import typer

from isthmus.cli.flags import (
    HealthAddress,
    Kubeconfig,
    LeaderElect,
    LeaseNamespace,
    MetricsAddress,
    Namespaces,
    Verbosity,
    words,
)
from isthmus.cli.loglevels import level
from isthmus.errors import Terminal


def soperatorchecks(
    *,
    namespaces: Namespaces = "",
    kubeconfig: Kubeconfig = None,
    metrics_bind_address: MetricsAddress = ":8080",
    health_probe_bind_address: HealthAddress = ":8081",
    leader_elect: LeaderElect = True,
    leader_elect_namespace: LeaseNamespace = "",
    name: Annotated[str, typer.Option(help="Name of the Lease.", metavar="NAME")] = "soperatorchecks",
    enable_node_replacement: Annotated[
        bool,
        typer.Option(
            "--enable-node-replacement/--no-enable-node-replacement",
            help="Allow the rung replace: delete Kubernetes nodes, so that their cloud replaces them.",
        ),
    ] = False,
    delete_not_ready_nodes: Annotated[
        bool,
        typer.Option(
            "--delete-not-ready-nodes/--no-delete-not-ready-nodes",
            help="Replace nodes whose kubelet has not answered for --not-ready-timeout.",
        ),
    ] = False,
    not_ready_timeout: Annotated[
        str, typer.Option(help="How long a kubelet may be silent before its node is replaced.", metavar="DURATION")
    ] = "15m",
    maintenance_condition_type: Annotated[
        str, typer.Option(help="Node condition by which the cloud announces maintenance.", metavar="TYPE")
    ] = "NebiusMaintenanceScheduled",
    maintenance_ignore_node_labels: Annotated[
        str,
        typer.Option(
            envvar="MAINTENANCE_IGNORE_NODE_LABELS",
            help="Ignore maintenance of nodes with one of these labels.",
            metavar="KEY=VALUE,...",
        ),
    ] = "",
    slurm_image: Annotated[
        str,
        typer.Option(
            help="The image of checks that name none. [default: that of Slurm's daemons]", metavar="IMAGE"
        ),
    ] = "",
    v: Verbosity = "0",
) -> None:
    """Find bad nodes, drain and repair them within limits, test them, and return them to Slurm."""
    from isthmus.domain.health.observations import Settings
    from isthmus.domain.health.replacement import Replacement
    from isthmus.domain.languages.gotime import parse_duration
    from isthmus.processes import soperatorchecks as app
    from isthmus.runtime import logs, loop

    if delete_not_ready_nodes and not enable_node_replacement:
        raise Terminal(
            "--delete-not-ready-nodes replaces nodes, which is not allowed",
            remedy="add --enable-node-replacement, or leave --delete-not-ready-nodes out",
        )
    settings = Settings(
        maintenance_condition=maintenance_condition_type,
        ignored_machines=labels(maintenance_ignore_node_labels),
    )
    options = app.Options(
        settings=settings,
        slurm_image=slurm_image,
        replacement=Replacement(
            allowed=enable_node_replacement,
            not_ready_after=parse_duration(not_ready_timeout) if delete_not_ready_nodes else None,
        ),
        name=name,
        namespaces=words(namespaces),
        kubeconfig=kubeconfig,
        metrics_address=metrics_bind_address,
        health_address=health_probe_bind_address,
        elect=leader_elect,
        election_namespace=leader_elect_namespace,
    )
    logs.configure(level=level(v))
    loop.run(app.run(options))


def labels(text: str) -> dict[str, str]:
    """Read labels and their values, such as `pool=spare,team=x`."""
    found: dict[str, str] = {}
    for word in words(text):
        key, equals, value = word.partition("=")
        if not key.strip() or not equals:
            raise Terminal(f"{word[:60]!r} is not a label", remedy="write key=value, separated by commas")
        found[key.strip()] = value.strip()
    return found
