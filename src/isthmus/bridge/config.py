"""The settings of the bridge: a file, the environment and flags, each of which overrides the one before.

The file's keys are those of slurm-bridge and a few of our own. Nothing is guessed: a key that is not known is an
error that names the nearest one, and every value is checked here, where file and key can still be told.
"""

import difflib
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import msgspec
import yaml

from isthmus import names
from isthmus.bridge import values
from isthmus.domain.bridge.tenancy import Tenancy
from isthmus.errors import Terminal
from isthmus.model.base import EMPTY
from isthmus.slurm.auth import EnvironmentToken, FileToken, TokenSource

PATH: Final = Path("/etc/slurm-bridge/config.yaml")
TOKEN_FILE: Final = Path("/var/run/secrets/slurm/auth-token")

_MAX_BYTES: Final = 1 << 20


class Features(msgspec.Struct, frozen=True, rename="camel"):
    enable_leader_election: values.Switch = True
    enable_http2: values.Switch = msgspec.field(default=False, name="enableHTTP2")
    """Accepted for files of slurm-bridge: our servers speak HTTP/1.1 only."""
    secure_metrics: values.Switch = False


class Config(msgspec.Struct, frozen=True, rename="camel"):
    """The settings of the bridge. It holds no secret: `tokens` reads those.

    Fields are the keys of the file in camel case, and their types say what is accepted.
    """

    scheduler_name: values.SchedulerName = names.SCHEDULER_NAME
    slurm_rest_api: values.Endpoints = ()
    """One slurmrestd, or several that stand in for each other."""
    slurm_completer: values.Endpoints = ()
    """Where `isthmus-complete` is, which starts jobs and tells their nodes, and ends them as COMPLETED or FAILED;
    without it, a call more tells their nodes, and they are cancelled."""
    slurm_jwt_file: values.AbsolutePath = TOKEN_FILE
    slurm_tls_directory: values.AbsolutePath | None = None
    """Holds `ca.crt`, which verifies slurmrestd, and optionally `tls.crt` and `tls.key`, our own certificate."""
    managed_namespaces: values.Namespaces = ()
    managed_namespace_selector: values.Selector = None
    enforce: values.Switch = False
    """Whether pods and DaemonSets that bypass Slurm are refused in managed namespaces."""
    mcs_label: values.McsLabel = ""
    partition: values.Partitions = ""
    """For jobs that name none; empty for Slurm's own default. Of several, Slurm takes the first that is free."""
    placeholder: values.Placeholder = "auto"
    exclusive: values.Switch = True
    """Whether pods without an annotation get whole nodes."""
    tenancy: values.Tenancy = "auto"
    """What pods may ask for in namespaces without a BridgePolicy."""
    nice_from_priority_class: values.Switch = False
    """Whether the priority of a pod's PriorityClass counts in Slurm."""
    taint: values.Effect = None
    """The effect of the taint that keeps other pods away from nodes of Slurm; None for no taint."""
    gres: values.Gres = EMPTY
    """GRES by extended resource; an empty GRES if Slurm does not count it."""
    device_profiles: values.DeviceProfiles = ()
    """Devices of drivers (DRA) that are a GRES of their own; all others are `gpu:DRIVER`."""
    feature_labels: values.LabelKeys = ()
    """Labels of Kubernetes nodes whose values are features of their external nodes in Slurm."""
    nodes_on_demand: values.Switch = False
    """Whether pods that wait because Slurm has too few nodes are Unschedulable, for autoscalers of machines."""
    features: Features = Features()

    @property
    def without_policy(self) -> Tenancy:
        return Tenancy(self.tenancy, self.partition)


_SETTINGS: Final = {
    **{it.encode_name: it for it in msgspec.structs.fields(Config) if it.name != "features"},
    **{f"features.{it.encode_name}": it for it in msgspec.structs.fields(Features)},
}
_SPELLINGS: Final[Mapping[str, Callable[[object], object]]] = {
    "slurmRestApi": values.endpoints,
    "slurmCompleter": values.endpoints,
    "managedNamespaces": values.unique,
    "managedNamespaceSelector": values.selector,
    "partition": values.partitions,
    "taint": values.effect,
    "gres": values.gres,
    "featureLabels": values.unique,
}
"""How settings with several ways to write them become the one that msgspec reads."""
_WORDS: Final = {
    "Expected": "expected",
    "Invalid enum value": "invalid value",
    "Object contains unknown field": "unknown field",
    "Object missing required field": "missing field",
    "`array`": "a list",
    "`object | null`": "a mapping",
    "`object`": "a mapping",
    "`str`": "a string",
    "`int`": "a number (quote it)",
    "`float`": "a number (quote it)",
    "`bool`": "true or false",
    "`null`": "nothing",
}
"""The words of msgspec, and those for users who write YAML."""
_PLACE: Final = re.compile(r"`\$(?P<steps>[^`]*)`")
_INDEX: Final = re.compile(r"\[\d+\]")
_VARIABLES: Final = {
    "slurmRestApi": "SLURM_REST_API",
    "slurmJwtFile": "SLURM_JWT_FILE",
    "managedNamespaceSelector": "NAMESPACE_SELECTOR",
}


