"""`isthmus exporter`: metrics of one Slurm cluster for Prometheus."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.loglevels import level
from isthmus.errors import Terminal

if TYPE_CHECKING:
    from isthmus.exporter.settings import JobSource
    from isthmus.runtime.logs import Form


def _flag(name: str, help_text: str, metavar: str | None = None) -> Any:
    """Make a flag that SLURM_EXPORTER_NAME sets, too; the flag wins. A name with a slash is that of a switch."""
    variable = f"SLURM_EXPORTER_{name.partition('/')[0].replace('-', '_').upper()}"
    words = "/".join(f"--{word}" for word in name.split("/"))
    return typer.Option(words, envvar=variable, show_envvar=False, help=help_text, metavar=metavar)


def exporter(
    *,
    slurm_api_server: Annotated[
        list[str] | None,
        _flag("slurm-api-server", "URL of slurmrestd; repeatable, or separated by commas.", "URL"),
    ] = None,
    cluster_name: Annotated[str, _flag("cluster-name", "Name of the cluster.", "NAME")] = "",
    cluster_namespace: Annotated[str, _flag("cluster-namespace", "Namespace of the cluster.", "NAME")] = "",
    collection_interval: Annotated[
        str, _flag("collection-interval", "How often partitions, licences, shares and the like are read.")
    ] = "30s",
    job_source: Annotated[
        str, _flag("job-source", "Source of the series for each job: controller or accounting.", "SOURCE")
    ] = "controller",
    accounting_jobs_lookback: Annotated[
        str, _flag("accounting-jobs-lookback", "How far back jobs are read from accounting.")
    ] = "1h",
    max_collector_inflight: Annotated[
        int, _flag("max-collector-inflight", "Requests of one kind that may be under way at a time.")
    ] = 1,
    metric_set: Annotated[
        str,
        _flag("metric-set", "Names of metrics: own (and Soperator's), native, vpenso or slinky.", "SET"),
    ] = "own",
    per_job_metrics: Annotated[
        bool, _flag("per-job-metrics/no-per-job-metrics", "Expose Soperator's series for each job.")
    ] = True,
    max_series_per_family: Annotated[
        int, _flag("max-series-per-family", "Series of one metric; the rest is added up as other.")
    ] = 1000,
    top_k: Annotated[int, _flag("top-k", "Users, accounts and the like in one metric.")] = 50,
    token_file: Annotated[
        Path | None, _flag("token-file", "File with a token for Slurm; read again when it changes.", "FILE")
    ] = None,
    standalone: Annotated[bool, _flag("standalone/no-standalone", "Get tokens from scontrol token.")] = False,
    static_token: Annotated[
        bool, _flag("static-token/no-static-token", "Use the token in SLURM_JWT or --token-file.")
    ] = False,
    user: Annotated[str, _flag("user", "User of Slurm for whom tokens are made.", "NAME")] = "",
    data_dir: Annotated[
        Path | None, _flag("data-dir", "Directory for counters and usage. [default: memory only]", "DIR")
    ] = None,
    usage_max_age: Annotated[str, _flag("usage-max-age", "How long the usage of jobs is kept.")] = "90d",
    usage_max_size: Annotated[str, _flag("usage-max-size", "How large the file of usage may be.")] = "500MB",
    kubeconfig: Annotated[
        Path | None, _flag("kubeconfig", "Kubeconfig for the labels of nodes. [default: none]", "FILE")
    ] = None,
    metrics_bind_address: Annotated[
        str, _flag("metrics-bind-address", "Address of the metrics of Slurm; 0 disables it.", "ADDRESS")
    ] = ":8080",
    monitoring_bind_address: Annotated[
        str,
        _flag("monitoring-bind-address", "Address of health and of metrics about the exporter.", "ADDRESS"),
    ] = ":8081",
    log_level: Annotated[str, _flag("log-level", "debug, info, warning or error.", "LEVEL")] = "info",
    log_format: Annotated[
        str, _flag("log-format", "text or json. [default: text at a terminal, else json]", "FORMAT")
    ] = "",
) -> None:
    """Export the jobs, nodes and statistics of a Slurm cluster to Prometheus."""
    from isthmus.domain.exporter.folding import Limits
    from isthmus.domain.languages.gotime import parse_duration
    from isthmus.exporter.settings import Settings
    from isthmus.processes import exporter as app
    from isthmus.runtime import logs, loop

    options = app.Options(
        servers=_servers(slurm_api_server),
        mode="standalone" if standalone else "static-token" if static_token else "in-cluster",
        cluster=cluster_name,
        namespace=cluster_namespace,
        token_file=token_file,
        user=user,
        metric_set=metric_set,
        settings=Settings(
            interval=at_least(parse_duration(collection_interval), 1.0, name="collection-interval"),
            inflight=int(at_least(max_collector_inflight, 1, name="max-collector-inflight")),
            job_source=job_source_of(job_source),
            lookback=parse_duration(accounting_jobs_lookback),
            per_job=per_job_metrics,
            limits=Limits(
                series=int(at_least(max_series_per_family, 1, name="max-series-per-family")),
                top=int(at_least(top_k, 1, name="top-k")),
            ),
        ),
        data_dir=data_dir,
        usage_max_age=age(usage_max_age),
        usage_max_bytes=size(usage_max_size),
        kubeconfig=kubeconfig,
        metrics_address=metrics_bind_address,
        monitoring_address=monitoring_bind_address,
    )
    logs.configure(level=level(log_level), form=log_form(log_format))
    loop.run(app.run(options))


def _servers(given: list[str] | None) -> tuple[str, ...]:
    found = tuple(word.strip() for text in given or () for word in text.split(",") if word.strip())
    if not found:
        raise Terminal(
            "no slurmrestd is configured", remedy="set --slurm-api-server, such as http://localhost:6820"
        )
    return found


def at_least(value: float, least: float, *, name: str) -> float:
    """Refuse a value that is too small."""
    if value < least:
        raise Terminal(f"--{name} is {value:g}", remedy=f"set it to {least:g} or more")
    return value


def job_source_of(text: str) -> "JobSource":
    """Read where jobs come from."""
    sources: dict[str, JobSource] = {"controller": "controller", "accounting": "accounting"}
    if text not in sources:
        raise Terminal(f"{text[:40]!r} is not a job source", remedy="set --job-source to controller or accounting")
    return sources[text]


def log_form(text: str) -> "Form | None":
    """Read how logs are written; Soperator says `plain` for text."""
    forms: dict[str, Form | None] = {"": None, "text": "text", "plain": "text", "json": "json"}
    if text not in forms:
        raise Terminal(f"{text[:40]!r} is not a log format", remedy="set --log-format to text or json")
    return forms[text]


def age(text: str) -> float:
    """Read a duration that may be in days."""
    from isthmus.domain.languages.gotime import parse_duration

    days = text.removesuffix("d")
    return int(days) * 86400.0 if days != text and days.isdecimal() else parse_duration(text)


def size(text: str) -> int:
    """Read a number of bytes: a quantity, to which B may be added."""
    from isthmus.domain.languages import quantity

    return quantity.whole(text.removesuffix("B"))
