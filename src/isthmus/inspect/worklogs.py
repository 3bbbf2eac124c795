"""What a job or a pod writes, now and as it comes.

A batch job writes into a file, which is read where Slurm's commands are: on this machine or in a login pod. Pods
have their logs in Kubernetes, also those for which Slurm has a job.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from isthmus.domain.views import outputfile
from isthmus.domain.views.targets import JobTarget, PodTarget
from isthmus.errors import Terminal
from isthmus.inspect import why
from isthmus.inspect.slurmsource import SlurmSource
from isthmus.inspect.worlds import Observation
from isthmus.kube import stream
from isthmus.kube.client import Client
from isthmus.model.meta import Key
from isthmus.model.pod import PODS, Pod
from isthmus.model.slurm import Job
from isthmus.slurm import commands
from isthmus.slurm.commands import Run, SlurmCommands
from isthmus.slurm.errors import NotFound
from isthmus.tasks import helpers

Write = Callable[[bytes], object]

_PAUSE: Final = 1.0
_PIECE: Final = 8 << 20
_ALL: Final = "all"
# Prints the size of the file, and then what comes after the offset, or its last lines; never more than that size.
_READ: Final = """\
size=$(stat -Lc %s -- "$1") && echo "$size" || exit 1
if [ "$2" = all ]
then tail -c +"$(($3 + 1))" -- "$1" | head -c "$4"
else head -c "$size" -- "$1" | tail -n "$2"
fi
"""


class LogOptions(NamedTuple):
    """Whether to follow a log until it ends, how many of its last lines to begin with, and of which container."""

    follow: bool = False
    tail: int | None = None
    container: str = ""


FOLLOW: Final = LogOptions(follow=True)


async def show(observed: Observation, target: JobTarget | PodTarget, write: Write, options: LogOptions) -> None:
    if isinstance(target, PodTarget):
        snapshot, pod = why.find_pod(observed, target)
        await of_pod(snapshot.world.kube, pod, write, options)
        return
    job = why.find_job(observed, target)
    pods = why.pods_of(observed.kube.world, job) if observed.kube else ()
    if pods and observed.kube:
        await of_pods(observed.kube.world.kube, pods, write, options)
        return
    await of_job(observed.source, job, write, options)


async def of_pods(client: Client, pods: Sequence[Pod], write: Write, options: LogOptions) -> None:
    """All pods of a job; each line says whose it is, where there are several."""
    if len(pods) == 1:
        await of_pod(client, pods[0], write, options)
        return
    async with helpers() as group:
        for pod in pods:
            group.create_task(_of_one(client, pod, write, options))


async def _of_one(client: Client, pod: Pod, write: Write, options: LogOptions) -> None:
    prefixed = LinePrefix(f"[{pod.metadata.name}] ", write)
    await of_pod(client, pod, prefixed.write, options)
    prefixed.end()


async def of_pod(client: Client, pod: Pod, write: Write, options: LogOptions) -> None:
    key, container = pod.metadata.key, options.container
    known = [it.name for it in pod.spec.containers]
    if container and container not in known:
        raise Terminal(f"pod {key} has no container {container!r}", remedy=f"choose one of: {', '.join(known)}")
    chosen = container or pod.metadata.annotations.get("kubectl.kubernetes.io/default-container", "") or known[0]
    if options.follow:
        await _until_started(client, key)
    elif not pod.bound:
        raise Terminal(f"pod {key} has no log: it has not started", remedy=f"isthmus why pod/{key}")
    async for piece in stream.logs(client, key, container=chosen, follow=options.follow, tail=options.tail):
        write(piece)


async def of_job(source: SlurmSource | None, job: Job, write: Write, options: LogOptions) -> None:
    """What the script of a job writes."""
    if options.follow:
        async for piece in followed(source, job, tail=options.tail):
            write(piece)
        return
    path = _path(job)
    if not await _FileReader(_runner(source, path), path, write, tail=options.tail).read():
        begun = "it has not started" if "PENDING" in job.job_state else f"there is no file {path}"
        raise Terminal(f"job {job.job_id} has no log: {begun}", remedy=f"isthmus why {job.job_id}")


async def followed(source: SlurmSource | None, job: Job, *, tail: int | None = None) -> AsyncIterator[bytes]:
    """What the script of a job writes, until it ends."""
    path, got = _path(job), bytearray()
    reader = _FileReader(_runner(source, path), path, got.extend, tail=tail)
    while True:
        # Asked before the last reading: what the job wrote until then is in the file.
        over = await _is_over(source, job)
        await reader.read()
        if got:
            yield bytes(got)
            got.clear()
        if over:
            return
        await asyncio.sleep(_PAUSE)


def _path(job: Job) -> str:
    path = outputfile.output_file(job)
    if not path:
        raise Terminal(f"job {job.job_id} has no log: it is not a batch job")
    return path


async def _is_over(source: SlurmSource | None, job: Job) -> bool:
    if not isinstance(source, SlurmCommands):
        return True
    try:
        return all(it.has_ended for it in await source.job(job.job_id) if it.job_id == job.job_id)
    except NotFound:
        return True


class _FileReader:
    """Reads on from where it was, in pieces; a file that became shorter is read anew."""

    def __init__(self, run: Run, path: str, write: Write, *, tail: int | None) -> None:
        self._run, self._path, self._write = run, path, write
        self._tail, self._offset = tail, 0

    async def read(self) -> bool:
        """Write what is new; whether there is such a file."""
        while True:
            lines = _ALL if self._tail is None else str(self._tail)
            words = ("sh", "-c", _READ, "sh", self._path, lines, str(self._offset), str(_PIECE))
            done = await self._run(words, b"")
            if done.code:
                if b"ermission denied" in done.errors:
                    raise Terminal(f"{self._path} cannot be read: permission denied", remedy="ask the job's owner")
                return False
            first, _, content = done.output.partition(b"\n")
            size = int(first)
            if size < self._offset:
                self._offset = 0
                continue
            self._write(content)
            self._offset = size if self._tail is not None else self._offset + len(content)
            self._tail = None
            if self._offset >= size or not content:
                return True


class LinePrefix:
    """Puts a prefix before every line, whatever the pieces are in which lines come."""

    def __init__(self, prefix: str, write: Write) -> None:
        self._prefix, self._write = prefix.encode(), write
        self._rest = b""

    def write(self, piece: bytes) -> None:
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if whole:
            self._write(b"".join(self._prefix + line + b"\n" for line in whole))

    def end(self) -> None:
        """Write what is left of a last line that did not end."""
        if self._rest:
            self._write(self._prefix + self._rest + b"\n")
            self._rest = b""


def _runner(source: SlurmSource | None, path: str) -> Run:
    if isinstance(source, SlurmCommands):
        return source.run
    if Path(path).exists():
        return commands.on_this_machine
    raise Terminal(
        f"the log is the file {path} on the cluster, and slurmrestd does not serve files",
        remedy="run this on a login node, or unset SLURM_REST_API to read it through a login pod",
    )


async def _until_started(client: Client, key: Key) -> None:
    while True:
        pod = await client.get(PODS, key)
        began = any(it.state.waiting is None for it in pod.status.container_statuses)
        if pod.finished or (pod.bound and began):
            return
        await asyncio.sleep(_PAUSE)
