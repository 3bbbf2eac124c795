"""Whatever happens to the bridge, every pod is placed once, and no job is left over or doubled.

Each seed is a plan. In it pods and a gang come, run, end and are replaced, while at moments that the seed chooses
the bridge is killed, or an answer from Slurm or the API server is lost, late, doubled or never comes, or a request
takes effect only after the bridge has been started again. In the end both sides are compared.

A few seeds run in `make test`, hundreds in `make soak`. A seed that failed is run again by its number:

    ISTHMUS_SEEDS=17,18 .venv/bin/pytest tests/flows/bridge/test_crashes.py
"""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from isthmus import names
from isthmus.bridge.cache.world import cluster_id
from isthmus.domain.bridge import jobstates
from isthmus.kube.client import Client
from isthmus.model.node import NODES
from isthmus.model.pod import PODS, Pod
from isthmus.model.workload import POD_GROUPS
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import connect
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.fault_rules import Rule
from tests.bed.faults import Proxy, in_front_of
from tests.bed.seeds import seeds
from tests.bed.slurm import SlurmBed
from tests.bed.workload_controllers import apply_kinds
from tests.flows.bridge.conftest import make_node, pod
from tests.flows.bridge.crash_bed import Ground, Process, before_the_api_server, settings_file, settled

pytestmark = pytest.mark.long

NODES_THERE = 8
SETTLES_WITHIN = 180.0
STRIKES_WITHIN = 3.0


# What can happen, and to what. The kinds of request are the steps in the life of a pod.

SLURM_STEPS = {
    "submit": ("POST", "*/job*/[as]*"),
    "nodes given": ("GET", "*/resources/*"),
    "states": ("GET", "*/jobs/state*"),
    "details": ("GET", "*/job/[0-9]*"),
    "outcome": ("POST", "*/job/[0-9]*"),
    "cancel": ("DELETE", "*/job/[0-9]*"),
}
HELPER_STEPS = {
    "submit": ("POST", "/jobs/allocate"),
    "end": ("POST", "/jobs/*/complete*"),
}
"""What the helper does where there is one; without it, jobs end by being cancelled."""
KUBE_STEPS = {
    "bind": ("POST", "*/binding*"),
    "read pods": ("GET", "/api/v1/pods*"),
    "evict": ("DELETE", "*/pods/*"),
}
STEPS = [*("submit", "bind") * 4, *SLURM_STEPS, *KUBE_STEPS, "end"]
"""The two that matter most come up most often."""


@dataclass
class Blow:
    """A fault at a step, with or without a kill when it strikes, a few milliseconds later."""

    step: str
    fault: str
    kill: bool
    after: float

    def __str__(self) -> str:
        return f"{self.step}: {self.fault}{f', killed {self.after * 1000:.0f} ms later' if self.kill else ''}"


def blow(choose: random.Random) -> Blow:
    step = choose.choice(STEPS)
    kill = choose.random() < 0.6
    faults = ["pass", "delay", "lose", "duplicate"]
    if kill:
        # A submission that never arrives is asked about for half a minute by the process that sent it; it is tried
        # here on processes that end.
        faults += ["cut", "hang", "hold back"]
    elif step != "submit":
        faults += ["cut", "503"]
    return Blow(step, choose.choice(faults), kill=kill, after=choose.choice([0.0, 0.0, 0.005, 0.03, 0.1]))


