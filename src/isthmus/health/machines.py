"""What is done to pods and machines to repair them, and the conditions that show it.

Every rung begins by asking Slurm whether the node is drained and idle; for a machine, all nodes on it are asked
about, of every cluster. A rung that was begun already is not begun again: a pod is deleted by its uid, and a
condition that stands there is not written again.
"""

import asyncio
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Final, TypeGuard

import structlog

from isthmus import names
from isthmus.clock import utc_now
from isthmus.domain.health.actions import Climb, SetCondition
from isthmus.domain.health.reboots import NEED_REBOOT
from isthmus.domain.health.view import ClusterView
from isthmus.domain.operator.nodeset.identity import slurm_name
from isthmus.errors import Terminal, Wait
from isthmus.health.passivetests import Execute
from isthmus.health.world import HealthWorld
from isthmus.kube import errors
from isthmus.model.meta import Key, condition
from isthmus.model.node import NODES, Node
from isthmus.operator.nodesets.slurm_actions import free_nodes

log = structlog.get_logger()

_SLURM_TIMEOUT_S: Final = 20.0
_RESET_TIMEOUT_S: Final = 120.0
_BUSY_AGAIN_S: Final = 5.0
_MANAGER: Final = f"{names.FIELD_MANAGER}-health"


def is_reboot(action: object) -> TypeGuard[SetCondition]:
    """Whether an action asks for the reboot of a machine."""
    return (
        isinstance(action, SetCondition)
        and action.type == names.NODE_REBOOT_CONDITION
        and action.status == "True"
        and action.reason == NEED_REBOOT
    )


@dataclass(eq=False)
class Machines:
    """Climbs rungs of the ladder."""

    world: HealthWorld
    execute: Execute
    _: KW_ONLY
    may_replace: bool = False
    """Whether machines may be deleted in Kubernetes, so that their cloud replaces them."""

    async def climb(self, view: ClusterView, action: Climb) -> None:
        """Begin a rung."""
        match action.rung:
            case "restartPod":
                await self._restart(view, action)
            case "resetDevice":
                await self._reset(view, action)
            case "replace":
                await self._replace(view, action)
            case "reboot":
                raise Terminal("a reboot is asked for by a condition of the machine")

    async def set_condition(self, wanted: SetCondition) -> None:
        """Write a condition of a machine, if it does not stand there already."""
        machine = self.world.operator.kube_nodes.get(Key("", wanted.machine))
        if machine is None:
            return
        shown = condition(machine.status.conditions, wanted.type)
        if shown is None and wanted.status == "False":
            return
        if shown and (shown.status, shown.reason, shown.message) == (wanted.status, wanted.reason, wanted.message):
            return
        if is_reboot(wanted):
            await self._require_no_jobs(wanted.machine)
        since = shown.last_transition_time if shown and shown.status == wanted.status else None
        await self._write(machine, wanted, since or utc_now())

    async def _restart(self, view: ClusterView, action: Climb) -> None:
        if action.pod is None:
            raise Terminal(f"{action.node} has no pod to restart")
        await self._require_free(view.cluster, action.node)
        # A disruption budget that forbids it is heeded: the answer says when to ask again.
        with suppress(errors.NotFound, errors.Conflict):  # it is gone, or another one
            await self.world.kube.evict(action.pod, uid=action.pod_uid)
        log.info("restarting the pod of a node", node=action.node, pod=str(action.pod))

    async def _reset(self, view: ClusterView, action: Climb) -> None:
        if action.pod is None:
            raise Terminal(f"{action.node} has no pod in which to reset its devices")
        await self._require_free(view.cluster, action.node)
        said = bytearray()
        chosen = (f"--id={','.join(action.devices)}",) if action.devices else ()
        command = ("nvidia-smi", "--gpu-reset", *chosen)
        async with asyncio.timeout(_RESET_TIMEOUT_S):
            code = await self.execute(action.pod, command, said.extend)
        log.info("reset devices of a node", node=action.node, devices=action.devices, code=code)

    async def _replace(self, view: ClusterView, action: Climb) -> None:
        if not self.may_replace:
            raise Terminal(
                f"{action.machine} is not replaced: node replacement is disabled",
                remedy="run with --enable-node-replacement",
            )
        machine = self.world.operator.kube_nodes.get(Key("", action.machine))
        if machine is None:
            return  # it is gone already
        await self._require_free(view.cluster, action.node)
        await self._require_no_jobs(action.machine)
        with suppress(errors.NotFound, errors.Conflict):
            await self.world.kube.delete(NODES, action.machine, uid=machine.metadata.uid)
        log.info("deleted a node, so that it is replaced", node=action.node, machine=action.machine)

    async def _require_no_jobs(self, machine: str) -> None:
        """Make sure that no Slurm node on a machine has a job or may get one, of whichever cluster."""
        on_it: dict[Key, set[str]] = {}
        for pod in self.world.operator.pods.by("node", machine):
            labels = pod.metadata.labels
            if labels.get(names.COMPONENT_LABEL) == "worker" and names.CLUSTER_LABEL in labels:
                cluster = Key(pod.metadata.namespace, labels[names.CLUSTER_LABEL])
                on_it.setdefault(cluster, set()).add(slurm_name(pod))
        for cluster in self.world.operator.controllers:
            slurm = self.world.operator.slurms.of(cluster)
            for name in (it for it in (self.world.external_name(machine),) if slurm and it in slurm.nodes):
                on_it.setdefault(cluster, set()).add(name)
        for cluster, nodes in on_it.items():
            await self._require_free(cluster, *nodes)

    async def _require_free(self, cluster: Key, *nodes: str) -> None:
        slurm = self.world.operator.slurms.of(cluster)
        if slurm is None:
            raise Wait(
                f"Slurm of {cluster} cannot be asked whether {', '.join(nodes)} has jobs", after=_BUSY_AGAIN_S
            )
        async with asyncio.timeout(_SLURM_TIMEOUT_S):
            free = await free_nodes(slurm.client, nodes)
        if busy := sorted(set(nodes) - free):
            raise Wait(f"{', '.join(busy)} is in use in Slurm", after=_BUSY_AGAIN_S)

    async def _write(self, machine: Node, wanted: SetCondition, since: datetime) -> None:
        """Apply one condition. Each has a manager of its own: what one manager leaves out would be taken away."""
        told = {
            "type": wanted.type,
            "status": wanted.status,
            "reason": wanted.reason or "AsExpected",
            "message": wanted.message,
            "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lastHeartbeatTime": utc_now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        metadata = {"name": machine.metadata.name, "uid": machine.metadata.uid}
        body = {"metadata": metadata, "status": {"conditions": [told]}}
        with suppress(errors.NotFound, errors.Conflict):  # it is gone, or another one
            await self.world.kube.apply(
                NODES, body, manager=f"{_MANAGER}-{wanted.type.lower()}", force=True, subresource="status"
            )
