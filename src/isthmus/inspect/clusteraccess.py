"""Access to a Slurm cluster: the user's key, the address of a login node, and its host key."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from isthmus import names
from isthmus.domain.operator import partnames, sshdconfig
from isthmus.errors import IsthmusError, Terminal
from isthmus.kube.client import Client
from isthmus.model.base import Data, Kind
from isthmus.model.meta import Key, Object
from isthmus.model.node import NODES
from isthmus.model.objects import SECRETS
from isthmus.model.soperator import SlurmCluster

_USUAL_KEYS: Final = ("id_ed25519", "id_ecdsa", "id_rsa")
USUAL_PORT: Final = 30022
"""The port of every node under which the documents look for a login node."""


class _Ingress(Data, frozen=True):
    ip: str = ""
    hostname: str = ""


class _Balancer(Data, frozen=True):
    ingress: tuple[_Ingress, ...] = ()


class _ServiceStatus(Data, frozen=True):
    load_balancer: _Balancer = _Balancer()


class _Port(Data, frozen=True):
    name: str = ""
    port: int = 0
    node_port: int = 0


class _ServiceSpec(Data, frozen=True):
    type: str = "ClusterIP"
    ports: tuple[_Port, ...] = ()


class _Service(Object, frozen=True):
    spec: _ServiceSpec = _ServiceSpec()
    status: _ServiceStatus = _ServiceStatus()


_SERVICES: Final = Kind(_Service, "v1", "services", "Service")


class Address(NamedTuple):
    """Where sshd answers."""

    host: str
    port: int


class Entrance(msgspec.Struct, frozen=True):
    """All that ssh needs: where, and by which keys the node is known (empty: by none that we could read)."""

    address: Address
    host_keys: tuple[str, ...] = ()


async def entrance(client: Client, cluster: SlurmCluster, *, published: Mapping[int, int]) -> Entrance:
    """Find a cluster's login nodes; `published` are ports of localhost by the node ports that they lead to."""
    namespace = cluster.metadata.namespace
    login = f"{cluster.status.name_prefix or ''}login"
    service = await client.get(_SERVICES, Key(namespace, login))
    return Entrance(
        await _address(client, service, published, cluster), await _host_keys(client, Key(namespace, login))
    )


async def _address(
    client: Client, service: _Service, published: Mapping[int, int], cluster: SlurmCluster
) -> Address:
    port = next((it for it in service.spec.ports if it.name == "login"), _Port(port=22))
    if port.node_port in published:
        return Address("localhost", published[port.node_port])
    for ingress in service.status.load_balancer.ingress:
        return Address(ingress.ip or ingress.hostname, port.port)
    if service.spec.type == "NodePort" and port.node_port:
        for node in (await client.list(NODES)).items:
            for wanted in ("ExternalIP", "InternalIP"):
                for address in node.status.addresses:
                    if address.type == wanted:
                        return Address(address.address, port.node_port)
    name = cluster.metadata.name
    waits = service.spec.type == "LoadBalancer"
    raise Terminal(
        "the load balancer of the login nodes has no address yet"
        if waits
        else f"the login nodes of {name} are not reachable from outside ({service.spec.type})",
        remedy=f"isthmus cluster exec {name} -- bash; or set slurmNodes.login.sshdServiceType to NodePort",
    )


async def _host_keys(client: Client, login: Key) -> tuple[str, ...]:
    """Read the public keys of the login nodes, so that no other host can pass for one."""
    try:
        secret = await client.get(SECRETS, Key(login.namespace, partnames.ssh_host_keys(login.name)))
    except IsthmusError:
        return ()  # not everybody may read it
    public = (secret.data.get(f"{name}.pub", b"").decode(errors="replace") for name in sshdconfig.KEY_NAMES)
    return tuple(" ".join(key.split()[:2]) for key in public if key.strip())


async def free_port(client: Client) -> int:
    """Take the usual node port if it is free; otherwise 0, for any."""
    try:
        services = (await client.list(_SERVICES)).items
    except IsthmusError:
        return USUAL_PORT
    taken = {port.node_port for service in services for port in service.spec.ports}
    return 0 if USUAL_PORT in taken else USUAL_PORT


def directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where we keep what belongs to the user."""
    home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "/")) / ".config")
    return Path(home) / "isthmus"


def public_key(given: Path | None, environ: Mapping[str, str] = os.environ) -> str:
    """Find the user's public key, or make a pair for those who have none."""
    if given is not None:
        path = given if given.suffix == ".pub" else given.with_name(f"{given.name}.pub")
        if not path.exists():
            raise Terminal(f"the public key {path} does not exist", remedy=f"make one: ssh-keygen -f {given}")
        return path.read_text().strip()
    private = private_key(environ)
    if private is None:
        private = _make_pair(directory(environ))
    return private.with_name(f"{private.name}.pub").read_text().strip()


def private_key(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Find the key that `public_key` gave: the user's own, or the one that we made."""
    usual = Path(environ.get("HOME", "/")) / ".ssh"
    for path in (*(usual / name for name in _USUAL_KEYS), directory(environ) / "id_ed25519"):
        if path.exists() and path.with_name(f"{path.name}.pub").exists():
            return path
    return None


def _make_pair(place: Path) -> Path:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - slow to import
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - likewise
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    private = place / "id_ed25519"
    descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    private.with_name("id_ed25519.pub").write_text(f"{public} isthmus\n")
    return private


def ssh_words(
    entrance: Entrance, cluster: Key, *, user: str, key: Path | None, command: tuple[str, ...], place: Path
) -> list[str]:
    """Make the words of ssh. The node is known by the keys that Kubernetes holds, whatever its address."""
    alias = f"{cluster.name}.{cluster.namespace}"
    words = ["ssh", "-p", str(entrance.address.port), "-o", f"HostKeyAlias={alias}", "-o", "LogLevel=ERROR"]
    if entrance.host_keys:
        known = place / "known_hosts" / alias
        known.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        known.write_text("".join(f"{alias} {line}\n" for line in entrance.host_keys))
        words += ["-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes"]
    if key is not None:
        words += ["-i", str(key)]
    # A user of the cluster has a name of plain letters; nothing else reaches the command line.
    return [*words, f"{user}@{entrance.address.host}", *(["--", *command] if command else [])]


def claims_selector(cluster: SlurmCluster) -> str:
    """Select the claims of a cluster, which outlive it."""
    name = cluster.metadata.name
    prefix = cluster.status.name_prefix or ""
    return f"{names.INSTANCE_LABEL} in ({name},{prefix}worker,{prefix}login)"
