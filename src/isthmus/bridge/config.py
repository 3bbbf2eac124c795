"""The settings of the bridge: a file, the environment and flags, each of which overrides the one before.

The file's keys are those of slurm-bridge and a few of our own. Nothing is guessed: a key that is not known is an
error that names the nearest one, and every value is checked here, where file and key can still be told.
"""

import difflib
import os
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import yaml

from isthmus import names
from isthmus.bridge import values
from isthmus.domain.bridge.tenancy import Mode, Tenancy
from isthmus.errors import Terminal
from isthmus.model.base import EMPTY
from isthmus.model.pod import LabelSelector
from isthmus.slurm.auth import EnvironmentToken, FileToken, TokenSource

PATH: Final = Path("/etc/slurm-bridge/config.yaml")
TOKEN_FILE: Final = Path("/var/run/secrets/slurm/auth-token")

Placeholder = Literal["auto", "external", "batch"]
Effect = Literal["NoExecute", "NoSchedule", "PreferNoSchedule"]

_MAX_BYTES: Final = 1 << 20


class Features(msgspec.Struct, frozen=True):
    enable_leader_election: bool = True
    enable_http2: bool = False
    """Taken for the sake of files that have it: our servers speak HTTP/1.1 only."""
    secure_metrics: bool = False


class Config(msgspec.Struct, frozen=True):
    """What the bridge is told. No secret is in here: those come from `tokens`."""

    scheduler_name: str = names.SCHEDULER_NAME
    slurm_rest_api: tuple[str, ...] = ()
    """One slurmrestd, or several that stand in for each other."""
    slurm_completer: tuple[str, ...] = ()
    """Where `isthmus-complete` is, which ends jobs as COMPLETED or FAILED; without it, they are cancelled."""
    slurm_jwt_file: Path = TOKEN_FILE
    slurm_tls_directory: Path | None = None
    """Where `ca.crt` is, by which slurmrestd is known, and perhaps `tls.crt` and `tls.key`, by which we are."""
    managed_namespaces: tuple[str, ...] = ()
    managed_namespace_selector: LabelSelector | None = None
    enforce: bool = False
    """Whether pods and DaemonSets are refused that pass Slurm by in managed namespaces."""
    mcs_label: str = ""
    partition: str = ""
    """Where jobs go that ask for none; empty for Slurm's own default."""
    placeholder: Placeholder = "auto"
    exclusive: bool = True
    """Whether pods that do not say have their node for themselves."""
    tenancy: Mode = "auto"
    """What pods may ask for in namespaces of which no BridgePolicy speaks."""
    nice_from_priority_class: bool = False
    """Whether the priority of a pod's PriorityClass counts in Slurm."""
    taint: Effect | None = None
    """The effect of the taint that keeps other pods away from nodes of Slurm; None for no taint."""
    gres: Mapping[str, str] = EMPTY
    """What extended resources are in Slurm: `nvidia.com/gpu` → `gpu`."""
    feature_labels: tuple[str, ...] = ()
    """Labels of Kubernetes nodes whose values are features of their external nodes in Slurm."""
    features: Features = Features()

    @property
    def without_policy(self) -> Tenancy:
        return Tenancy(self.tenancy, self.partition)


_KEYS: Final[Mapping[str, tuple[str, values.Reader]]] = {
    "schedulerName": ("scheduler_name", values.scheduler_name),
    "slurmRestApi": ("slurm_rest_api", values.endpoints),
    "slurmCompleter": ("slurm_completer", values.endpoints),
    "slurmJwtFile": ("slurm_jwt_file", values.path),
    "slurmTlsDirectory": ("slurm_tls_directory", values.path),
    "managedNamespaces": ("managed_namespaces", values.namespaces),
    "managedNamespaceSelector": ("managed_namespace_selector", values.selector),
    "enforce": ("enforce", values.boolean),
    "mcsLabel": ("mcs_label", values.mcs_label),
    "partition": ("partition", values.partitions),
    "placeholder": ("placeholder", values.placeholder),
    "exclusive": ("exclusive", values.boolean),
    "tenancy": ("tenancy", values.tenancy),
    "niceFromPriorityClass": ("nice_from_priority_class", values.boolean),
    "taint": ("taint", values.taint),
    "gres": ("gres", values.gres),
    "featureLabels": ("feature_labels", values.label_keys),
    "features.enableLeaderElection": ("features.enable_leader_election", values.boolean),
    "features.enableHTTP2": ("features.enable_http2", values.boolean),
    "features.secureMetrics": ("features.secure_metrics", values.boolean),
}
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

    A file that is named must be there; the one at the usual place need not.
    """
    file = _file(path or PATH) if path or PATH.exists() else None
    flags = _Layer("the command line", {key: _Given(key, value) for key, value in overrides.items()})
    settings: dict[str, Any] = {}
    for layer in filter(None, (file, _environment(environ), flags)):
        settings |= layer.checked()
    features = {field.partition(".")[2]: settings.pop(field) for field in tuple(settings) if "." in field}
    return Config(**settings, features=Features(**features))


def tokens(config: Config, environ: Mapping[str, str] = os.environ) -> TokenSource:
    """Say where tokens for Slurm come from: SLURM_JWT if it is set, else the file, which may appear later."""
    return EnvironmentToken(environ) if environ.get("SLURM_JWT") else FileToken(config.slurm_jwt_file)


def tls(config: Config) -> ssl.SSLContext | None:
    """Say whom to trust as slurmrestd over https, and who we are to it; None for the authorities of the system."""
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
    """A value, and the key or variable under which people wrote it."""

    where: str
    value: object


class _Layer(NamedTuple):
    source: str
    given: Mapping[str, _Given]

    def checked(self) -> dict[str, object]:
        """Return fields of `Config`, or tell everything that is wrong in one go."""
        found: dict[str, object] = {}
        wrong: list[str] = []
        for key, (where, value) in self.given.items():
            if key not in _KEYS:
                wrong.append(f"{where}: unknown setting{_nearest(key)}")
                continue
            field, read = _KEYS[key]
            try:
                found[field] = read(value)
            except values.UnfitError as error:
                wrong.append(f"{where}{error.within}: {error}")
        if wrong:
            raise Terminal("\n  ".join((f"{self.source} is not valid:", *wrong)))
        return found


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
    # Compared without what is around it: whoever writes secureMetrics alone gets to see where it belongs.
    by_last = {known.rpartition(".")[2].lower(): known for known in _KEYS}
    close = difflib.get_close_matches(key.rpartition(".")[2].lower(), by_last, n=1)
    return f"; did you mean {by_last[close[0]]}?" if close else f"; there are {', '.join(_KEYS)}"


class _StrictLoader(yaml.SafeLoader):
    """YAML in which a key stands once: of two, one would be dropped in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - as PyYAML calls it
        """Refuse a second value for a key."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value} is set twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)
