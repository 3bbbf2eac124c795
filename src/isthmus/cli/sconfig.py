"""`isthmus sconfig`: the process that writes JailedConfigs onto a cluster's shared root."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.flags import HealthAddress, Kubeconfig, MetricsAddress, Verbosity
from isthmus.cli.loglevels import level


def sconfig(
    *,
    cluster: Annotated[str, typer.Option(help="The SlurmCluster whose files are written.", metavar="NAME")],
    namespace: Annotated[
        str, typer.Option(help="Namespace of its JailedConfigs. [default: that of this pod]", metavar="NAME")
    ] = "",
    root: Annotated[Path, typer.Option(help="Where the shared root is mounted.", metavar="DIR")] = Path(
        "/mnt/jail"
    ),
    covered: Annotated[
        list[str] | None,
        typer.Option(help="A path on which nodes mount something else; repeatable.", metavar="PATH"),
    ] = None,
    kubeconfig: Kubeconfig = None,
    metrics_bind_address: MetricsAddress = ":8080",
    health_probe_bind_address: HealthAddress = ":8081",
    v: Verbosity = "0",
) -> None:
    """Write the files of JailedConfigs onto a cluster's shared root, as they change."""
    from isthmus.processes import sconfig as app
    from isthmus.runtime import logs, loop

    options = app.Options(
        cluster=cluster,
        namespace=namespace,
        root=root,
        covered=tuple(covered or ()),
        kubeconfig=kubeconfig,
        metrics_address=metrics_bind_address,
        health_address=health_probe_bind_address,
    )
    logs.configure(level=level(v))
    loop.run(app.run(options))
