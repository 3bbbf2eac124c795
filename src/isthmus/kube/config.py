"""Where the API server is, how to trust it and who we are: from kubeconfig files, or from the pod we run in.

Kubeconfig files merge as kubectl merges them: the first file that names a cluster, user, context or current context
wins, and relative paths start at the file that holds them.
"""

import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import msgspec
import yaml

from isthmus.errors import Terminal
from isthmus.kube.auth import Certificate, Credentials, Exec, Fixed, TokenFile

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_BYTES = 4 << 20
_MAX_DEPTH = 50
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Config(msgspec.Struct, frozen=True):
    """Everything a client needs to know. `ca` is PEM text; without it the machine's own authorities count."""

    server: str
    credentials: Credentials
    namespace: str = "default"
    ca: str | None = None
    insecure: bool = False
    tls_server_name: str | None = None
    proxy: str | None = None


def load(
    path: Path | None = None, *, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> Config:
    """Find the settings where a user expects them.

    In this order: the given file, `KUBECONFIG`, the service account of the pod we run in, `~/.kube/config`.
    """
    if path is not None:
        return from_files([path], context=context)
    if listed := environ.get("KUBECONFIG"):
        return from_files([Path(part) for part in listed.split(os.pathsep) if part], context=context)
    if environ.get("KUBERNETES_SERVICE_HOST") and context is None:
        return in_cluster(environ=environ)
    return from_files([Path(environ.get("HOME", "/"), ".kube", "config")], context=context)


def in_cluster(*, environ: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> Config:
    """Use the service account of the pod that we run in."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise Terminal("this is not a pod: KUBERNETES_SERVICE_HOST is not set", remedy="set KUBECONFIG")
    namespace = directory / "namespace"
    return Config(
        server=_server(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", "the pod"),
        credentials=TokenFile(directory / "token"),
        namespace=_read(namespace).decode().strip() if namespace.exists() else "default",
        ca=_read(directory / "ca.crt").decode("ascii", "replace"),
    )


def from_files(paths: Iterable[Path], *, context: str | None = None) -> Config:
    """Merge kubeconfig files and choose a context: the given one, or the current one."""
    merged = _Merged()
    tried = list(paths)
    for path in tried:
        if path.exists():
            merged.add(_parse(path), path.parent)
    if not merged.found:
        raise Terminal(
            f"there is no kubeconfig at {' or '.join(map(str, tried)) or 'all'}",
            remedy="set KUBECONFIG to the kubeconfig of your cluster",
        )
    return merged.choose(context)


class _Kebab(msgspec.Struct, frozen=True, rename="kebab"):
    pass


class _Cluster(_Kebab, frozen=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _EnvVar(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, frozen=True, rename="camel"):
    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: tuple[str, ...] | None = None
    env: tuple[_EnvVar, ...] | None = None
    install_hint: str | None = None
    interactive_mode: str = "Never"
    provide_cluster_info: bool = False


class _User(_Kebab, frozen=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: _Exec | None = None
    auth_provider: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return "_User(…)"


class _Context(_Kebab, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context


class _File(_Kebab, frozen=True):
    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None
    current_context: str | None = None


class _Merged:
    """Several files as one. Clusters and users keep the directory that their relative paths start at."""

    def __init__(self) -> None:
        self.found = False
        self._clusters: dict[str, tuple[_Cluster, Path]] = {}
        self._users: dict[str, tuple[_User, Path]] = {}
        self._contexts: dict[str, _Context] = {}
        self._current = ""

    def add(self, file: _File, directory: Path) -> None:
        self.found = True
        for cluster in file.clusters or ():
            self._clusters.setdefault(cluster.name, (cluster.cluster, directory))
        for user in file.users or ():
            self._users.setdefault(user.name, (user.user or _User(), directory))
        for context in file.contexts or ():
            self._contexts.setdefault(context.name, context.context)
        self._current = self._current or file.current_context or ""

    def choose(self, name: str | None) -> Config:
        name = name or self._current
        if not name:
            raise Terminal("the kubeconfig has no current context", remedy="kubectl config use-context NAME")
        context = _lookup(self._contexts, name, "context")
        cluster, directory = _lookup(self._clusters, context.cluster, "cluster")
        server = _server(cluster.server, f"cluster {context.cluster!r}")
        user, user_directory = _lookup(self._users, context.user, "user") if context.user else (_User(), directory)
        ca = _pem(cluster.certificate_authority_data, cluster.certificate_authority, directory)
        return Config(
            server=server,
            credentials=_credentials(user, user_directory, cluster=cluster, ca=ca),
            namespace=context.namespace or "default",
            ca=ca.decode("ascii", "replace") if ca else None,
            insecure=cluster.insecure_skip_tls_verify,
            tls_server_name=cluster.tls_server_name,
            proxy=_proxy(cluster.proxy_url, server),
        )


def _lookup(found: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise Terminal(f"the kubeconfig has no {what} {name!r}", remedy=f"known: {known}")
    return found[name]


def _credentials(user: _User, directory: Path, *, cluster: _Cluster, ca: bytes | None) -> Credentials:
    chain = _pem(user.client_certificate_data, user.client_certificate, directory)
    key = _pem(user.client_key_data, user.client_key, directory)
    certificate = None
    if chain and key:
        certificate = Certificate(
            chain,
            key,
            chain_path=None if user.client_certificate_data else directory / user.client_certificate,
            key_path=None if user.client_key_data else directory / user.client_key,
        )
    elif chain or key:
        raise Terminal("the kubeconfig has a client certificate without its key, or a key without its certificate")
    if user.exec:
        return _exec(user.exec, directory, cluster=cluster, ca=ca)
    if user.token_file:
        return TokenFile(directory / user.token_file, certificate=certificate)
    if user.token:
        return Fixed.token(user.token, certificate=certificate)
    if user.username:
        return Fixed.password(user.username, user.password, certificate=certificate)
    if user.auth_provider is not None and certificate is None:
        raise Terminal(
            "the kubeconfig uses an auth-provider, which Kubernetes removed in 1.26",
            remedy="replace it by an exec plugin (client.authentication.k8s.io)",
        )
    return Fixed(certificate=certificate)


def _exec(plugin: _Exec, directory: Path, *, cluster: _Cluster, ca: bytes | None) -> Exec:
    info: dict[str, object] | None = None
    if plugin.provide_cluster_info:
        info = {"server": cluster.server, "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify}
        if ca:
            info["certificate-authority-data"] = b64encode(ca).decode()
        if cluster.tls_server_name:
            info["tls-server-name"] = cluster.tls_server_name
        if cluster.proxy_url:
            info["proxy-url"] = cluster.proxy_url
    # A bare name is looked up in PATH; anything with a slash is a file, relative to the kubeconfig.
    command = str(directory / plugin.command) if "/" in plugin.command else plugin.command
    return Exec(
        command,
        plugin.args or (),
        environment={variable.name: variable.value for variable in plugin.env or ()},
        api_version=plugin.api_version,
        cluster=info,
        install_hint=plugin.install_hint or "",
        interactive=plugin.interactive_mode == "Always",
    )


def _parse(path: Path) -> _File:
    text = _read(path)
    if len(text) > _MAX_BYTES:
        raise Terminal(f"{path} is too large for a kubeconfig ({len(text)} bytes)")
    try:
        if _depth(text) > _MAX_DEPTH:
            raise Terminal(f"{path} is nested too deeply for a kubeconfig")
        content = yaml.load(text, Loader=_LOADER)  # noqa: S506 - it is a safe one
        return msgspec.convert(content if content is not None else {}, _File)
    except msgspec.ValidationError as error:
        raise Terminal(f"{path} is not a kubeconfig: {error}") from error
    except yaml.MarkedYAMLError as error:
        # Only the place: the line itself may hold a secret.
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise Terminal(f"{path} is not YAML{where}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, UnicodeDecodeError) as error:
        raise Terminal(f"{path} is not YAML ({type(error).__name__})") from None


def _depth(text: bytes) -> int:
    """Measure how deep YAML is nested: the fast loader crashes the process on what is nested without end."""
    depth = deepest = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            deepest = max(deepest, depth)
            if deepest > _MAX_DEPTH:
                break
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return deepest


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise Terminal(f"{path} cannot be read: {error}") from error


def _pem(data: str, file: str, directory: Path) -> bytes | None:
    if data:
        try:
            return b64decode(data, validate=True)
        except ValueError:
            raise Terminal("certificate data in the kubeconfig is not base64") from None
    return _read(directory / file) if file else None


def _server(server: str, where: str) -> str:
    try:
        parts = urlsplit(server)
        usable = parts.scheme in {"http", "https"} and parts.hostname and not parts.query and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.username:
        raise Terminal(f"the server of {where} is not a valid URL: {server!r}", remedy="write https://HOST:PORT")
    return server.rstrip("/")


def _proxy(configured: str | None, server: str) -> str | None:
    """Choose the proxy: the kubeconfig's, else the environment's, unless that excepts the server."""
    parts = urlsplit(server)
    proxy = configured
    if not proxy and not proxy_bypass(parts.netloc):
        proxy = getproxies_environment().get(parts.scheme)
    if proxy and urlsplit(proxy).scheme not in {"http", "https"}:
        raise Terminal(
            f"proxies of the scheme {urlsplit(proxy).scheme}:// are not supported",
            remedy="use an http(s) proxy",
        )
    return proxy or None
