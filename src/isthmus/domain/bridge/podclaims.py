"""The claims of a pod as placement sees them: which need devices, which have them, and what is waited for.

A claim that only this pod may use, and that has devices although the pod has no node, is left from an attempt that
did not get to its end: it counts as one that needs devices, and is released or used as it is when the pod is bound.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from isthmus.domain.bridge.allocation import Fit
from isthmus.domain.bridge.devices import DeviceId
from isthmus.domain.kube import podshape
from isthmus.domain.kube.deviceclaims import Extended, Need
from isthmus.domain.kube.podshape import Shape
from isthmus.model.dra import ResourceClaim, Result
from isthmus.model.meta import Key
from isthmus.model.pod import NodeSelector, Pod

_MILLI: Final = 1000


class PodClaims(msgspec.Struct, frozen=True):
    """Claims of one pod. `needs` are those of `open`, followed by that of its extended resources, if any."""

    open: tuple[ResourceClaim, ...] = ()
    settled: tuple[ResourceClaim, ...] = ()
    """Claims that have devices and that others may use, too."""
    needs: tuple[Need, ...] = ()
    uses: tuple[str, ...] = ()
    """What the pod calls each of the `open` ones."""
    extended: Extended | None = None
    extended_claim: ResourceClaim | None = None
    """The claim that was made for its extended resources."""
    resources: frozenset[str] = frozenset()
    """The extended resources that devices stand for."""
    waiting: str = ""

    @property
    def terms(self) -> tuple[NodeSelector, ...]:
        """From where the devices can be used that claims have already."""
        found = (it.status.allocation for it in self.settled)
        return tuple(it.node_selector for it in found if it and it.node_selector)


NO_CLAIMS = PodClaims()


def claim_names(pod: Pod) -> Iterator[tuple[str, str | None]]:
    """The names of a pod's claims, each with that of its object: empty until that is made, None if none is."""
    made = {it.name: it.resource_claim_name for it in pod.status.resource_claim_statuses}
    for use in pod.spec.resource_claims:
        yield use.name, use.resource_claim_name or made.get(use.name, "")


def claim_keys(pod: Pod) -> tuple[Key, ...]:
    """The claims of a pod that are there by name."""
    found = [name for _, name in claim_names(pod) if name]
    if pod.status.extended_resource_claim_status:
        found.append(pod.status.extended_resource_claim_status.resource_claim_name)
    return tuple(Key(pod.metadata.namespace, name) for name in found)


def gather(
    pod: Pod, claim: Callable[[Key], ResourceClaim | None], need: Callable[[ResourceClaim], Need]
) -> PodClaims:
    """Sort the claims of a pod, extended resources left aside; `need` may raise `Terminal` for one."""
    open_: list[tuple[str, ResourceClaim]] = []
    settled: list[ResourceClaim] = []
    for use, name in claim_names(pod):
        if name is None:
            continue
        found = claim(Key(pod.metadata.namespace, name)) if name else None
        if found is None or not _belongs(found, pod, use):
            return PodClaims(waiting=f"the ResourceClaim {name or use} of the pod does not exist yet")
        if found.metadata.deletion_timestamp:
            return PodClaims(waiting=f"the ResourceClaim {name} is being deleted")
        if found.status.allocation and not is_own(found, pod):
            settled.append(found)
        else:
            open_.append((use, found))
    claims = tuple(it for _, it in open_)
    return PodClaims(claims, tuple(settled), tuple(map(need, claims)), uses=tuple(use for use, _ in open_))


def shape_of(pod: Pod, claims: PodClaims, taken: Fit) -> Shape:
    """What a pod takes of a node, with what its claims take there.

    Containers that have CPUs by claims may request them as well, as their driver advises: the larger number counts.
    """
    shape = podshape.shape_of(pod, gres=taken.gres, without=claims.resources)
    if not taken.cpus:
        return shape
    by_container: Counter[str] = Counter()
    for (number, request), count in taken.cpus.items():
        by_container[_user(pod, claims, number, request)] += count * _MILLI
    claimed = by_container.total()
    if "cpu" in pod.spec.resources.requests:
        return replace(shape, milli_cpu=max(shape.milli_cpu, claimed))
    for it in (*pod.spec.init_containers, *pod.spec.containers):
        requested = podshape.measure("cpu", it.resources.requests.get("cpu", "0"))
        claimed -= min(requested, by_container[it.name])
    return replace(shape, milli_cpu=shape.milli_cpu + claimed)


def _user(pod: Pod, claims: PodClaims, number: int, request: str) -> str:
    """The container that uses a request of a claim; empty if none does. CPUs are for one container alone."""
    if number >= len(claims.open):
        mappings = claims.extended.mappings if claims.extended else ()
        return next((it.container_name for it in mappings if it.request_name == request), "")
    use = claims.uses[number]
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if any(it.name == use and it.request in {"", request} for it in container.resources.claims):
            return container.name
    return ""


def _belongs(claim: ResourceClaim, pod: Pod, use: str) -> bool:
    """Whether a claim that was made for a pod was made for this one."""
    by_template = any(it.name == use and it.resource_claim_template_name for it in pod.spec.resource_claims)
    owner = claim.metadata.controller
    return not by_template or (owner is not None and owner.uid == pod.metadata.uid)


def is_own(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether nobody but this pod may use a claim."""
    return [it.uid for it in claim.status.reserved_for] == [pod.metadata.uid]


def results_of(claim: ResourceClaim | None) -> Iterator[Result]:
    """What a claim has for itself, which is not what administrative access shows it."""
    allocation = claim.status.allocation if claim else None
    return (it for it in (allocation.devices.results if allocation else ()) if not it.admin_access)


def devices_of(claim: ResourceClaim | None) -> tuple[DeviceId, ...]:
    """The devices that a claim has for itself, or parts of them."""
    return tuple(map(id_of, results_of(claim)))


def id_of(result: Result) -> DeviceId:
    return DeviceId(result.driver, result.pool, result.device)
