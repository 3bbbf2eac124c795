"""What the operator knows: custom resources, the objects it made from them, nodes, and each cluster's Slurm.

    Kubernetes   the kinds of both API families, and objects with our labels    (informers)
                 Secrets and ConfigMaps that these name                         (references, one by one)
    Slurm        nodes of every cluster                                         (slurms)

Everything that decides reads from here without awaiting. With a namespace, nothing outside of it is read but nodes.
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final, Protocol

from isthmus import names
from isthmus.domain.operator.manifests.common import MANAGER, Settings
from isthmus.kube.client import Client
from isthmus.model.jailedconfig import JAILED_CONFIGS
from isthmus.model.meta import HasMeta, Key
from isthmus.model.node import NODES
from isthmus.model.nodeconfigurator import NODE_CONFIGURATORS
from isthmus.model.objects import (
    BUDGETS,
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    POD_MONITORS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICE_MONITORS,
    SERVICES,
    STATEFULSETS,
    Service,
)
from isthmus.model.pod import PODS, Pod
from isthmus.model.powerstate import POWER_STATES
from isthmus.model.slinky import (
    ACCOUNTINGS,
    CONTROLLERS,
    LOGINSETS,
    NODESETS,
    RESTAPIS,
    TOKENS,
    Controller,
    LocalReference,
    LoginSet,
    NodeSet,
    RestApi,
)
from isthmus.model.soperator import NEBIUS_NODESETS, SLURM_CLUSTERS
from isthmus.model.storage import CLAIMS
from isthmus.model.workload import OWN_JOBS
from isthmus.operator.caches import CacheManager, Caches
from isthmus.operator.slurms import Slurms
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.references import References

if TYPE_CHECKING:
    from isthmus.kube.store import Index, Store

_COMPONENTS: Final = "controller,worker,login,accounting,restapi,database,token,jail,sconfigcontroller"
# Pods of slurm-operator count, too: a NodeSet that moves over to us has some.
_PODS: Final = f"{names.COMPONENT_LABEL} in ({_COMPONENTS})"
_OURS: Final = f"{names.COMPONENT_LABEL} in ({_COMPONENTS},exporter)"
_MADE_BY_US: Final = f"{names.MANAGED_BY_LABEL}={MANAGER},{_OURS}"
"""Other products have components of these names as well, and what is in their Secrets is none of our business."""


class _OfController(Protocol):
    @property
    def controller_ref(self) -> LocalReference: ...


class Part(HasMeta, Protocol):
    """A custom resource that belongs to a Controller."""

    @property
    def spec(self) -> _OfController: ...


def cluster_ip(service: Service) -> str | None:
    """Where a Service is; None while it has no address of its own."""
    address = service.spec.cluster_ip
    return None if address in {"", "None"} else f"[{address}]" if ":" in address else address


class ClusterCaches(Caches):
    """Clusters, their workers and machines, and each one's Slurm: what all need who talk to Slurm, and no more."""

    def __init__(
        self, kube: Client, settings: Settings, *, namespace: str = "", metrics: Metrics | None = None
    ) -> None:
        super().__init__(kube, namespace=namespace)
        self.settings = settings

        owned: dict[str, Index[Any]] = {"owner": _owners}
        of_controller: dict[str, Index[Any]] = {"controller": _controller_keys}
        self.controllers = self._follow(CONTROLLERS)
        self.nodesets: Store[NodeSet] = self._follow(NODESETS, indexes=of_controller)
        self.restapis: Store[RestApi] = self._follow(RESTAPIS, indexes=of_controller)
        self.clusters = self._follow(SLURM_CLUSTERS)
        self.pods: Store[Pod] = self._follow(
            PODS, labels=_PODS, indexes={**owned, "slurm-node": _slurm_nodes, "node": _nodes, "part": _parts}
        )
        self.services = self._follow(SERVICES, labels=_OURS, indexes=owned)
        self.kube_nodes = self._follow(NODES)

        self.references = References(kube)
        self.slurms = Slurms(metrics)

    def register(self, manager: CacheManager) -> None:
        super().register(manager)
        manager.cache(self._within("references"), self.references)

    def controller_key(self, part: Part) -> Key | None:
        """Which Controller a part belongs to. One that names none belongs to the only one of its namespace."""
        namespace, name = part.metadata.namespace, part.spec.controller_ref.name
        if name:
            return Key(namespace, name)
        alone = [key for key in self.controllers if key.namespace == namespace]
        return alone[0] if len(alone) == 1 else None

    def controller_of(self, part: Part) -> Controller | None:
        key = self.controller_key(part)
        return self.controllers.get(key) if key else None

    def nodesets_of(self, controller: Key) -> tuple[NodeSet, ...]:
        """Find the NodeSets of a Controller, also those that name none where it is the only one."""
        named = self.nodesets.by("controller", controller)
        unnamed = self.nodesets.by("controller", Key(controller.namespace, ""))
        return (*named, *(it for it in unnamed if self.controller_key(it) == controller))


