"""Kubernetes and Slurm as the bridge sees them: caches that are read without awaiting, and look-ups.

    Kubernetes   pods, nodes, claims, volumes, storage classes, namespaces, policies      (informers)
                 owners of worker pods; devices and claims on them (DRA), where there are such kinds
    Slurm        jobs, job states, nodes                                                  (one poller)
    between      our jobs by id and by group, jobs in flight, which node is which, what is left for Slurm on each

Everything that decides reads from here; nothing lists jobs, nodes or pods for one pod.
"""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

from isthmus import names
from isthmus.bridge.cache.capacity import Capacity
from isthmus.bridge.cache.devices import Devices
from isthmus.bridge.cache.inflight import JobsInFlight
from isthmus.bridge.cache.jobreader import JobReader
from isthmus.bridge.cache.jobs import OurJobs
from isthmus.bridge.cache.nodemap import OWNERS, NodeMap
from isthmus.domain.bridge import marker, podclaims, podrules, tenancy
from isthmus.domain.bridge.devices import Profile
from isthmus.domain.bridge.groups import GroupKey, group_of, workload_kind
from isthmus.domain.bridge.tenancy import Grant, Tenancy
from isthmus.domain.kube import feasibility, volumes
from isthmus.domain.kube.feasibility import Constraints
from isthmus.domain.kube.volumes import Volumes, claim_keys
from isthmus.kube.client import Client
from isthmus.kube.informer import Informer
from isthmus.model.base import Kind
from isthmus.model.meta import Key, Partial
from isthmus.model.node import NODES
from isthmus.model.pod import PODS, Pod
from isthmus.model.policy import POLICIES
from isthmus.model.slurm import Job, States
from isthmus.model.storage import CLAIMS, STORAGE_CLASSES, VOLUMES
from isthmus.slurm.client import Client as SlurmClient
from isthmus.slurm.poller import Poller

NAMESPACES: Final[Kind[Partial]] = Kind(Partial, "v1", "namespaces", "Namespace", namespaced=False)

_IDLE: Final = 0.75
"""Seconds between two looks at all jobs. A job that is cancelled in Slurm is seen within this."""


_REFRESH: Final = 3.0
"""Seconds between two looks at why one of the waiting jobs waits; where hundreds wait, all are read at once."""


class _Manager(Protocol):
    def cache(self, name: str, cache: Any) -> None: ...


async def cluster_id(client: Client) -> str:
    """The id of this Kubernetes cluster in our jobs: the uid of a namespace that is never deleted."""
    return (await client.get(NAMESPACES, "kube-system")).metadata.uid


