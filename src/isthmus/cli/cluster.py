"""`isthmus cluster …`: make a Slurm cluster in Kubernetes, look at it, get into it, remove it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import connection
from isthmus.cli.flags import Json, Kubeconfig, show_json
from isthmus.cli.lifecycle import Slurm
from isthmus.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from isthmus.inspect.clusterstatus import Status
    from isthmus.kube.client import Client
    from isthmus.model.soperator import SlurmCluster

app = typer.Typer(
    help="Create, inspect, enter and delete Slurm clusters in Kubernetes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Name = Annotated[str, typer.Argument(help="Name of the cluster.", metavar="NAME")]
_MaybeName = Annotated[str, typer.Argument(help="Name of the cluster. [default: all]", metavar="NAME")]
_Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace of the cluster. [default: all]", metavar="NAME")
]
_Command = Annotated[
    list[str] | None, typer.Argument(help="The command to run, after --.", metavar="[-- COMMAND …]")
]

_FIRST_UID = 1000


@app.command()
def create(
    name: _Name,
    *,
    workers: Annotated[int, typer.Option(help="Number of workers.", min=0, max=65533, metavar="N")] = 2,
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", help="Namespace, created if missing. [default: NAME]", metavar="NAME"),
    ] = "",
    user: Annotated[str, typer.Option(help="User who can log in.", metavar="NAME")] = "soperator",
    ssh_key: Annotated[
        Path | None,
        typer.Option(help="Public key of that user. [default: yours; created if you have none]", metavar="FILE"),
    ] = None,
    slurm_version: Annotated[Slurm | None, typer.Option(help="Version of Slurm. [default: the operator's]")] = None,
    accounting: Annotated[
        bool, typer.Option("--accounting/--no-accounting", help="Keep job records in a database.")
    ] = True,
    shared_root: Annotated[
        bool,
        typer.Option("--shared-root/--no-shared-root", help="Share the whole root file system, not only /home."),
    ] = True,
    node_port: Annotated[
        int | None,
        typer.Option(
            help="Node port for SSH; 0 for any. [default: 30022 if free]", min=0, max=65535, metavar="PORT"
        ),
    ] = None,
    cpus: Annotated[str, typer.Option(help="CPUs per worker. [default: all of its node]", metavar="N")] = "",
    memory: Annotated[str, typer.Option(help="Memory per worker, such as 4Gi. [default: all of its node]")] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is ready.")] = True,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Create a Slurm cluster: slurmctld, workers, a login node, slurmrestd, and accounting."""
    from isthmus.inspect import clusteraccess, clustercreation
    from isthmus.model.meta import Key

    key = clusteraccess.public_key(ssh_key)
    place = namespace or name

    async def make(client: "Client") -> None:
        port = await clusteraccess.free_port(client) if node_port is None else node_port
        resources = {key: amount for key, amount in (("cpu", cpus), ("memory", memory)) if amount}
        wanted = clustercreation.manifest(
            name,
            place,
            workers=workers,
            user={"name": user, "uid": _FIRST_UID, "sudo": True, "sshPublicKeys": [key]},
            version=slurm_version.value if slurm_version else "",
            accounting=accounting,
            node_port=port,
            resources=resources,
            shared_root=shared_root,
        )
        await clustercreation.create(client, wanted)
        typer.echo(f"Creating cluster {name} in namespace {place}.")
        if wait:
            await clustercreation.follow(client, Key(place, name), _teller(name))

    connection.with_client(make, kubeconfig)
    typer.echo(f"  isthmus cluster status {name}")
    typer.echo(f"  isthmus cluster ssh {name}")


@app.command(name="list")
def list_(namespace: _Namespace = "", kubeconfig: Kubeconfig = None) -> None:
    """List the clusters."""
    import time

    from isthmus.cli.render import table
    from isthmus.domain.bridge.explain import ago
    from isthmus.model.soperator import SLURM_CLUSTERS, SlurmCluster

    async def read(client: "Client") -> tuple[SlurmCluster, ...]:
        from isthmus.kube.errors import NotFound

        try:
            return (await client.list(SLURM_CLUSTERS, namespace=namespace)).items
        except NotFound:
            return ()

    found = connection.with_client(read, kubeconfig)
    if not found:
        typer.echo("There is no cluster. Create one: isthmus cluster create NAME")
        return
    now = time.time()
    rows = [
        (
            it.metadata.namespace,
            it.metadata.name,
            it.status.phase or "Pending",
            it.status.workers or "-",
            it.status.slurm_version or "-",
            ago(now - it.metadata.creation_timestamp.timestamp()) if it.metadata.creation_timestamp else "-",
        )
        for it in found
    ]
    table(("NAMESPACE", "NAME", "STATUS", "WORKERS", "SLURM", "AGE"), rows)


