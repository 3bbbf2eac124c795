"""`isthmus status`, `kubeconfig` and the logs of components: looking at a cluster without changing it."""

import os

import typer

from isthmus.cli.options import Name, chosen, every
from isthmus.errors import Terminal


def status(name: Name = None) -> None:
    """Show the clusters of this machine, their nodes, and what does not run."""
    from isthmus.cli.render import table
    from isthmus.local import monitoring, web
    from isthmus.local.cluster import Cluster

    names = [chosen(name)] if name else every()
    if not names:
        typer.echo("No cluster on this machine. Create one: isthmus up")
        return
    healthy = True
    for each in names:
        cluster = Cluster.load(each)
        settings = cluster.settings
        rows = [
            (view.name, view.role, view.address, view.machine, view.kubernetes, ", ".join(view.stopped) or "-")
            for view in cluster.look()
        ]
        healthy = healthy and all(row[3] == "on" and row[4].startswith("Ready") and row[5] == "-" for row in rows)
        about = [
            f"Slurm {settings.slurm}",
            f"API {cluster.plane.url}",
            *(f"localhost:{port.host} → node port {port.node}" for port in settings.publish),
            *(
                f"{part} {address}"
                for part, address in {**monitoring.addresses(cluster), **web.addresses(cluster)}.items()
            ),
        ]
        typer.echo(f"Cluster {each}: {', '.join(about)}")
        table(("NODE", "ROLE", "ADDRESS", "MACHINE", "KUBERNETES", "NOT RUNNING"), rows)
        if settings.publish and not cluster.switch.runs("publish"):
            healthy = False
            typer.echo("Ports of localhost are not published: the process publish does not run.")
    if not healthy:
        typer.echo("Some parts do not run. Repair them: isthmus up")
        raise typer.Exit(1)


def kubeconfig(name: Name = None) -> None:
    """Print the path of the administrator's kubeconfig: export KUBECONFIG=$(isthmus kubeconfig)."""
    from isthmus.local.cluster import Cluster

    typer.echo(Cluster.load(chosen(name)).plane.admin)


def logs(component: str | None, name: str | None, node: str | None, *, follow: bool, tail: int | None) -> None:
    """Show the log of a component, of all nodes that have one; without a name, which logs there are."""
    from isthmus.local.cluster import Cluster

    cluster = Cluster.load(chosen(name))
    machines = [cluster.node(node).machine] if node else [cluster.switch, *(one.machine for one in cluster.nodes)]
    there = [file for machine in machines for file in sorted(machine.logs.glob("*.log"))]
    components = sorted({file.stem for file in there})
    if component is None:
        typer.echo("\n".join(components))
        return
    files = [file for file in there if file.stem == component]
    if not files:
        raise Terminal(f"there is no log for {component!r}", remedy=f"choose one of: {', '.join(components)}")
    # tail names each file when there are several, and can follow them all.
    lines = f"--lines={tail}" if tail is not None else "--lines=20" if follow else "--lines=+1"
    words = ("--follow", lines) if follow else (lines,)
    os.execvp("tail", ("tail", *words, *files))  # noqa: S606 - no shell in between, as it should be
