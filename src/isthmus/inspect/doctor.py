"""Examines Slurm clusters and what they depend on: gathers facts, from which `domain.diagnosis` concludes."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.domain.diagnosis import Facts, Finding, diagnose
from isthmus.domain.diagnosis.facts import CheckFact, HostFacts, KindFact, OperatorFact, ReturnedFact
from isthmus.errors import Terminal
from isthmus.inspect import bridgefacts, clusterfacts, clusterinside, strays
from isthmus.inspect.clusterfacts import ClusterReader
from isthmus.inspect.returned import returned
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.activecheck import ACTIVE_CHECKS, ActiveCheck
from isthmus.model.base import Kind
from isthmus.model.health import HEALTH_POLICIES, NODE_HEALTHS
from isthmus.model.lease import LEASES, Lease
from isthmus.model.meta import Key, condition
from isthmus.model.node import NODES, Node
from isthmus.operator import crds

_CHECKER_LABELS: Final = {names.NAME_LABEL: "soperatorchecks"}
"""On the Lease of soperatorchecks, whatever the installation is called."""

_DEFINITIONS: Final[Kind[dict[str, Any]]] = Kind(
    dict[str, Any],
    "apiextensions.k8s.io/v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)


class Report(msgspec.Struct, frozen=True):
    """What was examined, and what was found."""

    clusters: tuple[str, ...]
    findings: tuple[Finding, ...]
    others: tuple[str, ...] = ()
    """What else was examined: bridges, and clusters of this machine."""

    @property
    def well(self) -> bool:
        """Whether nothing is broken; what is only worth knowing does not count."""
        return not any(finding.grave for finding in self.findings)


async def examine(
    client: Client, *, namespace: str = "", name: str = "", now: float, host: HostFacts | None = None
) -> Report:
    facts = await gather(client, namespace=namespace, name=name, now=now)
    return report(msgspec.structs.replace(facts, host=host or HostFacts()))


def report(facts: Facts) -> Report:
    others = (
        *(f"bridge {bridge.key}" for bridge in facts.bridges or ()),
        *(f"local cluster {cluster.name}" for cluster in facts.host.clusters),
    )
    return Report(tuple(str(cluster.key) for cluster in facts.clusters), diagnose(facts), others)


async def gather(client: Client, *, namespace: str = "", name: str = "", now: float) -> Facts:
    """Find out what there is, all at the same time."""
    reading = ClusterReader(client, namespace)
    async with asyncio.TaskGroup() as tasks:
        found = tasks.create_task(clusterfacts.find(reading))
        others = tasks.create_task(strays.read(reading))
        kinds = tasks.create_task(_kinds(reading))
        operators = tasks.create_task(_leaders(ClusterReader(client), {names.NAME_LABEL: names.OPERATOR}, now))
        checkers = tasks.create_task(_leaders(ClusterReader(client), _CHECKER_LABELS, now))
        checks = tasks.create_task(reading.list(ACTIVE_CHECKS, "ActiveChecks"))
        healths = tasks.create_task(reading.list(NODE_HEALTHS, "NodeHealths"))
        policies = tasks.create_task(reading.list(HEALTH_POLICIES, "HealthPolicies"))
        nodes = tasks.create_task(reading.list(NODES, "nodes"))
        gone_back = tasks.create_task(
            reading.attempt("Events", returned(client, namespace=namespace, now=now)),
        )
        installed = tasks.create_task(bridgefacts.bridges(ClusterReader(client, namespace), now=now))
    every = clusterfacts.clusters_of(found.result(), now=now)
    chosen = [it for it in every if not name or it.key.name == name]
    if name and not chosen:
        raise Terminal(f"there is no cluster {name!r}", remedy="isthmus cluster list")
    bridges = () if name else installed.result()
    around = bridgefacts.NOTHING
    if bridges is not None and not (name or namespace):
        around = await bridgefacts.surroundings(reading, nodes.result(), installed=bool(bridges))
    async with asyncio.TaskGroup() as tasks:
        looking = [tasks.create_task(clusterinside.look_inside(client, cluster)) for cluster in chosen]
    return Facts(
        kinds=kinds.result(),
        operators=operators.result(),
        clusters=tuple(task.result() for task in looking),
        strays=() if name else strays.strays_of(found.result(), others.result(), every, now=now),
        taints=_taints(nodes.result()),
        unready={it.metadata.name: _said_of(it) for it in nodes.result() if not _is_ready(it)},
        returned=tuple(ReturnedFact(pod=it.pod, why=it.why) for it in gone_back.result() or ()),
        checkers=checkers.result(),
        checks=tuple(map(check_fact, checks.result())),
        healths=healths.result(),
        policies=policies.result(),
        bridges=bridges,
        **around._asdict(),
        troubles=reading.troubles,
    )


async def _kinds(reading: ClusterReader) -> tuple[KindFact, ...]:
    """Compare the kinds that the API server has with those that this program knows."""
    wanted = {it["metadata"]["name"]: it for it in crds.definitions()}
    facts = []
    for name, ours in wanted.items():
        try:
            theirs = await reading.attempt("custom kinds", reading.client.get(_DEFINITIONS, Key("", name)))
        except NotFound:
            facts.append(KindFact(name=name, served=False))
            continue
        if theirs is not None:
            facts.append(KindFact(name=name, lacks=tuple(lacking(ours, theirs))[:20]))
    return tuple(facts)


def lacking(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    """The fields that our definition of a kind has and theirs does not."""
    known = {version["name"]: version for version in theirs["spec"]["versions"]}
    for version in ours["spec"]["versions"]:
        there = known.get(version["name"])
        if there is None or not there.get("served"):
            yield f"version {version['name']}"
            continue
        yield from _missing_fields(version["schema"]["openAPIV3Schema"], there["schema"]["openAPIV3Schema"], "")


def _missing_fields(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    there = theirs.get("properties", {})
    for name, schema in ours.get("properties", {}).items():
        field = f"{path}.{name}".lstrip(".")
        if name not in there:
            if not theirs.get("x-kubernetes-preserve-unknown-fields"):
                yield field
        else:
            yield from _missing_fields(schema, there[name], field)
    if isinstance(ours.get("items"), Mapping) and isinstance(theirs.get("items"), Mapping):
        yield from _missing_fields(ours["items"], theirs["items"], f"{path}[]")


def check_fact(check: ActiveCheck) -> CheckFact:
    """Why the last run of a check says nothing: its own error, where no node failed beside it."""
    status = check.status
    errors = [it for it in status.nodes if it.result == "Error"]
    judged = status.passed or any(it.result == "Failed" for it in status.nodes)
    last = status.slurm_jobs_status
    error = ""
    if errors and not judged:
        error = f"{errors[0].node}: {errors[0].evidence or 'no reason was given'}"
    elif last.last_run_status == "Error" and not judged:
        told = last.last_run_error_jobs_and_reasons
        error = f"job {told[0].job_id}: {told[0].reason}" if told else "its last run ended with an error"
    return CheckFact(key=check.metadata.key, error=error)


async def _leaders(
    reading: ClusterReader, labels: Mapping[str, str], now: float
) -> tuple[OperatorFact, ...] | None:
    # Under which name it was installed is not known here.
    label = ",".join(f"{key}={value}" for key, value in labels.items())
    try:
        leases = await reading.attempt("Leases", reading.client.list(LEASES, labels=label))
    except NotFound:
        return None
    return tuple(_operator(it, now) for it in leases.items) if leases else None


def _operator(lease: Lease, now: float) -> OperatorFact:
    spec = lease.spec
    renewed = now - datetime.fromisoformat(spec.renew_time).timestamp() if spec.renew_time else None
    return OperatorFact(
        holder=spec.holder_identity or "", renewed=renewed, patience=float(spec.lease_duration_seconds or 15)
    )


def _taints(nodes: tuple[Node, ...]) -> dict[str, tuple[str, ...]]:
    found = {
        node.metadata.name: tuple(
            f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            for taint in node.spec.taints
            if taint.effect in {"NoSchedule", "NoExecute"}
        )
        for node in nodes
    }
    return {name: taints for name, taints in found.items() if taints}


def _is_ready(node: Node) -> bool:
    ready = condition(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def _said_of(node: Node) -> str:
    ready = condition(node.status.conditions, "Ready")
    return ready.message if ready is not None else ""
