"""The outline of a pod that a user wrote: what we rely on when we put it over ours, before anybody reads it.

The rest of it goes to the API server as it is, which checks it when the pod is made.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import field

from isthmus.domain import quantity
from isthmus.errors import Terminal
from isthmus.model.base import Data

_Object = dict[str, Any]
_Amounts = dict[str, str | int | float]


class _Resources(Data, frozen=True):
    requests: _Amounts = field(default_factory=dict)
    limits: _Amounts = field(default_factory=dict)


class _Named(Data, frozen=True):
    name: str


class _Container(Data, frozen=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[_Named, ...] = ()
    resources: _Resources = _Resources()
    volume_mounts: tuple[_Named, ...] = ()
    ports: tuple[_Object, ...] = ()
    security_context: _Object = field(default_factory=dict)


class _NamedContainer(_Container, frozen=True, kw_only=True):
    name: str


class _PodSpec(Data, frozen=True):
    containers: tuple[_NamedContainer, ...] = ()
    init_containers: tuple[_NamedContainer, ...] = ()
    volumes: tuple[_Named, ...] = ()
    hostname: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[_Object, ...] = ()
    affinity: _Object = field(default_factory=dict)
    image_pull_secrets: tuple[_Object, ...] = ()
    resources: _Resources = _Resources()
    security_context: _Object = field(default_factory=dict)


def problems_of_pod(spec: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    """Find what is wrong with a pod specification: the field, and why."""
    try:
        pod = msgspec.convert(_without_nulls(spec), _PodSpec)
    except msgspec.ValidationError as error:
        yield where, str(error)
        return
    yield from _problems_of_amounts(pod.resources, where)
    for part, containers in (("containers", pod.containers), ("initContainers", pod.init_containers)):
        for container in containers:
            yield from _problems_of_amounts(container.resources, f"{where}.{part}[{container.name}]")


def problems_of_container(spec: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    """Find what is wrong with a container that goes over one of ours."""
    try:
        container = msgspec.convert(_without_nulls(spec), _Container)
    except msgspec.ValidationError as error:
        yield where, str(error)
        return
    yield from _problems_of_amounts(container.resources, where)


def _problems_of_amounts(resources: _Resources, where: str) -> Iterator[tuple[str, str]]:
    for part, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for name, amount in amounts.items():
            try:
                too_small = quantity.parse(str(amount)) < 0
            except Terminal as error:
                yield f"{where}.resources.{part}.{name}", error.what
            else:
                if too_small:
                    yield f"{where}.resources.{part}.{name}", f"{amount} is less than nothing"


def _without_nulls(value: Any) -> Any:
    """Drop nulls, which say nothing."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