class World:
    """The caches of one process. `register` them with its manager, and read."""

    def __init__(
        self,
        kube: Client,
        slurm: SlurmClient,
        *,
        cluster: str,
        scheduler_name: str = names.SCHEDULER_NAME,
        without_policy: Tenancy = tenancy.AUTO,
        poller: Poller | None = None,
        profiles: Sequence[Profile] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With a `poller`, Slurm is followed by that one, such as one that keeps the jobs of others in full."""
        self.kube = kube
        self.slurm = slurm
        self.cluster = cluster
        self.scheduler_name = scheduler_name
        self._without_policy = without_policy
        self._informers: dict[str, Informer[Any]] = {}

        pods = Informer(
            kube,
            PODS,
            indexes={
                "group": self._groups,
                "node": _nodes,
                "job": job_ids,
                "claim": claim_keys,
                "resource claim": podclaims.claim_keys,
            },
        )
        nodes = Informer(kube, NODES)
        claims, persistent = Informer(kube, CLAIMS), Informer(kube, VOLUMES)
        classes = Informer(kube, STORAGE_CLASSES)
        namespaces = Informer(kube, NAMESPACES)
        policies = Informer(kube, POLICIES)
        owners = [Informer(kube, kind, optional=True) for kind in OWNERS]
        self.devices = Devices(kube, nodes.store, pods.store, ours=self.ours, profiles=profiles)
        self._informers = {
            **self.devices.informers,
            "pods": pods,
            "nodes": nodes,
            "claims": claims,
            "volumes": persistent,
            "storage classes": classes,
            "namespaces": namespaces,
            "policies": policies,
            **{f"{it.kind.plural}.{it.kind.group}": it for it in owners},
        }
        self.pods, self.nodes = pods.store, nodes.store
        self.claims, self.volumes, self.classes = claims.store, persistent.store, classes.store
        self.namespaces, self.policies = namespaces.store, policies.store
        self.worker_owners = [it.store for it in owners]

        self.inflight = JobsInFlight(cluster=cluster, nudge=self._nudge, clock=clock)
        self.job_reader = JobReader(
            slurm,
            self.inflight,
            cluster=cluster,
            known=self._known_job,
            state=self._state_of,
        )
        self.poller = poller or Poller(
            slurm,
            waiting=self.inflight.watched,
            wants=self._wants,
            claimed=self._claimed_jobs,
            slim=self._slim,
            records=self.job_reader,
            idle=_IDLE,
            refresh=_REFRESH,
            clock=clock,
        )
        self.jobs = OurJobs(self.poller.jobs, cluster=cluster)
        self.states = self.poller.states
        self.poller.on_restart(self._slurm_restarted)
        self.slurm_nodes = self.poller.nodes
        self.map = NodeMap(self.nodes, self.pods, self.worker_owners)
        self.capacity = Capacity(self.nodes, self.pods, placed=self.placed)

    def register(self, manager: _Manager) -> None:
        """Let a manager keep the caches up to date, and count them as part of its readiness."""
        for name, informer in self._informers.items():
            manager.cache(name, informer)
        manager.cache("slurm", self.poller)

    @property
    def in_touch(self) -> bool:
        """Whether both sides answer: only then does "not there" mean that it is gone."""
        return self.poller.contact.in_touch and all(it.contact.in_touch for it in self._informers.values())

    def ours(self, pod: Pod) -> bool:
        """Whether Slurm is to place this pod."""
        return pod.spec.scheduler_name == self.scheduler_name

    def placed(self, pod: Pod) -> bool:
        """Whether Slurm has placed this pod, so that a job accounts for what it takes."""
        return self.ours(pod) and bool(job_ids(pod))

    def members(self, group: GroupKey) -> tuple[Pod, ...]:
        """The pods of a group, in any state.

        A pod that has a node by a job of the group stays a member, also if its label names another group by now.
        """
        found = self.pods.by("group", group)
        jobs = self.jobs.of_group(group)
        if not jobs:
            return found
        known = {pod.metadata.uid for pod in found}
        relabelled = [
            pod
            for ours in jobs
            for pod in self.pods.by("job", ours.job_id)
            if pod.metadata.uid not in known and pod.bound and self.ours(pod)
            if podrules.is_seated(pod, ours.job_id, ours.marker)
        ]
        return (*found, *relabelled) if relabelled else found

    def metric_labels(self, pod: Pod, job_id: int | None) -> tuple[str, str, str]:
        """The namespace, account and kind under which a pod is counted; an unknown account is empty."""
        account: str | None = ""
        if job_id is not None:
            job = self.record_of(job_id)
            account = job.account if job else ""
        return pod.metadata.namespace, account or "", workload_kind(pod)

    def record_of(self, job_id: int) -> Job | None:
        """What is known of a job of ours, from Slurm's lists or from its submission."""
        ours, flight = self.jobs.get(job_id), self.inflight.get(job_id)
        return ours.job if ours else flight.record if flight else None

    def constraints(self, pod: Pod, *, shared: bool = False) -> Constraints:
        """Which nodes a pod may run on; `shared` says whether others may be there with it."""
        claims = self.devices.of_pod(pod)
        return feasibility.constraints_of(
            pod,
            (*self.wanted_volumes(pod).terms, *claims.terms),
            devices=claims.needs,
            shared=shared,
            without=claims.resources,
        )

    def wanted_volumes(self, pod: Pod) -> Volumes:
        """The volumes that a pod wants, and where they are."""
        return volumes.volumes_of(
            pod,
            claims=self.claims.get,
            volumes=lambda name: self.volumes.get(Key("", name)),
            classes=lambda name: self.classes.get(Key("", name)),
            users=lambda claim: self.pods.by("claim", claim),
        )

    def grant(self, namespace: str, service_account: str) -> Grant:
        """What pods of a namespace and service account may ask of Slurm."""
        found = self.namespaces.get(Key("", namespace))
        return tenancy.grant_for(
            self.policies.values(),
            namespace=namespace,
            namespace_labels=found.metadata.labels if found else {},
            service_account=service_account,
            tenancy=self._without_policy,
        )

    def _nudge(self) -> None:
        self.poller.nudge()

    def _known_job(self, job_id: int) -> Job | None:
        return self.poller.jobs.get(job_id)

    def _state_of(self, job_id: int) -> States | None:
        return self.poller.states.get(str(job_id))

    def _slurm_restarted(self) -> None:
        self.jobs.forget_foreign()
        self.inflight.slurm_restarted()
        self.job_reader.doubt(ours.job_id for ours in self.jobs)

    def _claimed_jobs(self) -> Collection[int]:
        """The jobs by which pods say that they run."""
        return [value for value in self.pods.index_values("job") if isinstance(value, int)]

    def _slim(self, job: Job) -> Job:
        """Keep no more of somebody else's job than that it is there: there may be tens of thousands of them."""
        if marker.read(job.admin_comment):
            return job
        return Job(job.job_id, job.job_state, array_job_id=job.array_job_id, het_job_id=job.het_job_id)

    def _wants(self, job_id: int) -> bool:
        return not self.jobs.is_foreign(job_id)

    def _groups(self, pod: Pod) -> tuple[GroupKey, ...]:
        return (group_of(pod),) if pod.spec.scheduler_name == self.scheduler_name else ()


def _nodes(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def job_ids(pod: Pod) -> tuple[int, ...]:
    """The id of the job that a pod claims to be bound to."""
    claimed = podrules.claimed_job(pod)
    return () if claimed is None else (claimed,)
