"""LoginSets: each becomes pods that users log in to."""

from collections.abc import Iterable
from functools import partial
from typing import Unpack

from isthmus import names
from isthmus.domain.kube.podtrouble import Trouble
from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests import common, login, sssd, worker
from isthmus.kube.errors import NotFound
from isthmus.model.meta import Condition, HasMeta, Key
from isthmus.model.objects import SERVICES, STATEFULSETS, Secret, Workload
from isthmus.model.pod import PODS
from isthmus.model.slinky import LOGINSETS, LoginSet, NodeSet
from isthmus.model.slinky import Controller as ControllerPart
from isthmus.operator import parts
from isthmus.operator.applier import owner_reference
from isthmus.operator.kindsync import PodsSync, Tools
from isthmus.operator.sshds import Sshds
from isthmus.operator.world import World
from isthmus.runtime.references import Asker


class LoginSetSync(PodsSync[LoginSet]):
    """The controller of LoginSets; `workers` are for the leader."""

    def __init__(self, world: World, **tools: Unpack[Tools]) -> None:
        super().__init__(world, LOGINSETS, world.loginsets, **tools)
        self._sshds = Sshds(world, self._applier)
        wake = self.controller.queue.add
        for store in (world.statefulsets, world.services, world.configmaps):
            store.on_change(parts.wakes_owner(LOGINSETS, wake))
        for labelled in (world.pods, world.secrets):
            labelled.on_change(parts.wakes_instance(["login"], wake))
        # Keys and users come from the Controller.
        for source in (world.secrets, world.configmaps):
            source.on_change(self._file_changed)
        world.nodesets.on_change(self._nodeset_changed)

    async def _make(self, part: LoginSet, controller: ControllerPart) -> Trouble:
        loginset, meta, name = part, part.metadata, controller.metadata.name
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
        inputs = login.inputs(loginset, controller, settings=world.settings)
        await self._workloads.apply(STATEFULSETS, manifest, inputs=inputs, owners=owners)
        pods = world.pods.by("part", ("login", meta.key))
        workload = self._workload(loginset)
        found = await parts.trouble_of_set(world.kube, "login", workload, pods, now=self._now())
        return Trouble(wrong or found.wrong, found.missing)

    def _sssd_conf(self, loginset: LoginSet) -> Secret | None:
        """Find the Secret of sssd.conf, and be woken when it changes."""
        reference, meta = loginset.spec.sssd_conf_ref, loginset.metadata
        if reference is None:
            return None
        asker = Asker(self.controller.queue.add, meta.key)
        return self._world.references.secret(Key(meta.namespace, reference.name), asker)

    async def _refresh_files(self, part: LoginSet, controller: ControllerPart) -> None:
        """Make kubelet bring the files of running pods up to date at once, which it does when a pod changes."""
        meta, name = part.metadata, controller.metadata.name
        sources: list[HasMeta | None] = [
            self._world.configmaps.get(Key(meta.namespace, partnames.users(name))),
            self._world.configmaps.get(Key(meta.namespace, partnames.ssh_config(meta.name))),
            self._world.secrets.get(Key(meta.namespace, partnames.auth(name))),
            self._world.secrets.get(Key(meta.namespace, partnames.ssh_host_keys(meta.name))),
        ]
        sources.append(self._sssd_conf(part))
        digest = common.hash_of([it.metadata.resource_version if it else "" for it in sources])
        for pod in self._world.pods.by("part", ("login", meta.key)):
            if pod.leaving or pod.metadata.annotations.get(names.FILES_HASH_ANNOTATION) == digest:
                continue
            patch = {"metadata": {"annotations": {names.FILES_HASH_ANNOTATION: digest}}}
            try:
                await self._world.kube.merge_patch(PODS, pod.metadata.key, patch)
            except NotFound:
                continue

    def _workload(self, part: LoginSet) -> Workload | None:
        return self._world.statefulsets.get(part.metadata.key)

    def _selector(self, part: LoginSet) -> str:
        return login.selector(part)

    def _more_conditions(self, part: LoginSet) -> Iterable[Condition]:
        pods = self._world.pods.by("part", ("login", part.metadata.key))
        directory = sssd.condition(pods) if part.spec.sssd_conf_ref else None
        return (directory,) if directory else ()

    # What wakes a LoginSet

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
