"""A pod on every machine that prepares, drains and reboots it: the kind NodeConfigurator of slurm.nebius.ai.

Fields are soperator's, so its manifests are taken as they are, except that all of them may be left out; those that
are ours say so. `domain.health.reboots` has what the rebooter does.
"""

from typing import Annotated, Literal

from msgspec import Meta, field

from isthmus.model.base import Data, Kind
from isthmus.model.meta import Object
from isthmus.model.schema import FreeForm
from isthmus.model.slinky import ReportedStatus
from isthmus.model.soperator import GROUP, Image

EvictionMethod = Literal["evict", "drain"]
"""evict: by a taint, past disruption budgets. drain: by the Eviction API, which disruption budgets can hold up."""

_Name = Annotated[str, Meta(max_length=253, pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")]


class NodeContainerConfig(Data, frozen=True):
    """A container of the pod, and where the pod runs. Empty fields have defaults."""

    name: Annotated[str, Meta(max_length=63, pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$")] = ""
    """Of a customContainer alone; the rebooter's is rebooter."""
    image: Image = Image()
    command: tuple[str, ...] = ()
    """Of a customContainer alone."""
    resources: FreeForm = field(default_factory=dict)
    liveness_probe: FreeForm | None = None
    readiness_probe: FreeForm | None = None
    env: tuple[FreeForm, ...] = ()
    tolerations: tuple[FreeForm, ...] = ()
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: FreeForm | None = None
    priority_class_name: _Name = ""
    service_account_name: _Name = ""
    """A rebooter needs one that may patch its Node; the chart nodeconfigurator makes it."""
    host_users: bool | None = None


class Rebooter(NodeContainerConfig, frozen=True):
    """Drains and reboots the machine, as conditions of its Node ask."""

    enabled: bool = True
    eviction_method: EvictionMethod = "evict"
    """evict: pods go by a taint, past disruption budgets. drain: they are evicted, and budgets are respected."""
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    log_format: Annotated[str, Meta(max_length=16)] = ""
    """json, or text for any other value; if empty, text on a terminal and else json."""


class CustomContainer(NodeContainerConfig, frozen=True):
    """A container of your own, which runs instead of the rebooter."""

    enabled: bool = False


class NodeConfiguratorSpec(Data, frozen=True):
    """What runs on every machine."""

    host_network: bool = True
    host_ipc: bool = field(name="hostIPC", default=False)
    share_process_namespace: bool = False
    """Without effect on a rebooter, which needs the processes of the machine."""
    rebooter: Rebooter = Rebooter()
    custom_container: CustomContainer = CustomContainer()
    """Runs where the rebooter is not enabled."""
    init_containers: tuple[FreeForm, ...] = ()
    """Run before it, at each start of the pod: to set kernel parameters, for example."""


class NodeConfiguratorStatus(ReportedStatus, frozen=True):
    desired: int = 0
    """Machines that it is for."""
    ready: int = 0
    """Machines on which its pod is ready."""


class NodeConfigurator(Object, frozen=True):
    """A pod on every machine that prepares, drains and reboots it."""

    spec: NodeConfiguratorSpec = NodeConfiguratorSpec()
    status: NodeConfiguratorStatus = NodeConfiguratorStatus()


NODE_CONFIGURATORS = Kind(NodeConfigurator, f"{GROUP}/v1alpha1", "nodeconfigurators", "NodeConfigurator")