@app.command()
def status(
    name: _MaybeName = "", namespace: _Namespace = "", kubeconfig: Kubeconfig = None, *, json: Json = False
) -> None:
    """Show the parts of a cluster, its nodes and jobs, the last problems, and what to do next."""
    import time

    from isthmus.inspect import clusterstatus

    async def look(client: "Client") -> "tuple[Status, ...]":
        return await clusterstatus.statuses(client, name=name, namespace=namespace, now=time.time())

    found = connection.with_client(look, kubeconfig)
    if json:
        show_json(found)
    elif not found:
        typer.echo("There is no cluster. Create one: isthmus cluster create NAME")
    else:
        for each in found:
            _show(each)
    if not all(each.ready for each in found):
        raise typer.Exit(1)


@app.command(context_settings={"allow_interspersed_args": True})
def ssh(
    name: _Name,
    command: _Command = None,
    *,
    namespace: _Namespace = "",
    user: Annotated[
        str, typer.Option(help="User to log in as. [default: the cluster's first user]", metavar="NAME")
    ] = "",
    key: Annotated[
        Path | None, typer.Option(help="Private key to log in with. [default: yours]", metavar="FILE")
    ] = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Log in to a cluster, or run one command there."""
    import os

    from isthmus.inspect import clusteraccess, clusterstatus
    from isthmus.model.meta import Key

    async def find(client: "Client") -> tuple[clusteraccess.Entrance, Key, str]:
        cluster = await clusterstatus.find_cluster(client, name, namespace=namespace)
        chosen = user or next((it.name for it in cluster.spec.users), "root")
        ports = connection.published(client.config.server)
        return await clusteraccess.entrance(client, cluster, published=ports), cluster.metadata.key, chosen

    entrance, cluster, chosen = connection.with_client(find, kubeconfig)
    words = clusteraccess.ssh_words(
        entrance,
        cluster,
        user=chosen,
        key=key or clusteraccess.private_key(),
        command=tuple(command or ()),
        place=clusteraccess.directory(),
    )
    os.execvp("ssh", words)  # noqa: S606 - no shell in between, as it should be


@app.command(name="exec")
def exec_(
    name: _Name,
    command: _Command = None,
    *,
    namespace: _Namespace = "",
    user: Annotated[str, typer.Option(help="User to run the command as. [default: root]", metavar="NAME")] = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Run a command on a login node, without an SSH key; without a command, a shell."""
    from isthmus.cli.terminal import run_in_pod
    from isthmus.inspect import clusterstatus
    from isthmus.inspect.seen import PODS, main_container
    from isthmus.model.meta import Key

    words = tuple(command or ("bash",))
    if user:
        # A login, so that they have a home; the command's words reach it as they are.
        words = ("su", "-l", "-c", 'exec "$0" "$@"', "--", user, *words)

    async def run(client: "Client") -> int:
        cluster = await clusterstatus.find_cluster(client, name, namespace=namespace)
        login = Key(cluster.metadata.namespace, f"{cluster.status.name_prefix or ''}login-0")
        container = main_container(await client.get(PODS, login))
        return await run_in_pod(client, login, words, container=container)

    raise typer.Exit(connection.with_client(run, kubeconfig))


@app.command()
def refresh(
    name: _Name,
    *,
    namespace: _Namespace = "",
    image: Annotated[
        str, typer.Option(help="Image to update to. [default: the one in the specification]", metavar="IMAGE")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Update the shared root to a newer image: shows the changes first, and keeps what users wrote."""
    from isthmus.inspect import clusterrefresh, clusterstatus

    async def run(client: "Client") -> None:
        cluster = await clusterstatus.find_cluster(client, name, namespace=namespace)
        wanted = await clusterrefresh.prepare(client, cluster, image=image)
        typer.echo(f"Changes from {cluster.status.jail_image} to {wanted.filling.image}:")
        await clusterrefresh.show_plan(client, wanted, typer.echo)
        if not yes and not typer.confirm("Users stay logged in and jobs keep running. Continue?"):
            typer.echo("Nothing was changed.")
            return
        await clusterrefresh.carry_out(client, wanted, typer.echo)
        if image and image != cluster.status.jail_image_wanted:
            place = cluster.metadata.namespace
            typer.echo(
                f"The specification still names {cluster.status.jail_image_wanted}; set it to the new image:\n"
                f"  kubectl patch -n {place} slurmcluster {name} --type=merge"
                f' -p=\'{{"spec":{{"populateJail":{{"image":"{image}"}}}}}}\''
            )

    connection.with_client(run, kubeconfig)


@app.command()
def delete(
    name: _Name,
    *,
    namespace: _Namespace = "",
    data: Annotated[
        bool, typer.Option("--data/--keep-data", help="Also delete users' files, accounting and state.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until its last pod is gone.")] = True,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Delete a cluster: drains its workers first, and keeps users' files unless --data is given."""
    from isthmus.inspect import clusteraccess, clusterremoval, clusterstatus
    from isthmus.model.storage import CLAIMS

    async def remove(client: "Client") -> None:
        cluster = await clusterstatus.find_cluster(client, name, namespace=namespace)
        place = cluster.metadata.namespace
        if not yes:
            kept = "are DELETED as well" if data else "are kept"
            size = f"{cluster.status.workers} workers" if cluster.status.workers else "no workers yet"
            typer.echo(f"Cluster {place}/{name}: {size}. Users' files, accounting and state {kept}.")
            if not typer.confirm("Its workers finish their running jobs first. Delete it?"):
                typer.echo("Nothing was changed.")
                return
        await clusterremoval.remove(client, cluster, _aloud, wait=wait or data)
        selector = clusteraccess.claims_selector(cluster)
        if data:
            await clusterremoval.remove_data(client, cluster)
            typer.echo("Its data is deleted.")
        elif left := (await client.list(CLAIMS, namespace=place, labels=selector)).items:
            kept = ", ".join(it.metadata.name for it in left)
            typer.echo(f"Kept: volume claims {kept}, and their Secrets.")
            typer.echo(f"Delete them: kubectl delete pvc,secret -n {place} -l '{selector}'")

    connection.with_client(remove, kubeconfig)


def _aloud(line: str) -> None:
    typer.echo(line, err=line.startswith("  …"))


def _show(found: "Status") -> None:
    from isthmus.cli.render import table
    from isthmus.domain.bridge.explain import ago

    mark = typer.style("✓", fg="green") if found.ready else typer.style("✗", fg="red")
    version = f", Slurm {found.version}" if found.version else ""
    typer.echo(f"{mark} Cluster {found.namespace}/{found.cluster}: {found.phase}{version}")
    if found.told:
        typer.echo(f"  {found.told}")
    table(
        ("  PART", "NAME", "READY", "WHAT IT SAYS"),
        [(f"  {part.part}", part.name, part.ready, part.told or "-") for part in found.parts],
    )
    if found.root:
        typer.echo(f"  Root: {found.root}")
    if found.slurm_answers:
        typer.echo(f"  Nodes: {_counts(found.nodes) or 'none'}")
        typer.echo(f"  Jobs: {_counts(found.jobs) or 'none'}")
    else:
        typer.echo("  Slurm does not answer yet.")
    if found.problems:
        typer.echo("  Last problems:")
    for problem in found.problems:
        typer.echo(f"    {ago(problem.ago):>6} ago  {problem.about}  {problem.text}")
    for step in found.next_steps:
        typer.echo(f"  → {step}")


def _counts(counts: "Mapping[str, int]") -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items())


_PARTS = {
    "ControllersAvailable": "slurmctld",
    "CommonAvailable": "slurmrestd",
    "AccountingAvailable": "slurmdbd",
    "LoginAvailable": "login",
    "WorkersAvailable": "workers",
    "JailPopulated": "the shared root",
}


def _teller(name: str) -> "Callable[[SlurmCluster | None], bool]":
    """Say what is being waited for whenever that changes, until the cluster is ready."""
    said = ""

    def tell(cluster: "SlurmCluster | None") -> bool:
        nonlocal said
        if cluster is None:
            raise Terminal(f"cluster {name} was deleted while it was being created")
        held = {it.type: it for it in cluster.status.conditions}
        if "Ready" in held and held["Ready"].status == "True":
            typer.echo(f"Cluster {name} is ready: {cluster.status.workers} workers.")
            return True
        waits = [part for type_, part in _PARTS.items() if type_ in held and held[type_].status != "True"]
        told = f"waiting for {', '.join(waits)}" if waits else "waiting for the operator"
        if "workers" in waits:
            told += f" ({cluster.status.workers})"
        if "Degraded" in held and held["Degraded"].status == "True":
            told += f"; {held['Degraded'].message}"
        if told != said:
            typer.echo(f"  … {told}", err=True)
            said = told
        return False

    return tell
