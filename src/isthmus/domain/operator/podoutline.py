"""The fields of a user's pod template that we rely on when we merge it over ours.

The rest of it goes to the API server as it is, which checks it when the pod is made. That is late, so names of
fields that we have never heard of are found here; there may be newer ones than we know.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import field

from isthmus.domain.languages import quantity
from isthmus.errors import Terminal
from isthmus.model.base import Data

_CONTAINER_FIELDS: Final = frozenset(
    (
        *("args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name"),
        *("ports", "readinessProbe", "resizePolicy", "resources", "restartPolicy", "restartPolicyRules"),
        *("securityContext", "startupProbe", "stdin", "stdinOnce", "terminationMessagePath"),
        *("terminationMessagePolicy", "tty", "volumeDevices", "volumeMounts", "workingDir"),
    )
)
_POD_FIELDS: Final = frozenset(
    (
        *("activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig"),
        *("dnsPolicy", "enableServiceLinks", "ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork"),
        *("hostPID", "hostUsers", "hostname", "hostnameOverride", "imagePullSecrets", "initContainers", "nodeName"),
        *("nodeSelector", "os", "overhead", "preemptionPolicy", "priority", "priorityClassName", "readinessGates"),
        *("resourceClaims", "resources", "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates"),
        *("schedulingGroup", "securityContext", "serviceAccount", "serviceAccountName", "setHostnameAsFQDN"),
        *("shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds", "tolerations"),
        *("topologySpreadConstraints", "volumes", "workloadRef"),
    )
)

T = TypeVar("T")

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
    pod = _read(spec, _PodSpec)
    if isinstance(pod, str):
        yield where, pod
        return
    yield from _problems_of_amounts(pod.resources, where)
    for part, containers in (("containers", pod.containers), ("initContainers", pod.init_containers)):
        for container in containers:
            yield from _problems_of_amounts(container.resources, f"{where}.{part}[{container.name}]")


def problems_of_container(spec: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    """Find what is wrong with a container that goes over one of ours."""
    container = _read(spec, _Container)
    if isinstance(container, str):
        yield where, container
    else:
        yield from _problems_of_amounts(container.resources, where)


def _read(spec: Mapping[str, Any], kind: type[T]) -> T | str:
    """Read a specification, or return what is wrong with it."""
    try:
        return msgspec.convert(_without_nulls(spec), kind)
    except msgspec.ValidationError as error:
        return str(error)


def unknown_in_pod(spec: Mapping[str, Any], where: str) -> Iterator[str]:
    """Fields that a pod specification and its containers do not have, as far as we know."""
    yield from (f"{where}.{name}" for name in spec if name not in _POD_FIELDS)
    for part in ("containers", "initContainers"):
        for container in spec.get(part) or ():
            yield from unknown_in_container(container, f"{where}.{part}[{container['name']}]")


def unknown_in_container(spec: Mapping[str, Any], where: str) -> Iterator[str]:
    """Fields that a container does not have, as far as we know."""
    return (f"{where}.{name}" for name in spec if name not in _CONTAINER_FIELDS)


def _problems_of_amounts(resources: _Resources, where: str) -> Iterator[tuple[str, str]]:
    for part, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for name, amount in amounts.items():
            try:
                too_small = quantity.parse(str(amount)) < 0
            except Terminal as error:
                yield f"{where}.resources.{part}.{name}", error.what
            else:
                if too_small:
                    yield f"{where}.resources.{part}.{name}", f"{amount} is negative"


def _without_nulls(value: Any) -> Any:
    """Drop nulls, which say nothing."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
