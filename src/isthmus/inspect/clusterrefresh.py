"""Brings the shared root of a running cluster up to another image: what would change is shown first.

Both the plan and the refresh are Jobs, which run without us; users stay logged in, and jobs keep running.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from isthmus import names
from isthmus.domain.kube.podtrouble import PATIENCE, of_pods
from isthmus.domain.operator import clusterparts
from isthmus.domain.operator.manifests import populate
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.manifests.populate import Filling
from isthmus.errors import IsthmusError, Terminal
from isthmus.inspect.seen import PODS as SEEN_PODS
from isthmus.kube import stream
from isthmus.kube.client import Client
from isthmus.kube.errors import AlreadyExists, NotFound
from isthmus.model.meta import Key
from isthmus.model.pod import PODS, Pod
from isthmus.model.soperator import SLURM_CLUSTERS, SlurmCluster
from isthmus.model.workload import OWN_JOBS, OwnJob
from isthmus.operator.applier import owner_reference

_PAUSE: Final = 0.3


class Refresh(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done: the cluster, and what its root is to be of."""

    cluster: SlurmCluster
    filling: Filling
    settings: Settings

    @property
    def namespace(self) -> str:
        return self.cluster.metadata.namespace

    def manifest(self, action: Literal["plan", "refresh"]) -> dict[str, Any]:
        """Create one of the Jobs; it is deleted with the cluster."""
        made = populate.job(self.filling, action, settings=self.settings)
        made["metadata"]["ownerReferences"] = [owner_reference(SLURM_CLUSTERS, self.cluster, controller=False)]
        return made


async def prepare(client: Client, cluster: SlurmCluster, *, image: str) -> Refresh:
    """Find out what a refresh would be from, and by which image of ours; nothing is changed."""
    name, namespace = cluster.metadata.name, cluster.metadata.namespace
    settings = await _settings(client, cluster)
    filling = clusterparts.parts_of(cluster, prefix=cluster.status.name_prefix or "", settings=settings).filling
    if filling is None:
        raise Terminal(
            f"the cluster {name} has no shared root: its nodes share only /home",
            remedy=f"set spec.populateJail to {{}}: kubectl edit -n {namespace} slurmcluster {name}",
        )
    if not cluster.status.jail_image:
        raise Terminal(
            f"the shared root of {name} is not filled yet",
            remedy=f"kubectl wait -n {namespace} --for=condition=JailPopulated slurmcluster/{name} --timeout=10m",
        )
    if image:
        filling = msgspec.structs.replace(filling, image=image, snapshot=None)
    return Refresh(cluster=cluster, filling=filling, settings=settings)


async def show_plan(client: Client, refresh: Refresh, say: Callable[[str], None]) -> None:
    key = Key(refresh.namespace, populate.job_name(refresh.filling.prefix, "plan"))
    await _remove(client, key)
    await client.create(OWN_JOBS, refresh.manifest("plan"))
    try:
        await _follow(client, key, say)
    finally:
        with suppress(IsthmusError):
            await client.delete(OWN_JOBS, key, propagation="Background")


async def carry_out(client: Client, refresh: Refresh, say: Callable[[str], None]) -> None:
    key = Key(refresh.namespace, populate.job_name(refresh.filling.prefix, "refresh"))
    try:
        found: OwnJob = await client.get(OWN_JOBS, key)
    except NotFound:
        pass
    else:
        if not found.complete and not found.failure:
            raise _busy(key)
        await _remove(client, key)
    try:
        await client.create(OWN_JOBS, refresh.manifest("refresh"))
    except AlreadyExists:
        raise _busy(key) from None
    await _follow(client, key, say)


def _busy(key: Key) -> Terminal:
    return Terminal(
        "the shared root is already being refreshed",
        remedy=f"follow it: kubectl logs -n {key.namespace} job/{key.name} -f",
    )


async def _settings(client: Client, cluster: SlurmCluster) -> Settings:
    """Take the image of ours by which the operator has filled the root, and the one that it would fill it from."""
    usual = Settings()
    name = populate.job_name(cluster.status.name_prefix or "", "populate")
    labels = f"{names.JOB_NAME_LABEL}={name}"
    pods = (await client.list(SEEN_PODS, namespace=cluster.metadata.namespace, labels=labels)).items
    ours = [it.image for pod in pods for it in pod.spec.containers if it.name == populate.CONTAINER]
    return msgspec.structs.replace(
        usual,
        login_image=cluster.status.jail_image_wanted or usual.login_image,
        isthmus_image=ours[-1] if ours else usual.isthmus_image,
    )


async def _remove(client: Client, key: Key) -> None:
    """Delete a Job that is done, and wait until it is gone."""
    with suppress(NotFound):
        await client.delete(OWN_JOBS, key, propagation="Foreground")
        while True:
            await client.get(OWN_JOBS, key)
            await asyncio.sleep(_PAUSE)


async def _follow(client: Client, key: Key, say: Callable[[str], None]) -> None:
    """Say what a Job says, in every pod that it takes, until it has come to its end."""
    heard: set[str] = set()
    waiting = 0.0
    while True:
        job: OwnJob = await client.get(OWN_JOBS, key)
        pods = (await client.list(PODS, namespace=key.namespace, labels=f"{names.JOB_NAME_LABEL}={key.name}")).items
        fresh = [pod for pod in pods if pod.metadata.name not in heard and _has_started(pod)]
        for pod in fresh:
            heard.add(pod.metadata.name)
            await _relay(client, pod.metadata.key, say)
        if job.complete:
            return
        if job.failure:
            raise Terminal(_last_word(pods) or job.failure.message, remedy=f"the Job is {key}")
        trouble = of_pods([pod for pod in pods if not _has_started(pod)], now=datetime.now(UTC))
        waiting = waiting + _PAUSE if trouble.wrong else 0.0
        if waiting > PATIENCE:
            with suppress(NotFound):
                await client.delete(OWN_JOBS, key, propagation="Background")
            raise Terminal(trouble.wrong, remedy="fix that and start again; nothing was changed")
        await asyncio.sleep(_PAUSE)


async def _relay(client: Client, pod: Key, say: Callable[[str], None]) -> None:
    rest = b""
    with suppress(IsthmusError):
        async for piece in stream.logs(client, pod, container=populate.CONTAINER, follow=True):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                say(line.decode(errors="replace"))
    if rest:
        say(rest.decode(errors="replace"))


def _has_started(pod: Pod) -> bool:
    states = [it.state for it in pod.status.container_statuses if it.name == populate.CONTAINER]
    return any(it.waiting is None for it in states)


def _last_word(pods: tuple[Pod, ...]) -> str:
    ends = (
        status.state.terminated
        for pod in pods
        for status in pod.status.container_statuses
        if status.name == populate.CONTAINER
    )
    said = [line for end in ends if end and end.exit_code for line in end.message.splitlines() if line.strip()]
    return said[-1] if said else ""
