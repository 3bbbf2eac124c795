"""`isthmus cluster …`: make a Slurm cluster in Kubernetes, look at it, get into it, remove it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import reach
from isthmus.cli.flags import Json, Kubeconfig
from isthmus.cli.lifecycle import Slurm
from isthmus.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from isthmus.inspect.clusterstatus import Status
    from isthmus.kube.client import Client
    from isthmus.model.soperator import SlurmCluster

app = typer.Typer(
    help="Make Slurm clusters in Kubernetes, look at them, and get into them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Name = Annotated[str, typer.Argument(help="Of the cluster.", metavar="NAME")]
_MaybeName = Annotated[str, typer.Argument(help="Of the cluster. [default: all]", metavar="NAME")]
_Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Where it is. [default: wherever]", metavar="NAME")
]
_Command = Annotated[
    list[str] | None, typer.Argument(help="After --, what to run there.", metavar="[-- COMMAND …]")
]

_FIRST_UID = 1000


@app.command()
def create(
    name: _Name,
    *,
    workers: Annotated[int, typer.Option(help="How many workers.", min=0, max=65533, metavar="N")] = 2,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Where to make it. [default: one of its name]", metavar="NAME")
    ] = "",
    user: Annotated[str, typer.Option(help="Who can log in.", metavar="NAME")] = "soperator",
    ssh_key: Annotated[
        Path | None,
        typer.Option(help="Their public key. [default: yours; made if you have none]", metavar="FILE"),
    ] = None,
    slurm_version: Annotated[Slurm | None, typer.Option(help="Which Slurm. [default: the operator's]")] = None,
    accounting: Annotated[
        bool, typer.Option("--accounting/--no-accounting", help="Keep records of jobs, in a database.")
    ] = True,
    shared_root: Annotated[
        bool, typer.Option("--shared-root/--no-shared-root", help="One file system everywhere, and not only /home.")
    ] = True,
    node_port: Annotated[
        int | None,
        typer.Option(
            help="Port of nodes for SSH; 0 for any. [default: 30022 if free]", min=0, max=65535, metavar="PORT"
        ),
    ] = None,
    cpus: Annotated[str, typer.Option(help="CPUs of a worker. [default: its node's]", metavar="N")] = "",
    memory: Annotated[str, typer.Option(help="Memory of a worker, such as 4Gi. [default: its node's]")] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Until it is ready.")] = True,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Make a Slurm cluster: slurmctld, workers, a login node, slurmrestd, and accounting."""
    from isthmus.inspect import clusteraccess, clustermaking
    from isthmus.model.meta import Key

    key = clusteraccess.public_key(ssh_key)
    place = namespace or name

    async def make(client: "Client") -> None:
        port = await clusteraccess.free_port(client) if node_port is None else node_port
        resources = {key: amount for key, amount in (("cpu", cpus), ("memory", memory)) if amount}
        wanted = clustermaking.manifest(
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
        await clustermaking.create(client, wanted)
        typer.echo(f"Cluster {name} is being made in the namespace {place}.")
        if wait:
            await clustermaking.follow(client, Key(place, name), _teller(name))

    reach.with_client(make, kubeconfig)
    typer.echo(f"  isthmus cluster status {name}")
    typer.echo(f"  isthmus cluster ssh {name}")


@app.command(name="list")
def list_(namespace: _Namespace = "", kubeconfig: Kubeconfig = None) -> None:
    """List the clusters that there are."""
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

    found = reach.with_client(read, kubeconfig)
    if not found:
        typer.echo("There is no cluster. Make one: isthmus cluster create NAME")
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

    found = reach.with_client(look, kubeconfig)
    if json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    elif not found:
        typer.echo("There is no cluster. Make one: isthmus cluster create NAME")
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
    user: Annotated[str, typer.Option(help="Who. [default: the cluster's first user]", metavar="NAME")] = "",
    key: Annotated[Path | None, typer.Option(help="With which key. [default: yours]", metavar="FILE")] = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Log in to a cluster, or run one command there."""
    import os

    from isthmus.inspect import clusteraccess, clusterstatus
    from isthmus.model.meta import Key

    async def find(client: "Client") -> tuple[clusteraccess.Entrance, Key, str]:
        cluster = await clusterstatus.find_cluster(client, name, namespace=namespace)
        chosen = user or next((it.name for it in cluster.spec.users), "root")
        ports = reach.published(client.config.server)
        return await clusteraccess.entrance(client, cluster, published=ports), cluster.metadata.key, chosen

    entrance, cluster, chosen = reach.with_client(find, kubeconfig)
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
    user: Annotated[str, typer.Option(help="As this user. [default: root]", metavar="NAME")] = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Run a command on a login node, without a key; a shell, if none is given."""
    from isthmus.cli.terminal import run_in_pod
    from isthmus.inspect import clusterstatus
    from isthmus.model.meta import Key

    words = tuple(command or ("bash",))
    if user:
        # A login, so that they have a home; the command's words reach it as they are.
        words = ("su", "-l", "-c", 'exec "$0" "$@"', "--", user, *words)

    async def run(client: "Client") -> int:
        cluster = await clusterstatus.find_cluster(client, name, namespace=namespace)
        login = Key(cluster.metadata.namespace, f"{cluster.status.name_prefix or ''}login-0")
        return await run_in_pod(client, login, words, container="login")

    raise typer.Exit(reach.with_client(run, kubeconfig))


@app.command()
def refresh(
    name: _Name,
    *,
    namespace: _Namespace = "",
    image: Annotated[
        str, typer.Option(help="To this image. [default: the one that the cluster is to have]", metavar="IMAGE")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Bring the shared root up to a newer image: what would change is shown first, and what users wrote is kept."""
    from isthmus.inspect import clusterrefresh, clusterstatus

    async def run(client: "Client") -> None:
        cluster = await clusterstatus.find_cluster(client, name, namespace=namespace)
        wanted = await clusterrefresh.prepare(client, cluster, image=image)
        typer.echo(f"From {cluster.status.jail_image} to {wanted.filling.image}, this would be done:")
        await clusterrefresh.show_plan(client, wanted, typer.echo)
        if not yes and not typer.confirm("People stay logged in, and jobs run on. Go on?"):
            typer.echo("Nothing was changed.")
            return
        await clusterrefresh.carry_out(client, wanted, typer.echo)
        if image and image != cluster.status.jail_image_wanted:
            place = cluster.metadata.namespace
            typer.echo(
                f"The specification still says {cluster.status.jail_image_wanted}; let it say what is there:\n"
                f"  kubectl patch -n {place} slurmcluster {name} --type=merge"
                f' -p=\'{{"spec":{{"populateJail":{{"image":"{image}"}}}}}}\''
            )

    reach.with_client(run, kubeconfig)


@app.command()
def delete(
    name: _Name,
    *,
    namespace: _Namespace = "",
    data: Annotated[
        bool, typer.Option("--data/--keep-data", help="Users' files, accounting and state, too.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Until its last pod is gone.")] = True,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Remove a cluster: workers are drained first, and users' files are kept unless told otherwise."""
    from isthmus.inspect import clusteraccess, clusterremoving, clusterstatus
    from isthmus.model.storage import CLAIMS

    async def remove(client: "Client") -> None:
        cluster = await clusterstatus.find_cluster(client, name, namespace=namespace)
        place = cluster.metadata.namespace
        if not yes:
            fate = "are DELETED, too" if data else "are kept"
            size = f"{cluster.status.workers} workers" if cluster.status.workers else "no workers yet"
            typer.echo(f"Cluster {place}/{name}: {size}. Users' files, accounting and state {fate}.")
            if not typer.confirm("Its workers finish their running jobs first. Delete it?"):
                typer.echo("Nothing was changed.")
                return
        await clusterremoving.remove(client, cluster, _aloud, wait=wait or data)
        selector = clusteraccess.claims_selector(cluster)
        if data:
            await clusterremoving.remove_data(client, cluster)
            typer.echo("Its data are deleted.")
        elif left := (await client.list(CLAIMS, namespace=place, labels=selector)).items:
            kept = ", ".join(it.metadata.name for it in left)
            typer.echo(f"Kept: volume claims {kept}, and what opens them.")
            typer.echo(f"Delete them: kubectl delete pvc,secret -n {place} -l '{selector}'")

    reach.with_client(remove, kubeconfig)


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
            raise Terminal(f"the cluster {name} was deleted while it was being made")
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
