"""Parts of a SlurmCluster that are no custom resources: Deployments of our own programs, and how they are."""

from collections.abc import Iterable

from isthmus.domain.operator.clusterparts.status import View
from isthmus.domain.operator.manifests import exporter, monitors, sconfig
from isthmus.domain.operator.manifests.companion import LACKS_PROGRAM
from isthmus.model.meta import Key
from isthmus.model.objects import POD_MONITORS, Workload
from isthmus.model.pod import Pod
from isthmus.model.soperator import SlurmCluster
from isthmus.operator import parts
from isthmus.operator.world import World

_ANNOTATED = f"no PodMonitor, but prometheus.io annotations: {monitors.NOT_INSTALLED}"


def writer(world: World, cluster: Key, prefix: str) -> Workload | None:
    """The Deployment of sconfigcontroller."""
    return world.deployments.get(Key(cluster.namespace, sconfig.name(prefix)))


def writer_view(world: World, cluster: Key, prefix: str) -> View:
    pods = world.pods.by("part", (sconfig.COMPONENT, cluster))
    return _view(sconfig.APP, writer(world, cluster, prefix), pods, not_ours=sconfig.NOT_OURS)


def exporter_view(world: World, cluster: SlurmCluster, prefix: str) -> View | None:
    """The view of the exporter; None where it is not enabled."""
    if not cluster.spec.slurm_nodes.exporter.enabled:
        return None
    key = cluster.metadata.key
    deployment = world.deployments.get(Key(key.namespace, exporter.name(prefix)))
    remark = "" if world.serves(POD_MONITORS) else _ANNOTATED
    pods = world.exporter_pods.by("part", (exporter.COMPONENT, key))
    return _view(exporter.APP, deployment, pods, not_ours=exporter.NOT_OURS, remark=remark)


def own_pods(world: World, cluster: Key) -> tuple[Pod, ...]:
    """The pods of these Deployments."""
    return (
        *world.pods.by("part", (sconfig.COMPONENT, cluster)),
        *world.exporter_pods.by("part", (exporter.COMPONENT, cluster)),
    )


def _view(app: str, deployment: Workload | None, pods: Iterable[Pod], *, not_ours: str, remark: str = "") -> View:
    wrong, missing = parts.trouble(app, deployment, pods)
    if LACKS_PROGRAM in wrong:
        wrong = f"{wrong} ({not_ours})"
    return View(app, ready=not wrong and not missing, wrong=wrong, missing=missing, remark=remark)
