"""`isthmus sconfig`: the process that writes JailedConfigs onto a cluster's shared root."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.levels import level


def sconfig(
    *,
    cluster: Annotated[str, typer.Option(help="The SlurmCluster whose files these are.", metavar="NAME")],
    namespace: Annotated[
        str, typer.Option(help="Where its JailedConfigs are. [default: our own]", metavar="NAME")
    ] = "",
    root: Annotated[Path, typer.Option(help="Where the shared root is mounted.", metavar="DIR")] = Path(
        "/mnt/jail"
    ),
    covered: Annotated[
        list[str] | None,
        typer.Option(help="A place on which nodes mount something else; may be repeated.", metavar="PATH"),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="How to reach Kubernetes. [default: KUBECONFIG, the pod, ~/.kube/config]", metavar="FILE"
        ),
    ] = None,
    metrics_bind_address: Annotated[
        str, typer.Option(help="Where to serve metrics; 0 for nowhere.", metavar="ADDRESS")
    ] = ":8080",
    health_probe_bind_address: Annotated[
        str, typer.Option(help="Where to serve /healthz and /readyz.", metavar="ADDRESS")
    ] = ":8081",
    v: Annotated[
        str,
        typer.Option("--v", "-v", help="How much is logged: a number (4: everything) or a level.", metavar="LEVEL"),
    ] = "0",
) -> None:
    """Write the files of JailedConfigs onto a cluster's shared root, as they change."""
    from isthmus.apps import sconfig as app
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
