"""The parts of a Slurm cluster as custom resources of slinky.slurm.net: what users specify, and the status.

Fields are those of slurm-operator, so its manifests are taken as they are; fields that are ours say so. What is
passed on to Kubernetes unread (pod specs, containers) is free form: the API server checks it when we send it.
"""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, field

from isthmus import names
from isthmus.model.autoscaler import ManagedMeta
from isthmus.model.base import Data, Kind
from isthmus.model.elastic import Autoscale
from isthmus.model.meta import Condition, ObjectMeta
from isthmus.model.schema import FreeForm, IntOrString, Rule, keyed_by, nullable, rules

GROUP = "slinky.slurm.net"
VERSION = "v1beta1"

_Name = Annotated[str, Meta(max_length=253, pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")]
_Port = Annotated[int, Meta(ge=1, le=65535)]
_Text = Annotated[str, Meta(max_length=262144)]
_Line = Annotated[str, Meta(max_length=4096, pattern=r"^[^\n\r]*$")]
_Duration = Annotated[str, Meta(max_length=64, pattern=r"^([0-9]+(\.[0-9]+)?(h|m|s|ms|us|ns))*$")]
ScrapeDuration = Annotated[
    str,
    Meta(
        max_length=64,
        pattern=r"^([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
    ),
]
"""As Prometheus writes durations: the larger unit first."""
Conditions = Annotated[tuple[Condition, ...], keyed_by("type")]


class LocalReference(Data, frozen=True):
    """An object of the same namespace, by its name."""

    name: _Name = ""


_References = Annotated[tuple[LocalReference, ...], nullable()] | None
"""Objects by their names; null for none, as slurm-operator's chart writes it."""


class KeyReference(Data, frozen=True):
    """One key of a Secret or ConfigMap of the same namespace."""

    name: Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]
    key: Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9._-]+$")]
    optional: bool | None = None


