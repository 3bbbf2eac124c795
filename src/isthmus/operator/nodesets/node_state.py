"""Shows the state of Slurm nodes on their pods, as conditions: SlurmNodeStateIdle, SlurmNodeStateDrain and so on.

For people and for `kubectl wait` only: nothing here is decided by them. So they come after everything else, a state
that passes within two seconds is not written at all, and one write per change is all that a pod costs. They are
written one after the other: where a thousand pods start, the API server has enough to do.

They are applied, which makes us the owner of these conditions and of no other: kubelet's are never touched.
"""

from datetime import UTC, datetime
from typing import Any, Final

from isthmus import names
from isthmus.domain.operator.nodeset.identity import slurm_name
from isthmus.domain.operator.nodeset.status import mirrored, shown
from isthmus.kube import errors
from isthmus.model.meta import Key
from isthmus.model.pod import PODS, Pod
from isthmus.operator.world import World
from isthmus.runtime.controller import Controller
from isthmus.runtime.metrics import Metrics

_WORKERS: Final = 1
_SETTLE_S: Final = 2.0
_MANAGER: Final = f"{names.FIELD_MANAGER}-node-state"


class NodeStateConditions:
    """Keeps the conditions of worker pods in step with Slurm."""

    def __init__(self, world: World, *, metrics: Metrics) -> None:
        self._world = world
        self.controller: Controller[Key] = Controller(
            "pod-mirror", self.reconcile, metrics=metrics, workers=_WORKERS
        )
        world.pods.on_change(self._pod_changed)
        world.slurms.on_change(self._slurm_changed)

    async def reconcile(self, key: Key) -> None:
        """Update one pod's conditions."""
        pod = self._world.pods.get(key)
        cluster = _cluster(pod) if pod else None
        if pod is None or cluster is None or pod.leaving or pod.status.phase != "Running":
            return  # where no slurmd can be, a record is of another one
        slurm = self._world.slurms.of(cluster)
        if slurm is None or not slurm.in_touch:
            return  # the last report stays while Slurm does not answer
        wanted = mirrored(slurm.nodes.get(slurm_name(pod)))
        if wanted == shown(pod):
            return
        metadata = {"name": key.name, "namespace": key.namespace, "uid": pod.metadata.uid}
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions: list[dict[str, Any]] = [
            {"type": type_, "status": "True", "message": message, "lastTransitionTime": moment}
            for type_, message in wanted
        ]
        try:
            body = {"metadata": metadata, "status": {"conditions": conditions}}
            await self._world.kube.apply(PODS, body, manager=_MANAGER, force=True, subresource="status")
        except (errors.NotFound, errors.Conflict):
            return  # it is gone, or another one

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        if new is None or _cluster(new) is None:
            return
        if old is None or shown(old) != shown(new) or old.status.phase != new.status.phase:
            self.controller.queue.add(key, after=_SETTLE_S)

    def _slurm_changed(self, controller: Key, node: str | None) -> None:
        if node is not None:
            for pod in self._world.pods.by("slurm-node", (controller, node)):
                self.controller.queue.add(pod.metadata.key, after=_SETTLE_S)
            return
        for pod in self._world.pods.values():
            if _cluster(pod) == controller:
                self.controller.queue.add(pod.metadata.key, after=_SETTLE_S)


def _cluster(pod: Pod) -> Key | None:
    """The Controller of a worker pod; None if the pod is not a worker."""
    labels = pod.metadata.labels
    if labels.get(names.COMPONENT_LABEL) != "worker" or names.CLUSTER_LABEL not in labels:
        return None
    return Key(pod.metadata.namespace, labels[names.CLUSTER_LABEL])
