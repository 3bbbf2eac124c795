"""The sconfigcontroller of a SlurmCluster that has a shared root, from its field `sConfigController`."""

from collections.abc import Iterable

from isthmus.domain.operator.clusterparts import pods
from isthmus.domain.operator.clusterparts.daemons import Child, resting
from isthmus.domain.operator.clusterparts.notes import Notes
from isthmus.domain.operator.clusterparts.pods import Fields
from isthmus.domain.operator.manifests import jail as inside
from isthmus.domain.operator.manifests import sconfig
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.manifests.sconfig import Writing
from isthmus.model.objects import DEPLOYMENTS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from isthmus.model.soperator import ConfigWriter, NodeSet, SlurmCluster

_WHERE = "sConfigController"


def writers(
    cluster: SlurmCluster,
    nodesets: Iterable[NodeSet],
    *,
    jail: Fields | None,
    prefix: str,
    settings: Settings,
    notes: Notes,
) -> list[Child]:
    """Make the Deployment, its account, and what that may do; nothing where there is no shared root (`jail`)."""
    if jail is None:
        if cluster.spec.s_config_controller is not None:
            notes.ignored.append(f"{_WHERE} (there is no shared root without populateJail)")
        return []
    asked = cluster.spec.s_config_controller or ConfigWriter()
    if (asked.node.size or 0) > 1:
        notes.ignored.append(f"{_WHERE}.node.size (one is enough)")
    writing = Writing(
        cluster=cluster.metadata.name,
        namespace=cluster.metadata.namespace,
        prefix=prefix,
        root=jail,
        covered=tuple(sorted({it.rstrip("/") for it in _covered(cluster, nodesets)})),
        replicas=0 if resting(cluster) or asked.node.size == 0 else 1,
        pod=_pod(cluster, asked, notes),
        container=_container(asked),
    )
    return [
        Child(SERVICE_ACCOUNTS, writing.account()),
        Child(ROLES, sconfig.role(writing)),
        Child(ROLE_BINDINGS, sconfig.binding(writing)),
        Child(DEPLOYMENTS, sconfig.deployment(writing, settings=settings)),
    ]


def _covered(cluster: SlurmCluster, nodesets: Iterable[NodeSet]) -> Iterable[str]:
    """Paths that nodes mount over the volume: a file there would not be seen."""
    nodes = cluster.spec.slurm_nodes
    for mounts in (nodes.login.volumes.jail_sub_mounts, nodes.worker.volumes.jail_sub_mounts):
        yield from (it.mount_path for it in mounts)
    for nodeset in nodesets:
        yield from (it.mount_path for it in nodeset.spec.slurmd.volumes.jail_sub_mounts)
    yield from inside.worker_binds("munge")
    yield from inside.login_binds()


def _pod(cluster: SlurmCluster, asked: ConfigWriter, notes: Notes) -> Fields:
    # Soperator's own chart names a filter here that need not exist.
    there = {it.name for it in cluster.spec.k8s_node_filters}
    name = asked.node.k8s_node_filter_name
    if name and name not in there:
        notes.ignored.append(f"{_WHERE}.node.k8sNodeFilterName (there is no node filter {name!r})")
        name = ""
    pod = pods.filter_of(cluster.spec, name, f"{_WHERE}.node", notes)
    if asked.node.priority_class:
        pod["priorityClassName"] = asked.node.priority_class
    if asked.host_users is not None:
        pod["hostUsers"] = asked.host_users
    if asked.node.custom_init_containers:
        pod["initContainers"] = list(asked.node.custom_init_containers)
    if asked.container.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": it.name} for it in asked.container.image_pull_secrets]
    return pod


def _container(asked: ConfigWriter) -> Fields:
    made = pods.container(asked.container, asked.node.resources)
    return {key: value for key, value in made.items() if key not in {"command", "args"}}
