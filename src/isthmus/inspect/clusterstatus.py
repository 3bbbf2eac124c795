"""The status of a Slurm cluster: its parts, its nodes and jobs, the last problems, and what to do next."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from isthmus.domain.diagnosis import probes
from isthmus.domain.diagnosis.facts import Answer, ClusterFacts, PartFact
from isthmus.domain.operator.clusterparts.rootstatus import POPULATED
from isthmus.errors import Terminal
from isthmus.inspect import clusterfacts, clusterinside
from isthmus.inspect.clusterfacts import ClusterReader, Found
from isthmus.kube.client import Client
from isthmus.model.event import Event
from isthmus.model.meta import Key, condition
from isthmus.model.soperator import SLURM_CLUSTERS, SlurmCluster

_RECENT: Final = 900.0
"""Warnings of the last quarter of an hour are shown."""
_MAX_PROBLEMS: Final = 5
_MAX_CHARS: Final = 160

_TITLES: Final = {
    "Controller": "slurmctld",
    "RestApi": "slurmrestd",
    "Accounting": "slurmdbd",
    "LoginSet": "login",
    "NodeSet": "workers",
}


class PartLine(msgspec.Struct, frozen=True):
    """One part: what it is, how many of how many are ready, and what it says."""

    part: str
    name: str
    ready: str
    well: bool
    told: str = ""


class Problem(msgspec.Struct, frozen=True):
    """Something that Kubernetes warned of, so many seconds ago."""

    about: str
    text: str
    ago: float


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `isthmus cluster status` shows of one cluster."""

    cluster: str
    namespace: str
    phase: str
    ready: bool
    told: str
    version: str
    parts: tuple[PartLine, ...]
    root: str = ""
    """The state of the shared root; empty where there is none."""
    nodes: Mapping[str, int]
    jobs: Mapping[str, int]
    slurm_answers: bool
    problems: tuple[Problem, ...]
    next_steps: tuple[str, ...]


async def find_cluster(client: Client, name: str, *, namespace: str = "") -> SlurmCluster:
    """Find a cluster by its name, in one namespace or wherever it is."""
    listing = await client.list(SLURM_CLUSTERS, namespace=namespace, fields=f"metadata.name={name}" if name else "")
    if not listing.items:
        where = f" in the namespace {namespace}" if namespace else ""
        what = f"there is no cluster {name!r}{where}" if name else f"there is no cluster{where}"
        raise Terminal(what, remedy=f"isthmus cluster list, or create one: isthmus cluster create {name or 'NAME'}")
    if len(listing.items) > 1:
        found = ", ".join(str(it.metadata.key) for it in listing.items)
        raise Terminal(f"several clusters match: {found}", remedy="give a name, and --namespace")
    return listing.items[0]


async def statuses(client: Client, *, name: str = "", namespace: str = "", now: float) -> tuple[Status, ...]:
    reader = ClusterReader(client, namespace)
    found = await clusterfacts.find(reader)
    if reader.troubles and not found.clusters:
        what, why = next(iter(reader.troubles.items()))
        raise Terminal(f"{what} cannot be read: {why}")
    chosen = [it for it in clusterfacts.clusters_of(found, now=now) if not name or it.key.name == name]
    if name and not chosen:
        raise Terminal(f"there is no cluster {name!r}", remedy="isthmus cluster list")
    return tuple([await _status(client, cluster, found, now=now) for cluster in chosen])


