"""Delivers files and keys to all daemons of a cluster, and follows their progress."""

import asyncio
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

import structlog

from isthmus import names
from isthmus.domain.operator.manifests import controller as manifests
from isthmus.domain.operator.manifests import topologywait
from isthmus.domain.operator.nodeset import identity
from isthmus.domain.operator.slurmfiles import delivery
from isthmus.domain.operator.slurmfiles.delivery import Delivery, Progress, Verdict
from isthmus.errors import IsthmusError
from isthmus.kube.errors import NotFound
from isthmus.model.meta import Key, condition
from isthmus.model.pod import PODS, Pod
from isthmus.model.slinky import Controller
from isthmus.operator.slurmctld.conditions import CONFIG_APPLIED
from isthmus.operator.world import World

log = structlog.get_logger()

_HEARD_WITHIN: Final = 0.5
"""Seconds in which a kubelet hears of a changed object; one that is told to look before may find what was there."""


class Revision(NamedTuple):
    """What is mounted: which files and keys, and since when (0 for keys that have never changed)."""

    config: str
    keys: str
    config_changed: float
    keys_changed: float
    keys_settle: float
    """In how many seconds after their change keys are in all pods."""

    @property
    def both(self) -> str:
        """Name files and keys together, as the side-car of slurmctld does."""
        return f"{self.config} {self.keys}".strip()

    @property
    def changed(self) -> float:
        """When either changed last."""
        return max(self.config_changed, self.keys_changed)

    @property
    def due(self) -> float:
        """From when on every pod has them."""
        return max(self.config_changed, self.keys_changed + self.keys_settle)

    def unheard(self, now: datetime) -> float:
        """In how many seconds kubelets have surely heard of the keys; not more than 0 if they have."""
        return self.keys_changed + _HEARD_WITHIN - now.timestamp()

    def pause(self, now: datetime) -> float:
        """In how many seconds there is something to do that no event tells of; not more than 0 if there is not."""
        unheard = self.unheard(now)
        return unheard if unheard > 0 else self.due - now.timestamp()


