"""The controller of Controllers: applies slurmctld's objects, delivers files and keys, and writes the status.

    gather    custom resources, Secrets and ConfigMaps they name, pods, what Slurm says
    decide    files (`slurmfiles`), the next set of keys (`rotation`), whether all daemons have them (`delivery`)
    act       apply objects, nudge kubelets, let Slurm read again, report

What counts is not remembered between two passes: which revision there is, and since when, stands on the objects.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple, Unpack

import structlog

from isthmus import names
from isthmus.domain.kube import conditions
from isthmus.domain.kube.podtrouble import PATIENCE, Trouble, turns
from isthmus.domain.operator import authkeys, partnames
from isthmus.domain.operator.authkeys import KeySet
from isthmus.domain.operator.manifests import common, monitors, users
from isthmus.domain.operator.manifests import controller as manifests
from isthmus.domain.operator.slurmfiles import delivery, files, located
from isthmus.domain.operator.slurmfiles.delivery import Verdict
from isthmus.errors import IsthmusError, Terminal, Wait
from isthmus.kube.errors import Forbidden, NotFound
from isthmus.model.meta import Condition, HasMeta, Key
from isthmus.model.node import Node
from isthmus.model.objects import (
    CONFIGMAPS,
    DAEMONSETS,
    ENDPOINT_SLICES,
    SECRETS,
    SERVICE_MONITORS,
    SERVICES,
    STATEFULSETS,
)
from isthmus.model.pod import Pod
from isthmus.model.slinky import CONTROLLERS, NODESETS, NodeSet
from isthmus.model.slinky import Controller as ControllerPart
from isthmus.operator import parts, refusals
from isthmus.operator.applier import owner_reference
from isthmus.operator.kindsync import KindSync, Tools
from isthmus.operator.slurmctld.conditions import MONITORED, config_condition, tell_config
from isthmus.operator.slurmctld.delivery import Deliverer, Revision, is_ready
from isthmus.operator.slurmctld.gatherer import Gatherer
from isthmus.operator.slurmctld.rotation import Rotation
from isthmus.operator.world import World
from isthmus.runtime.references import Asker

log = structlog.get_logger()

_REQUEUE_S: Final = 1.0
_LATER: Final = 3.0
_STANDBYS: Final = 5.0
"""Seconds between checks which of several slurmctld is active: a take-over may cost no failed request."""

_CROWD: Final = 0.2
_REGISTERING_S: Final = 2.0
"""Seconds in which nodes that register together become one change of the topology, which every slurmd reads."""
_MONITORS_S: Final = 30.0
"""Seconds between checks whether ServiceMonitors are served by now: there is no event."""


class _SlurmState(NamedTuple):
    """What Slurm says of itself."""

    version: str
    active: str
    all_answer: bool
    """Whether slurmctld and all its standbys answer."""


class ControllerSync(KindSync[ControllerPart]):
    """The controller of Controllers; `workers` are for the leader."""

    def __init__(self, world: World, **tools: Unpack[Tools]) -> None:
        super().__init__(world, CONTROLLERS, world.controllers, **tools)
        self._deliverer = Deliverer(world, self._now)
        self._rotation = Rotation(world, self._recorder, self._deliverer.taken_at)
        self._delivering: set[Key] = set()
        self._placed: dict[Key, frozenset[str]] = {}
        self._located: dict[Key, frozenset[str]] = {}
        wake = self.controller.queue.add
        world.controllers.on_change(lambda key, *_: wake(key))
        for store in (
            world.statefulsets,
            world.services,
            world.endpoint_slices,
            world.configmaps,
            world.secrets,
            world.daemonsets,
            world.service_monitors,
        ):
            store.on_change(parts.wakes_owner(CONTROLLERS, wake))
        world.pods.on_change(self._pod_changed)
        world.nodesets.on_change(self._nodeset_changed)
        world.accountings.on_change(self._accounting_changed)
        world.slurms.on_change(self._slurm_changed)
        world.slurms.on_restart(wake)
        world.kube_nodes.on_change(self._machine_changed)

    async def reconcile(self, key: Key) -> None:
        controller = self._world.controllers.get(key)
        if controller is None:
            self._delivering.discard(key)
            self._placed.pop(key, None)
            self._located.pop(key, None)
            self._deliverer.forget(key)
            return
        if not self._world.in_touch:
            raise Wait("Kubernetes does not answer", after=_REQUEUE_S)
        if not self._has_heard(key):
            raise Wait("the caches do not have the files or keys that were just written", after=_REQUEUE_S)
        if controller.metadata.deletion_timestamp is None:
            await self._hold(controller)
        elif not await self._stays(controller):
            return
        gatherer = Gatherer(self._world, controller, Asker(self.controller.queue.add, key))
        problems = await self._make_always(controller, gatherer)
        revision: Revision | None = None
        try:
            revision = await self._make_config(controller, gatherer)
            verdict = await self._deliverer.deliver(controller, revision)
            if verdict.read:
                await self._deliverer.tell_places(controller, self._located[key])
            if (pause := revision.pause(self._now())) > 0:
                self.controller.queue.add(key, after=pause)
        except Terminal as error:
            # The cluster keeps its files and keys.
            verdict = Verdict("rejected", error.line)
            if refusals.again(error):
                self.controller.queue.add(key, after=refusals.AGAIN_S)
        tell_config(self._recorder, controller, verdict)
        await self._make_workload(controller)
        await self._report(controller, revision, verdict, problems=problems)
        self._look_again(key, verdict)

    def _has_heard(self, key: Key) -> bool:
        """Whether the caches show the files, keys and users that we wrote: only these say since when they hold."""
        files = (Key(key.namespace, name(key.name)) for name in (partnames.config, partnames.users))
        auth = Key(key.namespace, partnames.auth(key.name))
        return self._applier.is_shown(SECRETS, auth, there=self._world.secrets) and all(
            self._applier.is_shown(CONFIGMAPS, it, there=self._world.configmaps) for it in files
        )

    # Beginning and end

    async def _hold(self, controller: ControllerPart) -> None:
        finalizers = controller.metadata.finalizers
        if names.CONTROLLER_FINALIZER not in finalizers:
            await self._finalizers(controller, (*finalizers, names.CONTROLLER_FINALIZER))

    async def _stays(self, controller: ControllerPart) -> bool:
        """Whether a Controller that was deleted is still needed: NodeSets that go ask it to drain their nodes."""
        going = [
            it.metadata.name
            for it in self._world.nodesets_of(controller.metadata.key)
            if it.metadata.deletion_timestamp is not None
        ]
        # The cache of NodeSets may be behind the one of Controllers.
        if going := going or await self._going_unnoticed(controller):
            note = f"deleted when the nodes of these NodeSets are drained: {', '.join(sorted(going))}"
            self._recorder.event(CONTROLLERS, controller, "WaitingForNodeSets", note, action="Delete")
            return True
        kept = tuple(it for it in controller.metadata.finalizers if it != names.CONTROLLER_FINALIZER)
        if kept != controller.metadata.finalizers:
            await self._finalizers(controller, kept)
        return False

    async def _going_unnoticed(self, controller: ControllerPart) -> list[str]:
        listing = await self._world.kube.list(NODESETS, namespace=controller.metadata.namespace)
        return [
            it.metadata.name
            for it in listing.items
            if it.metadata.deletion_timestamp is not None
            and self._world.controller_key(it) == controller.metadata.key
        ]

    async def _finalizers(self, controller: ControllerPart, finalizers: tuple[str, ...]) -> None:
        meta = controller.metadata
        patch = {"metadata": {"finalizers": list(finalizers), "resourceVersion": meta.resource_version}}
        with suppress(NotFound):
            await self._world.kube.merge_patch(CONTROLLERS, meta.key, patch)

    # Objects

    async def _make_always(self, controller: ControllerPart, gatherer: Gatherer) -> tuple[str, ...]:
        """Apply what depends on nothing else: Services and users. Return what is wrong with users."""
        owners = (owner_reference(CONTROLLERS, controller),)
        services = () if controller.spec.external else manifests.services(controller)
        for service in services:
            await self._applier.apply(SERVICES, service, there=self._world.services, owners=owners)
        wanted = {it["metadata"]["name"] for it in services}
        for found in self._world.services.by("owner", controller.metadata.uid):
            of_slurmctld = found.metadata.labels.get(names.COMPONENT_LABEL) == manifests.COMPONENT
            if of_slurmctld and found.metadata.name not in wanted:
                await self._applier.remove(
                    SERVICES, found.metadata.key, there=self._world.services, owner=controller
                )
        await self._make_refusing(controller)
        await self._make_monitor(controller)
        return await self._make_users(controller, gatherer.ssh_keys())

    async def _make_refusing(self, controller: ControllerPart) -> None:
        """Let connections to a slurmctld that is away be refused at once."""
        owners, slices = (owner_reference(CONTROLLERS, controller),), self._world.endpoint_slices
        pods = () if controller.spec.external else self._deliverer.slurmctld_pods(controller)
        addresses = {it.metadata.name: it.status.pod_ip for it in pods if not it.leaving and not it.finished}
        wanted = manifests.refusing(controller, addresses)
        try:
            for manifest in wanted:
                await self._applier.apply(ENDPOINT_SLICES, manifest, there=slices, owners=owners)
        except Forbidden as error:
            # Some kinds of Kubernetes keep this right to themselves. Without it, commands only take longer.
            log.warning("cannot refuse connections to an absent slurmctld at once", error=error.what)
        kept = {it["metadata"]["name"] for it in wanted}
        for found in slices.by("owner", controller.metadata.uid):
            if found.metadata.name not in kept:
                await self._applier.remove(ENDPOINT_SLICES, found.metadata.key, there=slices, owner=controller)

    async def _make_monitor(self, controller: ControllerPart) -> None:
        """Make the ServiceMonitor, if it is asked for and its kind is installed."""
        meta, there = controller.metadata, self._world.service_monitors
        if not _asks_for_monitor(controller):
            key = Key(meta.namespace, manifests.monitor(controller))
            await self._applier.remove(SERVICE_MONITORS, key, there=there, owner=controller)
        elif self._world.serves(SERVICE_MONITORS):
            owners = (owner_reference(CONTROLLERS, controller),)
            manifest = monitors.service_monitor(controller)
            await self._applier.apply(SERVICE_MONITORS, manifest, there=there, owners=owners)
        else:
            self.controller.queue.add(meta.key, after=_MONITORS_S)

    async def _make_users(self, controller: ControllerPart, keys: Mapping[str, str | None]) -> tuple[str, ...]:
        """Deliver users to every daemon; return what is wrong with them."""
        meta = controller.metadata
        people = users.users_configmap(controller, keys)
        there = self._world.configmaps.get(Key(meta.namespace, partnames.users(meta.name)))
        revision = common.hash_of(people["data"])
        changed_at = _changed_at(there, revision, self._now())
        people = common.dated(people, revision=revision, changed_at=changed_at)
        owners = (owner_reference(CONTROLLERS, controller),)
        await self._applier.apply(CONFIGMAPS, people, there=self._world.configmaps, owners=owners)
        if there is not None:
            wait = await self._deliverer.refresh_users(controller, revision, _seconds(changed_at))
            if wait > 0:
                self.controller.queue.add(meta.key, after=wait)
        return users.roster(controller.spec.users, keys).problems

    async def _make_config(self, controller: ControllerPart, gatherer: Gatherer) -> Revision:
        """Make files and keys; raises what is wrong with them before anything is changed."""
        inputs = gatherer.inputs(version=controller.status.slurm_version)
        self._placed[controller.metadata.key] = frozenset(it.node for it in inputs.places or ())
        self._located[controller.metadata.key] = located(inputs)
        made = files(inputs)
        keys = self._key_files(controller, gatherer)
        config_changed = await self._apply_files(controller, made)
        if not keys:
            return Revision(common.hash_of(made), "", config_changed, 0.0, 0.0)
        meta, now = controller.metadata, self._now()
        there = gatherer.auth_secret()
        # Salted, so that keys cannot be tried out on the hash.
        revision = common.hash_of(meta.uid, {name: content.hex() for name, content in keys.items()})
        changed_at = _changed_at(there, revision, now)
        manifest = manifests.auth(controller, keys, revision=revision, changed_at=changed_at)
        owners = (owner_reference(CONTROLLERS, controller),)
        await self._applier.apply(SECRETS, manifest, there=self._world.secrets, owners=owners)
        never_changed = there is None or _made_with(there, changed_at)
        keys_changed = 0.0 if never_changed else _seconds(changed_at)
        settle = delivery.settle(KeySet.read(keys.get(authkeys.FILE, b"")))
        return Revision(common.hash_of(made), revision, config_changed, keys_changed, settle)

    async def _apply_files(self, controller: ControllerPart, made: dict[str, str]) -> float:
        """Apply the ConfigMap of all files; return since when it holds."""
        meta, world = controller.metadata, self._world
        there = world.configmaps.get(Key(meta.namespace, partnames.config(meta.name)))
        revision = common.hash_of(made)
        changed_at = _changed_at(there, revision, self._now())
        manifest = manifests.config(controller, made, revision=revision, changed_at=changed_at)
        owners = (owner_reference(CONTROLLERS, controller),)
        await self._applier.apply(CONFIGMAPS, manifest, there=world.configmaps, owners=owners)
        before = dict(there.data) if there else made
        before.pop(manifests.REVISION_FILE, None)
        changed = sorted(file for file in {*made, *before} if made.get(file) != before.get(file))
        if changed:
            note = (
                f"{', '.join(changed)} changed; slurmctld loads it without a restart, and passes it on "
                "to every node"
            )
            self._recorder.event(CONTROLLERS, controller, "ConfigChanged", note, action="Reconfigure")
        return _seconds(changed_at)

    def _key_files(self, controller: ControllerPart, gatherer: Gatherer) -> dict[str, bytes]:
        """Choose the keys that daemons get now: those that they have, those that are wanted, or a step between."""
        if controller.spec.external:
            return gatherer.keys_of_others()
        keys = gatherer.keys()
        if keys.wanted is None:
            return {authkeys.JWT_FILE: keys.jwt, authkeys.MUNGE_FILE: keys.munge}
        held = keys.held or KeySet.only(keys.wanted)
        chosen = self._rotation.next_set(controller, held, keys.wanted, now=self._now())
        return {authkeys.JWT_FILE: keys.jwt, authkeys.FILE: chosen.write()}

    async def _make_workload(self, controller: ControllerPart) -> None:
        """Make slurmctld, once there is something for it to read."""
        meta, world = controller.metadata, self._world
        workload = Key(meta.namespace, partnames.controller_workload(controller))
        stand_ins = Key(meta.namespace, partnames.placeholder(controller))
        owners = (owner_reference(CONTROLLERS, controller),)
        config = world.configmaps.get(Key(meta.namespace, partnames.config(meta.name)))
        auth = world.secrets.get(Key(meta.namespace, partnames.auth(meta.name)))
        if controller.spec.external:
            await self._applier.remove(STATEFULSETS, workload, there=world.statefulsets, owner=controller)
        elif config and auth:
            manifest = manifests.statefulset(controller, world.settings)
            inputs = manifests.inputs(controller, world.settings)
            await self._workloads.apply(STATEFULSETS, manifest, inputs=inputs, owners=owners)
        if meta.annotations.get(names.PLACEHOLDER_ANNOTATION) == "true" and not controller.spec.external:
            manifest = manifests.placeholder(controller, world.settings)
            await self._applier.apply(DAEMONSETS, manifest, there=world.daemonsets, owners=owners)
        else:
            await self._applier.remove(DAEMONSETS, stand_ins, there=world.daemonsets, owner=controller)

    # Telling

    async def _report(
        self, controller: ControllerPart, revision: Revision | None, verdict: Verdict, *, problems: tuple[str, ...]
    ) -> None:
        found = await self._trouble(controller)
        pods = self._deliverer.slurmctld_pods(controller)
        lacks_pods = bool(found.missing) and len(pods) < controller.spec.replicas
        if lacks_pods or turns(pods, now=self._now()):
            # No event says why a pod is not created, or that a pod has been without a node for too long.
            self.controller.queue.add(controller.metadata.key, after=PATIENCE)
        rejected = verdict.message if verdict.state == "rejected" else ""
        wrong = rejected or found.wrong or "; ".join(problems)
        asked = await self._asked(controller)
        # No event says when a standby takes over, or when one that did not answer is back.
        if not asked.all_answer:
            self.controller.queue.add(controller.metadata.key, after=_LATER)
        elif controller.spec.replicas > 1:
            self.controller.queue.add(controller.metadata.key, after=_STANDBYS)
        held = [
            *conditions.summary(wrong=wrong, missing=found.missing, settled=f"slurmctld is ready: {asked.active}"),
            config_condition(verdict, invalid=revision is None),
            self._reachable(controller.metadata.key),
            *self._monitored(controller),
        ]
        applied = revision is not None and verdict.state == "applied"
        fields = {
            "slurmVersion": asked.version,
            "active": asked.active,
            "configHash": revision.both if applied and revision else controller.status.config_hash,
        }
        if not controller.spec.external:
            ready = sum(map(is_ready, pods))
            fields["ready"] = f"{ready}/{controller.spec.replicas}"
        parts.tell(self._recorder, CONTROLLERS, controller, held)
        await self._reporter.report(CONTROLLERS, controller, fields, held)

    def _monitored(self, controller: ControllerPart) -> Iterator[Condition]:
        """Say whether there is a ServiceMonitor where one is asked for."""
        if not _asks_for_monitor(controller):
            return
        if self._world.serves(SERVICE_MONITORS):
            yield conditions.yes(MONITORED, "Created", f"ServiceMonitor {manifests.monitor(controller)}")
        else:
            yield conditions.no(MONITORED, "NotInstalled", f"there is no ServiceMonitor: {monitors.NOT_INSTALLED}")

    def _reachable(self, key: Key) -> Condition:
        trouble = self._world.slurms.trouble(key)
        if not trouble:
            return conditions.yes(conditions.SLURM_REACHABLE, "Answers", "slurmctld answers through slurmrestd")
        return conditions.no(conditions.SLURM_REACHABLE, "OutOfTouch", trouble)

    async def _trouble(self, controller: ControllerPart) -> Trouble:
        if controller.spec.external:
            return Trouble()
        meta = controller.metadata
        workload = self._world.statefulsets.get(Key(meta.namespace, partnames.controller_workload(controller)))
        pods = self._deliverer.slurmctld_pods(controller)
        return await parts.trouble_of_set(self._world.kube, "slurmctld", workload, pods, now=self._now())

    async def _asked(self, controller: ControllerPart) -> _SlurmState:
        """Ask Slurm for its version and the active slurmctld: the first that answers, since it takes control."""
        version, hosts = controller.status.slurm_version, partnames.controller_hosts(controller)
        first = hosts[0] if controller.spec.external else partnames.controller_pods(controller)[0]
        several = controller.spec.replicas > 1
        slurm = self._world.slurms.of(controller.metadata.key)
        if slurm is None or not slurm.in_touch:
            return _SlurmState(version, controller.status.active or first, all_answer=True)
        with suppress(IsthmusError):
            version = (await slurm.client.server()).release
            if not several:
                return _SlurmState(version, first, all_answer=True)
            pings = await slurm.client.ping()
            answering = [it.hostname for it in pings if it.answers]
            return _SlurmState(version, answering[0] if answering else "", all_answer=len(answering) == len(pings))
        return _SlurmState(version, controller.status.active or first, all_answer=False)

    def _look_again(self, key: Key, verdict: Verdict) -> None:
        """Ask again soon while something is on its way. While Slurm cannot be asked, its answer wakes us."""
        if verdict.state == "delivering":
            self._delivering.add(key)
            self.controller.queue.add(key, after=_REQUEUE_S)
            return
        self._delivering.discard(key)
        pause = _LATER if verdict.state == "unknown" else self._rotation.pause(key)
        if pause is not None and self._world.slurms.in_touch(key):
            self.controller.queue.add(key, after=min(pause, _LATER))

    # What wakes a Controller

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        found = new or old
        labels = found.metadata.labels if found else {}
        component = labels.get(names.COMPONENT_LABEL)
        controller = Key(key.namespace, labels.get(names.CLUSTER_LABEL, ""))
        if component == manifests.COMPONENT:
            self.controller.queue.add(controller)
        elif component == "worker" and (old is None or new is None or old.spec.node_name != new.spec.node_name):
            # Only that there are more or fewer, or where, bears on a cluster's files; and they come in crowds.
            self.controller.queue.add(controller, after=_CROWD)

    def _machine_changed(self, _: Key, old: Node | None, new: Node | None) -> None:
        if (old.metadata.labels if old else {}) == (new.metadata.labels if new else {}):
            return
        for controller in self._world.controllers.values():
            if controller.spec.topology:
                self.controller.queue.add(controller.metadata.key, after=_CROWD)

    def _nodeset_changed(self, _: Key, old: NodeSet | None, new: NodeSet | None) -> None:
        if old and new and old.metadata.generation == new.metadata.generation:
            return  # a status; deletion counts as a generation
        for nodeset in (old, new):
            owner = self._world.controller_key(nodeset) if nodeset else None
            if owner:
                self.controller.queue.add(owner)

    def _accounting_changed(self, key: Key, *_: object) -> None:
        for controller in self._world.controllers.values():
            reference = controller.spec.accounting_ref
            if reference and Key(controller.metadata.namespace, reference.name) == key:
                self.controller.queue.add(controller.metadata.key)

    def _slurm_changed(self, controller: Key, node: str | None) -> None:
        if node is None or controller in self._delivering:
            self.controller.queue.add(controller)
        elif self._is_new_or_gone(controller, node):
            self.controller.queue.add(controller, after=_REGISTERING_S)

    def _is_new_or_gone(self, controller: Key, node: str) -> bool:
        """Whether the topology names a node that Slurm does not have, or lacks one that it has."""
        slurm, found = self._world.slurms.of(controller), self._world.controllers.get(controller)
        if slurm is None or found is None or found.spec.topology is None:
            return False
        return (node in slurm.nodes) != (node in self._placed.get(controller, ()))


def _asks_for_monitor(controller: ControllerPart) -> bool:
    metrics = controller.spec.metrics
    return metrics.enabled and metrics.service_monitor.enabled and not controller.spec.external


def _changed_at(there: HasMeta | None, revision: str, now: datetime) -> str:
    """Since when an object holds a revision: as it says itself, or now."""
    if there is not None:
        annotations = there.metadata.annotations
        known = annotations.get(names.CHANGED_AT_ANNOTATION, "")
        if known and annotations.get(names.CONFIG_HASH_ANNOTATION) == revision:
            return known
    return now.astimezone(UTC).isoformat(timespec="milliseconds")


def _made_with(there: HasMeta, changed_at: str) -> bool:
    """Whether an object has held the same from its beginning: then every pod that mounts it has that."""
    made = there.metadata.creation_timestamp
    return made is not None and _seconds(changed_at) <= made.timestamp() + 1


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
