"""What the controllers of ActiveChecks know beside the health loop: CronJobs, Jobs, pods, and what is theirs."""

from collections.abc import Hashable
from typing import Final

from isthmus import names
from isthmus.domain.health.activechecks import gate
from isthmus.domain.health.activechecks.manifests import COMPONENT
from isthmus.domain.operator.manifests.common import MANAGER
from isthmus.health.caches import MoreCaches
from isthmus.kube.store import Store
from isthmus.model.activecheck import ActiveCheck
from isthmus.model.meta import HasMeta, Key
from isthmus.model.objects import CONFIGMAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from isthmus.model.pod import PODS
from isthmus.model.workload import CHECK_JOBS, CRON_JOBS, CheckJob
from isthmus.operator.world import ClusterCaches

_OURS: Final = f"{names.MANAGED_BY_LABEL}={MANAGER},{names.COMPONENT_LABEL}={COMPONENT}"


class CheckCaches(MoreCaches):
    """What ActiveChecks make; `checks` are kept up to date by others."""

    def __init__(self, operator: ClusterCaches, checks: Store[ActiveCheck]) -> None:
        super().__init__(operator, owner="checks")
        self.checks = checks
        self.cron_jobs = self._follow(CRON_JOBS, labels=names.CHECK_LABEL)
        self.jobs = self._follow(CHECK_JOBS, labels=names.CHECK_LABEL, indexes={"check": _checks})
        self.pods = self._follow(PODS, labels=names.CHECK_LABEL, indexes={"job": _jobs})
        self.configmaps = self._follow(CONFIGMAPS, labels=_OURS)
        self.service_accounts = self._follow(SERVICE_ACCOUNTS, labels=_OURS)
        self.roles = self._follow(ROLES, labels=_OURS)
        self.role_bindings = self._follow(ROLE_BINDINGS, labels=_OURS)

    def check_of(self, job: CheckJob) -> ActiveCheck | None:
        meta = job.metadata
        return self.checks.get(Key(meta.namespace, check_name(job)))

    def closed(self, check: ActiveCheck) -> str:
        """Why no run of a check may start now; empty if one may."""
        namespace = check.metadata.namespace
        cluster = Key(namespace, check.spec.slurm_cluster_ref_name)
        return gate.closed(
            check,
            cluster=self.operator.clusters.get(cluster),
            controller=self.operator.controllers.get(cluster),
            find=lambda name: self.checks.get(Key(namespace, name)),
        )

    def newest(self, check: Key) -> CheckJob | None:
        """The last run of a check; tests of single nodes do not count."""
        runs = (it for it in self.jobs.by("check", check) if not tested_node(it))
        return max(runs, key=lambda it: (str(it.metadata.creation_timestamp), it.metadata.name), default=None)


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
