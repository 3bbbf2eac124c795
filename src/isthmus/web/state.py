"""The rows of the page, kept by the hooks of the caches, and what is remembered beyond them: trails and past jobs.

Hooks only note what changed. Rows are written when they are to be sent (`settle`), so a job that changes ten times
between two sendings is written once.
"""

import time
from collections import OrderedDict
from typing import Final

from isthmus.bridge.cache.world import job_ids
from isthmus.domain.bridge import jobstates
from isthmus.domain.bridge.jobstates import Phase
from isthmus.domain.exporter import jobfacts, nodestates
from isthmus.domain.views import rows
from isthmus.domain.web.history import History, Sample
from isthmus.domain.web.tables import Tables
from isthmus.domain.web.trails import Step, Trails
from isthmus.inspect import machines
from isthmus.kube.store import Store
from isthmus.model.health import NodeHealth
from isthmus.model.meta import Key
from isthmus.model.node import Node as KubeNode
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job, Node
from isthmus.web.watch import Watch

_MAX_PAST: Final = 5000
_BUSY: Final = frozenset({"allocated", "mixed", "completing"})
_FREE: Final = frozenset({"idle", "planned", "reserved", "powered_down"})


class State:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._world = watch.world
        self.tables = Tables()
        self.history = History()
        self.job_trails = Trails[int]()
        self.node_trails = Trails[str]()
        self.past: OrderedDict[int, Job] = OrderedDict()
        """Jobs that Slurm has forgotten, the oldest first."""
        self._jobs: set[int] = set()
        self._pods: set[Key] = set()
        self._nodes: set[str] = set()
        watch.poller.jobs.on_change(self._job_changed)
        watch.poller.nodes.on_change(self._slurm_node_changed)
        self._world.pods.on_change(self._pod_changed)
        self._world.nodes.on_change(self._kube_node_changed)
        self._world.map.on_change(self._nodes.add)
        watch.healths.store.on_change(self._health_changed)

    @property
    def healths(self) -> Store[NodeHealth]:
        return self._watch.healths.store

    def health_of(self, node: str) -> NodeHealth | None:
        return next((it for it in self.healths.values() if it.spec.node == node), None)

    def job(self, job_id: int) -> Job | None:
        """A job that Slurm knows, or knew a while ago."""
        return self._watch.poller.jobs.get(job_id) or self.past.get(job_id)

    def settle(self) -> None:
        """Write the rows of all that changed."""
        now = time.time()
        jobs, self._jobs = self._jobs, set()
        for job_id in jobs:
            job = self._watch.poller.jobs.get(job_id)
            if job is None:
                self.tables.drop("jobs", job_id)
            else:
                self.tables.put("jobs", job_id, rows.job_row(job, now=now), owner=job.user_name or "")
        pods, self._pods = self._pods, set()
        for key in pods:
            pod = self._world.pods.get(key)
            if pod is None:
                self.tables.drop("pods", str(key))
            else:
                placed_by = next(iter(job_ids(pod)), None)
                row = rows.pod_row(pod, job_id=placed_by, ours=self._world.ours(pod))
                self.tables.put("pods", str(key), row, owner=key.namespace)
        nodes, self._nodes = self._nodes, set()
        for name in nodes:
            self._settle_node(name)

    def sample(self) -> None:
        """Add what is so now to the history; nothing while Slurm is away, which is a gap and not a zero."""
        if not self._watch.has_read_slurm or self._watch.slurm_trouble:
            return
        self.history.add(time.time(), self._sample())

    def _sample(self) -> Sample:
        jobs = [
            (jobstates.phase(it.job_state), jobfacts.waiting_tasks(it)) for it in self._watch.poller.jobs.values()
        ]
        pods = [it.status.phase for it in self._world.pods.values() if self._world.ours(it)]
        nodes = list(self._watch.poller.nodes.values())
        words = [nodestates.state(it.state) for it in nodes]
        return (
            sum(phase is Phase.RUNNING for phase, _ in jobs),
            sum(tasks for phase, tasks in jobs if phase is Phase.WAITING),
            pods.count("Running"),
            pods.count("Pending"),
            sum(it in _BUSY for it in words),
            sum(it in _FREE for it in words),
            sum(it in nodestates.OUT for it in words),
            sum(it.cpus for it in nodes),
            sum(it.alloc_cpus for it in nodes),
            sum(rows.node_gpus(it)[0] for it in nodes),
            sum(rows.node_gpus(it)[1] for it in nodes),
        )

    def _settle_node(self, name: str) -> None:
        row = machines.node_row(self._world, name, self.health_of(name) if len(self.healths) else None)
        if row is None:
            self.tables.drop("nodes", name)
        else:
            self.tables.put("nodes", name, row)

    def _names(self, kube_name: str) -> set[str]:
        return self._world.map.slurm_names(kube_name) | {kube_name}

    def _job_changed(self, job_id: int, old: Job | None, new: Job | None) -> None:
        self._jobs.add(job_id)
        if new is None:
            if old is not None:
                self.past[job_id] = old
                if len(self.past) > _MAX_PAST:
                    gone, _ = self.past.popitem(last=False)
                    self.job_trails.forget(gone)
            return
        if old is None and self.past.pop(job_id, None) is not None:
            self.job_trails.forget(job_id)  # a slurmctld that lost its state gives ids again
        phase = rows.job_phase(new)
        why = new.state_reason if phase == "waiting" and new.state_reason != "None" else ""
        self.job_trails.note(job_id, Step(time.time(), phase, why[:200]))

    def _slurm_node_changed(self, name: str, _old: Node | None, new: Node | None) -> None:
        self._nodes.add(name)
        if new is None:
            if kube := self._world.map.kube_name(name):
                self._nodes.add(kube)
            return
        self._nodes |= {kube} if (kube := self._world.map.kube_name(name)) else set()
        self.node_trails.note(name, Step(time.time(), nodestates.state(new.state), new.reason[:200]))

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        self._pods.add(key)
        for pod in (old, new):
            if pod is not None and pod.spec.node_name:
                self._nodes |= self._names(pod.spec.node_name)

    def _kube_node_changed(self, key: Key, _old: KubeNode | None, _new: KubeNode | None) -> None:
        self._nodes |= self._names(key.name)

    def _health_changed(self, _key: Key, old: NodeHealth | None, new: NodeHealth | None) -> None:
        self._nodes |= {it.spec.node for it in (old, new) if it is not None}
