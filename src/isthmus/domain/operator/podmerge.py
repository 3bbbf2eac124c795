"""The user's pod template over ours: field by field, with lists of named things merged by their names.

    merged(ours, {"containers": [{"name": "slurmd", "securityContext": {"privileged": False}}]})

What the user writes counts, also where it is false, 0 or empty; null takes ours away. Lists whose elements have a
key (containers, volumes, ports …) are merged by it, others are replaced; `args` of a container go behind ours.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
    "ports": "containerPort",
}
"""Which field identifies the elements of a list, as in Kubernetes."""

_EITHER_OR: Final = frozenset({"exec", "httpGet", "tcpSocket", "grpc"})
"""How a probe looks: one of these, so the user's takes the place of ours."""

_PROBES: Final = frozenset({"livenessProbe", "readinessProbe", "startupProbe"})


def merged(ours: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Put a pod specification, or any part of it, over ours."""
    result = dict(ours)
    for key, wanted in overlay.items():
        if wanted is None:
            result.pop(key, None)
        elif key not in ours:
            result[key] = wanted
        else:
            result[key] = _over(key, ours[key], wanted)
    return result


def container(ours: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Put a container over ours; its name stays ours, since others refer to it."""
    return merged(ours, {key: value for key, value in overlay.items() if key != "name"})


def pod_spec(
    ours: Mapping[str, Any], overlay: Mapping[str, Any], containers: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Put a pod specification over ours, and after it the fields of single containers of ours, by their names."""
    result = merged(ours, overlay)
    for place in ("containers", "initContainers"):
        if place in result:
            result[place] = [container(it, containers.get(it["name"], {})) for it in result[place]]
    return result


def _over(key: str, ours: Any, wanted: Any) -> Any:
    if isinstance(ours, Mapping) and isinstance(wanted, Mapping):
        if key in _PROBES and not _EITHER_OR.isdisjoint(wanted):
            ours = {name: value for name, value in ours.items() if name not in _EITHER_OR}
        return merged(ours, wanted)
    if isinstance(ours, list) and isinstance(wanted, list):
        if key == "args":
            return [*ours, *wanted]
        if key in _KEYS:
            return _by_name(_KEYS[key], ours, wanted)
    return wanted


def _by_name(key: str, ours: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    given = {it[key]: it for it in wanted if isinstance(it, Mapping) and key in it}
    if len(given) != len(wanted):
        return list(wanted)  # not what we think it is: the API server says what is wrong with it
    kept = [merged(it, given.pop(it[key])) if it.get(key) in given else it for it in ours]
    return [*kept, *(it for it in wanted if it[key] in given)]
