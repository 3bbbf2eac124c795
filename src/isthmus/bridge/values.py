"""The values of settings, one by one: each reader returns what a setting holds, or raises what is wrong with it."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from isthmus.model.pod import LabelSelector, Requirement

Reader = Callable[[object], object]

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_SUBDOMAIN: Final = re.compile(rf"(?=.{{1,253}}$){_LABEL.pattern}(\.{_LABEL.pattern})*", re.ASCII)
_NAME_PART: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_SLURM_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
_GRES: Final = re.compile(r"([A-Za-z][\w.-]{0,63}(:[A-Za-z][\w.-]{0,63})?)?", re.ASCII)
_SET_TERM: Final = re.compile(r"(?P<key>[^\s!=,()]+)\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)", re.ASCII)
_TERM: Final = re.compile(r"(?:[^,(]|\([^)]*\))+", re.ASCII)
_TAKES_VALUES: Final = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
_EFFECTS: Final = ("NoExecute", "NoSchedule", "PreferNoSchedule")


class UnfitError(Exception):
    """A value that does not fit; `within` leads from the setting to the part that is meant."""

    def __init__(self, what: str, *, within: str = "") -> None:
        super().__init__(what)
        self.within = within


def scheduler_name(value: object) -> str:
    """Read the name that pods have as their `schedulerName`."""
    return _matching(value, _SUBDOMAIN, "the name of a scheduler")


def namespaces(value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_matching(one, _LABEL, "the name of a namespace") for one in _list(value)))


def partitions(value: object) -> str:
    """Read a partition, or several with commas, of which Slurm takes the one that is free first."""
    text = _text(value)
    if not text:
        return ""
    return ",".join(_matching(one.strip(), _SLURM_WORD, "the name of a partition") for one in text.split(","))


def mcs_label(value: object) -> str:
    """Read a label of multi-category security; empty for none."""
    return _matching(value, _SLURM_WORD, "an MCS label") if _text(value) else ""


def boolean(value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise UnfitError(f"{value!r} is neither true nor false")
    return value


def placeholder(value: object) -> str:
    """Read which kind of job holds the place of pods."""
    return _one_of(value, ("auto", "external", "batch"))


def tenancy(value: object) -> str:
    """Read what holds in namespaces of which no BridgePolicy speaks."""
    return _one_of(value, ("auto", "open", "strict"))


def taint(value: object) -> str | None:
    """Read the effect of a taint; nothing for no taint."""
    return _one_of(value, _EFFECTS) if value else None


def path(value: object) -> Path:
    """Read an absolute path."""
    text = _text(value)
    if not text.startswith("/") or "\0" in text:
        raise UnfitError(f"{text!r} is not an absolute path")
    return Path(text)


def endpoints(value: object) -> tuple[str, ...]:
    """Read the URL of a slurmrestd, a list of them, or a text with several between commas."""
    listed = value if isinstance(value, list) else _text(value).split(",")
    return tuple(dict.fromkeys(_endpoint(_text(one).strip()) for one in listed if one))


def gres(value: object) -> dict[str, str]:
    """Read what extended resources are in Slurm; "" for one that Slurm keeps no account of."""
    return {
        _resource(_text(resource)): _matching(name, _GRES, "a GRES, such as gpu or gpu:a100")
        for resource, name in _mapping(value).items()
    }


def label_keys(value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_label_key(_text(one)) for one in _list(value)))


def selector(value: object) -> LabelSelector | None:
    """Read a selector of namespaces: a LabelSelector as in manifests, or a text as kubectl takes it."""
    if isinstance(value, str):
        return _selector_text(value)
    parts = _mapping(value)
    for key in parts:
        if key not in {"matchLabels", "matchExpressions"}:
            raise UnfitError("a selector has matchLabels and matchExpressions only", within=f".{key}")
    labels = {
        _label_key(_text(key)): _label_value(_text(label))
        for key, label in _mapping(parts.get("matchLabels")).items()
    }
    expressions = tuple(_requirement(item) for item in _list(parts.get("matchExpressions")))
    # To Kubernetes an empty selector means everything; nobody who leaves a setting empty means that.
    return LabelSelector(labels, expressions) if labels or expressions else None


def _selector_text(text: str) -> LabelSelector:
    """Read `slurm.managed=true,tier in (batch, hpc),!legacy`."""
    labels: dict[str, str] = {}
    expressions: list[Requirement] = []
    for term in _terms(text):
        if match := _SET_TERM.fullmatch(term):
            values = tuple(_label_value(one.strip()) for one in match["values"].split(","))
            expressions.append(
                Requirement(_label_key(match["key"]), "In" if match["word"] == "in" else "NotIn", values)
            )
        elif "!=" in term:
            key, _, value = term.partition("!=")
            expressions.append(Requirement(_label_key(key.strip()), "NotIn", (_label_value(value.strip()),)))
        elif "=" in term:
            key, _, value = term.partition("=")
            labels[_label_key(key.strip())] = _label_value(value.removeprefix("=").strip())
        else:
            operator = "DoesNotExist" if term.startswith("!") else "Exists"
            expressions.append(Requirement(_label_key(term.removeprefix("!").strip()), operator))
    return LabelSelector(labels, tuple(expressions))


def _terms(text: str) -> Iterator[str]:
    """Split at commas, but not at those within parentheses."""
    if text.count("(") != text.count(")"):
        raise UnfitError(f"{text!r} has unbalanced parentheses")
    return (term.strip() for term in _TERM.findall(text) if term.strip())


def _requirement(value: object) -> Requirement:
    parts = _mapping(value)
    operator = parts.get("operator")
    if operator not in _TAKES_VALUES or set(parts) - {"key", "operator", "values"}:
        raise UnfitError(
            f"{value!r} is not made of key, operator ({', '.join(_TAKES_VALUES)}) and values",
            within=".matchExpressions",
        )
    values = tuple(_label_value(_text(item)) for item in _list(parts.get("values")))
    if bool(values) != _TAKES_VALUES[operator]:
        raise UnfitError(f"{operator} {'with' if values else 'without'} values", within=".matchExpressions")
    return Requirement(_label_key(_text(parts.get("key"))), operator, values)


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        usable = usable or (parts.scheme in {"unix", "http+unix"} and parts.path.startswith("/"))
    except ValueError:
        usable = False
    # A password in a URL would end up in logs, and slurmrestd has no use for one.
    if not usable or parts.username or parts.query or parts.fragment:
        shown = "it" if "@" in text else repr(text)
        raise UnfitError(f"{shown} is not the URL of a slurmrestd, such as http://slurm-restapi.slurm:6820")
    return text.rstrip("/")


def _resource(text: str) -> str:
    if "/" not in text:
        raise UnfitError(f"{text!r} is not an extended resource, such as nvidia.com/gpu")
    return _label_key(text)


def _label_key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if not _NAME_PART.fullmatch(name) or (slash and not _SUBDOMAIN.fullmatch(prefix)):
        raise UnfitError(f"{text!r} is not the key of a label")
    return text


def _label_value(text: str) -> str:
    if text and not _NAME_PART.fullmatch(text):
        raise UnfitError(f"{text!r} is not the value of a label")
    return text


def _matching(value: object, pattern: re.Pattern[str], what: str) -> str:
    text = _text(value)
    if not pattern.fullmatch(text):
        raise UnfitError(f"{text!r} is not {what}")
    return text


def _one_of(value: object, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise UnfitError(f"{value!r} is not one of {', '.join(choices)}")
    return str(value)


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnfitError(
            "this is not a string" if isinstance(value, dict | list) else f"{value!r} is not a string; quote it"
        )
    return value


def _list(value: object) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise UnfitError(f"{value!r} is not a list; write one item per line, each starting with a dash")
    return value


def _mapping(value: object) -> dict[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnfitError(f"{value!r} has no keys with values")
    return value
