"""What the page shows about one job, pod or node: its state, why, since when, and what would help."""

import time
from collections import OrderedDict
from typing import Any, Literal

import msgspec

from isthmus.bridge.cache.world import job_ids
from isthmus.bridge.config import Config
from isthmus.domain.bridge.explain import Gate
from isthmus.domain.exporter.jobrun import of_account
from isthmus.domain.health.outlook import active, next_step, way_back
from isthmus.domain.health.policies import governing
from isthmus.domain.languages import hostlist
from isthmus.domain.views import jobwhy, rows
from isthmus.domain.views.accounted import job_of
from isthmus.domain.views.jobwhy import Blocker, Estimate
from isthmus.domain.views.outputfile import output_file
from isthmus.domain.web.audience import Audience
from isthmus.domain.web.facts import job_facts, job_steps, node_facts, pod_facts, pod_steps
from isthmus.domain.web.trails import Step
from isthmus.errors import IsthmusError, Terminal
from isthmus.inspect import explain
from isthmus.inspect.why import pods_of
from isthmus.model.health import HealthPolicySpec
from isthmus.model.meta import Key
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job
from isthmus.model.slurmdb import PastJob
from isthmus.web.state import State
from isthmus.web.watch import Watch

_MAX_LISTED = 200
_MAX_ANSWERS = 1000
_FRESH = 2.0
_SETTLED, _UNSETTLED = 300.0, 10.0
"""Seconds after which slurmdbd is asked again, where it knew what a job used and where not."""


class NotSeenError(Terminal):
    """It does not exist, or the user may not see it; the response does not say which."""


class Used(msgspec.Struct, frozen=True, rename="camel"):
    """What a job used that is over, by the accounts; memory is in bytes, of the task that took most."""

    cpu_seconds: float | None
    cpu_seconds_had: int
    max_memory: int | None


