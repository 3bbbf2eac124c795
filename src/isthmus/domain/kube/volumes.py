"""What the volumes of a pod mean for its placement.

A claim that is bound says from which nodes its volume can be reached. One that waits for its first consumer is
bound by the scheduler, by naming the node on the claim. Any other claim has to be bound first, by its
controller.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from isthmus import names
from isthmus.model.base import Data
from isthmus.model.meta import Key
from isthmus.model.pod import NodeSelector, NodeSelectorTerm, Pod, Requirement, Volume
from isthmus.model.storage import Claim, PersistentVolume, StorageClass

_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_ONE_POD: Final = "ReadWriteOncePod"

Claims = Callable[[Key], Claim | None]
PersistentVolumes = Callable[[str], PersistentVolume | None]
Classes = Callable[[str], StorageClass | None]
Users = Callable[[Key], Iterable[Pod]]


class Volumes(Data, frozen=True):
    """Where the volumes of a pod can be reached (`terms`), and what is still to be done about them."""

    terms: tuple[NodeSelector, ...] = ()
    unbound: tuple[Key, ...] = ()
    """Claims that are bound by naming the pod's node on them."""
    waiting: str = ""
    """Why the pod cannot be placed yet; empty if it can."""


def claim_keys(pod: Pod) -> Iterator[Key]:
    """The claims that a pod uses; fit for an index of a store."""
    return filter(None, (_claim_key(pod, volume) for volume in pod.spec.volumes))


def volumes_of(
    pod: Pod, claims: Claims, volumes: PersistentVolumes, classes: Classes, *, users: Users = lambda _: ()
) -> Volumes:
    """Look up the claims of a pod and what they depend on; `users` finds the pods that use a claim."""
    if not pod.spec.volumes:
        return _NOTHING
    terms: list[NodeSelector] = []
    unbound: list[Key] = []
    for volume in pod.spec.volumes:
        key = _claim_key(pod, volume)
        if key is None:
            continue
        claim = claims(key)
        if claim is None:
            return Volumes(waiting=f"there is no volume claim {key}")
        waiting = _unusable(claim, pod, ephemeral=volume.ephemeral is not None) or _taken(claim, pod, users)
        if waiting:
            return Volumes(waiting=waiting)
        found = _bound(claim, volumes) if _is_bound(claim) else _unbound(claim, classes)
        if found.waiting:
            return found
        terms += found.terms
        unbound += found.unbound
    return Volumes(tuple(terms), tuple(dict.fromkeys(unbound)))


def _claim_key(pod: Pod, volume: Volume) -> Key | None:
    if volume.persistent_volume_claim is not None:
        return Key(pod.metadata.namespace, volume.persistent_volume_claim.claim_name)
    if volume.ephemeral is not None:
        return Key(pod.metadata.namespace, f"{pod.metadata.name}-{volume.name}")
    return None


def _unusable(claim: Claim, pod: Pod, *, ephemeral: bool) -> str:
    meta = claim.metadata
    if meta.deletion_timestamp is not None:
        return f"volume claim {meta.key} is being deleted"
    if ephemeral and (meta.controller is None or meta.controller.uid != pod.metadata.uid):
        # Its data belongs to someone else, and Kubernetes would never let the pod mount it.
        return f"volume claim {meta.key} was not made for this pod: delete or rename it"
    if claim.status.phase == "Lost":
        return f"volume claim {meta.key} lost its volume {claim.spec.volume_name}: create a new claim"
    return ""


def _taken(claim: Claim, pod: Pod, users: Users) -> str:
    if _ONE_POD not in claim.spec.access_modes:
        return ""
    key = claim.metadata.key
    for user in users(key):
        if user.bound and not user.finished and user.metadata.uid != pod.metadata.uid:
            return f"volume claim {key} is for one pod at a time ({_ONE_POD}), and pod {user.metadata.key} has it"
    return ""


def _is_bound(claim: Claim) -> bool:
    return bool(claim.spec.volume_name) and (
        claim.status.phase == "Bound" or claim.metadata.annotations.get(_BIND_COMPLETED) == "yes"
    )


def _bound(claim: Claim, volumes: PersistentVolumes) -> Volumes:
    volume = volumes(claim.spec.volume_name)
    if volume is None:
        return Volumes(waiting=f"volume {claim.spec.volume_name} of claim {claim.metadata.key} does not exist")
    affinity = volume.spec.node_affinity
    return Volumes((affinity.required,)) if affinity and affinity.required else _NOTHING


def _unbound(claim: Claim, classes: Classes) -> Volumes:
    key, name = claim.metadata.key, claim.spec.storage_class_name
    if claim.spec.volume_name:
        return Volumes(waiting=f"volume claim {key} is not bound to volume {claim.spec.volume_name} yet")
    storage_class = classes(name) if name else None
    if name and storage_class is None:
        return Volumes(waiting=f"volume claim {key} asks for storage class {name}, which does not exist")
    if storage_class is None or storage_class.volume_binding_mode != "WaitForFirstConsumer":
        return Volumes(waiting=f"volume claim {key} is not bound yet")
    if storage_class.provisioner == _NO_PROVISIONER:
        return Volumes(
            waiting=f"volume claim {key} waits for its first consumer, but storage class {name} makes no volumes: "
            "name a volume in the claim's spec.volumeName, or use a class that has a provisioner"
        )
    terms = []
    if storage_class.allowed_topologies:
        terms.append(_allowed(storage_class))
    # A node was named already, perhaps for this very pod: the volume may be half made there.
    if node := claim.metadata.annotations.get(names.SELECTED_NODE_ANNOTATION):
        only = Requirement("metadata.name", "In", (node,))
        terms.append(NodeSelector((NodeSelectorTerm(match_fields=(only,)),)))
    return Volumes(tuple(terms), (key,))


def _allowed(storage_class: StorageClass) -> NodeSelector:
    return NodeSelector(
        tuple(
            NodeSelectorTerm(tuple(Requirement(it.key, "In", it.values) for it in term.match_label_expressions))
            for term in storage_class.allowed_topologies
        )
    )


_NOTHING: Final = Volumes()
