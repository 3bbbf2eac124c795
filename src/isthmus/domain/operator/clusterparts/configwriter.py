"""The sconfigcontroller of a SlurmCluster that has a shared root, from its field `sConfigController`."""

from collections.abc import Iterable

from isthmus.domain.operator.clusterparts import pods
from isthmus.domain.operator.clusterparts.daemons import Child, resting
from isthmus.domain.operator.clusterparts.notes import Notes
from isthmus.domain.operator.clusterparts.pods import Wish
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
    jail: Wish | None,
    prefix: str,
    settings: Settings,
    notes: Notes,
) -> list[Child]:
    """Make the Deployment, its account, and what that may do; nothing where there is no shared root (`jail`)."""
    if jail is None:
        if cluster.spec.s_config_controller is not None:
            notes.ignored.append(f"{_WHERE} (there is no shared root without populateJail)")
        return []
    wish = cluster.spec.s_config_controller or ConfigWriter()
    if (wish.node.size or 0) > 1:
        notes.ignored.append(f"{_WHERE}.node.size (one is enough)")
    writing = Writing(
        cluster=cluster.metadata.name,
        namespace=cluster.metadata.namespace,
        prefix=prefix,
        root=jail,
        covered=tuple(sorted({it.rstrip("/") for it in _covered(cluster, nodesets)})),
        replicas=0 if resting(cluster) or wish.node.size == 0 else 1,
        pod=_pod(cluster, wish, notes),
        container=_container(wish),
    )
    return [
        Child(SERVICE_ACCOUNTS, sconfig.account(writing)),
        Child(ROLES, sconfig.role(writing)),
        Child(ROLE_BINDINGS, sconfig.binding(writing)),
        Child(DEPLOYMENTS, sconfig.deployment(writing, settings=settings)),
    ]


def _covered(cluster: SlurmCluster, nodesets: Iterable[NodeSet]) -> Iterable[str]:
    """Find what is another thing on nodes than on the volume: a file there would be seen by nobody."""
    nodes = cluster.spec.slurm_nodes
    for mounts in (nodes.login.volumes.jail_sub_mounts, nodes.worker.volumes.jail_sub_mounts):
        yield from (it.mount_path for it in mounts)
    for nodeset in nodesets:
        yield from (it.mount_path for it in nodeset.spec.slurmd.volumes.jail_sub_mounts)
    yield from inside.worker_binds("munge")
    yield from inside.login_binds()


def _pod(cluster: SlurmCluster, wish: ConfigWriter, notes: Notes) -> Wish:
    # Soperator's own chart names a filter here that nobody has to have made.
    there = {it.name for it in cluster.spec.k8s_node_filters}
    name = wish.node.k8s_node_filter_name
    if name and name not in there:
        notes.ignored.append(f"{_WHERE}.node.k8sNodeFilterName (there is no node filter {name!r})")
        name = ""
    pod = pods.filter_of(cluster.spec, name, f"{_WHERE}.node", notes)
    if wish.node.priority_class:
        pod["priorityClassName"] = wish.node.priority_class
    if wish.host_users is not None:
        pod["hostUsers"] = wish.host_users
    if wish.node.custom_init_containers:
        pod["initContainers"] = list(wish.node.custom_init_containers)
    if wish.container.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": it.name} for it in wish.container.image_pull_secrets]
    return pod


def _container(wish: ConfigWriter) -> Wish:
    made = pods.container(wish.container, wish.node.resources)
    return {key: value for key, value in made.items() if key not in {"command", "args"}}
