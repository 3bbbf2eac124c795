"""The types of the bridge's settings.

msgspec checks a value against its type; the description of the type is what an error tells people to write. The
functions read settings that may be written in several ways, before msgspec does.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from isthmus.domain.languages import cel
from isthmus.errors import Terminal
from isthmus.model.base import EMPTY
from isthmus.model.pod import LabelSelector, Requirement

_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_NAME: Final = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_SLURM_WORD: Final = r"[A-Za-z0-9_.-]{1,200}"
_GRES: Final = r"[A-Za-z][A-Za-z0-9_.-]{0,63}"
_SET_TERM: Final = re.compile(r"(?P<key>[^\s!=,()]+)\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)", re.ASCII)
_TERM: Final = re.compile(r"(?:[^,(]|\([^)]*\))+", re.ASCII)


def _whole(pattern: str, write: str | None = None) -> Meta:
    return Meta(pattern=rf"^(?:{pattern})\Z", description=write)


_LabelKey = Annotated[str, _whole(rf"((?=[^/]{{1,253}}/){_SUBDOMAIN}/)?{_NAME}")]
_LabelValue = Annotated[str, _whole(rf"({_NAME})?")]
_Resource = Annotated[str, _whole(rf"(?=[^/]{{1,253}}/){_SUBDOMAIN}/{_NAME}")]

SchedulerName = Annotated[
    str, _whole(rf"(?=.{{1,253}}\Z){_SUBDOMAIN}", "a name in lower case, such as slurm-bridge-scheduler")
]
Namespaces = Annotated[
    tuple[Annotated[str, _whole(_LABEL)], ...],
    Meta(description="a list of names of namespaces, such as [batch, hpc]"),
]
Partitions = Annotated[
    str, _whole(rf"({_SLURM_WORD}(,{_SLURM_WORD})*)?", "the name of a partition, or several separated by commas")
]
McsLabel = Annotated[str, _whole(rf"({_SLURM_WORD})?", "one MCS label, or nothing")]
Switch = Annotated[bool, Meta(description="true or false")]
Placeholder = Annotated[Literal["auto", "external", "batch"], Meta(description="auto, external or batch")]
Tenancy = Annotated[Literal["auto", "open", "strict"], Meta(description="auto, open or strict")]
Effect = Annotated[
    Literal["NoExecute", "NoSchedule", "PreferNoSchedule"] | None,
    Meta(description="NoExecute, NoSchedule or PreferNoSchedule, or nothing for no taint"),
]
AbsolutePath = Annotated[Path, Meta(description="an absolute path")]
Endpoints = Annotated[
    tuple[str, ...],
    Meta(description="the URL of slurmrestd, such as http://slurm-restapi.slurm:6820, or a list of them"),
]
Gres = Annotated[
    Mapping[_Resource, Annotated[str, _whole(rf"({_GRES}(:{_GRES})?)?")]],
    Meta(description="for each extended resource its GRES, such as nvidia.com/gpu: gpu"),
]


class _Backend(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How Slurm counts devices: each with an index of its own, under the name of a GRES.

    CPUs (core-bitmap) are known by their driver: profiles of slurm-bridge that name them are read and not needed.
    """

    type: Literal["indexed-gres", "core-bitmap"] = "indexed-gres"
    gres_name: Annotated[str, _whole(_GRES)] = "gpu"