class Deliverer:
    def __init__(self, world: World, now: Callable[[], datetime]) -> None:
        self._world = world
        self._now = now
        self._progress: dict[Key, Progress] = {}

    def forget(self, controller: Key) -> None:
        """Drop what is remembered of a Controller that is gone."""
        self._progress.pop(controller, None)

    async def deliver(self, controller: Controller, revision: Revision) -> Verdict:
        """Take the next step of delivering a revision, and return how far it has come."""
        if controller.spec.external:
            return Verdict("applied", "slurmctld is external")
        if controller.status.config_hash == revision.both:
            told = condition(controller.status.conditions, CONFIG_APPLIED)
            kept = told.message if told and told.status == "True" else ""
            return Verdict("applied", kept or f"every daemon runs with revision {revision.both}", read=True)
        key = controller.metadata.key
        await self._nudge(controller, revision)
        seen = await self._seen(controller, revision)
        progress = self._progress[key] = delivery.advance(self._progress.get(key, Progress()), seen)
        verdict = delivery.judge(seen, progress)
        slurm = self._world.slurms.of(key)
        if verdict.push and slurm is not None:
            log.info("reconfiguring all daemons", controller=str(key))
            await slurm.reconfigure(now=self._now().timestamp())
        return verdict

    def taken_at(self, controller: Key, revision: str) -> float | None:
        """When slurmctld had taken a revision; None if nobody has seen that."""
        progress = self._progress.get(controller)
        return progress.taken_at if progress and progress.revision == revision else None

    def slurmctld_pods(self, controller: Controller) -> list[Pod]:
        pods = self._world.pods.by("part", (manifests.COMPONENT, controller.metadata.key))
        return [it for it in pods if it.metadata.labels.get(names.NAME_LABEL) == manifests.APP]

    def _workers(self, controller: Key) -> Iterable[Pod]:
        for nodeset in self._world.nodesets_of(controller):
            yield from self._world.pods.by("owner", nodeset.metadata.uid)

    def _logins(self, controller: Key) -> Iterable[Pod]:
        for name in (controller.name, ""):
            for loginset in self._world.loginsets.by("controller", Key(controller.namespace, name)):
                if self._world.controller_key(loginset) == controller:
                    yield from self._world.pods.by("part", ("login", loginset.metadata.key))

    async def refresh_users(self, controller: Controller, revision: str, changed: float) -> float:
        """Deliver changed users to slurmctld and all workers; return in how many seconds to try again, if not yet.

        Login pods are told by their LoginSet, with all else that they mount.
        """
        if (wait := changed + _HEARD_WITHIN - self._now().timestamp()) > 0:
            return wait
        pods = (*self.slurmctld_pods(controller), *self._workers(controller.metadata.key))
        await self._annotate_all(names.FILES_HASH_ANNOTATION, ((pod, revision, changed) for pod in pods))
        return 0.0

    async def tell_places(self, controller: Controller, located: Container[str]) -> None:
        """Tell pods that wait for it that Slurm knows where their nodes are."""
        async with asyncio.TaskGroup() as tasks:
            for pod in self._workers(controller.metadata.key):
                waits = names.TOPOLOGY_ANNOTATION not in pod.metadata.annotations and topologywait.is_in(pod)
                if waits and pod.bound and not pod.leaving and identity.slurm_name(pod) in located:
                    tasks.create_task(self._annotate(pod, names.TOPOLOGY_ANNOTATION, topologywait.KNOWN))

    async def _nudge(self, controller: Controller, revision: Revision) -> None:
        """Make kubelets update files and keys in running pods."""
        key = controller.metadata.key
        if revision.unheard(self._now()) > 0:
            return
        wanted = [
            *((pod, revision.both.replace(" ", "-"), revision.changed) for pod in self.slurmctld_pods(controller)),
            *((pod, revision.keys, revision.keys_changed) for pod in (*self._workers(key), *self._logins(key))),
        ]
        await self._annotate_all(names.CONFIG_HASH_ANNOTATION, wanted)

    async def _annotate_all(self, annotation: str, wanted: Iterable[tuple[Pod, str, float]]) -> None:
        """Write a revision on pods that were made before its change; kubelet then looks at their volumes.

        Others have it already.
        """
        async with asyncio.TaskGroup() as tasks:
            for pod, value, since in wanted:
                if _was_there(pod, since) and pod.metadata.annotations.get(annotation) != value:
                    tasks.create_task(self._annotate(pod, annotation, value))

    async def _annotate(self, pod: Pod, annotation: str, value: str) -> None:
        patch: dict[str, Any] = {"metadata": {"annotations": {annotation: value}, "uid": pod.metadata.uid}}
        with suppress(NotFound):
            await self._world.kube.merge_patch(PODS, pod.metadata.key, patch)

    async def _seen(self, controller: Controller, revision: Revision) -> Delivery:
        key, now = controller.metadata.key, self._now().timestamp()
        slurm = self._world.slurms.of(key)
        told = None
        if slurm is not None and slurm.in_touch:
            with suppress(IsthmusError):
                told = await slurm.client.diagnose()
        return Delivery(
            revision=revision.both,
            now=now,
            changed_at=revision.changed,
            due=revision.due,
            counting_since=delivery.counting_since(told, now=now) if told else None,
            began=(told.since.value or None) if told else None,
            nodes=tuple(slurm.nodes.values()) if slurm else (),
            with_pod=frozenset(identity.slurm_name(it) for it in self._workers(key) if is_ready(it)),
            refusals={it.metadata.name: _refusal(it) for it in self.slurmctld_pods(controller)},
            asked_at=slurm.asked_at if slurm else 0.0,
        )


def is_ready(pod: Pod) -> bool:
    return any(it.type == "Ready" and it.status == "True" for it in pod.status.conditions)


def _was_there(pod: Pod, moment: float) -> bool:
    made = pod.metadata.creation_timestamp
    return not pod.leaving and made is not None and made.timestamp() <= moment


def _refusal(pod: Pod) -> str:
    """Read what the side-car said when it gave up last."""
    for status in pod.status.init_container_statuses:
        ended = status.state.terminated or status.last_state.terminated
        if status.name == manifests.SIDE_CAR and ended:
            return ended.message
    return ""