class TemplateMeta(Data, frozen=True):
    """Labels and annotations for created objects."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class PodTemplate(Data, frozen=True):
    """Labels, annotations and a pod specification, merged over the generated ones field by field."""

    metadata: TemplateMeta = TemplateMeta()
    spec: FreeForm = field(default_factory=dict)


class ServiceTemplate(Data, frozen=True):
    """Labels, annotations and a specification for the Service; `port` is its main port."""

    metadata: TemplateMeta = TemplateMeta()
    spec: FreeForm = field(default_factory=dict)
    port: _Port | None = None
    node_port: Annotated[int, Meta(ge=0, le=65535)] | None = None


class ExternalConfig(Data, frozen=True):
    """Address of a daemon that runs elsewhere."""

    host: Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9.:-]+$")]
    port: _Port


class MetricsEndpoint(Data, frozen=True):
    """A path that is scraped."""

    path: Annotated[str, Meta(min_length=1, max_length=1024, pattern=r"^/[^\s]*$")]
    interval: ScrapeDuration = ""
    scrape_timeout: ScrapeDuration = ""


class ServiceMonitor(Data, frozen=True):
    """How Prometheus scrapes."""

    enabled: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    interval: ScrapeDuration = ""
    scrape_timeout: ScrapeDuration = ""
    endpoints: tuple[MetricsEndpoint, ...] = ()
    metric_relabelings: tuple[FreeForm, ...] = ()
    """Of every endpoint (Isthmus only)."""


class MetricsSpec(Data, frozen=True):
    """Whether slurmctld serves metrics, and who scrapes them."""

    enabled: bool = False
    service_monitor: ServiceMonitor = ServiceMonitor()


class HighAvailability(Data, frozen=True):
    """Standbys of slurmctld."""

    enabled: bool = False
    backups: Annotated[int, Meta(ge=1, le=8)] = 1


class Persistence(Data, frozen=True):
    """Where slurmctld keeps its state: a claim that exists, or one that is made from these fields."""

    enabled: bool = True
    existing_claim: _Name = ""
    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    resources: FreeForm = field(default_factory=dict)
    selector: FreeForm | None = None
    volume_name: str = ""
    volume_mode: str = ""
    data_source: FreeForm | None = None
    data_source_ref: FreeForm | None = None
    volume_attributes_class_name: str = ""


class User(Data, frozen=True):
    """A person, known on every login and worker node (Isthmus only). The number is given: files belong to it."""

    name: Annotated[str, Meta(min_length=1, max_length=32, pattern=r"^[a-z_][a-z0-9_-]*$")]
    uid: Annotated[int, Meta(ge=1000, le=60000)]
    gid: Annotated[int, Meta(ge=1000, le=60000)] | None = None
    groups: Annotated[tuple[Annotated[str, Meta(max_length=32, pattern=r"^[a-z_][a-z0-9_-]*$")], ...], Meta()] = ()
    shell: Annotated[str, Meta(max_length=128, pattern=r"^/[A-Za-z0-9._/-]+$")] = "/bin/bash"
    sudo: bool = False
    ssh_public_keys: tuple[Annotated[str, Meta(max_length=16384, pattern=r"^[^\n\r]+$")], ...] = ()
    ssh_keys_secret_ref: KeyReference | None = None


Users = Annotated[tuple[User, ...], Meta(max_length=10000), keyed_by("name")]


def _same(ours: str, theirs: str) -> str:
    """Write in CEL that two references are to the same key; both are known to be there."""
    return f"(self.{ours}.name == oldSelf.{theirs}.name && self.{ours}.key == oldSelf.{theirs}.key)"


# Of the new and the old name for the key of tokens, the new one counts. No rule makes up values that may be absent
# (`orValue`): the API server would reckon with any size of them, and refuse the rule as too dear.
_SAME_JWT_KEY = Rule(
    "has(self.jwtKeyRef)"
    f" ? (has(oldSelf.jwtKeyRef) ? {_same('jwtKeyRef', 'jwtKeyRef')}"
    f" : !has(oldSelf.jwtHs256KeyRef) || {_same('jwtKeyRef', 'jwtHs256KeyRef')})"
    f" : (has(oldSelf.jwtKeyRef) ? has(self.jwtHs256KeyRef) && {_same('jwtHs256KeyRef', 'jwtKeyRef')}"
    f" : !has(oldSelf.jwtHs256KeyRef)"
    f" || has(self.jwtHs256KeyRef) && {_same('jwtHs256KeyRef', 'jwtHs256KeyRef')})",
    "jwtKeyRef cannot be changed: put another key into the same Secret, and it is rotated",
)
_SAME_CONTROLLER = Rule(
    "!has(oldSelf.controllerRef) || !has(oldSelf.controllerRef.name) || oldSelf.controllerRef.name == ''"
    " || (has(self.controllerRef) && has(self.controllerRef.name)"
    " && self.controllerRef.name == oldSelf.controllerRef.name)",
    "controllerRef cannot be changed: create another one for the other cluster, then delete this one",
)
_KEYS_UNLESS_EXTERNAL = (
    Rule("self.external || has(self.slurmKeyRef)", "slurmKeyRef is required unless external"),
    Rule(
        "self.external || has(self.jwtKeyRef) || has(self.jwtHs256KeyRef)", "jwtKeyRef is required unless external"
    ),
    Rule("!self.external || has(self.externalConfig)", "externalConfig is required when external is true"),
)


class NetworkTopology(Data, frozen=True):
    """The network topology, from which Slurm learns which nodes are near each other (Isthmus only)."""

    plugin: Literal["tree", "block"]
    """Switches above switches, or blocks of nodes side by side."""
    labels: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=317)], ...], Meta(max_length=8)] = ()
    """Labels of Kubernetes nodes, from the top to the leaf; a block is the last. Where it is empty, those of
    topology.nebius.com and topology.kubernetes.io count."""
    block_size: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """How many nodes a block is planned with; 18 where it is absent."""


class ControllerSpec(Data, frozen=True):
    """slurmctld: its keys, its configuration, its state."""

    cluster_name: Annotated[str, Meta(max_length=40, pattern=r"^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$")] | None = None
    """In Slurm and its accounting; <namespace>_<name> where it is absent."""
    slurm_key_ref: KeyReference | None = None
    jwt_key_ref: KeyReference | None = None
    jwt_hs256_key_ref: KeyReference | None = field(name="jwtHs256KeyRef", default=None)
    jwks_key_ref: KeyReference | None = None
    accounting_ref: LocalReference | None = None
    external: bool = False
    external_config: ExternalConfig | None = None
    ha: HighAvailability = HighAvailability()
    slurmctld: FreeForm = field(default_factory=dict)
    inplace_reconfigure: bool = False
    reconfigure: FreeForm = field(default_factory=dict)
    logfile: FreeForm = field(default_factory=dict)
    template: PodTemplate = PodTemplate()
    extra_conf: _Text = ""
    """Lines for slurm.conf, used unchanged; they override the generated settings."""
    config_file_refs: _References = None
    prolog_script_refs: _References = None
    epilog_script_refs: _References = None
    prolog_slurmctld_script_refs: _References = None
    epilog_slurmctld_script_refs: _References = None
    persistence: Persistence = Persistence()
    service: ServiceTemplate = ServiceTemplate()
    metrics: MetricsSpec = MetricsSpec()
    auth_type: Literal["slurm", "munge"] = "slurm"
    """How daemons authenticate to each other (Isthmus only)."""
    users: Users = ()
    """Users who can log in and run jobs, in addition to those of SSSD (Isthmus only)."""
    topology: NetworkTopology | None = None
    """If set, Slurm's topology is made from the labels of Kubernetes nodes (Isthmus only)."""

    @property
    def jwt_key(self) -> KeyReference | None:
        """The key of tokens, under its new or its old name."""
        return self.jwt_key_ref or self.jwt_hs256_key_ref

    @property
    def replicas(self) -> int:
        """How many slurmctld there are, standbys included."""
        return 1 + self.ha.backups if self.ha.enabled and not self.external else 1