class DeviceProfile(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Devices of a driver that are a GRES of their own, as slurm-bridge writes it."""

    name: Annotated[str, _whole(_GRES)]
    driver: Annotated[str, _whole(rf"(?=.{{1,63}}\Z){_SUBDOMAIN}")]
    selector: str = ""
    backend: _Backend = _Backend()

    def __post_init__(self) -> None:
        if self.selector:
            try:
                cel.compiled(self.selector)
            except Terminal as error:
                raise ValueError(error.what) from None


DeviceProfiles = Annotated[
    tuple[DeviceProfile, ...],
    Meta(description="a list of profiles, such as [{name: a100, driver: gpu.nvidia.com, selector: CEL}]"),
]
LabelKeys = Annotated[
    tuple[_LabelKey, ...], Meta(description="a list of keys of labels, such as [topology.kubernetes.io/zone]")
]
Selector = Annotated[
    LabelSelector | None,
    Meta(description="matchLabels and matchExpressions as in a manifest, or a text such as team=hpc,!legacy"),
]


class _Requirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: _LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[_LabelValue, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.values) != (self.operator in {"In", "NotIn"}):
            raise ValueError(f"{self.operator} {'with' if self.values else 'without'} values")


class _Selector(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A LabelSelector whose keys and values are checked as strictly as the API server checks them."""

    match_labels: Mapping[_LabelKey, _LabelValue] = EMPTY
    match_expressions: tuple[_Requirement, ...] = ()


def custom(kind: type, value: object) -> object:
    """Read what msgspec does not know: paths."""
    if kind is not Path or not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise ValueError(f"{value!r} is not valid")
    return Path(value)


def unique(value: object) -> object:
    """Drop what a list repeats; what is not a list of texts is left to msgspec."""
    return (
        list(dict.fromkeys(value))
        if isinstance(value, list) and all(isinstance(it, str) for it in value)
        else value
    )


def partitions(value: object) -> object:
    """Drop blanks around commas."""
    return re.sub(r"\s*,\s*", ",", value.strip()) if isinstance(value, str) else value


def gres(value: object) -> object:
    """Check entry by entry, because msgspec does not say which one is wrong."""
    for key, item in value.items() if isinstance(value, dict) else ():
        try:
            msgspec.convert({key: item}, Gres)
        except msgspec.ValidationError as error:
            raise ValueError(f"'{key}: {item}' is not valid") from error
    return value


def effect(value: object) -> object:
    """Take an empty text for no taint, as a chart's empty value renders it."""
    return value or None


def endpoints(value: object) -> object:
    """Read the URL of a slurmrestd, a list of them, or a text with several between commas."""
    if isinstance(value, str):
        value = [it.strip() for it in value.split(",")]
    if not isinstance(value, list):
        return value
    return unique([_endpoint(it) if isinstance(it, str) else it for it in value if it])


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        usable = usable or (parts.scheme in {"unix", "http+unix"} and parts.path.startswith("/"))
    except ValueError:
        usable = False
    # A password in a URL would end up in logs, and slurmrestd has no use for one.
    if not usable or parts.username or parts.query or parts.fragment:
        raise ValueError(f"{'the value' if '@' in text else repr(text)} is not the URL of a slurmrestd")
    return text.rstrip("/")


def selector(value: object) -> LabelSelector | None:
    """Read a LabelSelector as in manifests, or a text as kubectl takes it."""
    content: Any = _selector_text(value) if isinstance(value, str) else value
    if isinstance(content, dict):  # `matchLabels:` with nothing below it
        content = {key: item for key, item in content.items() if item is not None}
    read = msgspec.convert(content, _Selector | None)
    # To Kubernetes an empty selector means everything; a setting that is left empty does not.
    if read is None or not (read.match_labels or read.match_expressions):
        return None
    expressions = tuple(Requirement(it.key, it.operator, it.values) for it in read.match_expressions)
    return LabelSelector(read.match_labels, expressions)


def _selector_text(text: str) -> dict[str, object]:
    """Read `slurm.managed=true,tier in (batch, hpc),!legacy` into the form of manifests."""
    labels: dict[str, str] = {}
    expressions: list[dict[str, object]] = []
    if text.count("(") != text.count(")"):
        raise ValueError(f"{text!r} has unbalanced parentheses")
    for term in filter(None, map(str.strip, _TERM.findall(text))):  # at commas, but not within parentheses
        if match := _SET_TERM.fullmatch(term):
            operator = "In" if match["word"] == "in" else "NotIn"
            values = [it.strip() for it in match["values"].split(",")]
            expressions.append({"key": match["key"], "operator": operator, "values": values})
        elif "!=" in term:
            key, _, value = term.partition("!=")
            expressions.append({"key": key.strip(), "operator": "NotIn", "values": [value.strip()]})
        elif "=" in term:
            key, _, value = term.partition("=")
            labels[key.strip()] = value.removeprefix("=").strip()
        else:
            operator = "DoesNotExist" if term.startswith("!") else "Exists"
            expressions.append({"key": term.removeprefix("!").strip(), "operator": operator})
    return {"matchLabels": labels, "matchExpressions": expressions}
