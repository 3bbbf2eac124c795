"""200 nodes in a real slurmctld, what is wrong with each of them, and what must hold whatever happens.

    people, checks, detectors ──► `Storm` ◄── what is true of each node
    NodeSets, kubelets, rebooters ──┘  │
                                       ├─ `judge`  each action of the loop, before it is carried out
                                       └─ `audit`  Slurm and the records, as they are

Nodes are external to Slurm, so that no slurmd is needed: jobs on them are real to slurmctld, and it keeps drains
and jobs when it is started again. Their pods are objects alone. What people and jobs do in Slurm waits for what the
loop does at this moment, and the other way round: Slurm changes a node whatever its state has become since it was
asked, so nobody could keep a promise about those milliseconds.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from isthmus import names
from isthmus.clock import utc_now
from isthmus.domain.health.actions import Action, Climb, Drain, Notify, Record, Release, Unreserve
from isthmus.domain.health.limits import share_of
from isthmus.domain.health.reboots import NEED_REBOOT, REBOOTED
from isthmus.domain.operator.nodeset.drains import is_shut
from isthmus.errors import IsthmusError
from isthmus.health.reservations import reserved_nodes
from isthmus.health.runner import Batch
from isthmus.health.world import record_name
from isthmus.kube.client import Client
from isthmus.kube.errors import AlreadyExists, Conflict, NotFound
from isthmus.model.activecheck import ACTIVE_CHECKS
from isthmus.model.health import NODE_HEALTHS, NodeHealthStatus
from isthmus.model.meta import Key, condition
from isthmus.model.node import NODES, Node
from isthmus.model.pod import PODS
from isthmus.model.slinky import NODESETS, NodeSet
from isthmus.model.slurm import Node as SlurmNode
from isthmus.model.workload import OWN_JOBS, OwnJob
from isthmus.slurm.client import Client as SlurmClient
from tests.bed.slurm import SlurmBed
from tests.flows.health.bed import (
    CHECK,
    PREFIX,
    Execution,
    HealthBed,
    end_of_test,
    failure,
    now,
    pod_is_ready,
    set_condition,
    worker_pod,
)
from tests.flows.kube.waiting import eventually
from tests.flows.operator.nodesets_bed import CONTROLLER, PLACES
from tests.flows.slurm.helpers import busy_on, new_key

NODESET_SIZES: Final = {"a": 100, "b": 60, "c": 40}
BLOCK_SIZE: Final = 20
MAX_SHARE, MAX_PER_BLOCK, MAX_REBOOTS = "5%", 2, 1
HEALTHY_DELAY_S: Final = 1.0
POLICY: Final[dict[str, Any]] = {
    "ladder": [{"rung": "restartPod", "timeout": "5m"}, {"rung": "reboot", "timeout": "5m"}],
    "healthyDelay": f"{HEALTHY_DELAY_S:.0f}s",
    "limits": {
        "maxUnavailable": MAX_SHARE,
        "maxUnavailablePerBlock": MAX_PER_BLOCK,
        "maxReboots": MAX_REBOOTS,
        "maxStepsPerWeek": 16,
        # Who lies is not believed for the rest of the test.
        "storm": {"share": "25%", "within": "5m", "cooldown": "1h"},
    },
}
LIAR, DISK, DEADLOCK = "liar", "disk", "KernelDeadlock"
LIES: Final = 60
"""More nodes than make a storm; what is really wrong is always on fewer."""

ADMIN: Final = "alice looks into it"
CURES: Final = ("restartPod", "restartPod", "restartPod", "reboot", "")
"""The rung that ends what is wrong; the last one none does."""

_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_AT_ONCE: Final = 16
_STARTS_WITHIN_S: Final = 10.0
_LOOK_S: Final = 0.05


@dataclass(eq=False)
class Host:
    """What is true of a node."""

    name: str
    nodeset: str
    block: str
    wrong: dict[str, str] = field(default_factory=dict)
    """What is wrong with it, by the check that sees it, with the rung that ends it."""
    found: dict[str, datetime] = field(default_factory=dict)
    """When each check said so last, in full seconds as it is written."""
    passed: dict[str, datetime] = field(default_factory=dict)
    """When each check was last seen to pass."""
    resumed: datetime = _NEVER
    """When a human opened it last."""
    human: str = ""
    """The reason of the human who has drained it."""
    jobs: set[int] = field(default_factory=set)
    """Jobs that run on it until we end them."""


class Storm:
    """All nodes, what happens to them, and what must hold."""

    def __init__(
        self, kube: Client, slurm: SlurmClient, bed: SlurmBed, namespace: str, choose: random.Random
    ) -> None:
        self.kube, self.slurm, self.bed = kube, slurm, bed
        self.namespace = namespace
        self.choose = choose
        self.hosts = {it.name: it for it in _hosts()}
        self.life: HealthBed | None = None
        """The loop that lives at the moment."""
        self.lock = asyncio.Lock()
        """Held by who changes something in Slurm, or needs that nobody does."""
        self.away = False
        """Whether slurmctld is."""
        self.violations: list[str] = []
        self.story: list[str] = []
        self.done: Counter[str] = Counter()
        """What the loop has done."""
        self.open: set[str] = set(self.hosts)
        """Nodes that took jobs when it was last looked."""
        self._failed: dict[str, str] = {}
        self._forgotten: set[str] = set()
        self._ended: set[str] = set()
        self._rebooted: set[tuple[str, datetime | None]] = set()
        self._nodesets: dict[str, NodeSet] = {}

    def tell(self, what: str) -> None:
        self.story.append(f"{utc_now():%H:%M:%S.%f} {what}")

    def violated(self, what: str) -> None:
        self.tell(f"VIOLATED: {what}")
        self.violations.append(what)

    def machine(self, host: Host) -> str:
        return f"{self.namespace}-{host.name}"

    def some(self, most: int, holds: Callable[[Host], object] = bool) -> list[Host]:
        """Choose some of the nodes of which something holds: so many, or half as many."""
        found = [it for it in self.hosts.values() if holds(it)]
        return self.choose.sample(found, min(len(found), self.choose.randint((most + 1) // 2, most)))

    # The beginning

    async def prepare(self) -> None:
        """Make all nodes: in Slurm, and in Kubernetes with their pods."""
        for nodeset, size in NODESET_SIZES.items():
            line = (f"NodeName={nodeset}-[1-{size}]", "CPUs=4", "RealMemory=4096", "State=EXTERNAL")
            await asyncio.to_thread(self.bed.scontrol, "create", *line, "NodeAddr=127.0.0.1")
            spec = {"controllerRef": {"name": CONTROLLER}, "replicas": 0}
            metadata = {"namespace": self.namespace, "name": nodeset}
            self._nodesets[nodeset] = await self.kube.create(NODESETS, {"metadata": metadata, "spec": spec})
        gate = asyncio.Semaphore(_AT_ONCE)

        async def make(host: Host) -> None:
            async with gate:
                labels = {PLACES: self.namespace, names.BLOCK_LABELS[0]: host.block}
                await self.kube.create(NODES, {"metadata": {"name": self.machine(host), "labels": labels}})
                await self._make_pod(host)

        await asyncio.gather(*map(make, self.hosts.values()))

    async def _make_pod(self, host: Host) -> None:
        body = worker_pod(host.name, self.machine(host), self._nodesets[host.nodeset], grace=30)
        await self.kube.create(PODS, body)
        await self.kube.merge_patch(PODS, self._pod(host), pod_is_ready(), subresource="status")

    def _pod(self, host: Host) -> Key:
        return Key(self.namespace, f"pod-{host.name}")

    # What goes wrong

    async def nodes_break(self, most: int) -> None:
        """Let some be broken, half of them under their jobs, and the check find it."""
        sound = self.some(most, lambda it: CHECK not in it.wrong)
        for host in sound:
            host.wrong[CHECK] = self.choose.choice(CURES)
        self.tell(f"broken: {[(it.name, it.wrong[CHECK]) for it in sound]}")
        await self.check_runs()

    async def check_runs(self) -> None:
        """Run the check on all nodes that take jobs; what it said of others stays."""
        at = now()
        for host in self.hosts.values():
            if host.name not in self.open:
                continue
            if CHECK in host.wrong:
                self._failed[host.name], host.found[CHECK] = at, _moment(at)
            else:
                self._failed.pop(host.name, None)
        await self._say(CHECK, [failure(name, 17, at=at) for name, at in self._failed.items()])

    async def check_lies(self) -> None:
        """Let a check find many nodes at once that are well, until the loop has recorded it."""
        well = [it for it in self.hosts.values() if not (it.wrong or it.human or it.name in self._failed)]
        lied = [it.name for it in self.choose.sample(well, LIES)]
        self.tell(f"the check lies about {len(lied)} nodes")

        def found(name: str) -> bool:
            status = self.status(name)
            return any(it.check == LIAR and it.cleared is None for it in status.findings)

        await self._say(LIAR, [failure(it, 18) for it in lied])
        await eventually(lambda: self.life and all(map(found, lied)), "its findings are recorded")
        await self.audit()
        await self._say(LIAR, [])
        await eventually(lambda: self.life and not any(map(found, lied)), "its findings are over")

    async def _say(self, check: str, nodes: Sequence[dict[str, str]]) -> None:
        status = {"status": {"nodes": list(nodes)}}
        await self.kube.merge_patch(ACTIVE_CHECKS, Key(self.namespace, check), status, subresource="status")

    async def machines_hang(self, most: int) -> None:
        """Let a problem detector say so of some machines."""
        for host in self.some(most, lambda it: DEADLOCK not in it.wrong):
            host.wrong[DEADLOCK] = self.choose.choice(("restartPod", "reboot", ""))
            self.tell(f"{host.name}: {DEADLOCK}, ended by {host.wrong[DEADLOCK] or 'nothing'}")
            host.found[DEADLOCK] = _moment(now())
            await set_condition(self.kube, self.machine(host), DEADLOCK, reason="DockerHung")

    async def disks_fill(self, most: int) -> None:
        """Let the program on some nodes drain them, as it does where nobody has."""
        async with self.lock:
            nodes = await self._nodes()
            held = await reserved_nodes(self.slurm)
            for host in self.some(most, lambda it: not is_shut(nodes[it.name]) and it.name not in held):
                host.wrong.setdefault(DISK, self.choose.choice(("restartPod", "")))
                host.found[DISK] = _moment(now())
                self.tell(f"{host.name}: disk, ended by {host.wrong[DISK] or 'nothing'}")
                await self._scontrol(host, "state=drain", f"reason={PREFIX} {DISK}: /tmp is full [hc_program]")

    async def well(self, host: Host, check: str) -> None:
        """Let something be over."""
        del host.wrong[check]
        if check == DEADLOCK:
            host.passed[check] = utc_now()
            await set_condition(self.kube, self.machine(host), DEADLOCK, status="False", reason="Fine")

    async def something_passes(self, most: int) -> None:
        """Let something be over by itself, as what is tested can be, too."""
        for host in self.some(most, lambda it: it.wrong):
            check = self.choose.choice(sorted(host.wrong))
            self.tell(f"{host.name}: {check} is over by itself")
            await self.well(host, check)

    # People and their jobs

    async def humans_drain(self, most: int) -> None:
        """Drain nodes in whatever state they are, most of them bad."""
        async with self.lock:
            for host in dict.fromkeys((*self.some(most, lambda it: it.wrong), *self.some(2))):
                self.tell(f"{host.name}: drained by a human")
                await self._scontrol(host, "state=drain", f"reason={ADMIN}")
                host.human = ADMIN

    async def humans_resume(self, most: int, holds: Callable[[Host], object] = bool) -> None:
        """Open nodes, whoever has drained them.

        But none whose pod is on its way out: what began there in the last moment would end with it.
        """
        async with self.lock:
            nodes = await self._nodes()
            for host in self.some(most, lambda it: is_shut(nodes[it.name]) and holds(it)):
                await self._resume(host)

    async def _resume(self, host: Host) -> None:
        if (await self._status(host)).phase != "Repairing" and await self._has_pod(host):
            self.tell(f"{host.name}: resumed by a human")
            host.human, host.resumed = "", utc_now()
            await self._scontrol(host, "state=undrain")

    async def _has_pod(self, host: Host) -> bool:
        """Whether its pod is there to stay."""
        with suppress(NotFound):
            return not (await self.kube.get(PODS, self._pod(host))).leaving
        return False

    async def _scontrol(self, host: Host, *change: str) -> None:
        await asyncio.to_thread(self.bed.scontrol, "update", f"nodename={host.name}", *change)

    async def jobs_start(self, most: int) -> None:
        """Start jobs, more often than not on nodes where something is wrong."""
        async with self.lock:
            nodes, held = await self._nodes(), await reserved_nodes(self.slurm)
            free = [it for it in self.hosts.values() if not is_shut(nodes[it.name]) and it.name not in held]
            bad = [it for it in free if it.wrong]
            for host in {it.name: it for it in (*bad[:most], *self.choose.sample(free, most))}.values():
                if not await self._has_pod(host):
                    continue
                job = (await self.slurm.submit(busy_on(host.name), key=new_key())).job_id
                if await self._runs(job):
                    host.jobs.add(job)
                    self.tell(f"{host.name}: job {job}")

    async def _runs(self, job: int) -> bool:
        """Wait until a job runs; give it up if it cannot."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_STARTS_WITHIN_S):
                while True:
                    if (await self.slurm.job(job))[0].job_state == ("RUNNING",):
                        return True
                    await asyncio.sleep(_LOOK_S)
        await self.slurm.cancel_job(job)
        return False

    async def jobs_end(self, most: int) -> None:
        async with self.lock:
            for host in self.some(most, lambda it: it.jobs):
                await self._end_jobs(host)

    async def _end_jobs(self, host: Host) -> None:
        for job in sorted(host.jobs):
            self.tell(f"{host.name}: job {job} ends")
            host.jobs.discard(job)
            await self.slurm.cancel_job(job)

    async def slurmctld_goes(self, *, killed: bool) -> None:
        async with self.lock:
            self.tell(f"slurmctld is {'killed' if killed else 'stopped'}")
            self.away = True
            await asyncio.to_thread(self.bed.kill if killed else self.bed.stop, "slurmctld")

    async def slurmctld_comes(self, *, killed: bool) -> None:
        await asyncio.to_thread(self.bed.start, "slurmctld")
        self.tell("slurmctld is there again")
        async with self.lock:
            if killed:
                await self._recall()
            self.away = False

    async def _recall(self) -> None:
        """See what slurmctld has forgotten of its last moments: that is nobody's fault. People drain once more."""
        nodes, living = await self._nodes(), await self._running()
        for host in self.hosts.values():
            host.jobs &= living.keys()
            if host.human and nodes[host.name].reason != host.human:
                await self._scontrol(host, "state=drain", f"reason={host.human}")
            if _is_drained_by_the_loop(nodes[host.name]) and not (await self._status(host)).reason:
                self._forgotten.add(host.name)

    # What NodeSets, kubelets, rebooters and checks do

    async def attend(self, life: HealthBed) -> None:
        """Do once what is to be done now."""
        for host in self.hosts.values():
            pod = life.world.operator.pods.get(self._pod(host))
            if pod is None or pod.leaving:
                if host.jobs:
                    self.violated(f"the pod of {host.name} went while its jobs {host.jobs} ran")
                await self._cured(host, "restartPod")
            if pod is None:
                with suppress(AlreadyExists):
                    await self._make_pod(host)
            elif pod.leaving:
                with suppress(NotFound, Conflict):
                    await self.kube.delete(PODS, pod.metadata.key, grace=0, uid=pod.metadata.uid)
        for job in tuple(life.world.check_jobs.values()):
            if job.metadata.namespace == self.namespace and not (job.complete or job.failure):
                await self._end_test(job)
        await self._reboot(life.world.operator.kube_nodes.values())

    async def _cured(self, host: Host, *rungs: str) -> None:
        for check, cure in list(host.wrong.items()):
            if cure in rungs:
                self.tell(f"{host.name}: {check} is over by {cure}")
                await self.well(host, check)

    async def _end_test(self, job: OwnJob) -> None:
        meta = job.metadata
        if meta.uid in self._ended:
            return
        self._ended.add(meta.uid)
        check, host = meta.labels[names.CHECK_LABEL], self.hosts[meta.annotations[names.CHECK_NODE_ANNOTATION]]
        passed = check not in host.wrong
        self.tell(f"{host.name}: the test {check} {'passes' if passed else 'fails'}")
        if passed:
            host.passed[check] = utc_now()
        with suppress(NotFound):
            await self.kube.merge_patch(OWN_JOBS, meta.key, end_of_test(passed=passed), subresource="status")

    async def _reboot(self, machines: Iterable[Node]) -> None:
        found = {it.metadata.name: told for it in machines if (told := _reboot_of(it))}
        mine = {self.machine(it): it for it in self.hosts.values() if self.machine(it) in found}
        if len(mine) > MAX_REBOOTS:
            self.violated(f"{sorted(mine)} are rebooted at once")
        for machine, host in mine.items():
            asked = (machine, found[machine])
            if asked in self._rebooted or (host.jobs and found[machine] <= host.resumed):
                continue  # a rebooter waits for jobs, and these came when a human had opened the node
            self._rebooted.add(asked)
            self.tell(f"{host.name}: rebooted")
            if host.jobs:
                self.violated(f"the machine of {host.name} was rebooted while its jobs {host.jobs} ran")
            await self._cured(host, "restartPod", "reboot")
            await set_condition(self.kube, machine, names.NODE_REBOOT_CONDITION, reason=REBOOTED)

    # What must hold

    async def judge(self, batch: Batch, action: Action) -> None:
        """Look at an action of the loop before it is carried out."""
        match action:
            case Drain(nodes, reason) if LIAR in reason:
                self.violated(f"{nodes} are drained for a check that condemns many at once: {reason}")
            case Drain(nodes) | Release(nodes) if drained := [it for it in nodes if self.hosts[it].human]:
                # The loop asks Slurm once more and leaves them alone; the audit sees whether it did.
                self.tell(f"{type(action).__name__} of {drained}, which humans hold")
        match action:
            case Release(nodes, ""):
                for node in nodes:
                    self._require_proof(batch, node)
            case Unreserve(node) if await self._is_open(node):
                self._require_proof(batch, node)

    async def _is_open(self, node: str) -> bool:
        with suppress(IsthmusError, TimeoutError):
            async with asyncio.timeout(2.0):
                return not is_shut(await self.slurm.node(node))
        return False

    def _require_proof(self, batch: Batch, name: str) -> None:
        """Each check that condemned a node, as far as the loop knew, has passed since, or a human opened it."""
        host, view = self.hosts[name], batch.view.nodes[name]
        if host.human:
            return
        for check, at in host.found.items():
            told = [it.at for it in view.observations if it.check == check]
            told += [it.last_seen for it in batch.status(name).findings if it.check == check and it.last_seen]
            passed = host.passed.get(check, _NEVER)
            if max(told, default=_NEVER) < at or host.resumed >= at:
                continue
            if passed < at:
                self.violated(f"{name} is returned, and {check} has not passed since {at}; {batch.status(name)}")
            elif check == DEADLOCK and utc_now() - passed < timedelta(seconds=HEALTHY_DELAY_S):
                self.violated(f"{name} is returned, and {check} has been gone only since {passed}")

    async def audit(self) -> None:
        """Look at Slurm and at the records, as they are."""
        if not self.away:
            async with self.lock:
                nodes, held = await self._nodes(), await reserved_nodes(self.slurm)
                running = await self._running()
                records = await self.kube.list(NODE_HEALTHS, namespace=self.namespace)
            self.open = {name for name, it in nodes.items() if not is_shut(it) and name not in held}
            out = {it.spec.node for it in records.items if it.status.reason} | held
            out |= {name for name, it in nodes.items() if _is_drained_by_the_loop(it)} - self._forgotten
            self._check_limits(out)
            for host in self.hosts.values():
                self._check_host(host, nodes[host.name], running)
        assert not self.violations, self.violations

    def _check_limits(self, out: set[str]) -> None:
        for group in ("nodeset", "block"):
            total = Counter(getattr(it, group) for it in self.hosts.values())
            for name, count in Counter(getattr(self.hosts[it], group) for it in out).items():
                most = share_of(MAX_SHARE if group == "nodeset" else MAX_PER_BLOCK, total[name])
                if count > most:
                    self.violated(
                        f"{count} nodes of {group} {name} are out, and at most {most} may be: {sorted(out)}"
                    )

    def _check_host(self, host: Host, node: SlurmNode, running: dict[int, int]) -> None:
        for job in host.jobs:
            if running.get(job) != 0:
                self.violated(f"job {job} on {host.name} ended, or was put back into the queue")
        if host.human and not (is_shut(node) and node.reason == host.human):
            self.violated(f"the drain of a human was lifted: {node}")
        if LIAR in node.reason:
            self.violated(f"drained for a check that condemns many at once: {node}")

    # The end

    async def all_is_well(self) -> None:
        """Let everything be over, and people take back what they did."""
        self.tell("— all is well —")
        for host in self.hosts.values():
            for check in list(host.wrong):
                await self.well(host, check)
            async with self.lock:
                await self._end_jobs(host)
                if host.human:
                    host.human, host.resumed = "", utc_now()
                    await self._scontrol(host, "state=undrain")
        for job in await self._running():
            await self.slurm.cancel_job(job)  # one that slurmctld had forgotten to be over
        await self.check_runs()

    async def humans_decide(self) -> None:
        """Open the nodes that were given to a human."""
        async with self.lock:
            nodes = await self._nodes()
            for host in self.hosts.values():
                if is_shut(nodes[host.name]) and (await self._status(host)).phase == "OutOfService":
                    await self._resume(host)

    async def left(self) -> list[str]:
        """What is not as it was in the beginning."""
        records = await self.kube.list(NODE_HEALTHS, namespace=self.namespace)
        held = [
            f"{it.spec.node}: {it.status.phase}, {it.status.message}" for it in records.items if it.status.reason
        ]
        shut = [f"{it.name}: {it.state} {it.reason}" for it in (await self._nodes()).values() if is_shut(it)]
        reserved = [f"{it} is reserved" for it in await reserved_nodes(self.slurm)]
        return [*held, *shut, *reserved]

    # What is seen

    def status(self, node: str) -> NodeHealthStatus:
        """What the loop that lives has recorded of a node."""
        return self.life.status(node) if self.life else NodeHealthStatus()

    async def _status(self, host: Host) -> NodeHealthStatus:
        """The same, as of this moment."""
        with suppress(NotFound):
            key = Key(self.namespace, record_name(CONTROLLER, host.name))
            return (await self.kube.get(NODE_HEALTHS, key)).status
        return NodeHealthStatus()

    async def _nodes(self) -> dict[str, SlurmNode]:
        listing = await self.slurm.nodes()
        assert listing
        return {it.name: it for it in listing.nodes}

    async def _running(self) -> dict[int, int]:
        """The jobs that run, with how often each was started anew."""
        return {it.job_id: it.restarts for it in await self.slurm.jobs() if "RUNNING" in it.job_state}

    # The loop

    def watch(self, life: HealthBed, struck: asyncio.Event, most: float) -> None:
        """Judge all that a loop does; let it hang for ever after so many actions."""
        carry_out, count = life.sync.runner.carry_out, 0

        async def judged(batch: Batch, action: Action) -> None:
            nonlocal count
            if isinstance(action, Notify | Record):
                await _until_killed(struck)
                await carry_out(batch, action)
            else:
                async with self.lock:
                    await _until_killed(struck)
                    await self.judge(batch, action)
                    await carry_out(batch, action)
            self.done[_name(action)] += 1
            count += not isinstance(action, Notify)
            if count >= most:
                struck.set()
            await _until_killed(struck)

        life.sync.runner.carry_out = judged  # type: ignore[method-assign]  # the one seam for a crash between two actions


