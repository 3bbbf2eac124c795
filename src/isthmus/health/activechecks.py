"""The controller of ActiveChecks: makes the CronJob and the script of each, and runs it once after its creation.

ActiveCheck ─► rights, ConfigMap, CronJob ─► (on schedule) Jobs ─► checkjobs
         └──► first Job, once, when its cluster is in use and its dependencies are complete
"""

from typing import Any, Final, Unpack

import msgspec

from isthmus import names
from isthmus.clock import utc_now
from isthmus.domain.health.activechecks import manifests
from isthmus.domain.kube import conditions
from isthmus.domain.kube.podtrouble import Trouble
from isthmus.errors import Terminal, Wait
from isthmus.health.checkcaches import CheckCaches
from isthmus.kube.errors import NotFound
from isthmus.model.activecheck import ACTIVE_CHECKS, ActiveCheck
from isthmus.model.base import Kind
from isthmus.model.meta import HasMeta, Key, Object
from isthmus.model.objects import CONFIGMAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from isthmus.model.schema import FreeForm
from isthmus.model.slinky import CONTROLLERS
from isthmus.model.soperator import SLURM_CLUSTERS
from isthmus.model.workload import CHECK_JOBS, CRON_JOBS
from isthmus.operator import parts, refusals
from isthmus.operator.applier import owner_reference
from isthmus.operator.kindsync import Tools
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.references import Asker
from isthmus.runtime.statusparts import StatusPart

FIRST_RUN: Final = "FirstRunStarted"
"""The condition that says whether the run after creation has been started: it is started once."""

_WORKERS: Final = 4
_REQUEUE_S: Final = 2.0


class _PodTemplate(Object, frozen=True):
    template: FreeForm = msgspec.field(default_factory=dict)


_POD_TEMPLATES: Final = Kind(_PodTemplate, "v1", "podtemplates", "PodTemplate")


