"""Submits work to either side, and stays with it until it ends.

script   ── sbatch on this machine, or in a login pod as a user ──► job of Slurm
manifest ── API server ──► Pod or Job, which Slurm places where a policy or the scheduler's name says so
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.domain.views.workfile import BatchScript, Manifest
from isthmus.errors import Retry, Terminal
from isthmus.inspect import worklogs
from isthmus.inspect.slurmsource import PodCommands
from isthmus.inspect.worklogs import Write
from isthmus.kube.client import Client
from isthmus.model.base import Kind
from isthmus.model.meta import Key, Partial, condition
from isthmus.model.pod import PODS, Pod
from isthmus.model.slurm import ENDED, Job
from isthmus.model.workload import OWN_JOBS
from isthmus.slurm.commands import SlurmCommands
from isthmus.slurm.errors import NotFound
from isthmus.tasks import helpers

_PAUSE: Final = 1.0
_SIGNALLED: Final = 128
_KINDS: Final[dict[str, Kind[Partial]]] = {
    "pod": Kind(Partial, "v1", "pods", "Pod"),
    "job": Kind(Partial, "batch/v1", "jobs", "Job"),
}
_AS_USER: Final = ("su", "-l", "-c", 'exec "$0" "$@"', "--")
"""A login, so that they have a home; the words of the command reach it as they are."""


class SlurmWork(msgspec.Struct, frozen=True):
    """A batch job that was submitted."""

    source: SlurmCommands
    job_id: int

    @property
    def ref(self) -> str:
        return f"job/{self.job_id}"

    async def follow(self, write: Write) -> None:
        """Write its log until it ends. Tasks of an array have logs of their own, which are not followed."""
        (job, *_) = await self.source.job(self.job_id)
        if job.array_job_id.value:
            return
        await worklogs.of_job(self.source, job, write, worklogs.FOLLOW)

    async def ended(self) -> int:
        """Wait for the end: the exit code of the script, or 1 if it has none."""
        last: Job | None = None
        while True:
            try:
                mine = [it for it in await self.source.job(self.job_id) if it.queue_id == self.job_id]
            except NotFound:
                return exit_code(last) if last else 1  # forgotten meanwhile
            if mine and all(it.has_ended for it in mine):
                return max(map(exit_code, mine))
            last = mine[-1] if mine else last
            await asyncio.sleep(_PAUSE)


class KubeWork(msgspec.Struct, frozen=True):
    """A Pod or a Job that was created."""

    client: Client
    kind: str
    key: Key

    @property
    def ref(self) -> str:
        return f"{'pod' if self.kind == 'pod' else 'job.batch'}/{self.key}"

    async def follow(self, write: Write) -> None:
        """Write the logs of all pods, also of those that take the place of others, until the end."""
        followed: set[Key] = set()
        async with helpers() as group:
            while True:
                over = await self._code() is not None
                for pod in await self._pods():
                    if pod.metadata.key not in followed:
                        followed.add(pod.metadata.key)
                        group.create_task(self._follow_one(pod, write))
                if over:
                    return
                await asyncio.sleep(_PAUSE)

    async def ended(self) -> int:
        """Wait for the end: the largest exit code of a container that failed."""
        while True:
            code = await self._code()
            if code is not None:
                return code
            await asyncio.sleep(_PAUSE)

    async def _follow_one(self, pod: Pod, write: Write) -> None:
        prefix = worklogs.LinePrefix(f"[{pod.metadata.name}] " if self.kind == "job" else "", write)
        await worklogs.of_pod(self.client, pod, prefix.write, worklogs.FOLLOW)
        prefix.end()

    async def _pods(self) -> Sequence[Pod]:
        if self.kind == "pod":
            return (await self.client.get(PODS, self.key),)
        labels = f"{names.JOB_NAME_LABEL}={self.key.name}"
        return (await self.client.list(PODS, namespace=self.key.namespace, labels=labels)).items

    async def _code(self) -> int | None:
        if self.kind == "pod":
            pod = await self.client.get(PODS, self.key)
            return pod_code(pod) if pod.finished else None
        job = await self.client.get(OWN_JOBS, self.key)
        for type_, otherwise in (("Complete", 0), ("Failed", 1)):
            told = condition(job.status.conditions, type_)
            if told and told.status == "True":
                codes = [pod_code(it) for it in await self._pods() if it.finished] if otherwise else []
                return max([otherwise, *codes])
        return None


Work = SlurmWork | KubeWork


async def submit_script(
    source: SlurmCommands, script: BatchScript, *, file: str = "", arguments: Sequence[str] = (), user: str = ""
) -> SlurmWork:
    """Let sbatch have the file, or the script on its standard input. In a pod, where we are root, name a user."""
    if arguments and not file:
        raise Terminal("a script that sbatch reads from its standard input cannot have arguments")
    if isinstance(source, PodCommands):
        if not user:
            raise Terminal(
                f"the job has no user: sbatch would run as root in pod {source.pod}",
                remedy="name a user of the cluster: --user NAME; or submit on a login node",
            )
        words = [*_AS_USER, user, "sbatch", "--parsable"]
    elif user:
        raise Terminal("--user is for a cluster in Kubernetes; here, sbatch runs as you")
    else:
        words = ["sbatch", "--parsable", *(("--", file, *arguments) if file else ())]
    done = await source.run(words, b"" if file else script.text.encode())
    if done.code:
        raise Terminal(f"sbatch refused it: {done.said}")
    text = done.output.decode(errors="replace").strip().splitlines()
    number = (text[-1] if text else "").partition(";")[0]
    if not number.isdigit():
        raise Retry(f"sbatch printed no job id: {done.said}", remedy="see isthmus jobs")
    return SlurmWork(source, int(number))


async def submit_manifest(client: Client, manifest: Manifest, *, namespace: str) -> KubeWork:
    """Create it, in its own namespace or else in this one."""
    metadata: dict[str, Any] = dict(manifest.body.get("metadata") or {})
    metadata.setdefault("namespace", namespace)
    made = await client.create(_KINDS[manifest.kind], {**manifest.body, "metadata": metadata})
    return KubeWork(client, manifest.kind, made.metadata.key)


async def stay(work: Work, write: Write | None, say: Callable[[str], object]) -> int:
    """Stay with it until it ends, with its log if that is to be written."""
    if write is not None:
        await work.follow(write)
    code = await work.ended()
    say(f"{work.ref} ended with exit code {code}")
    return code


def exit_code(job: Job) -> int:
    """As a shell would have it: of a signal, 128 more than its number; 1 for what ended without a code."""
    if signal := job.exit_code.signal.id.value:
        return _SIGNALLED + int(signal)
    if code := job.exit_code.return_code.value:
        return int(code)
    return 0 if job.job_state[:1] == ("COMPLETED",) or not ENDED.intersection(job.job_state[:1]) else 1


def pod_code(pod: Pod) -> int:
    """The largest exit code of its containers; 1 for a pod that failed without one."""
    codes = [it.state.terminated.exit_code for it in pod.status.container_statuses if it.state.terminated]
    return max([0 if pod.status.phase == "Succeeded" else 1, *codes])