def load(
    path: Path | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    overrides: Mapping[str, object] = EMPTY,
) -> Config:
    """Read the settings; `overrides` has keys of the file, and `features.secureMetrics` for those within.

    A file that is named must be there; the one at the usual place need not. None and "" stand for flags that were
    not given.
    """
    file = _file(path or PATH) if path or PATH.exists() else None
    given = {key: _Given(key, value) for key, value in overrides.items() if value not in {None, ""}}
    flags = _Layer("the command line", given)
    settings: dict[str, Any] = {}
    for layer in filter(None, (file, _environment(environ), flags)):
        settings |= layer.checked()
    features = {_SETTINGS[key].name: settings.pop(key) for key in tuple(settings) if key.startswith("features.")}
    return Config(**{_SETTINGS[key].name: value for key, value in settings.items()}, features=Features(**features))


def tokens(config: Config, environ: Mapping[str, str] = os.environ) -> TokenSource:
    """Where tokens for Slurm come from: SLURM_JWT if it is set, else the file, which may appear later."""
    return EnvironmentToken(environ) if environ.get("SLURM_JWT") else FileToken(config.slurm_jwt_file)


def tls(config: Config) -> ssl.SSLContext | None:
    """Whom to trust as slurmrestd over https, and who we are to it; None for the authorities of the system."""
    directory = config.slurm_tls_directory
    if directory is None:
        return None
    try:
        context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
        if (directory / "tls.crt").exists():
            context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    except (OSError, ssl.SSLError) as error:
        raise Terminal(
            f"the certificates in {directory} cannot be used: {error}",
            remedy="put ca.crt there and, if slurmrestd requires a client certificate, tls.crt and tls.key",
        ) from error
    return context


class _Given(NamedTuple):
    """A value, and the key or variable that set it."""

    where: str
    value: object


class _Layer(NamedTuple):
    source: str
    given: Mapping[str, _Given]

    def checked(self) -> dict[str, object]:
        """Return values by key, or raise everything that is wrong at once."""
        found: dict[str, object] = {}
        wrong: list[str] = []
        for key, (where, value) in self.given.items():
            if key not in _SETTINGS:
                wrong.append(f"{where}: unknown setting{_nearest(key)}")
                continue
            try:
                found[key] = _read(key, value)
            except ValueError as error:  # of ours, or of msgspec
                within, what = _explain(str(error), value)
                wrong.append(f"{where}{within}: {what}; write {_hint(_SETTINGS[key].type)}")
        if wrong:
            raise Terminal("\n  ".join((f"{self.source} is not valid:", *wrong)))
        return found


def _read(key: str, value: object) -> object:
    default = _SETTINGS[key].default
    if value is None and default in ("", (), EMPTY, None):  # a key with nothing behind it
        return default
    spelled = _SPELLINGS[key](value) if key in _SPELLINGS else value
    return msgspec.convert(spelled, _SETTINGS[key].type, dec_hook=values.custom)


def _explain(error: str, value: object) -> tuple[str, str]:
    """Return the way from the setting to the part that is wrong, and what is wrong with it."""
    what, _, place = error.partition(" - at ")
    steps = _PLACE.search(place)
    within = steps["steps"].replace("[...]", "") if steps else ""
    if "matching regex" in what:
        item = value[int(within[1:-1])] if isinstance(value, list) and _INDEX.fullmatch(within) else value
        what = f"{item!r} is not valid"
    for theirs, ours in _WORDS.items():
        what = what.replace(theirs, ours)
    return within, what


def _hint(kind: Any) -> str:
    """Return the expected format from a type's description."""
    metas = (it for part in (kind, *get_args(kind)) for it in getattr(part, "__metadata__", ()))
    return next(str(it.description) for it in metas if it.description)


def _file(path: Path) -> _Layer:
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise Terminal(f"{path} cannot be read: {error.strerror}", remedy="give its path with --config") from error
    if len(text) > _MAX_BYTES:
        raise Terminal(f"{path} is too large for a configuration file")
    try:
        content = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a safe one, and strict
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise Terminal(f"{path}{where}: {error.problem}", remedy="write it as YAML") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise Terminal(f"{path} is not YAML ({type(error).__name__})") from None
    if not isinstance(content, dict | None):
        raise Terminal(f"{path} contains no settings", remedy="write lines such as schedulerName: NAME")
    return _Layer(str(path), {key: _Given(key, value) for key, value in _flat(content or {})})


def _flat(content: Mapping[object, object]) -> Iterator[tuple[str, object]]:
    for key, value in content.items():
        if key != "features":
            yield str(key), value
        elif isinstance(value, dict):
            yield from ((f"features.{inner}", item) for inner, item in value.items())
        elif value is not None:
            yield "features", value


def _environment(environ: Mapping[str, str]) -> _Layer:
    given = {key: _Given(name, environ[name]) for key, name in _VARIABLES.items() if environ.get(name)}
    return _Layer("the environment", given)


def _nearest(key: str) -> str:
    # Compared by the last part, so that secureMetrics alone finds features.secureMetrics.
    by_last = {known.rpartition(".")[2].lower(): known for known in _SETTINGS}
    close = difflib.get_close_matches(key.rpartition(".")[2].lower(), by_last, n=1)
    return f"; did you mean {by_last[close[0]]}?" if close else f"; there are {', '.join(_SETTINGS)}"


class _StrictLoader(yaml.SafeLoader):
    """YAML without duplicate keys: of two, one would be dropped in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - as PyYAML calls it
        """Refuse a second value for a key."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value} is set twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)