class Why(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A job or a pod, explained."""

    kind: str
    name: str
    row: list[Any] | None = None
    columns: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    estimate: Estimate = Estimate()
    helps: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    facts: dict[str, str] = {}
    job: int = 0
    pods: tuple[str, ...] = ()
    past: bool = False
    """Whether Slurm has forgotten the job, so that this is what was known last."""
    used: Used | None = None
    log: bool = False
    """Whether it is a batch job, whose output is in a file."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    steps: tuple[Step, ...] = ()
    facts: dict[str, str] = {}
    findings: tuple[dict[str, Any], ...] = ()
    phase: str = ""
    message: str = ""
    next_step: str = ""
    way_back: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    pods: tuple[str, ...] = ()


class Explainer:
    """Answers from the caches; only a gang's own object is read from the API server.

    Open pages ask again every few seconds, and an answer looks at every job: for two seconds it serves all who ask.
    """

    def __init__(self, watch: Watch, state: State, config: Config) -> None:
        self._watch, self._state, self._config = watch, state, config
        self._answers: OrderedDict[tuple[str, str, Audience], tuple[float, bytes]] = OrderedDict()
        self._accounted: OrderedDict[int, tuple[float, PastJob | None]] = OrderedDict()
        """What slurmdbd said of jobs that are over, and until when that is good."""

    async def answer(self, kind: Literal["job", "pod", "node"], name: str, audience: Audience) -> bytes:
        """Explain a job, a pod or a node, as JSON."""
        question, now = (kind, name, audience), time.monotonic()
        known = self._answers.get(question)
        if known and known[0] > now - _FRESH:
            return known[1]
        found: Why | NodeView
        match kind:
            case "job":
                found = await self.job(int(name), audience)
            case "pod":
                found = await self.pod(Key.parse(name), audience)
            case "node":
                found = self.node(name, audience)
        text = msgspec.json.encode(found)
        self._answers[question] = (now, text)
        self._answers.move_to_end(question)
        if len(self._answers) > _MAX_ANSWERS:
            self._answers.popitem(last=False)
        return text

    def seen_job(self, job_id: int, audience: Audience) -> Job:
        """A job that Slurm knows or knew a while ago, for those who may see it."""
        job = self._state.job(job_id)
        if job is None or not audience.sees("jobs", job.user_name or ""):
            raise NotSeenError(f"Slurm does not know job {job_id} (any more), or you may not see it")
        return job

    async def job(self, job_id: int, audience: Audience) -> Why:
        if self._state.job(job_id) is None and (accounted := await self._account_of(job_id)):
            job = job_of(accounted)
            if not audience.sees("jobs", job.user_name or ""):
                raise NotSeenError(f"Slurm does not know job {job_id} (any more), or you may not see it")
        else:
            job = self.seen_job(job_id, audience)
        known = self._watch.poller.jobs
        past = job_id not in known
        pods = [it for it in pods_of(self._watch.world, job) if audience.sees("pods", it.metadata.namespace)]
        gates = jobwhy.gates(job, known.values(), now=time.time())
        if pods and not past:
            # A pod's way is longer, and its gates name what Kubernetes has to say, too.
            chosen = min(pods, key=lambda it: (it.bound, it.metadata.key))
            gates = (await self._explained(chosen)).gates
        why = self._of_job(
            job,
            audience,
            gates,
            kind="job",
            name=rows.job_label(job),
            past=past,
            pods=[str(it.metadata.key) for it in pods],
        )
        return msgspec.structs.replace(why, used=await self._used(job), log=bool(output_file(job)) and not pods)

    async def pod(self, key: Key, audience: Audience) -> Why:
        pod = self._watch.world.pods.get(key)
        if pod is None or not audience.sees("pods", key.namespace):
            raise NotSeenError(f"there is no pod {key}, or you may not see it")
        found = await self._explained(pod)
        job_id = found.job_id or next(iter(job_ids(pod)), None)
        job = self._state.job(job_id) if job_id else None
        siblings = [it.partition(" ")[0] for it in found.siblings]
        facts = pod_facts(pod)
        if job is None or not audience.sees("jobs", job.user_name or ""):
            row = rows.pod_row(pod, job_id=None, ours=self._watch.world.ours(pod))
            steps = pod_steps(pod)
            return Why(
                kind="pod", name=str(key), row=row, columns=rows.POD_COLUMNS, gates=found.gates, steps=steps,
                facts=facts, pods=tuple(siblings[:_MAX_LISTED]),
            )  # fmt: skip
        why = self._of_job(job, audience, found.gates, kind="pod", name=str(key), pods=siblings)
        row = rows.pod_row(pod, job_id=job_id, ours=True)
        steps = tuple(sorted((*why.steps, *pod_steps(pod))))
        return msgspec.structs.replace(
            why,
            row=row,
            columns=rows.POD_COLUMNS,
            facts=facts | {f"job {k}": v for k, v in why.facts.items()},
            steps=steps,
        )

    def node(self, name: str, audience: Audience) -> NodeView:
        slurm = self._watch.poller.nodes.get(name)
        world = self._watch.world
        kube_name = world.map.kube_name(name) if slurm else name
        kube = world.nodes.get(Key("", kube_name)) if kube_name else None
        if not audience.nodes or (slurm is None and kube is None):
            raise NotSeenError(f"there is no node {name}, or you may not see it")
        jobs = (it for it in self._watch.poller.jobs.values() if it.nodes and not it.has_ended)
        here = [it.job_id for it in jobs if audience.sees("jobs", it.user_name or "") and _is_on(it, name)]
        pods = world.pods.by("node", kube_name) if kube_name else ()
        seen = [
            str(it.metadata.key) for it in pods if not it.finished and audience.sees("pods", it.metadata.namespace)
        ]
        view = NodeView(
            name=name,
            steps=self._state.node_trails.of(name),
            facts=node_facts(slurm, kube),
            jobs=tuple(here[:_MAX_LISTED]),
            pods=tuple(sorted(seen)[:_MAX_LISTED]),
        )
        return self._with_health(view)

    def _with_health(self, view: NodeView) -> NodeView:
        health = self._state.health_of(view.name)
        if health is None:
            return view
        cluster = Key(health.metadata.namespace, health.spec.cluster)
        policy = governing(tuple(self._watch.health_policies.store.values()), cluster)
        spec = policy.spec if policy else HealthPolicySpec()
        status = health.status
        findings = [
            {
                "source": it.source,
                "check": it.check,
                "evidence": it.evidence[:400],
                "count": it.count,
                "active": it in now,
            }
            for now in (active(status.findings),)
            for it in status.findings
        ]
        return msgspec.structs.replace(
            view,
            phase=status.phase or "Suspect",
            message=status.message,
            findings=tuple(findings),
            next_step=next_step(status, spec).replace("NODE", view.name),
            way_back=way_back(health, spec),
        )

    async def _used(self, job: Job) -> Used | None:
        accounted = await self._account_of(job.job_id) if job.has_ended else None
        if accounted is None or not accounted.steps:
            return None
        run = of_account(accounted)
        return Used(run.cpu_seconds, run.cpus * run.elapsed, run.max_memory)

    async def _account_of(self, job_id: int) -> PastJob | None:
        """What slurmdbd knows of a job's last run. It is asked once, and again where it could not say."""
        now = time.monotonic()
        until, known = self._accounted.get(job_id, (0.0, None))
        if until > now:
            return known
        try:
            runs = [it for it in await self._watch.accounting.job(job_id) if it.job_id == job_id]
        except IsthmusError:
            runs = []
        found = max(runs, key=lambda it: it.time.submission, default=None)
        # A little after its end, slurmdbd has not heard of everything that a job used.
        self._accounted[job_id] = (now + (_SETTLED if found and found.steps else _UNSETTLED), found)
        if len(self._accounted) > _MAX_ANSWERS:
            self._accounted.popitem(last=False)
        return found

    async def _explained(self, pod: Pod) -> explain.Explanation:
        key = pod.metadata.key
        return await explain.explain_pod(self._watch.snapshot(key.namespace), self._config, key, now=time.time())

    def _of_job(
        self,
        job: Job,
        audience: Audience,
        gates: tuple[Gate, ...],
        *,
        kind: str,
        name: str,
        past: bool = False,
        pods: list[str],
    ) -> Why:
        jobs = self._watch.poller.jobs
        now = time.time()
        in_the_way = jobwhy.blockers(job, jobs.values(), now=now)
        if not audience.all_jobs:
            in_the_way = jobwhy.anonymous(in_the_way)
        return Why(
            kind=kind,
            name=name,
            row=rows.job_row(job, now=now),
            columns=rows.JOB_COLUMNS,
            gates=gates,
            blockers=in_the_way,
            estimate=jobwhy.estimate(job, now=now),
            helps=jobwhy.helps(job, self._watch.poller.nodes.values()),
            steps=job_steps(job, self._state.job_trails.of(job.job_id)),
            facts=job_facts(job),
            job=job.job_id,
            pods=tuple(pods[:_MAX_LISTED]),
            past=past,
        )


def _is_on(job: Job, node: str) -> bool:
    try:
        return node == job.nodes or node in hostlist.expand(job.nodes or "")
    except Terminal:  # a list that we cannot read names nobody
        return False
