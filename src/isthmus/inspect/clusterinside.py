"""Looks into the pods of a Slurm cluster: what they see of each other, and what Slurm's own commands say."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from isthmus.domain.diagnosis import reading
from isthmus.domain.diagnosis.facts import Answer, ClusterFacts, InsideFact, PodFact
from isthmus.errors import IsthmusError
from isthmus.kube import stream
from isthmus.kube.client import Client
from isthmus.model.meta import Key

_PATIENCE: Final = 20.0
_MOST_WORKERS: Final = 16
"""Workers of a cluster that are looked into: enough to see what is wrong with all."""

_PLACES: Final = {"controller": "slurmctld", "worker": "slurmd", "login": "sackd"}
"""The container in which the key of Slurm is, by the component of the pod."""


async def look_inside(client: Client, cluster: ClusterFacts) -> ClusterFacts:
    """Run small scripts in the cluster's pods, all at the same time, and add what they say."""
    running = [
        pod
        for pod in cluster.pods
        if pod.phase == "Running" and not pod.leaving and pod.component in _PLACES and not _stands_in(pod)
    ]
    workers = [pod for pod in running if pod.component == "worker"]
    looked = [*(pod for pod in running if pod.component != "worker"), *workers[:_MOST_WORKERS]]
    seen = [pod.host for pod in looked if pod.component != "login"]
    async with asyncio.TaskGroup() as tasks:
        insides = [tasks.create_task(_inside(client, cluster.key.namespace, pod, seen)) for pod in looked]
        answers = tasks.create_task(ask_slurm(client, cluster))
    told = answers.result()
    nodes = told.get("nodes")
    return msgspec.structs.replace(
        cluster,
        insides=tuple(task.result() for task in insides),
        ping=told.get("ping"),
        database=told.get("database"),
        nodes=reading.read_nodes(nodes.text) if nodes and nodes.ok else None,
    )


async def _inside(client: Client, namespace: str, pod: PodFact, seen: Sequence[str]) -> InsideFact:
    container = _PLACES[pod.component]
    script = ("sh", "-c", reading.INSIDE, "look", *seen)
    asked = time.time()
    try:
        code, text = await run(client, Key(namespace, pod.name), script, container=container)
    except IsthmusError as error:
        return InsideFact(pod=pod.name, component=pod.component, trouble=error.what)
    if code:
        return InsideFact(pod=pod.name, component=pod.component, trouble=text.strip() or f"exit code {code}")
    return reading.read_inside(pod.name, pod.component, text, asked=asked, answered=time.time())


async def ask_slurm(client: Client, cluster: ClusterFacts) -> Mapping[str, Answer]:
    """Ask Slurm's own commands, on a login node or where slurmctld runs; nothing if neither runs."""
    asker = _asker(cluster)
    if asker is None:
        return {}
    pod, container = asker
    words = ["accounting"] if any(part.kind == "Accounting" for part in cluster.parts) else ["none"]
    script = ("bash", "-c", reading.ASK, "ask", *words)
    try:
        _, text = await run(client, Key(cluster.key.namespace, pod), script, container=container)
    except IsthmusError:
        return {}
    return reading.read_answers(text)


def _asker(cluster: ClusterFacts) -> tuple[str, str] | None:
    running = [pod for pod in cluster.pods if pod.phase == "Running" and not pod.leaving]
    for component, container in (("login", "login"), ("controller", "slurmctld")):
        # One that is ready is asked rather than one that is not.
        for pod in sorted(running, key=lambda pod: not pod.ready):
            if pod.component == component and not _stands_in(pod):
                return pod.name, container
    return None


def _stands_in(pod: PodFact) -> bool:
    """Whether a pod only keeps a place warm for slurmctld."""
    return "-placeholder-" in pod.name


async def run(client: Client, pod: Key, command: Sequence[str], *, container: str = "") -> tuple[int, str]:
    """Run a command in a pod: its exit code, and what it printed."""
    pieces: list[bytes] = []
    take: Callable[[bytes], object] = pieces.append
    try:
        async with asyncio.timeout(_PATIENCE):
            code = await stream.execute(client, pod, command, container=container, stdout=take)
    except TimeoutError:
        return 124, f"no answer within {_PATIENCE:.0f} s"
    return code, b"".join(pieces).decode(errors="replace")
