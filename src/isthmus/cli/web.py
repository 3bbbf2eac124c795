"""`isthmus web`: the page that shows Slurm and Kubernetes together."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.bridge import Config, SlurmRestApi
from isthmus.cli.flags import HealthAddress, Kubeconfig, MetricsAddress, Verbosity
from isthmus.cli.loglevels import level
from isthmus.errors import Terminal


def web(
    *,
    config: Config = None,
    slurm_rest_api: SlurmRestApi = None,
    kubeconfig: Kubeconfig = None,
    bind_address: Annotated[str, typer.Option(help="Address of the page.", metavar="ADDRESS")] = ":8082",
    name: Annotated[str, typer.Option(help="Name of the cluster on the page.", metavar="NAME")] = "",
    slurm_jwt_key: Annotated[
        Path | None,
        typer.Option(help="Slurm's jwt.key, for actions of users in Slurm. [default: read-only]", metavar="FILE"),
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option(help="YAML file that maps names in Kubernetes to names in Slurm.", metavar="FILE"),
    ] = None,
    user_prefix: Annotated[
        str,
        typer.Option(help="Prefix that names have in Kubernetes, not in Slurm, such as oidc:.", metavar="TEXT"),
    ] = "",
    oidc_issuer: Annotated[
        str, typer.Option(help="OpenID Connect provider that the API server trusts.", metavar="URL")
    ] = "",
    oidc_client_id: Annotated[str, typer.Option(help="ID of the page at the provider.", metavar="NAME")] = "",
    oidc_client_secret: Annotated[
        Path | None, typer.Option(help="File with the client secret.", metavar="FILE")
    ] = None,
    oidc_scopes: Annotated[
        str, typer.Option(help="Scopes to ask for.", metavar="WORDS")
    ] = "openid email profile offline_access",
    oidc_ca: Annotated[
        Path | None, typer.Option(help="CA certificates for the provider. [default: the system's]", metavar="FILE")
    ] = None,
    public_url: Annotated[
        str, typer.Option(help="URL at which browsers reach the page, for login by a provider.", metavar="URL")
    ] = "",
    insecure_no_login: Annotated[
        bool, typer.Option("--insecure-no-login", help="Show everything to everybody on this machine.")
    ] = False,
    metrics_bind_address: MetricsAddress = ":8080",
    health_probe_bind_address: HealthAddress = ":8081",
    v: Verbosity = "0",
) -> None:
    """Serve a live page of jobs, pods and nodes: what runs, what waits and why, what is broken."""
    from isthmus.bridge.config import load
    from isthmus.runtime import logs, loop
    from isthmus.web import oidc, process

    if bool(oidc_issuer) != bool(oidc_client_id) or (oidc_issuer and not public_url):
        raise Terminal(
            "login by a provider needs all of --oidc-issuer, --oidc-client-id and --public-url",
            remedy="such as --public-url=https://slurm.example.org",
        )
    provider = None
    if oidc_issuer:
        provider = oidc.Settings(
            issuer=oidc_issuer,
            client_id=oidc_client_id,
            secret=oidc_client_secret,
            scopes=oidc_scopes,
            ca=oidc_ca,
            url=public_url,
        )
    settings = load(config, overrides={"slurmRestApi": slurm_rest_api})
    options = process.Options(
        address=bind_address,
        kubeconfig=kubeconfig,
        name=name,
        key=slurm_jwt_key,
        users=users,
        user_prefix=user_prefix,
        login=not insecure_no_login,
        provider=provider,
        metrics_address=metrics_bind_address,
        health_address=health_probe_bind_address,
    )
    logs.configure(level=level(v))
    loop.run(process.run(settings, options))
