"""Kubernetes objects that the operator makes or reads, as far as it looks into them."""

from collections.abc import Mapping

from msgspec import field

from isthmus.model.base import EMPTY, Data, Kind
from isthmus.model.meta import Condition, ObjectMeta, Partial


class ConfigMap(Data, frozen=True):
    """Texts and bytes by name."""

    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] = EMPTY
    binary_data: Mapping[str, bytes] = {}


class Secret(Data, frozen=True):
    """Bytes by name, which are never shown."""

    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, bytes] = {}
    immutable: bool = False

    def __repr__(self) -> str:
        return f"Secret({self.metadata.key}, keys: {', '.join(sorted(self.data)) or 'none'})"


class ServicePort(Data, frozen=True):
    """A port of a Service."""

    port: int
    name: str = ""
    node_port: int = 0


class ServiceSpec(Data, frozen=True):
    """Where a Service is."""

    cluster_ip: str = field(name="clusterIP", default="")
    type: str = "ClusterIP"
    ports: tuple[ServicePort, ...] = ()


class Service(Data, frozen=True):
    """A Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class WorkloadSpec(Data, frozen=True):
    """How many pods are wanted."""

    replicas: int = 1


class WorkloadStatus(Data, frozen=True):
    """How many pods there are; `observed_generation` tells which specification this is about."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0
    conditions: tuple[Condition, ...] = ()


class Workload(Data, frozen=True):
    """A StatefulSet, Deployment or DaemonSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def settled(self) -> bool:
        """Whether every pod is of the newest specification and ready."""
        told = self.status
        wanted = self.spec.replicas
        return (
            told.observed_generation >= self.metadata.generation
            and told.ready_replicas == told.updated_replicas == told.replicas == wanted
        )


class Budget(Data, frozen=True):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()


CONFIGMAPS = Kind(ConfigMap, "v1", "configmaps", "ConfigMap")
SECRETS = Kind(Secret, "v1", "secrets", "Secret")
SERVICES = Kind(Service, "v1", "services", "Service")
STATEFULSETS = Kind(Workload, "apps/v1", "statefulsets", "StatefulSet")
DEPLOYMENTS = Kind(Workload, "apps/v1", "deployments", "Deployment")
DAEMONSETS = Kind(Workload, "apps/v1", "daemonsets", "DaemonSet")
SERVICE_ACCOUNTS = Kind(Partial, "v1", "serviceaccounts", "ServiceAccount")
ROLES = Kind(Partial, "rbac.authorization.k8s.io/v1", "roles", "Role")
ROLE_BINDINGS = Kind(Partial, "rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding")
ENDPOINT_SLICES = Kind(Partial, "discovery.k8s.io/v1", "endpointslices", "EndpointSlice")
BUDGETS = Kind(Budget, "policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