async def _status(client: Client, cluster: ClusterFacts, found: Found, *, now: float) -> Status:
    answers = await clusterinside.ask_slurm(client, cluster)
    own = next((it for it in found.clusters if it.metadata.key == cluster.key), None)
    parts = tuple(_parts(cluster, found))
    told = condition(own.status.conditions, "Ready") if own else None
    well = bool(parts) and all(part.well for part in parts)
    ready = (told is not None and told.status == "True") if own else well
    # What a cluster met on its way to being ready is of no interest any more.
    settled = told.last_transition_time.timestamp() if told and ready and told.last_transition_time else 0.0
    problems = tuple(_problems(cluster, found, now, since=max(settled, now - _RECENT)))
    version = _version(cluster, own, found)
    return Status(
        cluster=cluster.key.name,
        namespace=cluster.key.namespace,
        phase=own.status.phase if own and own.status.phase else ("Available" if ready else "Not available"),
        ready=ready,
        told=told.message if told and not ready else "",
        version=version,
        parts=parts,
        root=root.message if own and (root := condition(own.status.conditions, POPULATED)) else "",
        nodes=_node_states(answers.get("nodes")),
        jobs=probes.read_jobs(jobs.text) if (jobs := answers.get("jobs")) and jobs.ok else {},
        slurm_answers=bool((ping := answers.get("ping")) and ping.ok),
        problems=problems,
        next_steps=tuple(_next(cluster.key, ready=ready, broken=bool(problems), started=bool(parts))),
    )


def _version(cluster: ClusterFacts, own: SlurmCluster | None, found: Found) -> str:
    if own and own.status.slurm_version:
        return own.status.slurm_version
    controller = next((it for it in found.parts["Controller"] if it.metadata.key == cluster.key), None)
    return controller.status.slurm_version if controller else ""


def _parts(cluster: ClusterFacts, found: Found) -> Iterator[PartLine]:
    objects = {(kind, it.metadata.key): it for kind, listed in found.parts.items() for it in listed}
    for part in cluster.parts:
        if part.kind not in _TITLES:
            continue
        it = objects[part.kind, Key(cluster.key.namespace, part.name)]
        ready = condition(part.conditions, "Ready")
        well = ready is not None and ready.status == "True" and part.observed_generation >= part.generation
        said = ready.message if ready and not well else ""
        yield PartLine(_TITLES[part.kind], part.name, _count(part, it, well=well), well, said)


def _count(part: PartFact, it: Any, *, well: bool) -> str:
    match part.kind:
        case "Controller":
            return it.status.ready or ("yes" if well else "no")
        case "NodeSet" | "LoginSet" | "RestApi":
            return f"{it.status.ready_replicas}/{it.spec.replicas}"
        case _:
            return "yes" if well else "no"


def _node_states(answer: Answer | None) -> dict[str, int]:
    """Count nodes by their state, those that take no jobs under why they do not."""
    if answer is None or not answer.ok:
        return {}
    counts: Counter[str] = Counter()
    for node in probes.read_nodes(answer.text):
        states = {state.lower() for state in node.states}
        special = next(
            (it for it in ("invalid_reg", "down", "fail", "not_responding", "drain") if it in states), ""
        )
        counts[special or node.states[0].lower()] += 1
    return dict(counts.most_common())


def _problems(cluster: ClusterFacts, found: Found, now: float, *, since: float) -> Iterator[Problem]:
    mine = {pod.name for pod in cluster.pods} | {part.name for part in cluster.parts}
    mine |= {claim.name for claim in cluster.claims}
    recent = [
        (now - at.timestamp(), it)
        for it in found.warnings
        if it.metadata.namespace == cluster.key.namespace
        and it.involved_object.name in mine
        and (at := it.at) is not None
        and at.timestamp() > since
    ]
    for ago, it in sorted(recent, key=_newest)[:_MAX_PROBLEMS]:
        about = f"{it.involved_object.kind.lower()}/{it.involved_object.name}"
        text = f"{it.reason}: {' '.join(it.message.split())}"
        yield Problem(about, text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…", ago)


def _newest(pair: tuple[float, Event]) -> float:
    return pair[0]


def _next(cluster: Key, *, ready: bool, broken: bool, started: bool) -> Iterator[str]:
    if ready:
        yield f"isthmus cluster ssh {cluster.name}"
        yield f"isthmus cluster exec {cluster.name} -- sinfo"
        return
    if broken or started:
        yield "find the cause: isthmus doctor"
    yield f"kubectl wait -n {cluster.namespace} --for=condition=Ready slurmcluster/{cluster.name} --timeout=5m"