class ReportedStatus(Data, frozen=True):
    """What the status of every kind has."""

    observed_generation: int = 0
    conditions: Conditions = ()


class ControllerStatus(ReportedStatus, frozen=True):
    """Status of slurmctld."""

    ready: str = ""
    """Ready and desired slurmctld, such as 1/1."""
    slurm_version: str = ""
    active: str = ""
    """The pod whose slurmctld is in charge."""
    config_hash: str = ""
    """Hash of the configuration that every daemon has loaded."""


class Controller(Data, frozen=True):
    """A Slurm cluster's slurmctld."""

    spec: Annotated[
        ControllerSpec,
        rules(
            *_KEYS_UNLESS_EXTERNAL,
            Rule(
                "!self.ha.enabled || (self.persistence.enabled && has(self.persistence.existingClaim)"
                " && self.persistence.existingClaim != '')",
                "ha needs persistence.existingClaim: a ReadWriteMany claim that all slurmctld share",
            ),
            Rule(
                "has(self.clusterName) == has(oldSelf.clusterName)"
                " && (!has(self.clusterName) || self.clusterName == oldSelf.clusterName)",
                "clusterName cannot be changed: accounting and the saved state know the cluster by it",
            ),
            Rule(
                "!has(self.slurmKeyRef) || !has(oldSelf.slurmKeyRef)"
                " || self.slurmKeyRef.name == oldSelf.slurmKeyRef.name",
                "slurmKeyRef.name cannot be changed: put another key into the same Secret, and it is rotated",
            ),
            _SAME_JWT_KEY,
            Rule(
                "self.persistence.enabled == oldSelf.persistence.enabled",
                "persistence.enabled cannot be changed: the saved state would be left behind",
            ),
            Rule(
                "!self.persistence.enabled"
                " || has(self.persistence.existingClaim) == has(oldSelf.persistence.existingClaim)"
                " && (!has(self.persistence.existingClaim)"
                " || self.persistence.existingClaim == oldSelf.persistence.existingClaim)",
                "persistence.existingClaim cannot be changed: the saved state would be left behind",
            ),
        ),
    ]
    metadata: ObjectMeta = ObjectMeta()
    status: ControllerStatus = ControllerStatus()


class StorageConfig(Data, frozen=True):
    """The database of slurmdbd."""

    host: Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9.:/_-]+$")]
    password_key_ref: KeyReference
    port: _Port = 3306
    database: Annotated[str, Meta(max_length=64, pattern=r"^[A-Za-z0-9_$-]+$")] = "slurm_acct_db"
    username: Annotated[str, Meta(max_length=80, pattern=r"^[^\s#\"\\]*$")] = ""