class World(ClusterCaches):
    """The caches of the operator, of one namespace or of all."""

    def __init__(
        self, kube: Client, settings: Settings, *, namespace: str = "", metrics: Metrics | None = None
    ) -> None:
        super().__init__(kube, settings, namespace=namespace, metrics=metrics)
        owned: dict[str, Index[Any]] = {"owner": _owners}
        self.loginsets: Store[LoginSet] = self._follow(LOGINSETS, indexes={"controller": _controller_keys})
        self.accountings = self._follow(ACCOUNTINGS)
        self.tokens = self._follow(TOKENS, indexes=owned)
        self.nebius_nodesets = self._follow(NEBIUS_NODESETS)
        self.jailed_configs = self._follow(JAILED_CONFIGS, indexes={"cluster": _instances})
        self.node_configurators = self._follow(NODE_CONFIGURATORS)
        self.power_states = self._follow(POWER_STATES)

        # Everybody has exporters, some on each node.
        exporters = f"{names.MANAGED_BY_LABEL}={MANAGER},{names.COMPONENT_LABEL}=exporter"
        self.exporter_pods: Store[Pod] = self._follow(
            PODS, labels=exporters, indexes={"part": _parts}, title="pods of exporters"
        )
        self.statefulsets = self._follow(STATEFULSETS, labels=_OURS, indexes=owned)
        self.deployments = self._follow(DEPLOYMENTS, labels=_OURS, indexes=owned)
        on_machines = f"{names.COMPONENT_LABEL} in ({_COMPONENTS},node-configurator)"
        self.daemonsets = self._follow(DAEMONSETS, labels=on_machines, indexes=owned)
        # Kubernetes gives the labels of a Service to the slices that it makes itself.
        by_us = f"{names.SLICE_MANAGED_BY_LABEL}={names.FIELD_MANAGER}"
        self.endpoint_slices = self._follow(ENDPOINT_SLICES, labels=by_us, indexes=owned)
        self.configmaps = self._follow(CONFIGMAPS, labels=_MADE_BY_US, indexes=owned)
        self.secrets = self._follow(SECRETS, labels=_MADE_BY_US, indexes=owned)
        self.claims = self._follow(CLAIMS, labels=_OURS, indexes=owned)
        self.jobs = self._follow(OWN_JOBS, labels=_OURS, indexes=owned)
        self.service_accounts = self._follow(SERVICE_ACCOUNTS, labels=_OURS, indexes=owned)
        self.roles = self._follow(ROLES, labels=_OURS, indexes=owned)
        self.role_bindings = self._follow(ROLE_BINDINGS, labels=_OURS, indexes=owned)
        self.pod_monitors = self._follow(POD_MONITORS, labels=_OURS, indexes=owned, optional=True)
        self.service_monitors = self._follow(SERVICE_MONITORS, labels=_OURS, indexes=owned, optional=True)
        self.budgets = self._follow(BUDGETS, labels=_OURS, indexes=owned)


def _controller_keys(part: Part) -> tuple[Hashable, ...]:
    return (Key(part.metadata.namespace, part.spec.controller_ref.name),)


def _instances(found: HasMeta) -> tuple[Hashable, ...]:
    """File an object under the cluster that its label names."""
    return (Key(found.metadata.namespace, found.metadata.labels.get(names.INSTANCE_LABEL, "")),)


def _owners(found: HasMeta) -> tuple[Hashable, ...]:
    return tuple(owner.uid for owner in found.metadata.owner_references)


def _slurm_nodes(pod: Pod) -> tuple[Hashable, ...]:
    """File a worker pod under its cluster and the name of its Slurm node."""
    labels = pod.metadata.labels
    if labels.get(names.COMPONENT_LABEL) != "worker" or names.CLUSTER_LABEL not in labels:
        return ()
    hostname = labels.get(names.POD_HOSTNAME_LABEL) or pod.spec.hostname or pod.metadata.name
    return ((Key(pod.metadata.namespace, labels[names.CLUSTER_LABEL]), hostname),)


def _nodes(pod: Pod) -> tuple[Hashable, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _parts(pod: Pod) -> tuple[Hashable, ...]:
    """File a pod under its role and its custom resource; workers are many, and found by their owner."""
    labels = pod.metadata.labels
    component = labels.get(names.COMPONENT_LABEL, "")
    if component == "worker":
        return ()
    return ((component, Key(pod.metadata.namespace, labels.get(names.INSTANCE_LABEL, ""))),)
