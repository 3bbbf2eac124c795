"""The bridge as a process behind two proxies, so that it can be killed, or kept in the dark, at any moment.

    isthmus bridge all ──► proxy ──► slurmrestd            `Ground`: both sides, untouched by the proxies
                      ├──► proxy ──► isthmus-complete      `violations`: what must never be, looked at from there
                      └──► proxy ──► API server

What is true of the bridge is read from both sides by clients of the test's own, never from the bridge.
"""

import asyncio
import os
import signal
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from isthmus import names
from isthmus.domain.bridge import jobstates, marker
from isthmus.domain.bridge.groups import GroupKey, group_of
from isthmus.domain.languages import hostlist
from isthmus.errors import Retry
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.pod import PODS, Pod
from isthmus.model.slurm import Job, JobRequest, Number
from isthmus.slurm.client import Client as SlurmClient
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.faults import Proxy, in_front_of
from tests.bed.slurm import SlurmBed
from tests.flows.bridge.conftest import PARTITION

ISTHMUS = Path(sys.executable).with_name("isthmus")
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.15, 0.6


class Process:
    """A bridge without admission. `kill` it as a crash would, and `start` the next."""

    def __init__(self, settings: Path, kubeconfig: Path, *flags: str, log: Path, parts: str = "all") -> None:
        self._log = log
        self._argv = (
            str(ISTHMUS),
            "bridge",
            parts,
            f"--config={settings}",
            f"--kubeconfig={kubeconfig}",
            "--webhook-bind-address=0",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            *flags,
        )
        self._popen: subprocess.Popen[bytes] | None = None
        self.lives = 0

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._popen is not None and self._popen.poll() is None:
            return
        self.lives += 1
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._argv],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        if self._popen is not None:
            self._popen.send_signal(signal.SIGKILL)
            self._popen.wait()
            self._popen = None

    @property
    def pid(self) -> int | None:
        """Its process id, if it runs."""
        return self._popen.pid if self._popen is not None and self._popen.poll() is None else None


def settings_file(directory: Path, slurm: SlurmBed, *, url: str, scheduler_name: str, helper: str = "") -> Path:
    """Write what the process is told about Slurm, and about the helper if there is one."""
    token = directory / "auth-token"
    token.write_text(slurm.token("slurm"))
    file = directory / "config.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "schedulerName": scheduler_name,
                "slurmRestApi": url,
                **({"slurmCompleter": helper} if helper else {}),
                "slurmJwtFile": str(token),
                "partition": PARTITION,
            }
        )
    )
    return file


@asynccontextmanager
async def before_the_api_server(bed: ControlPlaneBed, kubeconfig: Path) -> AsyncIterator[Proxy]:
    """Put a proxy that reads HTTP before the API server, and write the administrator's kubeconfig for it."""
    authority = bed.plane.authority
    server = authority.issue("faults", "faults", hosts=("127.0.0.1",))
    server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_tls.load_cert_chain(server.certificate, server.key)
    part_tls = ssl.create_default_context(cafile=str(authority.certificate))
    async with in_front_of(bed.url, server_tls=server_tls, part_tls=part_tls) as proxy:
        _write_kubeconfig(kubeconfig, bed, proxy.url)
        yield proxy


def _write_kubeconfig(file: Path, bed: ControlPlaneBed, url: str) -> None:
    file.write_text(bed.kubeconfig.read_text().replace(bed.url, url))


