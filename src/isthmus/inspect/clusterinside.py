"""Looks into the pods of a Slurm cluster: what they see of each other, and what Slurm's own commands say."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from isthmus.domain.diagnosis import probes
from isthmus.domain.diagnosis.facts import Answer, ClusterFacts, InsideFact, PodFact
from isthmus.domain.diagnosis.known import stands_in
from isthmus.domain.operator.manifests import accounting
from isthmus.errors import IsthmusError, Retry
from isthmus.kube import stream
from isthmus.kube.client import Client
from isthmus.model.meta import Key

_PATIENCE: Final = 20.0
_MAX_WORKERS: Final = 16
"""Workers of a cluster that are looked into: enough to see what is wrong with all."""

_LOG_LINES: Final = 20

_PLACES: Final = {"controller": "slurmctld", "worker": "slurmd", "login": "sackd"}
"""The container in which the key of Slurm is, by the component of the pod."""


async def look_inside(client: Client, cluster: ClusterFacts) -> ClusterFacts:
    """Run small scripts in the cluster's pods, all at the same time, and add what they say."""
    running = [
        pod
        for pod in cluster.pods
        if pod.phase == "Running" and not pod.leaving and pod.component in _PLACES and not stands_in(pod)
    ]
    workers = [pod for pod in running if pod.component == "worker"]
    looked = [*(pod for pod in running if pod.component != "worker"), *workers[:_MAX_WORKERS]]
    seen = {pod.host for pod in looked if pod.component != "login"}
    async with asyncio.TaskGroup() as tasks:
        # Its own name, each finds in a file.
        insides = [
            tasks.create_task(_inside(client, cluster.key.namespace, pod, sorted(seen - {pod.host})))
            for pod in looked
        ]
        answers = tasks.create_task(ask_slurm(client, cluster))
    told = answers.result()
    nodes, database = told.get("nodes"), told.get("database")
    log = "" if database is None or database.ok else await _slurmdbd_log(client, cluster)
    return msgspec.structs.replace(
        cluster,
        insides=tuple(task.result() for task in insides),
        ping=told.get("ping"),
        database=database,
        slurmdbd_log=log,
        nodes=probes.read_nodes(nodes.text) if nodes and nodes.ok else None,
    )


async def _inside(client: Client, namespace: str, pod: PodFact, seen: Sequence[str]) -> InsideFact:
    container = _PLACES[pod.component]
    script = ("sh", "-c", probes.INSIDE, "look", *seen)
    asked = time.time()
    try:
        code, text = await run(client, Key(namespace, pod.name), script, container=container)
    except IsthmusError as error:
        return InsideFact(pod=pod.name, component=pod.component, trouble=error.what)
    if code:
        return InsideFact(pod=pod.name, component=pod.component, trouble=text.strip() or f"exit code {code}")
    return probes.read_inside(pod.name, pod.component, text, asked=asked, answered=time.time())


async def ask_slurm(client: Client, cluster: ClusterFacts) -> Mapping[str, Answer]:
    """Ask Slurm's own commands, on a login node or where slurmctld runs; nothing if neither runs."""
    asker = _asker(cluster)
    if asker is None:
        return {}
    pod, container = asker
    words = ["accounting"] if any(part.kind == "Accounting" for part in cluster.parts) else ["none"]
    script = ("bash", "-c", probes.ASK, "ask", *words)
    try:
        _, text = await run(client, Key(cluster.key.namespace, pod), script, container=container)
    except IsthmusError:
        return {}
    return probes.read_answers(text)


async def in_slurm(client: Client, cluster: ClusterFacts, command: Sequence[str]) -> tuple[int, str]:
    """Run one of Slurm's commands where there is Slurm: its exit code, and what it printed."""
    asker = _asker(cluster)
    if asker is None:
        raise Retry(
            f"no login or controller pod of {cluster.key} runs",
            remedy=f"isthmus cluster status {cluster.key.name} -n {cluster.key.namespace}",
        )
    pod, container = asker
    words = ("sh", "-c", 'exec "$@" 2>&1', "sh", *command)
    return await run(client, Key(cluster.key.namespace, pod), words, container=container)


async def _slurmdbd_log(client: Client, cluster: ClusterFacts) -> str:
    """Read what slurmdbd wrote last: what it waits for, or why its database refuses it."""
    pod = next((it for it in cluster.pods if it.component == accounting.COMPONENT and not it.leaving), None)
    if pod is None:
        return ""
    key, pieces = Key(cluster.key.namespace, pod.name), list[bytes]()
    with suppress(IsthmusError, TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            async for piece in stream.logs(client, key, container=accounting.CONTAINER, tail=_LOG_LINES):
                pieces.append(piece)
    return b"".join(pieces).decode(errors="replace")


def _asker(cluster: ClusterFacts) -> tuple[str, str] | None:
    """Choose whom to ask: one that is ready rather than one that is not, and a login node rather than slurmctld."""
    running = [
        pod
        for pod in cluster.pods
        if pod.phase == "Running"
        and not pod.leaving
        and pod.component in {"login", "controller"}
        and not stands_in(pod)
    ]
    chosen = min(running, key=lambda pod: (not pod.ready, pod.component != "login"), default=None)
    return (chosen.name, chosen.main) if chosen else None


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
