"""LoginSets: each becomes pods that people log in to."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

from isthmus import names
from isthmus.domain.kube import conditions
from isthmus.domain.kube.podtrouble import PATIENCE, Trouble
from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests import common, login, sssd, worker
from isthmus.kube.errors import NotFound
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import HasMeta, Key
from isthmus.model.objects import SERVICES, STATEFULSETS, Secret
from isthmus.model.pod import PODS
from isthmus.model.slinky import LOGINSETS, LoginSet, NodeSet
from isthmus.model.slinky import Controller as ControllerPart
from isthmus.operator import parts, refusals
from isthmus.operator.applying import Applier, owner_reference
from isthmus.operator.reporting import Reporter
from isthmus.operator.sshds import Sshds
from isthmus.operator.workloads import Workloads
from isthmus.operator.world import World
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.references import Asker

_WORKERS: Final = 4


class LoginSetSync:
    """The controller of LoginSets; `workers` are for the leader."""

    def __init__(
        self,
        world: World,
        *,
        applier: Applier,
        reporter: Reporter,
        recorder: Recorder,
        metrics: Metrics,
        now: Callable[[], datetime] = parts.utc_now,
    ) -> None:
        self._world = world
        self._applier = applier
        self._reporter = reporter
        self._recorder = recorder
        self._now = now
        self._workloads = Workloads(world, applier)
        self._sshds = Sshds(world, applier)
        guarded = refusals.told(LOGINSETS, world.loginsets, self.reconcile, reporter=reporter, recorder=recorder)
        self.controller: Controller[Key] = Controller("loginsets", guarded, metrics=metrics, workers=_WORKERS)
        wake = self.controller.queue.add
        world.loginsets.on_change(lambda key, *_: wake(key))
        for store in (world.statefulsets, world.services, world.configmaps):
            store.on_change(parts.wakes_owner(LOGINSETS, wake))
        for labelled in (world.pods, world.secrets):
            labelled.on_change(parts.wakes_instance(["login"], wake))
        # Keys and users come from the Controller.
        world.controllers.on_change(lambda key, *_: self._wake_all(key))
        for source in (world.secrets, world.configmaps):
            source.on_change(self._file_changed)
        world.nodesets.on_change(self._nodeset_changed)

    @property
    def workers(self) -> tuple[Worker, ...]:
        """What the leader runs."""
        return (self.controller,)

    async def reconcile(self, key: Key) -> None:
        """Make one LoginSet so."""
        loginset = self._world.loginsets.get(key)
        if loginset is None or loginset.metadata.deletion_timestamp is not None:
            return
        controller = self._world.controller_of(loginset)
        if controller is None:
            found = parts.no_controller(loginset.spec.controller_ref.name, loginset, now=self._now())
            failure = None
        else:
            found, failure = await refusals.attempt(self._make(loginset, controller))
            await self._refresh_files(loginset, controller)
        await self._report(loginset, found)
        if failure:
            raise failure
        if found.missing:
            self.controller.queue.add(key, after=PATIENCE)

    async def _make(self, loginset: LoginSet, controller: ControllerPart) -> Trouble:
        """Make everything; tell what is wrong or missing."""
        meta, name = loginset.metadata, controller.metadata.name
        owners = (owner_reference(LOGINSETS, loginset),)
        world, apply = self._world, self._applier.apply
        marks = login.labels(loginset, name)
        await self._sshds.make_host_keys(meta, marks)
        write = partial(login.config, loginset, name, known=self._sshds.known_hosts(controller.metadata.key))
        wrong = await self._sshds.make_config(meta, write, owners=owners)
        for service in login.services(loginset, name):
            await apply(SERVICES, service, there=world.services, owners=owners)
        if (reference := loginset.spec.sssd_conf_ref) and self._sssd_conf(loginset) is None:
            wrong = wrong or f"there is no Secret {reference.name}, which sssdConfRef names"
        # Kubelet waits ever longer for a volume that is not there: better to begin when it is.
        if Key(meta.namespace, partnames.auth(name)) not in world.secrets:
            found = parts.no_keys(controller)
            return Trouble(wrong or found.wrong, found.missing)
        manifest = login.statefulset(loginset, controller, settings=world.settings)
        wishes = login.wishes(loginset, controller, settings=world.settings)
        await self._workloads.apply(STATEFULSETS, manifest, wishes=wishes, owners=owners)
        pods = world.pods.by("part", ("login", meta.key))
        workload = world.statefulsets.get(meta.key)
        found = await parts.trouble_of_set(world.kube, "login", workload, pods, now=self._now())
        return Trouble(wrong or found.wrong, found.missing)

    def _sssd_conf(self, loginset: LoginSet) -> Secret | None:
        """Find the Secret of sssd.conf, and be woken when it changes."""
        reference, meta = loginset.spec.sssd_conf_ref, loginset.metadata
        if reference is None:
            return None
        asker = Asker(self.controller.queue.add, meta.key)
        return self._world.references.secret(Key(meta.namespace, reference.name), asker)

    async def _refresh_files(self, loginset: LoginSet, controller: ControllerPart) -> None:
        """Make kubelet bring the files of running pods up to date at once, which it does when a pod changes."""
        meta, name = loginset.metadata, controller.metadata.name
        sources: list[HasMeta | None] = [
            self._world.configmaps.get(Key(meta.namespace, partnames.users(name))),
            self._world.configmaps.get(Key(meta.namespace, partnames.ssh_config(meta.name))),
            self._world.secrets.get(Key(meta.namespace, partnames.auth(name))),
            self._world.secrets.get(Key(meta.namespace, partnames.ssh_host_keys(meta.name))),
        ]
        sources.append(self._sssd_conf(loginset))
        digest = common.hash_of([it.metadata.resource_version if it else "" for it in sources])
        for pod in self._world.pods.by("part", ("login", meta.key)):
            if pod.leaving or pod.metadata.annotations.get(names.FILES_HASH_ANNOTATION) == digest:
                continue
            patch = {"metadata": {"annotations": {names.FILES_HASH_ANNOTATION: digest}}}
            try:
                await self._world.kube.merge_patch(PODS, pod.metadata.key, patch)
            except NotFound:
                continue

    async def _report(self, loginset: LoginSet, found: Trouble) -> None:
        workload = self._world.statefulsets.get(loginset.metadata.key)
        replicas = workload.status.replicas if workload else 0
        ready = workload.status.ready_replicas if workload else 0
        fields = {"replicas": replicas, "readyReplicas": ready, "selector": login.selector(loginset)}
        held = conditions.summary(
            wrong=found.wrong, missing=found.missing, settled=f"{ready} of {loginset.spec.replicas} pods are ready"
        )
        parts.tell(self._recorder, LOGINSETS, loginset, held)
        pods = self._world.pods.by("part", ("login", loginset.metadata.key))
        directory = sssd.condition(pods) if loginset.spec.sssd_conf_ref else None
        await self._reporter.report(LOGINSETS, loginset, fields, (*held, *([directory] if directory else [])))

    # What wakes a LoginSet

    def _wake_all(self, controller: Key) -> None:
        """Wake the LoginSets of a Controller, and those that name none."""
        for name in (controller.name, ""):
            for loginset in self._world.loginsets.by("controller", Key(controller.namespace, name)):
                self.controller.queue.add(loginset.metadata.key)

    def _file_changed(self, key: Key, old: HasMeta | None, new: HasMeta | None) -> None:
        for suffix in (partnames.auth(""), partnames.users("")):
            if key.name.endswith(suffix):
                self._wake_all(Key(key.namespace, key.name.removesuffix(suffix)))
        found = new or old
        labels = found.metadata.labels if found else {}
        if labels.get(names.COMPONENT_LABEL) == worker.COMPONENT and names.CLUSTER_LABEL in labels:
            self._wake_all(Key(key.namespace, labels[names.CLUSTER_LABEL]))

    def _nodeset_changed(self, _: Key, old: NodeSet | None, new: NodeSet | None) -> None:
        """Wake them for workers on which sshd runs: by which keys they are known is in a file of login pods."""
        for nodeset in (old, new):
            if nodeset and nodeset.spec.ssh.enabled and (controller := self._world.controller_key(nodeset)):
                self._wake_all(controller)