class EmbeddedDatabase(Data, frozen=True):
    """The MariaDB that the operator runs if no other database is named (Isthmus only)."""

    image: str = ""
    resources: FreeForm = field(default_factory=dict)
    persistence: Persistence = Persistence()
    template: PodTemplate = PodTemplate()


class AccountingSpec(Data, frozen=True):
    """slurmdbd and its database. Without storageConfig, the operator creates a database."""

    slurm_key_ref: KeyReference | None = None
    jwt_key_ref: KeyReference | None = None
    jwt_hs256_key_ref: KeyReference | None = field(name="jwtHs256KeyRef", default=None)
    jwks_key_ref: KeyReference | None = None
    external: bool = False
    external_config: ExternalConfig | None = None
    slurmdbd: FreeForm = field(default_factory=dict)
    template: PodTemplate = PodTemplate()
    storage_config: StorageConfig | None = None
    database: EmbeddedDatabase = EmbeddedDatabase()
    extra_conf: _Text = ""
    """Lines for slurmdbd.conf, used unchanged."""
    service: ServiceTemplate = ServiceTemplate()
    auth_type: Literal["slurm", "munge"] = "slurm"

    @property
    def jwt_key(self) -> KeyReference | None:
        """The key of tokens, under its new or its old name."""
        return self.jwt_key_ref or self.jwt_hs256_key_ref


class Accounting(Data, frozen=True):
    """slurmdbd."""

    spec: Annotated[AccountingSpec, rules(*_KEYS_UNLESS_EXTERNAL, _SAME_JWT_KEY)]
    metadata: ObjectMeta = ObjectMeta()
    status: ReportedStatus = ReportedStatus()


class ReplicatedStatus(ReportedStatus, frozen=True):
    """Status of a part that has several pods."""

    replicas: int = 0
    ready_replicas: int = 0
    selector: str = ""


class RestApiSpec(Data, frozen=True):
    """slurmrestd."""

    controller_ref: LocalReference
    replicas: Annotated[int, Meta(ge=0, le=1000)] = 1
    slurmrestd: FreeForm = field(default_factory=dict)
    template: PodTemplate = PodTemplate()
    service: ServiceTemplate = ServiceTemplate()


class RestApi(Data, frozen=True):
    """slurmrestd of a cluster."""

    spec: Annotated[
        RestApiSpec,
        rules(
            Rule("has(self.controllerRef.name) && self.controllerRef.name != ''", "controllerRef.name is required"),
            _SAME_CONTROLLER,
        ),
    ]
    metadata: ObjectMeta = ObjectMeta()
    status: ReplicatedStatus = ReplicatedStatus()


class SubMount(Data, frozen=True):
    """Another volume, mounted inside the shared root (Isthmus only)."""

    name: Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    """Of the pod's volume; without `volume`, that of a claim template."""
    mount_path: Annotated[str, Meta(max_length=1024, pattern=r"^(/([^/.:]|\.[^/.:]|\.\.[^/:])[^/:]*)+/?$")]
    """As jobs see it, such as /home."""
    sub_path: Annotated[str, Meta(max_length=1024)] = ""
    read_only: bool = False
    volume: FreeForm = field(default_factory=dict)
    """A volume source of a pod, such as {"persistentVolumeClaim": {"claimName": "home"}}."""


class SharedRoot(Data, frozen=True):
    """The root file system of login sessions and jobs (Isthmus only). The volume must already be filled."""

    volume: FreeForm
    """A volume source of a pod, such as {"persistentVolumeClaim": {"claimName": "jail"}}."""
    sub_mounts: Annotated[tuple[SubMount, ...], Meta(max_length=64)] = ()


class LoginSetSpec(Data, frozen=True):
    """Nodes that users log in to."""

    controller_ref: LocalReference = LocalReference()
    """The Controller; without a name, the only one of the namespace."""
    replicas: Annotated[int, Meta(ge=0, le=1000)] = 1
    login: FreeForm = field(default_factory=dict)
    initconf: FreeForm = field(default_factory=dict)
    template: PodTemplate = PodTemplate()
    root_ssh_authorized_keys: _Text = ""
    extra_sshd_config: _Text = ""
    sssd_conf_ref: KeyReference | None = None
    strategy: FreeForm = field(default_factory=dict)
    service: ServiceTemplate = ServiceTemplate()
    shared_root: SharedRoot | None = None
    """The root file system of users, instead of the image (Isthmus only)."""


