"""`isthmus operator`: the process that turns custom resources into Slurm clusters."""

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


def operator(
    *,
    namespaces: Namespaces = "",
    kubeconfig: Kubeconfig = None,
    metrics_bind_address: MetricsAddress = ":8080",
    health_probe_bind_address: HealthAddress = ":8081",
    webhook_bind_address: Annotated[
        str, typer.Option(help="Address of the webhook server; 0 disables it.", metavar="ADDRESS")
    ] = ":9443",
    leader_elect: LeaderElect = True,
    leader_elect_namespace: LeaseNamespace = "",
    name: Annotated[
        str, typer.Option(help="Name of the Lease, and prefix of the webhooks.", metavar="NAME")
    ] = "isthmus-operator",
    propagated_node_conditions: Annotated[
        str,
        typer.Option(help="Node conditions whose message Slurm gets as the reason for a cordon.", metavar="TYPES"),
    ] = "",
    slurm_image: Annotated[str, typer.Option(help="The image of Slurm's daemons.", metavar="IMAGE")] = "",
    login_image: Annotated[str, typer.Option(help="The image of login nodes and workers.", metavar="IMAGE")] = "",
    mariadb_image: Annotated[str, typer.Option(help="The image of databases.", metavar="IMAGE")] = "",
    isthmus_image: Annotated[
        str, typer.Option(help="The image with the isthmus command. [default: of this version]", metavar="IMAGE")
    ] = "",
    v: Verbosity = "0",
) -> None:
    """Run the operator: custom resources become Slurm clusters in pods."""
    from isthmus.domain.operator.manifests.common import Settings
    from isthmus.processes import operator as app
    from isthmus.runtime import logs, loop

    images = {
        "slurm_image": slurm_image,
        "login_image": login_image,
        "mariadb_image": mariadb_image,
        "isthmus_image": isthmus_image,
    }
    settings = Settings(
        domain=app.domain_here(),
        cgroup=app.cgroup_here(),
        propagated_node_conditions=words(propagated_node_conditions),
        **{key: image for key, image in images.items() if image},
    )
    options = app.Options(
        settings=settings,
        name=name,
        namespaces=words(namespaces),
        kubeconfig=kubeconfig,
        metrics_address=metrics_bind_address,
        health_address=health_probe_bind_address,
        webhook_address=webhook_bind_address,
        elect=leader_elect,
        election_namespace=leader_elect_namespace,
    )
    logs.configure(level=level(v))
    loop.run(app.run(options))
