"""Where a usage report comes from: an exporter in Kubernetes, one that is named by its address, or its file."""

import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from isthmus import names
from isthmus.domain.exporter.report import Report, parse, report
from isthmus.errors import Retry, Terminal
from isthmus.exporter import usage
from isthmus.kube.client import Client, path, with_query
from isthmus.kube.errors import NotFound, Unavailable
from isthmus.model.objects import SERVICES

_API: Final = "/api/v1/report"
_COMPONENT: Final = f"{names.COMPONENT_LABEL}=exporter"
_PORT: Final = "monitoring"
_PATIENCE: Final = aiohttp.ClientTimeout(total=60, connect=10)
_REMEDY: Final = f"see whether the exporter runs: kubectl get pods -A -l {_COMPONENT}"


async def from_cluster(
    client: Client, parameters: Mapping[str, str], *, cluster: str = "", namespace: str = ""
) -> Report:
    """Ask the exporter of a cluster, through the API server."""
    selected = f"{_COMPONENT},{names.INSTANCE_LABEL}={cluster}" if cluster else _COMPONENT
    listing = (
        await client.list(SERVICES, labels=selected, namespace=namespace)
        if namespace
        else await client.list(SERVICES, labels=selected)
    )
    found = [service.metadata.key for service in listing.items]
    if not found:
        what = f"cluster {cluster}" if cluster else "any cluster"
        where = f" in namespace {namespace}" if namespace else ""
        raise Terminal(
            f"there is no exporter of {what}{where}",
            remedy="set slurmNodes.exporter.enabled in the SlurmCluster, or give --exporter URL or --store FILE",
        )
    if len(found) > 1:
        raise Terminal(
            f"there are {len(found)} exporters: {', '.join(map(str, found))}",
            remedy="choose one: --cluster NAME, --namespace NAME",
        )
    service = path(SERVICES, f"{found[0].namespace}/{found[0].name}:{_PORT}", "proxy")
    try:
        return _decode(await client.raw(with_query(service + _API, parameters)))
    except (NotFound, Unavailable) as error:
        raise Retry(f"the exporter {found[0]} does not answer: {error.what}", remedy=_REMEDY) from error


async def from_exporter(url: str, parameters: Mapping[str, str]) -> Report:
    """Ask an exporter at the address of its monitoring port."""
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
        raise Terminal(f"{url[:80]!r} is not a valid URL", remedy="write http://HOST:8081")
    try:
        async with (
            aiohttp.ClientSession(timeout=_PATIENCE) as session,
            session.get(url.rstrip("/") + _API, params=parameters) as answer,
        ):
            body = await answer.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        reason = str(error) or "it took too long"
        raise Retry(f"the exporter at {url} does not answer: {reason}", remedy="check --exporter") from error
    if not answer.ok:
        raise Retry(f"the exporter at {url} answered {answer.status}: {body[:200].decode(errors='replace')}")
    return _decode(body)


def from_store(file: Path, parameters: Mapping[str, str]) -> Report:
    """Read the file of an exporter, also while that runs."""
    query = parse(parameters, now=time.time())
    if not file.is_file():
        raise Terminal(f"there is no file {file}", remedy="name the exporter.db in the exporter's --data-dir")
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return report(usage.select(connection, query), query)
    except sqlite3.Error as error:
        raise Terminal(f"{file} is not the file of an exporter: {error}") from error


def _decode(body: bytes) -> Report:
    try:
        return msgspec.json.decode(body, type=Report)
    except msgspec.MsgspecError as error:
        raise Terminal(
            f"the answer is not a report: {error}", remedy="use the monitoring port of an exporter, usually 8081"
        ) from error
