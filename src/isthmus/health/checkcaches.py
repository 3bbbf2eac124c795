"""What the controllers of ActiveChecks know beside the health loop: CronJobs, Jobs, pods, and what is theirs."""

from collections.abc import Hashable
from typing import Any, Final, Protocol, TypeVar

from isthmus import names
from isthmus.domain.health.activechecks.manifests import COMPONENT
from isthmus.domain.operator.manifests.common import MANAGER
from isthmus.kube.client import Client
from isthmus.kube.informer import Informer
from isthmus.kube.store import Index, Store
from isthmus.model.activecheck import ActiveCheck
from isthmus.model.base import Kind
from isthmus.model.meta import HasMeta, Key
from isthmus.model.objects import CONFIGMAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from isthmus.model.pod import PODS
from isthmus.model.workload import CHECK_JOBS, CRON_JOBS, CheckJob
from isthmus.operator.world import ClusterCaches

T = TypeVar("T", bound=HasMeta)

_OURS: Final = f"{names.MANAGED_BY_LABEL}={MANAGER},{names.COMPONENT_LABEL}={COMPONENT}"


class _Manager(Protocol):
    def cache(self, name: str, cache: Any) -> None: ...


class CheckCaches:
    """Caches of one namespace or of all; `operator` and `checks` are kept up to date by others."""

    def __init__(self, operator: ClusterCaches, checks: Store[ActiveCheck]) -> None:
        self.operator = operator
        self.checks = checks
        self._informers: dict[str, Informer[Any]] = {}
        self.cron_jobs = self._follow(CRON_JOBS, names.CHECK_LABEL)
        self.jobs = self._follow(CHECK_JOBS, names.CHECK_LABEL, {"check": _checks})
        self.pods = self._follow(PODS, names.CHECK_LABEL, {"job": _jobs})
        self.configmaps = self._follow(CONFIGMAPS, _OURS)
        self.service_accounts = self._follow(SERVICE_ACCOUNTS, _OURS)
        self.roles = self._follow(ROLES, _OURS)
        self.role_bindings = self._follow(ROLE_BINDINGS, _OURS)

    @property
    def kube(self) -> Client:
        return self.operator.kube

    @property
    def in_touch(self) -> bool:
        """Whether Kubernetes answers: only then does "not there" mean that it is gone."""
        return self.operator.in_touch and all(it.contact.in_touch for it in self._informers.values())

    def register(self, manager: _Manager) -> None:
        """Let a manager keep these caches up to date."""
        within = f" in {self.operator.namespace}" if self.operator.namespace else ""
        for name, informer in self._informers.items():
            manager.cache(f"{name} of checks{within}", informer)

    def check_of(self, job: CheckJob) -> ActiveCheck | None:
        meta = job.metadata
        return self.checks.get(Key(meta.namespace, check_name(job)))

    def newest(self, check: Key) -> CheckJob | None:
        """The last run of a check; tests of single nodes do not count."""
        runs = (it for it in self.jobs.by("check", check) if not tested_node(it))
        return max(runs, key=lambda it: (str(it.metadata.creation_timestamp), it.metadata.name), default=None)

    def _follow(self, kind: Kind[T], labels: str, indexes: dict[str, Index[Any]] | None = None) -> Store[T]:
        informer = Informer(self.kube, kind, indexes=indexes, namespace=self.operator.namespace, labels=labels)
        self._informers[kind.plural] = informer
        return informer.store


def check_name(job: HasMeta) -> str:
    """Which check a Job or pod is of; `kubectl create job --from` copies the annotation, too."""
    meta = job.metadata
    return meta.annotations.get(names.ACTIVE_CHECK_ANNOTATION) or meta.labels.get(names.CHECK_LABEL, "")


def tested_node(job: HasMeta) -> str:
    """The node that a Job tests; empty for a run."""
    return job.metadata.annotations.get(names.CHECK_NODE_ANNOTATION, "")


def _checks(job: HasMeta) -> tuple[Hashable, ...]:
    return (Key(job.metadata.namespace, check_name(job)),)


def _jobs(pod: HasMeta) -> tuple[Hashable, ...]:
    """File a pod under its Job."""
    name = pod.metadata.labels.get(names.JOB_NAME_LABEL)
    return (Key(pod.metadata.namespace, name),) if name else ()
