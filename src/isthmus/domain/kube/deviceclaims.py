"""What a pod's claims ask for, as values that pods of one template share.

    claim       requests, and rules that their devices keep together
    request     one choice, or several of which the first that can be had is taken
    choice      so many devices of a class that the selectors hold for

What Slurm cannot place is refused here (`Terminal`), before anything is submitted.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from isthmus.domain.kube.podshape import measure
from isthmus.domain.languages import cel
from isthmus.errors import Terminal
from isthmus.model.base import Data
from isthmus.model.dra import ClaimSpec, DeviceRequest, ExactRequest
from isthmus.model.pod import Container, Pod, Toleration

MAX_RESULTS: Final = 32
"""So many devices the API server lets one claim have."""


class Choice(Data, frozen=True, cache_hash=True):
    """One way to serve a request; `name` is that of an alternative, `every` means all devices that match."""

    device_class: str
    selectors: tuple[str, ...] = ()
    count: int = 1
    every: bool = False
    admin: bool = False
    tolerations: tuple[Toleration, ...] = ()
    name: str = ""
    capacity: tuple[tuple[str, str], ...] = ()
    """How much is needed of the capacity of each device."""


class Request(Data, frozen=True, cache_hash=True):
    name: str
    choices: tuple[Choice, ...]


class Rule(Data, frozen=True, cache_hash=True):
    """An attribute whose values are the same for all devices of these requests, or `distinct`."""

    attribute: str
    requests: tuple[str, ...] = ()
    distinct: bool = False

    def covers(self, request: str, choice: str) -> bool:
        return not self.requests or request in self.requests or f"{request}/{choice}" in self.requests


class Need(Data, frozen=True, cache_hash=True):
    """What one claim asks for."""

    requests: tuple[Request, ...]
    rules: tuple[Rule, ...] = ()


def need_of(spec: ClaimSpec) -> Need:
    """Read a claim. Raises `Terminal` for what Slurm cannot place."""
    devices = spec.devices
    rules = []
    for it in devices.constraints:
        if not (it.match_attribute or it.distinct_attribute):
            raise Terminal("it has an unknown kind of constraint", remedy="use matchAttribute")
        attribute = it.match_attribute or it.distinct_attribute or ""
        rules.append(Rule(attribute, it.requests, distinct=it.match_attribute is None))
    need = Need(tuple(_request(it) for it in devices.requests), tuple(rules))
    return _within_limits(need)


def _within_limits(need: Need) -> Need:
    largest = sum(max((it.count for it in request.choices if not it.every), default=1) for request in need.requests)
    if largest > MAX_RESULTS:
        raise Terminal(
            f"it asks for {largest} devices, and a claim can have {MAX_RESULTS}", remedy="use several claims"
        )
    return need


def _request(request: DeviceRequest) -> Request:
    found = (request.exactly,) if request.exactly else request.first_available
    if not found:
        raise Terminal(f"request {request.name} is of an unknown kind", remedy="use exactly")
    return Request(request.name, tuple(_choice(it, request.name) for it in found))


def _choice(asked: ExactRequest, request: str) -> Choice:
    if asked.allocation_mode not in {"ExactCount", "All"}:
        raise Terminal(f"request {request} has the unknown allocation mode {asked.allocation_mode}")
    selectors = []
    for it in asked.selectors:
        if it.cel is None:
            raise Terminal(f"request {request} has an unknown kind of selector", remedy="use cel")
        cel.compiled(it.cel.expression)
        selectors.append(it.cel.expression)
    return Choice(
        asked.device_class_name,
        tuple(selectors),
        count=max(1, asked.count),
        every=asked.allocation_mode == "All",
        admin=asked.admin_access,
        tolerations=asked.tolerations,
        name=asked.name,
        capacity=tuple(sorted(asked.capacity.requests.items())) if asked.capacity else (),
    )


class Mapped(Data, frozen=True):
    """Which request of the claim serves a container's extended resource, as the kubelet looks it up."""

    container_name: str
    resource_name: str
    request_name: str


class Extended(Data, frozen=True):
    """A claim for the extended resources of a pod, and which container gets what of it."""

    requests: tuple[tuple[str, str, int], ...]
    """The name, class and count of each request."""
    mappings: tuple[Mapped, ...]

    @property
    def need(self) -> Need:
        """What it asks for. Raises `Terminal` where that is more than one claim can have."""
        asked = (Request(name, (Choice(class_, count=count),)) for name, class_, count in self.requests)
        return _within_limits(Need(tuple(asked)))


def extended_of(pod: Pod, classes: Mapping[str, str]) -> Extended:
    """Make the claim for a pod's extended resources, of which `classes` has the device class.

    Names are those that kube-scheduler would give. Init containers run before the others, and use the devices of
    those that start later; what they need beyond that is asked for once, as the largest of them needs it.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    inits = len(pod.spec.init_containers)
    short = [at for at, it in enumerate(containers) if at < inits and it.restart_policy != "Always"]
    requests: dict[str, tuple[str, str, int]] = {}
    mappings: list[Mapped] = []
    for resource, class_ in sorted(classes.items()):
        counts = [_count(it, resource) for it in containers]
        lasting = [at for at, count in enumerate(counts) if count and at not in short]
        for at in lasting:
            name = _request_name(at, containers[at], resource)
            requests[name] = (name, class_, counts[at])
            mappings.append(Mapped(containers[at].name, resource, name))
        extra: dict[int, int] = {}
        for at in short:
            left = counts[at]
            for later in (it for it in lasting if it > at and left > 0):
                mappings.append(
                    Mapped(containers[at].name, resource, _request_name(later, containers[later], resource))
                )
                left -= counts[later]
            if left > 0:
                extra[at] = left
        if extra:
            largest = max(extra, key=lambda at: (extra[at], -at))
            name = _request_name(largest, containers[largest], resource)
            requests[name] = (name, class_, extra[largest])
            mappings += [Mapped(containers[at].name, resource, name) for at in extra]
    return Extended(tuple(sorted(requests.values())), tuple(mappings))


def _count(container: Container, resource: str) -> int:
    text = container.resources.requests.get(resource)
    return measure(resource, text) if text else 0


def _request_name(at: int, container: Container, resource: str) -> str:
    return f"container-{at}-request-{sorted(container.resources.requests).index(resource)}"


def resources_of(pod: Pod) -> Iterable[str]:
    """The names of all resources that the containers of a pod request."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        yield from container.resources.requests