@dataclass
class Stage:
    """One run: the bridge, what is between it and the two sides, and what is true."""

    ground: Ground
    processes: list[Process]
    to_slurm: Proxy
    to_helper: Proxy | None
    to_kube: Proxy
    choose: random.Random
    story: list[str] = field(default_factory=list)
    late: list[asyncio.Event] = field(default_factory=list)
    expected: set[str] = field(default_factory=set)
    serial: int = 0
    ending: asyncio.Lock = field(default_factory=asyncio.Lock)
    began: float = field(default_factory=time.monotonic)

    def tell(self, what: str) -> None:
        """Write down what happened, and when."""
        self.story.append(f"{time.monotonic() - self.began:6.2f} {what}")

    def start(self) -> None:
        """Start what does not run."""
        for process in self.processes:
            process.start()

    async def strike(self, planned: Blow) -> None:
        """Let something happen at the next such step, and wait until it has, if the step comes at all."""
        rule = self._rule(planned)
        try:
            async with asyncio.timeout(STRIKES_WITHIN):
                while not rule.used:  # noqa: ASYNC110 - rules tell nobody
                    await asyncio.sleep(0.002)
            came = ""
        except TimeoutError:
            came = " (it did not come)"
        self.tell(f"{planned}{came}")
        if planned.kill:
            await asyncio.sleep(planned.after)
            self.choose.choice(self.processes).kill()
        rule.remove()
        self.start()
        for event in self.late:
            if self.choose.random() < 0.5:
                event.set()

    def _rule(self, planned: Blow) -> Rule:
        choose, step = self.choose, planned.step
        if step in KUBE_STEPS:
            proxy, (method, path) = self.to_kube, KUBE_STEPS[step]
        elif self.to_helper and step in HELPER_STEPS:
            proxy, (method, path) = self.to_helper, HELPER_STEPS[step]
        else:
            proxy, (method, path) = self.to_slurm, SLURM_STEPS[step if step in SLURM_STEPS else "cancel"]
        make: dict[str, Callable[..., Rule]] = {
            "pass": partial(proxy.delay, 0.0),
            "delay": partial(proxy.delay, choose.choice([0.05, 0.3, 0.6])),
            "lose": proxy.lose_answer,
            "duplicate": proxy.duplicate,
            "cut": partial(proxy.cut, reset=choose.random() < 0.5),
            "hang": partial(proxy.hang, after_bytes=choose.choice([0, 20])),
            "503": partial(proxy.respond, 503),
            "hold back": partial(proxy.hold_back, self._later()),
        }
        return make[planned.fault](method=method, path=path, times=1)

    def _later(self) -> asyncio.Event:
        self.late.append(asyncio.Event())
        return self.late[-1]

    # What people, workloads and kubelets do

    async def create(self, *, gang: str = "") -> None:
        self.serial += 1
        name = f"{gang or 'p'}-{self.serial}"
        labels = {names.POD_GROUP_LABEL: gang} if gang else {}
        self.expected.add(name)
        body = pod(self.ground.namespace, name, labels=labels, schedulerName=self.ground.scheduler_name)
        await self.ground.kube.create(PODS, body)

    async def create_gang(self, name: str, size: int) -> None:
        meta = {"namespace": self.ground.namespace, "name": name}
        await self.ground.kube.create(POD_GROUPS, {"metadata": meta, "spec": {"minMember": size}})
        for _ in range(size):
            await self.create(gang=name)

    def deeds_for(self, step: str) -> Iterator[Awaitable[None]]:
        """Do what brings a step about, and now and then something else."""
        if step in {"submit", "bind", "nodes given"}:
            yield self.create_or_end()
        elif step in {"outcome", "cancel", "end"}:
            yield self.end_some_pod(self.choose.choice(["Succeeded", "Failed", "deleted"]))
        elif step == "evict":
            yield self.end_some_pod("scancel")
        if self.choose.random() < 0.3:
            yield self.end_some_pod(self.choose.choice(["Succeeded", "Failed", "deleted", "scancel"]))

    async def create_or_end(self) -> None:
        """Create a pod if there is a node for it, else end one."""
        # Members of a gang are gone for a moment before others replace them: their nodes are not free.
        async with self.ending:
            if len(self.expected) < NODES_THERE:
                await self.create()
            else:
                await self._end_some_pod("deleted")

    async def end_some_pod(self, how: str) -> None:
        """Let a pod end; members of the gang are replaced."""
        # One at a time: who cancels a gang's job has to know of all who joined it.
        async with self.ending:
            await self._end_some_pod(how)

    async def _end_some_pod(self, how: str) -> None:
        living = [it for it in await self.ground.pods() if it.metadata.name in self.expected]
        if not living:
            return
        found = self.choose.choice(sorted(living, key=lambda it: it.metadata.name))
        gang = found.metadata.labels.get(names.POD_GROUP_LABEL, "")
        members = [it for it in living if gang and it.metadata.labels.get(names.POD_GROUP_LABEL) == gang] or [found]
        # A member that has not joined the job yet would outlive it, and be one too many beside all replacements.
        joined = len({it.metadata.labels.get(names.JOB_ID_LABEL) for it in members}) == 1
        if how == "scancel" and not (joined and await self._scancel(found)):
            how = "deleted"
        if how in {"Succeeded", "Failed"} and not found.bound:
            how = "deleted"
        self.tell(f"{found.metadata.name}: {how}")
        if how in {"Succeeded", "Failed"}:
            await self.ground.finish(found, how)
        elif how == "deleted":
            await self.ground.remove(found)
        lost = members if how == "scancel" else [found]
        for each in lost:
            self.expected.discard(each.metadata.name)
        for _ in lost if gang else ():
            await self.create(gang=gang)

    async def _scancel(self, found: Pod) -> bool:
        """Cancel the job of a pod that runs, as an administrator would."""
        label = found.metadata.labels.get(names.JOB_ID_LABEL)
        for job, _ in await self.ground.jobs():
            if str(job.job_id) == label and jobstates.living(job.job_state):
                await asyncio.to_thread(self.ground.bed.command, "scancel", str(job.job_id))
                return True
        return False


@pytest.fixture
def slurm_to_crash_on(shared_slurm: Callable[..., SlurmBed]) -> Iterator[SlurmBed]:
    bed = shared_slurm("26.05", nodes=0, external_nodes=NODES_THERE, accounting=False)
    bed.start("isthmus-complete")
    yield bed
    bed.stop("isthmus-complete")