class LoginSet(Data, frozen=True):
    """Login nodes of a cluster."""

    spec: Annotated[LoginSetSpec, rules(_SAME_CONTROLLER)]
    metadata: ObjectMeta = ObjectMeta()
    status: ReplicatedStatus = ReplicatedStatus()


class WorkerSsh(Data, frozen=True):
    """sshd on workers, for users who have a job there."""

    enabled: bool = False
    extra_sshd_config: _Text = ""
    """Lines of sshd_config. They override the generated ones, except for UsePAM and the listen address."""
    sssd_conf_ref: KeyReference | None = None
    """Without effect: workers know the users of the cluster and of the shared root."""


class PartitionSpec(Data, frozen=True):
    """A partition of this NodeSet's nodes, with the settings behind `Nodes=`."""

    enabled: bool = False
    config: Annotated[str, Meta(max_length=4096, pattern=r"^[^\n\r]*$")] = ""


class RollingUpdate(Data, frozen=True):
    """How many pods may be unavailable at a time."""

    max_unavailable: IntOrString = "25%"


class ScheduledUpdate(Data, frozen=True):
    """A maintenance reservation in Slurm, within which nodes are replaced."""

    start_time: datetime | None = None
    duration: _Duration = "30m"
    flags: Annotated[
        tuple[Annotated[str, Meta(max_length=32, pattern=r"^[A-Za-z_+=-]+$")], ...], Meta(max_length=32)
    ] = ()


class UpdateStrategy(Data, frozen=True):
    """How pods are updated to a new specification."""

    type: Literal["RollingUpdate", "OnDelete", "ScheduledUpdate"] = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()
    scheduled_update: ScheduledUpdate | None = None


UpdatePolicy = Annotated[
    UpdateStrategy,
    rules(
        Rule(
            "!has(self.type) || self.type != 'ScheduledUpdate' ||"
            " (has(self.scheduledUpdate) && has(self.scheduledUpdate.startTime))",
            "a ScheduledUpdate needs scheduledUpdate.startTime",
        ),
        Rule(
            "!has(self.rollingUpdate) || !has(self.rollingUpdate.maxUnavailable) ||"
            " (type(self.rollingUpdate.maxUnavailable) == int ? self.rollingUpdate.maxUnavailable >= 1"
            " : self.rollingUpdate.maxUnavailable.matches('^([1-9][0-9]?|100)%$'))",
            "rollingUpdate.maxUnavailable is a number from 1, or a percentage from 1% to 100%",
        ),
        Rule(
            "!has(self.scheduledUpdate) || !has(self.scheduledUpdate.duration)"
            " || (duration(self.scheduledUpdate.duration) >= duration('1m')"
            " && duration(self.scheduledUpdate.duration) <= duration('8760h'))",
            "scheduledUpdate.duration is between one minute and a year",
        ),
    ),
]


class ClaimRetention(Data, frozen=True):
    """Whether volume claims are kept or deleted."""

    when_deleted: Literal["Retain", "Delete"] = "Retain"
    when_scaled: Literal["Retain", "Delete"] = "Retain"


class Draining(Data, frozen=True):
    """How long a node that is removed may finish its jobs, and what happens then (Isthmus only)."""

    timeout: _Duration = ""
    """Such as 30m; empty for no limit."""
    on_timeout: Literal["Wait", "Requeue", "Cancel"] = "Wait"


SAME_CLAIMS = Rule(
    "has(self.volumeClaimTemplates) == has(oldSelf.volumeClaimTemplates)"
    " && (!has(self.volumeClaimTemplates)"
    " || self.volumeClaimTemplates == oldSelf.volumeClaimTemplates)",
    "volumeClaimTemplates cannot be changed: create another NodeSet, then delete this one",
)
DrainPolicy = Annotated[
    Draining,
    rules(
        Rule(
            "!has(self.timeout) || self.timeout == '' || duration(self.timeout) <= duration('87600h')",
            "timeout is at most ten years",
        )
    ),
]


