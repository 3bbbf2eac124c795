"""Writes NodeSets and LoginSets of one version as those of the other, and loses nothing on the way.

    v1alpha1 (short)                              v1beta1 (stored, worked with)
    clusterName                              ◄─►  controllerRef.name
    template.spec.containers, the main one   ◄─►  slurmd, login
    replicas, template, updateStrategy, …    ◄─►  the same
    selector, serviceName                     ─►  annotation KEPT_SHORT
    annotation KEPT_FULL                     ◄─   all other fields, where they are not as by default

The main container is the one called `slurmd` (`login`), or else the first one. Without clusterName the Controller
is the only one of the namespace, whichever that turns out to be.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from isthmus.errors import Terminal
from isthmus.kube import structural
from isthmus.model import slinky, slinkyalpha

KEPT_FULL: Final = "slinky.slurm.net/v1beta1-fields"
"""On a short object: fields of the full version that the short one has no place for."""

KEPT_SHORT: Final = "slinky.slurm.net/v1alpha1-fields"
"""On a full object: what a short one said that the full version has no place for."""

FULL: Final = f"{slinky.GROUP}/{slinky.VERSION}"
SHORT: Final = f"{slinky.GROUP}/{slinkyalpha.VERSION}"

Object = dict[str, Any]


class _Form(NamedTuple):
    """How the two versions of a kind differ."""

    main: str
    """The field, and the container, of the daemon."""
    shared: frozenset[str]
    """Fields that both have under one name, besides the template."""
    full: type[Any]
    """The full version's spec."""


_FORMS: Final = {
    "NodeSet": _Form(
        "slurmd",
        frozenset(
            (
                "replicas",
                "volumeClaimTemplates",
                "updateStrategy",
                "persistentVolumeClaimRetentionPolicy",
                "revisionHistoryLimit",
                "minReadySeconds",
            )
        ),
        slinky.NodeSetSpec,
    ),
    "LoginSet": _Form(
        "login",
        frozenset(("replicas", "strategy", "service")),
        slinky.LoginSetSpec,
    ),
}
_SHORT_ONLY: Final[tuple[str, ...]] = ("selector", "serviceName")
_PLACE: Final[str] = "container"
"""Among kept fields: where the main container stands, if not first; or which it is, if its name does not tell."""


def convert(manifest: Object, version: str) -> Object:
    """Write an object in another version (`group/version`); a `runtime.reviews.Convert`."""
    form = _FORMS.get(str(manifest.get("kind")))
    directions = {(SHORT, FULL): _lengthen, (FULL, SHORT): _shorten}
    if manifest.get("apiVersion") == version and form:
        return manifest
    turn = directions.get((str(manifest.get("apiVersion")), version))
    if form is None or turn is None:
        raise Terminal(f"cannot convert {manifest.get('apiVersion')} {manifest.get('kind')} to {version}")
    annotations = dict(manifest.get("metadata", {}).get("annotations") or {})
    spec = turn(dict(manifest.get("spec") or {}), annotations, form)
    metadata = {name: value for name, value in manifest.get("metadata", {}).items() if name != "annotations"}
    if annotations:
        metadata["annotations"] = annotations
    return manifest | {"apiVersion": version, "metadata": metadata, "spec": spec}


def _lengthen(short: Object, annotations: dict[str, str], form: _Form) -> Object:
    """Write a short spec in full. What it cannot say is taken from, and put into, the annotations."""
    full = _kept_full(annotations)
    kept: Object = {name: short[name] for name in _SHORT_ONLY if name in short}
    full |= {name: short[name] for name in form.shared if name in short}
    if name := short.get("clusterName"):
        full["controllerRef"] = {"name": name}
    template, pod, containers = _opened(short)
    told = full.pop(_PLACE, None)
    if containers:
        place = told if told is not None and told < len(containers) else _main(containers, form)
        main = dict(containers.pop(place))
        if main.get("name") == form.main:
            del main["name"]
        if place:
            kept[_PLACE] = place
        if main or not containers:
            full[form.main] = main
    if closed := _closed(template, pod, containers):
        full["template"] = closed
    if kept:
        annotations[KEPT_SHORT] = _write(kept)
    return full


def _shorten(full: Object, annotations: dict[str, str], form: _Form) -> Object:
    """Write a full spec in short."""
    kept = _kept_short(annotations)
    short: Object = {name: kept[name] for name in _SHORT_ONLY if name in kept}
    short |= {name: full.pop(name) for name in form.shared if name in full}
    if name := (full.pop("controllerRef", None) or {}).get("name"):
        short["clusterName"] = name
    template, pod, containers = _opened(full)
    full.pop("template", None)
    main = full.pop(form.main, None)
    if main is not None or containers:
        place = min(kept[_PLACE], len(containers))
        containers.insert(place, {"name": form.main} | (main or {}))
        if _main(containers, form) != place:
            full[_PLACE] = place
    if closed := _closed(template, pod, containers):
        short["template"] = closed
    if rest := _beyond_defaults(full, _schema(form)):
        annotations[KEPT_FULL] = _write(rest)
    return short


def _main(containers: list[Object], form: _Form) -> int:
    """Find the place of the daemon's container."""
    return next((place for place, it in enumerate(containers) if it.get("name") == form.main), 0)


def _opened(spec: Object) -> tuple[Object, Object, list[Object]]:
    """Take a template apart: itself, its pod, and its containers, to be changed at will."""
    template = dict(spec.get("template") or {})
    pod = dict(template.pop("spec", None) or {})
    return template, pod, list(pod.pop("containers", None) or ())


def _closed(template: Object, pod: Object, containers: list[Object]) -> Object:
    """Put a template together again, without parts that are empty."""
    if containers:
        pod["containers"] = containers
    if pod:
        template["spec"] = pod
    return template


@cache
def _schema(form: _Form) -> Object:
    return structural.schema(form.full, form.full.__name__)


def _beyond_defaults(value: Object, schema: Object) -> Object:
    """Leave out what the API server fills in by itself."""
    said: Object = {}
    for name, inner in value.items():
        known = schema["properties"].get(name, {})
        if isinstance(inner, dict) and "properties" in known:
            if within := _beyond_defaults(inner, known):
                said[name] = within
        elif inner != known.get("default", msgspec.UNSET):
            said[name] = inner
    return said


def _kept_full(annotations: dict[str, str]) -> Object:
    """Take out what a short object carries along. We wrote it: a user who changes it would lose settings."""
    if not (text := annotations.pop(KEPT_FULL, "")):
        return {}
    kept = _object(text)
    if kept is None or not _is_place(kept.get(_PLACE, 0)):
        raise Terminal(
            f"the annotation {KEPT_FULL} was changed: {text[:80]!r}",
            remedy=f"do not edit it; edit the object as {FULL} instead",
        )
    return kept


def _kept_short(annotations: dict[str, str]) -> Object:
    """Take out what a full object carries along; any user may have written it, and it must not break a list."""
    kept = _object(annotations.get(KEPT_SHORT, "")) or {}
    if not _is_place(kept.get(_PLACE, 0)) or not isinstance(kept.get("serviceName", ""), str):
        kept = {}
    annotations.pop(KEPT_SHORT, None)
    return {_PLACE: 0} | kept


def _is_place(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _object(text: str) -> Object | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None


def _write(fields: Mapping[str, Any]) -> str:
    return msgspec.json.encode(fields, order="deterministic").decode()