@pytest.fixture
async def nodes_to_crash_on(client: Client, control_plane: ControlPlaneBed) -> AsyncIterator[None]:
    apply_kinds(control_plane, "podgroup")
    made = [f"e{number}" for number in range(1, NODES_THERE + 1)]
    for name in made:
        await make_node(client, name)
    yield
    for name in made:
        await client.delete(NODES, name)


@asynccontextmanager
async def staged(
    client: Client, namespace: str, control_plane: ControlPlaneBed, bed: SlurmBed, directory: Path, *, seed: int
) -> AsyncIterator[Stage]:
    """Set everything up for one run; the bridge is not started yet."""
    scheduler_name = f"crash-{uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        to_slurm = await stack.enter_async_context(in_front_of(bed.rest_url))
        to_kube = await stack.enter_async_context(before_the_api_server(control_plane, directory / "kubeconfig"))
        slurm = await stack.enter_async_context(connect([bed.rest_url], MintedTokens(bed.jwt_key, user="slurm")))
        ground = Ground(
            client,
            slurm,
            bed,
            cluster=await cluster_id(client),
            namespace=namespace,
            scheduler_name=scheduler_name,
        )
        to_helper = None
        if seed % 4 < 2:
            to_helper = await stack.enter_async_context(in_front_of(bed.completer_url))
        settings = settings_file(
            directory,
            bed,
            url=to_slurm.url,
            helper=to_helper.url if to_helper else "",
            scheduler_name=scheduler_name,
        )
        # Scheduler and controllers share their caches in one process, or each have their own.
        processes = [
            Process(
                settings,
                directory / "kubeconfig",
                "--leader-elect=false",
                log=directory / "bridge.log",
                parts=parts,
            )
            for parts in (("all",), ("scheduler", "controllers"))[seed % 2]
        ]
        kubelets = asyncio.ensure_future(ground.confirm_departures())
        try:
            choose = random.Random(seed)  # noqa: S311 - to be repeated
            yield Stage(ground, processes, to_slurm, to_helper, to_kube, choose)
        finally:
            kubelets.cancel()
            for process in processes:
                process.kill()
            await asyncio.to_thread(bed.command, "scancel", "--user=slurm")


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.usefixtures("nodes_to_crash_on")
async def test_every_pod_is_placed_once_however_the_bridge_dies(  # noqa: PLR0917 - fixtures
    seed: int,
    client: Client,
    namespace: str,
    control_plane: ControlPlaneBed,
    slurm_to_crash_on: SlurmBed,
    tmp_path: Path,
) -> None:
    async with staged(client, namespace, control_plane, slurm_to_crash_on, tmp_path, seed=seed) as stage:
        try:
            await run(stage)
        except BaseException:
            log = (tmp_path / "bridge.log").read_text(errors="replace")[-6000:]
            told = "\n  ".join([f"seed {seed}, in {sum(it.lives for it in stage.processes)} lives:", *stage.story])
            again = f"ISTHMUS_SEEDS={seed}, .venv/bin/pytest tests/flows/bridge/test_crashes.py"
            sys.stderr.write(f"{log}\n{told}\nrepeat it: {again}\n")
            raise


async def run(stage: Stage) -> None:
    """Let things happen, heal everything, and look."""
    ground = stage.ground
    other_cluster = msgspec.json.encode(
        {"isthmus": 1, "cluster": "another", "kind": "Pod", "namespace": ground.namespace, "name": "x", "uid": "y"}
    ).decode()
    foreign = [await ground.foreign_job('{"pods": ["default/gone"]}'), await ground.foreign_job(other_cluster)]
    await live(stage, stage.choose)
    stage.tell("— all heals —")
    for event in stage.late:
        event.set()
    for proxy in (stage.to_slurm, stage.to_helper, stage.to_kube):
        if proxy:
            proxy.heal()
    stage.start()
    await settled(ground, expected=lambda: stage.expected, within=SETTLES_WITHIN)
    states = [(await ground.slurm.job(job_id))[0].job_state for job_id in foreign]
    assert states == [("PENDING",)] * 2, "somebody else's job was touched"
    stage.tell("settled")
    # And in the end nothing of it is left in Slurm.
    await ground.kube.delete_all(PODS, namespace=ground.namespace, grace=0)
    await settled(ground, expected=lambda: None, within=SETTLES_WITHIN)


async def live(stage: Stage, choose: random.Random) -> None:
    """Let pods come and go while things happen."""
    if choose.random() < 0.7:
        stage.start()
    await stage.create_gang("g", 3)
    for _ in range(2):
        await stage.create()
    stage.start()
    for _ in range(choose.randint(2, 4)):
        planned = blow(choose)
        deeds = [stage.strike(planned), *stage.deeds_for(planned.step)]
        await asyncio.gather(*deeds)