class DeviceFiles(Data, frozen=True):
    """The devices that an extended resource stands for (Isthmus only)."""

    resource: Annotated[str, Meta(min_length=1, max_length=317, pattern=r"^[A-Za-z0-9][A-Za-z0-9./_-]*$")]
    """Such as example.org/npu."""
    files: Annotated[
        tuple[Annotated[str, Meta(max_length=256, pattern=r"^/[A-Za-z0-9_./*?\[\]-]+$")], ...],
        Meta(min_length=1, max_length=16),
    ]
    """Glob patterns of the device files in the container, one file per device: /dev/npu[0-9]*."""
    gres: Annotated[str, Meta(max_length=128)] = ""
    """The GRES, as name or name:type; empty for the one that the resource has anyway."""
    flags: Literal["", "nvidia_gpu_env", "amd_gpu_env", "intel_gpu_env", "opencl_env", "no_gpu_env"] = ""
    """Which variables of vendors Slurm sets for jobs with GPUs; empty for all."""


class NodeSetSpec(Data, frozen=True):
    """Worker nodes of one shape."""

    controller_ref: LocalReference = LocalReference()
    """The Controller; without a name, the only one of the namespace."""
    replicas: Annotated[int, Meta(ge=0, le=65533)] = 1
    scaling_mode: Literal["StatefulSet", "DaemonSet"] = "StatefulSet"
    slurmd: FreeForm = field(default_factory=dict)
    ssh: WorkerSsh = WorkerSsh()
    logfile: FreeForm = field(default_factory=dict)
    template: PodTemplate = PodTemplate()
    extra_conf: Annotated[str, Meta(max_length=16384, pattern=r"^[^\n\r]*\n?$")] = ""
    """Settings of the nodes as in a NodeName line of slurm.conf, such as Weight=10 Feature=fast."""
    partition: PartitionSpec = PartitionSpec()
    volume_claim_templates: Annotated[tuple[FreeForm, ...], Meta(max_length=64)] = ()
    update_strategy: UpdatePolicy = UpdateStrategy()
    revision_history_limit: Annotated[int, Meta(ge=0)] = 0
    persistent_volume_claim_retention_policy: ClaimRetention = ClaimRetention()
    min_ready_seconds: Annotated[int, Meta(ge=0)] = 0
    ordinal_padding: Annotated[int, Meta(ge=0, le=8)] = 0
    pin_to_node: bool = False
    workload_disruption_protection: bool = True
    prune_slurm_node_records: Literal["Never", "NodeNotFound"] = "Never"
    oversubscribe_node: bool = False
    drain: DrainPolicy = Draining()
    """What happens when a node is removed while jobs run on it (Isthmus only)."""
    registration: Literal["Dynamic", "Static"] = "Dynamic"
    """Whether nodes register dynamically with slurmctld, or are listed in slurm.conf (Isthmus only)."""
    shared_root: SharedRoot | None = None
    """The root file system of jobs; plugstack.conf refers to it as well (Isthmus only)."""
    autoscale: Autoscale | None = None
    """If set, Slurm starts and stops nodes within these limits, and replicas is how many nodes it knows."""
    initial_number_ephemeral_nodes: Annotated[int, Meta(ge=0, le=65533)] = 0
    """With autoscale: how many nodes are started with the NodeSet (Isthmus only)."""
    suspend_time: Annotated[int, Meta(ge=1, le=2_147_483_647)] | None = None
    """With autoscale: seconds that a node may be idle, unless autoscale.idleTime is set (Isthmus only)."""
    ephemeral_topology_wait_timeout: Annotated[int, Meta(ge=60, le=86400)] | None = None
    """With autoscale and a topology of the Controller: for how many seconds a node that starts waits for its place
    there. Without one until then, its container fails and restarts. Not set: it does not wait (Isthmus only)."""
    devices: Annotated[tuple[DeviceFiles, ...], Meta(max_length=16)] = ()
    """Device files of resources that the operator does not know, or that differ on these nodes (Isthmus only)."""
    fabric: Annotated[str, Meta(max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")] = "root"
    """The network of these nodes: jobs never have nodes of two. It is the top of the topology (Isthmus only)."""
    gres_config: Annotated[tuple[_Line, ...], Meta(max_length=64)] = ()
    """Lines of gres.conf for these nodes, without NodeName, instead of the generated ones (Isthmus only)."""

    @property
    def elastic(self) -> bool:
        """Whether a policy says when nodes are on."""
        return self.autoscale is not None and self.scaling_mode == "StatefulSet"


class NodeSetStatus(ReportedStatus, frozen=True):
    """Number of nodes by state, in Kubernetes and in Slurm."""

    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    desired: int = 0
    slurm_idle: int = 0
    slurm_allocated: int = 0
    slurm_down: int = 0
    slurm_drain: int = 0
    node_set_hash: str = ""
    collision_count: int | None = None
    ordinal_to_node: dict[str, str] = field(default_factory=dict)
    selector: str = ""
    victims: tuple[str, ...] = ()
    """Pods chosen for deletion; kept until they are gone or needed again (Isthmus only)."""


class NodeSet(Data, frozen=True):
    """Worker nodes of a cluster."""

    spec: Annotated[
        NodeSetSpec,
        rules(
            _SAME_CONTROLLER,
            SAME_CLAIMS,
            Rule(
                "!has(self.autoscale) || !has(self.scalingMode) || self.scalingMode == 'StatefulSet'",
                "autoscale needs scalingMode StatefulSet: Slurm starts and stops nodes by their numbers",
            ),
        ),
    ]
    metadata: ManagedMeta = ManagedMeta()
    status: NodeSetStatus = NodeSetStatus()

    @property
    def elastic(self) -> bool:
        """Whether its nodes stand in slurm.conf for Slurm to start and stop, as from its first policy on."""
        announced = names.ANNOUNCED_ANNOTATION in self.metadata.annotations
        return self.spec.elastic or (announced and self.spec.scaling_mode == "StatefulSet")

    @property
    def policy(self) -> Autoscale:
        """When nodes are on. Without a policy, or when it was taken away, all of them are, at all times."""
        return self.spec.autoscale or Autoscale(min=self.spec.replicas)


class TokenSpec(Data, frozen=True):
    """The user and lifetime of the token, and the Secret that it is written to."""

    username: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]*$")]
    jwt_key_ref: KeyReference | None = None
    jwt_hs256_key_ref: KeyReference | None = field(name="jwtHs256KeyRef", default=None)
    lifetime: _Duration | None = None
    refresh: bool = True
    secret_ref: KeyReference | None = None

    @property
    def jwt_key(self) -> KeyReference | None:
        """The key of tokens, under its new or its old name."""
        return self.jwt_key_ref or self.jwt_hs256_key_ref


class TokenStatus(ReportedStatus, frozen=True):
    """The current token."""

    issued_at: datetime | None = None
    expires_at: datetime | None = None


class Token(Data, frozen=True):
    """A token for slurmrestd in a Secret, renewed before it expires."""

    spec: Annotated[
        TokenSpec,
        rules(
            Rule("has(self.jwtKeyRef) || has(self.jwtHs256KeyRef)", "jwtKeyRef is required"),
            _SAME_JWT_KEY,
            Rule(
                "!has(self.lifetime) || self.lifetime == '' ||"
                " (duration(self.lifetime) >= duration('1m') && duration(self.lifetime) <= duration('87600h'))",
                "lifetime is between one minute and ten years",
            ),
        ),
    ]
    metadata: ObjectMeta = ObjectMeta()
    status: TokenStatus = TokenStatus()


_API = f"{GROUP}/{VERSION}"
CONTROLLERS = Kind(Controller, _API, "controllers", "Controller")
NODESETS = Kind(NodeSet, _API, "nodesets", "NodeSet")
LOGINSETS = Kind(LoginSet, _API, "loginsets", "LoginSet")
ACCOUNTINGS = Kind(Accounting, _API, "accountings", "Accounting")
RESTAPIS = Kind(RestApi, _API, "restapis", "RestApi")
TOKENS = Kind(Token, _API, "tokens", "Token")