class StormPods(Execution):
    """What stands for `kubectl exec`: a check that runs in a pod sees what is true of its node."""

    def __init__(self, storm: Storm) -> None:
        super().__init__()
        self._storm = storm

    async def __call__(self, pod: Key, command: Sequence[str], hear: Callable[[bytes], object]) -> int:
        check = command[command.index("--check") + 1]
        host = self._storm.hosts[pod.name.removeprefix("pod-")]
        self._storm.tell(f"{host.name}: the test {check} {'fails' if check in host.wrong else 'passes'} in its pod")
        hear(check.encode())
        if check in host.wrong:
            return 1
        host.passed[check] = utc_now()
        return 0


def _hosts() -> Iterable[Host]:
    number = 0
    for nodeset, size in NODESET_SIZES.items():
        for one in range(1, size + 1):
            yield Host(f"{nodeset}-{one}", nodeset, f"block-{number // BLOCK_SIZE}")
            number += 1


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _is_drained_by_the_loop(node: SlurmNode) -> bool:
    """Whether the reason is one that nobody but the loop writes."""
    return is_shut(node) and node.reason.startswith((f"{PREFIX} {CHECK}:", f"{PREFIX} {DEADLOCK}:"))


def _reboot_of(machine: Node) -> datetime | None:
    """Since when a machine is to be rebooted."""
    told = condition(machine.status.conditions, names.NODE_REBOOT_CONDITION)
    return told.last_transition_time if told and (told.status, told.reason) == ("True", NEED_REBOOT) else None


def _name(action: Action) -> str:
    return f"{type(action).__name__} {action.rung}" if isinstance(action, Climb) else type(action).__name__


async def _until_killed(struck: asyncio.Event) -> None:
    """Hang for ever if the process is to be dead."""
    if struck.is_set():
        await asyncio.Event().wait()
