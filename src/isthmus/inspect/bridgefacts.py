"""Gathers what the doctor knows of the bridge: its pods, webhooks, certificate and token, and whom it serves."""

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

import jwt
import yaml

from isthmus import names
from isthmus.bridge.cache.world import NAMESPACES
from isthmus.domain.diagnosis.facts import BridgeFacts, SecretFact, WebhookFact
from isthmus.errors import IsthmusError
from isthmus.inspect.clusterfacts import ClusterReader, pod_fact
from isthmus.inspect.seen import PODS
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.model.base import Data, Kind
from isthmus.model.meta import Key, Object, condition
from isthmus.model.node import Node
from isthmus.model.objects import CONFIGMAPS, SECRETS, Secret
from isthmus.model.policy import POLICIES, BridgePolicy
from isthmus.runtime.certs import expiry
from isthmus.runtime.trust import MUTATING, VALIDATING, WebhookConfiguration

T = TypeVar("T")

_MINE: Final = f"app.kubernetes.io/part-of=isthmus,{names.COMPONENT_LABEL} in (scheduler,controllers,admission,all)"
_PATH: Final = "auth-token"
"""Of the token, in the volume that has it."""

_HOOKS: Final = (MUTATING, VALIDATING)


class _Item(Data, frozen=True):
    key: str = ""
    path: str = ""


class _SecretSource(Data, frozen=True):
    secret_name: str = ""
    items: tuple[_Item, ...] = ()


class _Volume(Data, frozen=True):
    secret: _SecretSource | None = None


class _PodSpec(Data, frozen=True):
    volumes: tuple[_Volume, ...] = ()


class _Template(Data, frozen=True):
    spec: _PodSpec = _PodSpec()


class _Spec(Data, frozen=True):
    template: _Template = _Template()


class _Deployment(Object, frozen=True):
    spec: _Spec = _Spec()


_DEPLOYMENTS: Final = Kind(_Deployment, "apps/v1", "deployments", "Deployment")


class Surroundings(NamedTuple):
    """What all installations of the bridge have in common."""

    external: tuple[str, ...] = ()
    miscounted: Mapping[str, str] = {}
    unserved: tuple[str, ...] = ()
    bridge_policies: tuple[BridgePolicy, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}


NOTHING: Final = Surroundings()


async def bridges(reader: ClusterReader, *, now: float) -> tuple[BridgeFacts, ...] | None:
    """All installations; None if that could not be found out."""
    try:
        listing = await reader.attempt("Deployments", reader.client.list(_DEPLOYMENTS, labels=_MINE))
    except NotFound:
        return ()
    if listing is None:
        return None
    mine: dict[Key, list[_Deployment]] = {}
    for it in listing.items:
        key = Key(it.metadata.namespace, it.metadata.labels.get(names.NAME_LABEL, ""))
        mine.setdefault(key, []).append(it)
    async with asyncio.TaskGroup() as tasks:
        looking = [tasks.create_task(_look_at(reader, key, parts, now)) for key, parts in sorted(mine.items())]
    return tuple(it.result() for it in looking)


async def surroundings(reader: ClusterReader, nodes: tuple[Node, ...], *, installed: bool) -> Surroundings:
    """Whom a bridge serves; without one, which pods wait for it."""
    waiting = f"spec.schedulerName={names.SCHEDULER_NAME},spec.nodeName=,status.phase=Pending"
    unserved = () if installed else await reader.list(PODS, "pods", fields=waiting)
    policies = await reader.list(POLICIES, "BridgePolicies")
    namespaces = await reader.list(NAMESPACES, "namespaces") if policies else ()
    external = (it.metadata for it in nodes if names.EXTERNAL_NODE_LABEL in it.metadata.labels)
    return Surroundings(
        external=tuple(it.labels.get(names.NODE_NAME_LABEL) or it.name for it in external),
        miscounted={
            it.metadata.name: told.message
            for it in nodes
            if (told := condition(it.status.conditions, names.NODE_GRES_CONDITION)) and told.status == "False"
        },
        unserved=tuple(str(it.metadata.key) for it in unserved),
        bridge_policies=policies,
        namespaces={it.metadata.name: it.metadata.labels for it in namespaces},
    )


