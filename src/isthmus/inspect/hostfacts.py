"""Gathers what the doctor knows of this machine: its local clusters, its disks, and its own way to Slurm."""

import os
import shutil
from pathlib import Path
from typing import Final

from isthmus.domain.diagnosis.facts import Answer, HostFacts, LocalClusterFact, LocalNodeFact
from isthmus.errors import Terminal
from isthmus.inspect.bridgefacts import token_left
from isthmus.local import host, state
from isthmus.local.cluster import Cluster
from isthmus.local.paths import cache_dir, state_dir
from isthmus.slurm import commands

_FULL_GIB: Final = 2.0


async def host_facts(*, now: float) -> HostFacts:
    clusters = _clusters()
    ping = None
    if commands.are_here():
        done = await commands.on_this_machine(("scontrol", "ping"), b"")
        ping = Answer(code=done.code, text=(done.output or done.errors).decode(errors="replace"))
    token = os.environ.get("SLURM_JWT", "")
    return HostFacts(
        clusters=clusters,
        full=_full() if clusters else {},
        watches=host.too_few_watches() if clusters else None,
        token_left=token_left(token, now=now) if token else None,
        ping=ping,
    )


def _clusters() -> tuple[LocalClusterFact, ...]:
    """The clusters of this machine, for root: nobody else can see how they are."""
    if os.geteuid():
        return ()
    return tuple(map(_look_at, state.names()))


def _look_at(name: str) -> LocalClusterFact:
    try:
        cluster = Cluster.load(name)
    except Terminal as error:
        return LocalClusterFact(name=name, trouble=error.what)
    nodes = (LocalNodeFact(name=it.name, machine=it.machine, stopped=it.stopped) for it in cluster.look())
    published = not cluster.settings.publish or cluster.switch.runs("publish")
    return LocalClusterFact(name=name, nodes=tuple(nodes), published=published)


def _full() -> dict[str, float]:
    places = {str(it): _free(it) for it in (state_dir(), cache_dir())}
    return {directory: free for directory, free in places.items() if free < _FULL_GIB}


def _free(directory: Path) -> float:
    return shutil.disk_usage(directory).free / 2**30 if directory.exists() else float("inf")
