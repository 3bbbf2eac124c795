"""`isthmus submit FILE`: a batch script to Slurm, a Pod or Job to Kubernetes."""

from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import connection
from isthmus.cli.flags import STDIN, Kubeconfig, text_of
from isthmus.cli.logs import write_out
from isthmus.cli.query import Cluster, complain
from isthmus.errors import Terminal

if TYPE_CHECKING:
    from isthmus.inspect.submission import Work
    from isthmus.kube.client import Client


def submit(
    file: Annotated[
        str,
        typer.Argument(help="A batch script, or a manifest of a Pod or Job; - for standard input.", metavar="FILE"),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of the script.", metavar="ARGUMENT...")
    ] = None,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait until it ends, and exit with its exit code.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show its log until it ends, and exit with its exit code.")
    ] = False,
    user: Annotated[
        str,
        typer.Option("--user", "-u", help="User of the cluster, where sbatch runs in a login pod.", metavar="NAME"),
    ] = "",
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", help="Namespace of the Pod or Job. [default: its own]", metavar="NAME"),
    ] = "",
    cluster: Cluster = "",
    kubeconfig: Kubeconfig = None,
) -> None:
    """Submit a batch script to Slurm, or a manifest of a Pod or Job to Kubernetes.

    A script goes to sbatch on this machine or, where there is none, in a login pod of the cluster.
    """
    from isthmus.domain.views.workfile import BatchScript, read
    from isthmus.inspect import slurmsource, submission
    from isthmus.slurm import commands

    wanted = read(text_of(file), file)

    async def stay(work: "Work") -> int:
        typer.echo(work.ref, err=follow)
        return await submission.stay(work, write_out if follow else None, complain) if wait or follow else 0

    async def here(script: BatchScript) -> int:
        local = commands.SlurmCommands(commands.on_this_machine)
        path = "" if file == STDIN else file
        words = arguments or ()
        return await stay(await submission.submit_script(local, script, file=path, arguments=words, user=user))

    async def elsewhere(client: "Client") -> int:
        if isinstance(wanted, BatchScript):
            pod = await slurmsource.in_kubernetes(client, cluster)
            return await stay(await submission.submit_script(pod, wanted, arguments=arguments or (), user=user))
        place = namespace or connection.namespace(kubeconfig)
        return await stay(await submission.submit_manifest(client, wanted, namespace=place))

    if isinstance(wanted, BatchScript) and commands.are_here() and not cluster:
        raise typer.Exit(connection.run(here(wanted)))
    if isinstance(wanted, BatchScript) and not connection.is_set_up(kubeconfig):
        raise Terminal(
            "there is neither sbatch on this machine nor a kubeconfig",
            remedy="log in where sbatch works, or set KUBECONFIG to submit in a login pod of a cluster there",
        )
    raise typer.Exit(connection.with_client(elsewhere, kubeconfig))
