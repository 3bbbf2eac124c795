"""Kubernetes objects that the operator makes or reads, as far as it looks into them."""

from collections.abc import Mapping

from msgspec import field

from isthmus.model.base import EMPTY, Data, Kind
from isthmus.model.meta import Condition, Object, Partial


class ConfigMap(Object, frozen=True):
    """Texts and bytes by name."""

    data: Mapping[str, str] = EMPTY
    binary_data: Mapping[str, bytes] = {}


class Secret(Object, frozen=True):
    """Bytes by name, which are never shown."""

    data: Mapping[str, bytes] = {}
    immutable: bool = False

    def __repr__(self) -> str:
        return f"Secret({self.metadata.key}, keys: {', '.join(sorted(self.data)) or 'none'})"


class ServiceSpec(Data, frozen=True):
    cluster_ip: str = field(name="clusterIP", default="")


class Service(Object, frozen=True):
    spec: ServiceSpec = ServiceSpec()


class WorkloadSpec(Data, frozen=True):
    """How many pods are wanted."""

    replicas: int = 1


class WorkloadStatus(Data, frozen=True):
    """How many pods there are; `observed_generation` is the specification that this is about."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    desired_number_scheduled: int = 0
    """Of a DaemonSet, which counts by other names: nodes that it is for, and those with a ready and an up-to-date
    pod."""
    number_ready: int = 0
    updated_number_scheduled: int = 0
    conditions: tuple[Condition, ...] = ()


class Workload(Object, frozen=True):
    """A StatefulSet, Deployment or DaemonSet."""

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


class Budget(Object, frozen=True):
    """A PodDisruptionBudget."""


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
POD_MONITORS = Kind(Partial, "monitoring.coreos.com/v1", "podmonitors", "PodMonitor")
SERVICE_MONITORS = Kind(Partial, "monitoring.coreos.com/v1", "servicemonitors", "ServiceMonitor")
BUDGETS = Kind(Budget, "policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