async def _look_at(reader: ClusterReader, key: Key, parts: list[_Deployment], now: float) -> BridgeFacts:
    client = reader.client
    certificates = Key(key.namespace, f"{key.name}-admission-tls")
    async with asyncio.TaskGroup() as tasks:
        pods = tasks.create_task(
            reader.list(PODS, "pods of the bridge", labels=f"{_MINE},{names.NAME_LABEL}={key.name}")
        )
        config = tasks.create_task(_one(client, CONFIGMAPS, Key(key.namespace, f"{key.name}-config")))
        shown = tasks.create_task(_secret(client, certificates))
        token = tasks.create_task(_token(client, parts, now))
        hooks = [tasks.create_task(_one(client, kind, Key("", f"{key.name}-admission"))) for kind in _HOOKS]
    secret, trouble = shown.result()
    found = [
        _webhook(kind.name, it, secret) for kind, task in zip(_HOOKS, hooks, strict=True) for it in task.result()
    ]
    return BridgeFacts(
        key=key,
        pods=tuple(pod_fact(it, (), now) for it in pods.result() if it.metadata.namespace == key.namespace),
        webhooks=tuple(found),
        certificate=_certificate(certificates, secret, trouble, now) if found else None,
        token=token.result(),
        slurm=next((_slurm(it.data.get("config.yaml", "")) for it in config.result()), ""),
    )


async def _one(client: Client, kind: Kind[T], key: Key) -> tuple[T, ...]:
    """What may not be there, or not be read by who asks."""
    try:
        return (await client.get(kind, key),)
    except IsthmusError:
        return ()


async def _secret(client: Client, key: Key) -> tuple[Secret | None, str]:
    """A Secret, or why there is none; neither for those who may not read it."""
    try:
        return await client.get(SECRETS, key), ""
    except NotFound:
        return None, "is missing"
    except IsthmusError:
        return None, ""


def _webhook(kind: str, found: WebhookConfiguration, secret: Secret | None) -> WebhookFact:
    bundle = b64encode(secret.data.get("ca.crt", b"")).decode() if secret else None
    return WebhookFact(
        kind=kind,
        name=found.metadata.name,
        trusts=bundle is None or all(it.client_config.ca_bundle == bundle for it in found.webhooks),
    )


def _certificate(key: Key, secret: Secret | None, trouble: str, now: float) -> SecretFact | None:
    if secret is None:
        return SecretFact(key=key, trouble=trouble) if trouble else None
    try:
        return SecretFact(key=key, left=expiry(secret.data["tls.crt"]).timestamp() - now)
    except (KeyError, ValueError):
        return SecretFact(key=key, trouble="cannot be read")


async def _token(client: Client, parts: list[_Deployment], now: float) -> SecretFact | None:
    """The token with which the bridge asks Slurm."""
    for volume in (volume for part in parts for volume in part.spec.template.spec.volumes):
        item = next((it for it in volume.secret.items if it.path == _PATH), None) if volume.secret else None
        if volume.secret is None or item is None:
            continue
        key = Key(parts[0].metadata.namespace, volume.secret.secret_name)
        secret, trouble = await _secret(client, key)
        if secret is None:
            return SecretFact(key=key, trouble=trouble) if trouble else None
        if item.key not in secret.data:
            return SecretFact(key=key, trouble=f"is missing: the Secret has no key {item.key}")
        return SecretFact(key=key, left=token_left(secret.data[item.key].decode(errors="replace"), now=now))
    return None


def token_left(token: str, *, now: float) -> float | None:
    """For how many seconds a token is good; None if it does not say."""
    try:
        claims = jwt.decode(token.strip(), options={"verify_signature": False})
        return float(claims["exp"]) - now
    except (jwt.InvalidTokenError, KeyError, TypeError, ValueError):
        return None


def _slurm(text: str) -> str:
    """The first slurmrestd that a configuration names."""
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError:
        return ""
    given = said.get("slurmRestApi", "") if isinstance(said, dict) else ""
    first = given[0] if isinstance(given, list) and given else given
    return first.partition(",")[0] if isinstance(first, str) else ""