class ActiveCheckSync:
    """The controller; `workers` are for the leader."""

    def __init__(self, caches: CheckCaches, **tools: Unpack[Tools]) -> None:
        self._caches = caches
        self._world = caches.operator
        self._applier = tools["applier"]
        self._recorder = tools["recorder"]
        now = tools.get("now", utc_now)
        self._status = StatusPart(caches.kube, ACTIVE_CHECKS, manager=names.FIELD_MANAGER, now=now)
        self.controller: Controller[Key] = Controller(
            "activechecks", self.reconcile, metrics=tools["metrics"], workers=_WORKERS
        )
        caches.checks.on_change(self._check_changed)
        caches.cron_jobs.on_change(parts.wakes_owner(ACTIVE_CHECKS, self.controller.queue.add))
        caches.configmaps.on_change(parts.wakes_owner(ACTIVE_CHECKS, self.controller.queue.add))
        self._world.clusters.on_change(self._cluster_changed)
        self._world.controllers.on_change(self._cluster_changed)

    @property
    def workers(self) -> tuple[Worker, ...]:
        return (self.controller,)

    async def reconcile(self, key: Key) -> None:
        found = self._caches.checks.get(key)
        if found is None:
            return
        check = self._status.newest(found)
        if check.metadata.deletion_timestamp is not None:
            await self._release(check)
            return
        if not self._caches.in_touch:
            raise Wait("Kubernetes does not answer", after=_REQUEUE_S)
        closed = self._caches.closed(check)
        trouble, failure = await refusals.attempt(self._make(check, closed))
        started = conditions.holds(check.status.conditions, FIRST_RUN)
        if not (started or closed or trouble.wrong or trouble.missing) and check.spec.run_after_creation:
            started = await self._start_first(check)
        await self._report(check, trouble, closed, started=started)
        if failure:
            raise failure

    async def _make(self, check: ActiveCheck, closed: str) -> Trouble:
        template = self._template(check)
        await self._make_rights(check)
        ours = (owner_reference(ACTIVE_CHECKS, check),)
        if script := manifests.script_configmap(check):
            await self._applier.apply(CONFIGMAPS, script, there=self._caches.configmaps, owners=ours)
        manifest = manifests.cronjob(check, settings=self._world.settings, template=template, closed=bool(closed))
        await self._applier.apply(CRON_JOBS, manifest, there=self._caches.cron_jobs, owners=ours)
        if check.metadata.key not in self._caches.cron_jobs:
            return Trouble(missing="its CronJob is being created")
        return Trouble()

    def _template(self, check: ActiveCheck) -> dict[str, Any]:
        name, namespace = check.spec.pod_template_name_ref, check.metadata.namespace
        if not name:
            return {}
        asker = Asker(self.controller.queue.add, check.metadata.key)
        found = self._world.references.find(_POD_TEMPLATES, Key(namespace, name), asker)
        if found is None:
            raise Terminal(f"there is no PodTemplate {name} in namespace {namespace}", remedy="create it")
        return dict(found.template)

    async def _make_rights(self, check: ActiveCheck) -> None:
        """Make the ServiceAccount of the pods of checks; it goes with the cluster."""
        name, namespace = check.spec.slurm_cluster_ref_name, check.metadata.namespace
        key = Key(namespace, name)
        owner: HasMeta | None = self._world.clusters.get(key)
        kind: Kind[Any] = SLURM_CLUSTERS
        if owner is None:
            owner, kind = self._world.controllers.get(key), CONTROLLERS
        if owner is None:
            return
        # To hold up its deletion would take a right on its finalizers.
        owners = ({**owner_reference(kind, owner, controller=False), "blockOwnerDeletion": False},)
        caches = self._caches
        account = manifests.service_account(name, namespace)
        await self._applier.apply(SERVICE_ACCOUNTS, account, there=caches.service_accounts, owners=owners)
        await self._applier.apply(ROLES, manifests.role(name, namespace), there=caches.roles, owners=owners)
        binding = manifests.role_binding(name, namespace)
        await self._applier.apply(ROLE_BINDINGS, binding, there=caches.role_bindings, owners=owners)

    async def _start_first(self, check: ActiveCheck) -> bool:
        cron_job = self._caches.cron_jobs.get(check.metadata.key)
        if cron_job is None:
            return False
        template = {"spec": {"jobTemplate": cron_job.spec.job_template}}
        job = manifests.first_job(check, template, uid=cron_job.metadata.uid)
        await self._applier.make_once(CHECK_JOBS, job, there=self._caches.jobs)
        return True

    async def _report(self, check: ActiveCheck, trouble: Trouble, closed: str, *, started: bool) -> None:
        spec = check.spec
        rests = "its schedule is suspended" if spec.suspend else f"its schedule is {spec.schedule}"
        waits = f"it does not run: {closed}" if closed else ""
        held = [*conditions.summary(wrong=trouble.wrong, missing=trouble.missing or waits, settled=rests)]
        if started:
            held.append(conditions.yes(FIRST_RUN, "Started", "the run after creation has been started"))
        elif spec.run_after_creation:
            held.append(conditions.no(FIRST_RUN, "Waiting", closed or trouble.wrong or trouble.missing))
        parts.tell(self._recorder, ACTIVE_CHECKS, check, held)
        await self._status.tell(check, {"observedGeneration": check.metadata.generation}, held)

    async def _release(self, check: ActiveCheck) -> None:
        """Take away Soperator's finalizer: what is made of a check goes with it."""
        meta = check.metadata
        if names.ACTIVE_CHECK_FINALIZER not in meta.finalizers:
            return
        left = [it for it in meta.finalizers if it != names.ACTIVE_CHECK_FINALIZER]
        patch = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": left}}
        try:
            await self._caches.kube.merge_patch(ACTIVE_CHECKS, meta.key, patch)
        except NotFound:
            return

    # What wakes a check

    def _check_changed(self, key: Key, _: ActiveCheck | None, __: ActiveCheck | None) -> None:
        self.controller.queue.add(key)
        for other in self._caches.checks.values():
            if other.metadata.namespace == key.namespace and key.name in other.spec.depends_on:
                self.controller.queue.add(other.metadata.key)

    def _cluster_changed(self, key: Key, *_: HasMeta | None) -> None:
        for check in self._caches.checks.values():
            if (check.metadata.namespace, check.spec.slurm_cluster_ref_name) == key:
                self.controller.queue.add(check.metadata.key)
