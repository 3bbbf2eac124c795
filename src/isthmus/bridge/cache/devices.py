"""Devices of drivers (DRA), the claims on them, and who holds which.

    ResourceSlices   ──►  devices of each node           (domain.bridge.devices)
    DeviceClasses    ──►  selectors, extended resources
    ResourceClaims   ──►  what pods need; devices that are taken, by our pods or by others'

Kept by the stores' hooks, O(1) per event. A pod without claims costs a look at the names of its resources.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec.structs import replace

from isthmus.bridge.cache.ledger import amount
from isthmus.domain.bridge import podclaims
from isthmus.domain.bridge.allocation import Fit, fit
from isthmus.domain.bridge.devices import NO_DEVICES, DeviceId, NodeDevices, Profile, inventory
from isthmus.domain.bridge.podclaims import NO_CLAIMS, PodClaims, devices_of, id_of, results_of
from isthmus.domain.kube.deviceclaims import Need, extended_of, need_of, resources_of
from isthmus.domain.languages import cel
from isthmus.domain.languages.gresnames import DEVICE_CLASS
from isthmus.errors import Terminal
from isthmus.kube.client import Client
from isthmus.kube.informer import Informer
from isthmus.kube.store import Store
from isthmus.model.dra import (
    DEVICE_CLASSES,
    EXTENDED_ANNOTATION,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
    Result,
)
from isthmus.model.meta import Key
from isthmus.model.node import Node
from isthmus.model.pod import Pod

_NOTHING: Final[tuple[Result, ...]] = ()


class Devices:
    """What one process knows of devices. `ours` says whether Slurm places a pod."""

    def __init__(
        self,
        kube: Client,
        nodes: Store[Node],
        pods: Store[Pod],
        *,
        ours: Callable[[Pod], bool],
        profiles: Sequence[Profile] = (),
    ) -> None:
        slices, classes = (Informer(kube, it, optional=True) for it in (RESOURCE_SLICES, DEVICE_CLASSES))
        claims = Informer(kube, RESOURCE_CLAIMS, optional=True, indexes={"extended": _extended_owner})
        self.informers = {"resource slices": slices, "device classes": classes, "resource claims": claims}
        self.claims, self.classes = claims.store, classes.store
        self._pods, self._ours, self._profiles = pods, ours, profiles
        self._slices: dict[str, dict[str, ResourceSlice]] = {}
        self._nodes: dict[str, NodeDevices] = {}
        self._node_of: dict[DeviceId, str] = {}
        self._holders: dict[DeviceId, set[Key]] = {}
        self._foreign: dict[str, tuple[Result, ...]] = {}
        """What pods of others have on each node."""
        self._noted: dict[Key, ResourceClaim] = {}
        """Claims as our own writes returned them, until the watch shows them."""
        self._made: dict[str, Key] = {}
        """Of those, the claims that we made for extended resources, by the uid of the pod."""
        self._needs: dict[str, Need] = {}
        self._selectors: dict[str, tuple[str, ...]] = {}
        self._extended: dict[str, str] = {}
        """The device class of each extended resource that one names."""
        self._advertised = Counter[str]()
        """How many nodes offer an extended resource by a device plugin, or a kubelet of their own."""
        self._hooks: list[Callable[[str], None]] = []
        self._waiting: dict[str, dict[Callable[[], None], None]] = {}
        slices.store.on_change(self._slice_changed)
        classes.store.on_change(self._class_changed)
        claims.store.on_change(self._claim_changed)
        nodes.on_change(self._node_changed)
        pods.on_change(self._pod_changed)

    def on_change(self, hook: Callable[[str], None]) -> None:
        """Call `hook` for each Kubernetes node whose devices change, or are taken or released by others' pods."""
        self._hooks.append(hook)

    # What nodes have

    def on(self, node: str) -> NodeDevices:
        return self._nodes.get(node, NO_DEVICES)

    def fit(self, needs: Sequence[Need], node: str, *, shared: bool) -> Fit | str:
        """How the claims of a pod are served on a node, or why they are not."""
        foreign = self._foreign.get(node, _NOTHING)
        return fit(needs, self.on(node), self.selectors, shared=shared, foreign=foreign)

    def selectors(self, device_class: str) -> tuple[str, ...] | None:
        """The selectors of a device class; None if it does not exist."""
        return self._selectors.get(device_class)

    def holders(self, device: DeviceId) -> list[ResourceClaim]:
        return [claim for key in self._holders.get(device, ()) if (claim := self.claim(key))]

    def held(self, node: str, *, but: Collection[Key] = ()) -> list[Result]:
        """What claims have on a node, without those of these names."""
        keys = {key for it in self.on(node).devices for key in self._holders.get(it.id, ())}
        found = (self.claim(key) for key in sorted(keys.difference(but)))
        return [it for claim in found if claim for it in results_of(claim) if self._node_of.get(id_of(it)) == node]

    def on_release(self, node: str, wake: Callable[[], None]) -> None:
        """Call `wake` once, when a claim on devices of this node changes; equal ones are kept once."""
        self._waiting.setdefault(node, {})[wake] = None

    # What pods need

    def backs(self, resource: str) -> bool:
        """Whether an extended resource is served by devices of a class, and not by a device plugin."""
        return self._class_of(resource) is not None

    def of_pod(self, pod: Pod) -> PodClaims:
        """Gather the claims of a pod. Raises `Terminal` for one that Slurm cannot place."""
        found = NO_CLAIMS
        if pod.spec.resource_claims:
            found = podclaims.gather(pod, self.claim, self._need)
        classes = {name: it for name in resources_of(pod) if (it := self._class_of(name)) is not None}
        if not classes or found.waiting:
            return found
        extended = extended_of(pod, classes)
        for class_ in classes.values():
            self._require_class(class_)
        return replace(
            found,
            needs=(*found.needs, extended.need),
            extended=extended,
            extended_claim=self._made_for(pod),
            resources=frozenset(classes),
        )

    def left_with(self, pod: Pod) -> list[ResourceClaim]:
        """The claims that have devices for this pod alone, also if it can no longer be placed."""
        found = [self.claim(key) for key in podclaims.claim_keys(pod)]
        if any("/" in name for name in resources_of(pod)):
            found.append(self._made_for(pod))
        allocated = {it.metadata.key: it for it in found if it and it.status.allocation}
        return [it for it in allocated.values() if podclaims.is_own(it, pod)]

    def _made_for(self, pod: Pod) -> ResourceClaim | None:
        """The claim for extended resources of a pod."""
        made = self._made.get(pod.metadata.uid)
        keys = [made] if made else [it.metadata.key for it in self.claims.by("extended", pod.metadata.uid)]
        return next(filter(None, map(self.claim, keys)), None)

    def claim(self, key: Key) -> ResourceClaim | None:
        """Find a claim, as the watch shows it or as we have just written it."""
        return self._noted.get(key) or self.claims.get(key)

    def note(self, claim: ResourceClaim) -> None:
        """Count a claim as a write of ours returned it, until the watch shows it."""
        key, known = claim.metadata.key, self.claims.get(claim.metadata.key)
        if known is None or _version(known) < _version(claim):
            before = self.claim(key)
            self._noted[key] = claim
            self._made.update(dict.fromkeys(_extended_owner(claim), key))
            self._count(before, claim)

    def is_confirmed(self, key: Key) -> bool:
        """Whether the watch has shown a claim as we wrote it."""
        return key not in self._noted

    def forget(self, key: Key) -> None:
        """Count a claim no longer that we wrote and that is gone."""
        if noted := self._noted.pop(key, None):
            self._not_made(noted)
            self._count(noted, self.claims.get(key))

    def _not_made(self, claim: ResourceClaim) -> None:
        for uid in _extended_owner(claim):
            self._made.pop(uid, None)

    def _need(self, claim: ResourceClaim) -> Need:
        uid = claim.metadata.uid
        try:
            if uid not in self._needs:
                self._needs[uid] = need_of(claim.spec)
            for choice in (it for request in self._needs[uid].requests for it in request.choices):
                self._require_class(choice.device_class)
        except Terminal as error:
            raise Terminal(f"ResourceClaim {claim.metadata.key}: {error.what}", remedy=error.remedy) from None
        return self._needs[uid]

    def _require_class(self, name: str) -> None:
        found = self._selectors.get(name)
        if found is None:
            raise Terminal(f"there is no DeviceClass {name}", remedy="create it, or correct the name of the class")
        for text in found:
            cel.compiled(text)

    def _class_of(self, resource: str) -> str | None:
        if resource.startswith(DEVICE_CLASS):
            return resource.removeprefix(DEVICE_CLASS)
        return None if self._advertised[resource] else self._extended.get(resource)

    # What changes them

    def _slice_changed(self, key: Key, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        for node in dict.fromkeys(it.spec.node_name for it in (old, new) if it and it.spec.node_name):
            known = self._slices.setdefault(node, {})
            if new and new.spec.node_name == node:
                known[key.name] = new
            else:
                known.pop(key.name, None)
            self._take_stock(node)

    def _take_stock(self, node: str) -> None:
        was, now = self.on(node), inventory(self._slices[node].values(), self._profiles)
        if not self._slices[node]:
            del self._slices[node]
        if (was.devices, was.counters, was.complete) == (now.devices, now.counters, now.complete):
            return
        for it in was.devices:
            self._node_of.pop(it.id, None)
        self._node_of.update((it.id, node) for it in now.devices)
        if now.devices or not now.complete:
            self._nodes[node] = now
        else:
            self._nodes.pop(node, None)
        self._see_foreign(node)
        self._tell(node)

    def _class_changed(self, key: Key, old: DeviceClass | None, new: DeviceClass | None) -> None:
        if old and new and old.spec == new.spec:
            return
        if new:
            self._selectors[key.name] = tuple(it.cel.expression for it in new.spec.selectors if it.cel)
        else:
            self._selectors.pop(key.name, None)
        # Of several classes for one resource the newest counts, as for kube-scheduler.
        ordered = sorted(
            self.classes.values(), key=lambda it: (str(it.metadata.creation_timestamp), it.metadata.name)
        )
        self._extended = {
            it.spec.extended_resource_name: it.metadata.name for it in ordered if it.spec.extended_resource_name
        }
        for node in self._nodes:
            self._tell(node)

    def _node_changed(self, _key: Key, old: Node | None, new: Node | None) -> None:
        if old and new and old.status.allocatable == new.status.allocatable:
            return
        for node, sign in ((old, -1), (new, 1)):
            for name, offered in node.status.allocatable.items() if node else ():
                # Of a device plugin that is gone, kubelets keep the name, with nothing left of it.
                if "/" in name and amount(name, offered):
                    self._advertised[name] += sign

    def _claim_changed(self, key: Key, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        noted = self._noted.get(key)
        if noted and new and _version(new) < _version(noted):
            return  # Our own write is newer, and is counted already.
        if noted:
            del self._noted[key]
            self._not_made(noted)
        self._count(noted or old, new)
        if new is None and old is not None:
            self._needs.pop(old.metadata.uid, None)

    def _count(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        claim = new or old
        if claim is None:
            return
        key = claim.metadata.key
        was, now = devices_of(old), devices_of(new)
        for device in was:
            holders = self._holders.get(device, set())
            holders.discard(key)
            if not holders:
                self._holders.pop(device, None)
        for device in now:
            self._holders.setdefault(device, set()).add(key)
        for node in dict.fromkeys(filter(None, map(self._node_of.get, (*was, *now)))):
            if self._see_foreign(node):
                self._tell(node)
            for wake in self._waiting.pop(node, ()):
                wake()

    def _pod_changed(self, _key: Key, old: Pod | None, new: Pod | None) -> None:
        """Look at the devices of others' pods that were not known when their claims were."""
        if new and old is None and not self._ours(new) and (keys := podclaims.claim_keys(new)):
            devices = [it for key in keys for it in devices_of(self.claim(key))]
            for node in dict.fromkeys(filter(None, map(self._node_of.get, devices))):
                if self._see_foreign(node):
                    self._tell(node)

    def _see_foreign(self, node: str) -> bool:
        """Find the devices of a node that others' pods hold; return whether they are others than before."""
        holders = dict.fromkeys(key for it in self.on(node).devices for key in self._holders.get(it.id, ()))
        claims = filter(None, map(self.claim, sorted(holders)))
        found = (it for claim in claims if self._is_foreign(claim) for it in results_of(claim))
        now = tuple(it for it in found if self._node_of.get(id_of(it)) == node)
        was = self._foreign.pop(node, _NOTHING)
        if now:
            self._foreign[node] = now
        return was != now

    def _is_foreign(self, claim: ResourceClaim) -> bool:
        found = [
            self._pods.get(Key(claim.metadata.namespace, it.name))
            for it in claim.status.reserved_for
            if it.resource == "pods"
        ]
        # One that nobody may use keeps its devices for as long as it is there.
        return not found or any(pod is not None and not self._ours(pod) for pod in found)

    def _tell(self, node: str) -> None:
        for hook in self._hooks:
            hook(node)


def _extended_owner(claim: ResourceClaim) -> tuple[str, ...]:
    """The pod for whose extended resources a claim was made, by its uid."""
    owner = claim.metadata.controller
    made = claim.metadata.annotations.get(EXTENDED_ANNOTATION) == "true"
    return (owner.uid,) if made and owner else ()


def _version(claim: ResourceClaim) -> int:
    return int(claim.metadata.resource_version or 0)