class Ground:
    """Both sides, as they are."""

    def __init__(
        self, kube: Client, slurm: SlurmClient, bed: SlurmBed, *, cluster: str, namespace: str, scheduler_name: str
    ) -> None:
        self.kube = kube
        self.slurm = slurm
        self.bed = bed
        self.cluster = cluster
        self.namespace = namespace
        self.scheduler_name = scheduler_name

    async def pods(self) -> list[Pod]:
        """The pods of this test."""
        return list((await self.kube.list(PODS, namespace=self.namespace)).items)

    async def jobs(self) -> list[tuple[Job, marker.Marker]]:
        """The jobs of this test's pods, in any state."""
        found = []
        for job in await self.slurm.jobs():
            marked = marker.read(job.admin_comment)
            if marked and marked.cluster == self.cluster and marked.namespace == self.namespace:
                found.append((job, marked))
        return found

    async def foreign_job(self, admin_comment: str) -> int:
        """Submit a job that is somebody else's."""
        request = JobRequest(
            name="foreign",
            partition=PARTITION,
            current_working_directory="/tmp",  # noqa: S108 - in the bed
            environment=("PATH=/usr/bin:/bin",),
            tasks=1,
            memory_per_node=Number.of(16),
            flags=("EXTERNAL_JOB",),
            admin_comment=admin_comment,
            hold=True,
        )
        return (await self.slurm.submit_once(request, key=f"foreign:{os.urandom(8).hex()}")).job_id

    async def finish(self, pod: Pod, phase: str) -> None:
        """Report the end of a pod, as its kubelet would."""
        with suppress(NotFound):
            change = {"status": {"phase": phase}}
            await self.kube.merge_patch(PODS, pod.metadata.key, change, subresource="status")

    async def remove(self, pod: Pod) -> None:
        """Delete a pod, and confirm that it is gone."""
        with suppress(NotFound):
            await self.kube.delete(PODS, pod.metadata.key, uid=pod.metadata.uid, grace=0)

    async def confirm_departures(self) -> None:
        """Confirm for ever, as kubelets do, that pods are gone that were asked to leave."""
        while True:
            with suppress(Retry):
                for pod in await self.pods():
                    if pod.leaving:
                        await self.remove(pod)
            await asyncio.sleep(0.2)

    async def violations(self, *, expected: set[str] | None = None, may_wait: bool = False) -> list[str]:
        """Name what is not as it must be once things have settled.

        `expected` are the pods that must live. They `may_wait` for a node, in Slurm's queue, if there are too few.
        """
        pods, jobs = await self.pods(), await self.jobs()
        living = [pod for pod in pods if not (pod.finished or pod.leaving)]
        queued = {marked.group for job, marked in jobs if may_wait and job.job_state == ("PENDING",)}
        return [
            *_lost(living, expected),
            *(line for pod in living if group_of(pod) not in queued for line in _misplaced(pod, jobs)),
            *_doubled(jobs),
            *_leaked(jobs, pods),
        ]


def _lost(living: list[Pod], expected: set[str] | None) -> list[str]:
    if expected is None:
        return []
    names_ = {pod.metadata.name for pod in living}
    return [f"pod {name} is lost" for name in sorted(expected - names_)]


def _misplaced(pod: Pod, jobs: list[tuple[Job, marker.Marker]]) -> list[str]:
    name = pod.metadata.name
    if not pod.bound:
        return [f"pod {name} has no node"]
    label = pod.metadata.labels.get(names.JOB_ID_LABEL)
    mine = [job for job, marked in jobs if str(job.job_id) == label and marked.group == group_of(pod)]
    if not mine:
        return [f"pod {name} runs by job {label}, which is none of its own"]
    (job,) = mine
    if not jobstates.running(job.job_state):
        return [f"pod {name} runs, but its job {label} is {job.job_state}"]
    if pod.spec.node_name not in hostlist.expand(job.nodes or ""):
        return [f"pod {name} is on {pod.spec.node_name}, but job {label} has {job.nodes}"]
    return []


def _doubled(jobs: list[tuple[Job, marker.Marker]]) -> list[str]:
    living = Counter[GroupKey](marked.group for job, marked in jobs if jobstates.living(job.job_state))
    return [f"{group} has {count} jobs" for group, count in living.items() if count > 1]


def _leaked(jobs: list[tuple[Job, marker.Marker]], pods: list[Pod]) -> list[str]:
    groups = {group_of(pod) for pod in pods if not pod.finished}
    return [
        f"job {job.job_id} of {marked.group} is {job.job_state}, but no pod of it lives"
        for job, marked in jobs
        if jobstates.living(job.job_state) and marked.group not in groups
    ]


async def settled(
    ground: Ground, *, expected: Callable[[], set[str] | None], within: float, may_wait: bool = False
) -> None:
    """Wait until nothing is wrong, twice in a row; otherwise tell what is. Pods `may_wait` in Slurm's queue."""
    last: list[str] = ["nobody has looked"]
    calm, pause = 0, _SHORTEST_PAUSE
    try:
        async with asyncio.timeout(within):
            while calm < 2:
                last = await ground.violations(expected=expected(), may_wait=may_wait)
                calm = 0 if last else calm + 1
                await asyncio.sleep(pause)
                # Each look reads every job in full, at which Slurm works while it should place others.
                pause = min(pause * 1.2, _LONGEST_PAUSE)
    except TimeoutError:
        raise AssertionError("\n  ".join(["it did not settle:", *last, *await _picture(ground)])) from None


async def _picture(ground: Ground) -> list[str]:
    told: list[str] = []
    for pod in await ground.pods():
        conditions: list[Any] = [f"{it.type}={it.status} {it.reason}: {it.message}" for it in pod.status.conditions]
        label = pod.metadata.labels.get(names.JOB_ID_LABEL)
        told.append(f"pod {pod.metadata.name} {pod.status.phase} {pod.spec.node_name} job {label} {conditions}")
    for job, marked in await ground.jobs():
        told.append(f"job {job.job_id} {job.job_state} {job.state_reason} {job.nodes} {marked.group} {job.comment}")
    return told
