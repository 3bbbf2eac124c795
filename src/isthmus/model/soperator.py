"""A whole Slurm cluster in one custom resource, and its worker sets: the kinds of slurm.nebius.ai.

Fields are those of soperator, so its manifests are taken as they are, except that almost all of them may be left
out; fields that are ours say so. `domain.operator.clusterparts` makes the parts (`model.slinky`) from them. `INERT`
names fields that are known but have no effect yet: users who set one are warned.
"""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field

from isthmus.model.base import Data, Kind
from isthmus.model.elastic import Autoscale
from isthmus.model.meta import Object, ObjectMeta
from isthmus.model.schema import FreeForm, IntOrString, Quantity, Rule, keyed_by, rules
from isthmus.model.slinky import (
    ClaimRetention,
    DeviceFiles,
    Draining,
    DrainPolicy,
    LocalReference,
    ReportedStatus,
    ScrapeDuration,
    Users,
)

GROUP = "slurm.nebius.ai"

_Name = Annotated[str, Meta(max_length=253, pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")]
_Line = Annotated[str, Meta(max_length=4096, pattern=r"^[^\n\r]*$")]
_Number = Annotated[int, Meta(ge=0, le=2_147_483_647)]
_Weight = Annotated[int, Meta(ge=0, le=32767)]
_Port = Annotated[int, Meta(ge=0, le=65535)]
_Size = Annotated[int, Meta(ge=0, le=65533)]
_Duration = Annotated[str, Meta(max_length=32, pattern=r"^([0-9]+(\.[0-9]+)?(ms|[smhdwy]))*$")]
_GoDuration = Annotated[str, Meta(max_length=32, pattern=r"^([0-9]+(\.[0-9]+)?(ms|[smh]))*$")]
_YesNo = Literal["yes", "no"]
_PullPolicy = Literal["Always", "Never", "IfNotPresent"]
_ProcMount = Literal["Default", "Unmasked"]
_MaxUnavailable = Annotated[
    IntOrString,
    rules(
        Rule(
            "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
            "maxUnavailable is a number from 1, or a percentage from 1% to 100%",
        )
    ),
]
Resources = dict[str, Quantity]
"""Amounts by the name of the resource, as requests have them."""


class NodeFilter(Data, frozen=True):
    """Which Kubernetes nodes something may run on; chosen by its name."""

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    affinity: FreeForm | None = None
    tolerations: tuple[FreeForm, ...] = ()
    node_selector: dict[str, str] = field(default_factory=dict)


class NodeVolume(Data, frozen=True):
    """Where data is: a volume source of the cluster by its name, or a claim that is made for each pod."""

    volume_source_name: str | None = None
    volume_claim_template_spec: FreeForm | None = None


class _VolumeMount(Data, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    mount_path: Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^/[^\n\r:]*$")]
    sub_path: Annotated[str, Meta(max_length=4096, pattern=r"^[^\n\r]*$")] = ""
    read_only: bool = False


class NodeVolumeMount(_VolumeMount, frozen=True):
    """A volume, and where it is mounted."""

    volume_source_name: str | None = None
    volume_claim_template_spec: FreeForm | None = None


class NodeContainer(Data, frozen=True):
    """One container of a node's pod. Empty fields have defaults."""

    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    custom_env: tuple[FreeForm, ...] = ()
    image_pull_policy: _PullPolicy | None = None
    image_pull_secrets: tuple[LocalReference, ...] = ()
    port: _Port | None = None
    resources: Resources = field(default_factory=dict)
    liveness_probe: FreeForm | None = None
    readiness_probe: FreeForm | None = None
    security_limits_config: str = ""
    app_armor_profile: str = ""
    proc_mount: _ProcMount | None = None


class PopulateJail(Data, frozen=True):
    """How the shared root file system of login sessions and jobs is filled; new clusters have one."""

    enabled: bool | None = None
    """`false`: login sessions and jobs share only /home (Isthmus only)."""
    image: str = ""
    """A complete Linux with Slurm, of the cluster's version; empty for the image of login nodes."""
    image_pull_policy: _PullPolicy | None = None
    image_pull_secrets: tuple[LocalReference, ...] = ()
    k8s_node_filter_name: str = field(name="k8sNodeFilterName", default="")
    jail_snapshot_volume: NodeVolume | None = None
    """A volume that holds the files, instead of an image."""
    overwrite: bool | None = None
    app_armor_profile: str = ""
    priority_class: str = ""
    host_users: bool | None = None


class Secrets(Data, frozen=True):
    """Secrets that you provide."""

    sshd_keys_name: _Name = ""
    """The host keys of login nodes; without it they are made once."""


class _Placed(Data, frozen=True):
    size: _Size | None = None
    k8s_node_filter_name: str = field(name="k8sNodeFilterName", default="")
    """One of k8sNodeFilters; empty for any node."""
    priority_class: str = ""
    host_users: bool | None = None
    custom_init_containers: tuple[FreeForm, ...] = ()
    resources: Resources = field(default_factory=dict)
    """For the main container, unless that sets them itself (Isthmus only)."""


class _WithSssd(_Placed, frozen=True):
    munge: NodeContainer = NodeContainer()
    sssd: NodeContainer | None = None
    sssd_debug_level: Annotated[int, Meta(ge=0, le=65535)] = 0
    sssd_conf_secret_ref_name: _Name = ""
    sssd_ldap_ca_config_map_ref_name: _Name = field(name="sssdLdapCAConfigMapRefName", default="")


class OpenMetricsServiceMonitor(Data, frozen=True):
    """How Prometheus scrapes slurmctld."""

    interval: ScrapeDuration = "30s"
    scrape_timeout: ScrapeDuration = ""
    """28s if empty, or the interval if that is shorter."""
    endpoints: tuple[Literal["jobs", "jobs-users-accts", "nodes", "partitions", "scheduler"], ...] = ()
    """All five if empty."""
    labels: dict[str, str] = field(default_factory=dict)
    """Of the ServiceMonitor: those by which your Prometheus selects it (Isthmus only)."""


class OpenMetrics(Data, frozen=True):
    """Whether slurmctld serves metrics of its own, and who scrapes them."""

    enabled: bool = True
    service_monitor: OpenMetricsServiceMonitor = OpenMetricsServiceMonitor()


class ControllerVolumes(Data, frozen=True):
    """Where slurmctld keeps its state, and more volumes."""

    spool: NodeVolume = NodeVolume()
    jail: NodeVolume = NodeVolume()
    custom_mounts: tuple[NodeVolumeMount, ...] = ()


class ControllerNode(_WithSssd, frozen=True):
    """The node of slurmctld; of several, one works and the others stand by on shared state (Isthmus only)."""

    slurmctld: NodeContainer = NodeContainer()
    volumes: ControllerVolumes = ControllerVolumes()
    service_account_name: _Name = ""
    open_metrics: OpenMetrics | None = None


class UserIsolation(Data, frozen=True):
    """How much of a login node one user may take."""

    enabled: bool | None = None
    memory_high: Quantity | None = None
    memory_max: Quantity | None = None
    cpu_weight: Annotated[int, Meta(ge=1, le=10000)] | None = None


class LoginVolumes(Data, frozen=True):
    """The shared root file system, and more volumes."""

    jail: NodeVolume = NodeVolume()
    jail_sub_mounts: tuple[NodeVolumeMount, ...] = ()
    custom_mounts: tuple[NodeVolumeMount, ...] = ()


class LoginNode(_WithSssd, frozen=True):
    """Nodes that users log in to."""

    sshd: NodeContainer = NodeContainer()
    sshd_service_type: Literal["LoadBalancer", "NodePort", "ClusterIP"] | None = None
    """How the SSH port is reached; a new cluster whose manifest does not say so gets NodePort."""
    sshd_service_annotations: dict[str, str] = field(default_factory=dict)
    sshd_service_load_balancer_ip: str = field(name="sshdServiceLoadBalancerIP", default="")
    sshd_service_load_balancer_source_ranges: tuple[str, ...] = ()
    sshd_service_node_port: _Port = 0
    sshd_config_map_ref_name: _Name = ""
    ssh_root_public_keys: tuple[Annotated[str, Meta(max_length=16384, pattern=r"^[^\n\r]*\n?$")], ...] = ()
    volumes: LoginVolumes = LoginVolumes()
    user_isolation: (
        Annotated[
            UserIsolation,
            rules(
                Rule(
                    "!has(self.memoryHigh) || !has(self.memoryMax) ||"
                    " quantity(string(self.memoryHigh)).compareTo(quantity(string(self.memoryMax))) <= 0",
                    "memoryHigh must not exceed memoryMax",
                )
            ),
        ]
        | None
    ) = None


class WorkerVolumes(Data, frozen=True):
    """The shared root file system, and more volumes."""

    spool: NodeVolume = NodeVolume()
    jail: NodeVolume = NodeVolume()
    jail_sub_mounts: tuple[NodeVolumeMount, ...] = ()
    custom_mounts: tuple[NodeVolumeMount, ...] = ()
    shared_memory_size: Quantity | None = None


class WorkerNode(_WithSssd, frozen=True):
    """The built-in workers of the cluster; NodeSets add more."""

    max_unavailable: _MaxUnavailable | None = None
    """How many may be unavailable during an update: a number or a percentage."""
    slurmd: NodeContainer = NodeContainer()
    volumes: WorkerVolumes = WorkerVolumes()
    cgroup_version: Literal["v1", "v2"] | None = None
    drain: DrainPolicy = Draining()
    """What happens when a node is removed while jobs run on it (Isthmus only)."""


class PasswordReference(Data, frozen=True):
    """The Secret that holds a password."""

    name: _Name = ""
    key: str = ""


class DatabaseTls(Data, frozen=True):
    """How slurmdbd authenticates to its database."""

    server_ca_secret_ref: _Name = field(name="serverCASecretRef", default="")
    client_cert_secret_ref: _Name = ""


class ExternalDatabase(Data, frozen=True):
    """An external database."""

    enabled: bool = False
    host: Annotated[str, Meta(max_length=253, pattern=r"^[A-Za-z0-9.:/_-]*$")] = ""
    port: Annotated[int, Meta(ge=1, le=65535)] = 3306
    user: Annotated[str, Meta(max_length=80, pattern=r"^[^\s#\"\\]*$")] = ""
    password_secret_key_ref: PasswordReference = PasswordReference()
    tls: DatabaseTls | None = None
    storage_parameters: dict[str, _Line] = field(default_factory=dict)


class DatabaseMetrics(Data, frozen=True):
    """Metrics of the database."""

    enabled: bool | None = None


class OwnDatabase(NodeContainer, frozen=True):
    """The MariaDB that the operator runs; mariadb-operator is not needed."""

    enabled: bool = False
    protected_secret: Annotated[
        bool, rules(Rule("self == oldSelf", "protectedSecret cannot be changed: delete the cluster, or leave it"))
    ] = False
    pod_security_context: FreeForm | None = None
    security_context: FreeForm | None = None
    replicas: Annotated[int, Meta(ge=0, le=9)] | None = None
    metrics: DatabaseMetrics | None = None
    replication: FreeForm | None = None
    storage: FreeForm = field(default_factory=dict)
    priority_class_name: str = ""


class SlurmdbdConfig(Data, frozen=True):
    """Lines of slurmdbd.conf."""

    archive_events: _YesNo | None = None
    archive_jobs: _YesNo | None = None
    archive_resvs: _YesNo | None = None
    archive_steps: _YesNo | None = None
    archive_suspend: _YesNo | None = None
    archive_txn: _YesNo | None = field(name="archiveTXN", default=None)
    archive_usage: _YesNo | None = None
    debug_level: (
        Literal["quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5"]
        | None
    ) = None
    tcp_timeout: Annotated[int, Meta(ge=0, le=32767)] | None = None
    purge_event_after: _Line = ""
    purge_job_after: _Line = ""
    purge_resv_after: _Line = ""
    purge_step_after: _Line = ""
    purge_suspend_after: _Line = ""
    purge_txn_after: _Line = field(name="purgeTXNAfter", default="")
    purge_usage_after: _Line = ""
    private_data: _Line = ""
    debug_flags: _Line = ""


class AccountingSlurmConfig(Data, frozen=True):
    """Lines of slurm.conf that accounting needs."""

    accounting_storage_tres: _Line = field(name="accountingStorageTRES", default="")
    accounting_store_flags: _Line = ""
    acct_gather_interconnect_type: _Line = ""
    acct_gather_filesystem_type: _Line = ""
    acct_gather_profile_type: _Line = ""
    job_acct_gather_type: Literal["jobacct_gather/linux", "jobacct_gather/cgroup", "jobacct_gather/none"] | None = (
        None
    )
    job_acct_gather_frequency: _Number | None = None
    job_acct_gather_params: Literal["NoShared", "UsePss", "OverMemoryKill", "DisableGPUAcct"] | None = None
    priority_weight_age: _Weight | None = None
    priority_weight_fairshare: _Weight | None = None
    priority_weight_qos: _Weight | None = field(name="priorityWeightQOS", default=None)
    priority_weight_tres: _Line = field(name="priorityWeightTRES", default="")


class AccountingNode(_Placed, frozen=True):
    """slurmdbd, and its database: an external one, or (by default) one that the operator creates."""

    enabled: bool = False
    slurmdbd: NodeContainer = NodeContainer()
    munge: NodeContainer = NodeContainer()
    external_db: ExternalDatabase = field(name="externalDB", default=ExternalDatabase())
    mariadb_operator: OwnDatabase = OwnDatabase()
    slurmdbd_config: SlurmdbdConfig = SlurmdbdConfig()
    slurm_config: AccountingSlurmConfig = AccountingSlurmConfig()


class RestNode(_Placed, frozen=True):
    """slurmrestd. It always runs, since the operator itself needs it; the rest is as written."""

    enabled: bool = False
    thread_count: Annotated[int, Meta(ge=2, le=1024)] | None = None
    max_connections: Annotated[int, Meta(ge=2, le=65535)] | None = None
    rest: NodeContainer = NodeContainer()


class PodMonitorConfig(Data, frozen=True):
    """How Prometheus scrapes the exporter."""

    job_label: Annotated[str, Meta(max_length=317)] = "slurm-exporter"
    """The label of the pod whose value Prometheus takes for the job; without such a label it is the PodMonitor."""
    interval: ScrapeDuration = "30s"
    scrape_timeout: ScrapeDuration = ""
    """20s if empty, or the interval if that is shorter."""
    relabel_config: tuple[FreeForm, ...] = ()
    metric_relabel_configs: tuple[FreeForm, ...] = ()
    """After the built-in one, which drops the labels pod, instance and container: series outlive a pod."""
    labels: dict[str, str] = field(default_factory=dict)
    """Of the PodMonitor: those by which your Prometheus selects it (Isthmus only)."""


class ExporterNode(_Placed, frozen=True):
    """The exporter, which serves metrics of Slurm to Prometheus."""

    enabled: bool = False
    pod_monitor_config: PodMonitorConfig | None = None
    exporter: FreeForm | None = None
    """Deprecated."""
    munge: FreeForm | None = None
    """Deprecated."""
    volumes: FreeForm | None = None
    """Deprecated."""
    exporter_container: NodeContainer | None = None
    collection_interval: _GoDuration = ""
    """How often it reads what slurmctld does not announce; 30s where it is empty."""
    max_collector_inflight: Annotated[int, Meta(ge=1, le=1024)] | None = None
    job_source: Literal["controller", "accounting"] | None = None
    accounting_jobs_lookback: _GoDuration = ""
    """With jobSource accounting: how far back jobs are read; 1h where it is empty."""
    service_account_name: _Name = ""
    """An account of yours, with which it may read labels of Kubernetes nodes; its own has no rights."""
    data_volume: NodeVolume = NodeVolume()
    """Where it keeps counters and the usage of jobs. Without one, they are lost with the pod (Isthmus only)."""


class SlurmNodes(Data, frozen=True):
    """The nodes of the cluster, by what they are for."""

    controller: ControllerNode = ControllerNode()
    worker: WorkerNode = WorkerNode()
    login: LoginNode = LoginNode()
    accounting: AccountingNode = AccountingNode()
    rest: RestNode = RestNode()
    exporter: ExporterNode = ExporterNode()


class Partition(Data, frozen=True):
    """A partition: of all nodes, or of some NodeSets."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")]
    is_all: bool = False
    node_set_refs: tuple[_Name, ...] = ()
    config: _Line = ""


class PartitionConfiguration(Data, frozen=True):
    """Partitions of the cluster."""

    config_type: Literal["default", "custom", "structured"] = "default"
    raw_config: tuple[_Line, ...] = ()
    partitions: tuple[Partition, ...] = ()


class SlurmConfig(Data, frozen=True):
    """Settings of slurm.conf by name. Those that are absent have Slurm's defaults."""

    def_mem_per_node: _Number | None = None
    def_cpu_per_gpu: _Number | None = field(name="defCpuPerGPU", default=None)
    complete_wait: Annotated[int, Meta(ge=0, le=65535)] | None = None
    epilog: _Line = ""
    prolog: _Line = ""
    task_prolog: _Line = ""
    task_plugin_param: _Line = ""
    max_job_count: Annotated[int, Meta(ge=1, le=2_147_483_647)] | None = None
    min_job_age: _Number | None = None
    message_timeout: Annotated[int, Meta(ge=1, le=65535)] | None = None
    topology_plugin: _Line = ""
    topology_param: _Line = ""
    suspend_time: _Number | None = None
    resume_timeout: Annotated[int, Meta(ge=1, le=65535)] | None = None


class Topology(Data, frozen=True):
    """The network, as Slurm sees it."""

    block_size: Annotated[int, Meta(ge=1, le=65535)] | None = None


class MpiConfig(Data, frozen=True):
    """Content of mpi.conf."""

    pmix_env: _Line = "OMPI_MCA_btl_tcp_if_include=eth0"


class PlugStackConfig(Data, frozen=True):
    """SPANK plugins."""

    pyxis: FreeForm | None = None
    nccl_debug: FreeForm | None = None
    nccl_inspector_pre_conf: FreeForm | None = None
    custom_plugins: tuple[FreeForm, ...] = ()


class ConfigWriterNode(_Placed, frozen=True):
    """Where sconfigcontroller runs."""


class ConfigWriter(Data, frozen=True):
    """sconfigcontroller, which writes files of JailedConfigs onto the shared root."""

    node: ConfigWriterNode = ConfigWriterNode()
    container: NodeContainer = NodeContainer()
    run_as_uid: _Number | None = None
    run_as_gid: _Number | None = None
    reconfigure_poll_interval: _Duration = ""
    reconfigure_wait_timeout: _Duration = ""
    """Time after which a node that has not loaded a change is reported as a failure; 5m if empty."""
    host_users: bool | None = None
    service_account_name: _Name = ""


class HealthCheckState(Data, frozen=True):
    """Nodes in this state are checked."""

    state: Literal["ALLOC", "ANY", "CYCLE", "IDLE", "NONDRAINED_IDLE", "MIXED"]


class HealthCheckConfig(Data, frozen=True):
    """The program with which Slurm checks its nodes."""

    health_check_interval: Annotated[int, Meta(ge=0, le=65535)]
    health_check_program: Annotated[str, Meta(max_length=4096, pattern=r"^/[^\s#\"]*$")]
    health_check_node_state: Annotated[tuple[HealthCheckState, ...], Meta(min_length=1)]


VolumeSource = Annotated[
    dict[str, Any],
    Meta(
        extra_json_schema={
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 63}},
            "required": ["name"],
        }
    ),
]
"""A volume by its name; all other fields are those of a volume of a pod, and go there unread."""


class SlurmClusterSpec(Data, frozen=True):
    """A Slurm cluster."""

    cr_version: str = ""
    maintenance: Literal[
        "none",
        "downscale",
        "downscaleAndDeletePopulateJail",
        "downscaleAndOverwritePopulateJail",
        "skipPopulateJail",
    ] = "none"
    populate_jail: PopulateJail | None = None
    k8s_node_filters: Annotated[tuple[NodeFilter, ...], keyed_by("name")] = field(name="k8sNodeFilters", default=())
    volume_sources: Annotated[tuple[VolumeSource, ...], keyed_by("name")] = ()
    secrets: Secrets = Secrets()
    slurm_nodes: SlurmNodes = SlurmNodes()
    partition_configuration: Annotated[
        PartitionConfiguration,
        rules(
            Rule(
                "!has(self.configType) || self.configType != 'structured'"
                " || (has(self.partitions) && size(self.partitions) > 0)",
                "a structured partition configuration needs at least one partition",
            )
        ),
    ] = PartitionConfiguration()
    slurm_config: SlurmConfig = SlurmConfig()
    topology: Topology | None = None
    custom_slurm_config: str = ""
    custom_cgroup_config: str = ""
    cgroup_version: Literal["v1", "v2"] | None = None
    mpi_config: MpiConfig = MpiConfig()
    plug_stack_config: PlugStackConfig | None = None
    s_config_controller: ConfigWriter | None = field(name="sConfigController", default=None)
    use_default_app_armor_profile: bool = False
    health_check_config: HealthCheckConfig | None = None
    users: Users = ()
    """Users who can log in and run jobs (Isthmus only)."""
    config_file_refs: Annotated[tuple[LocalReference, ...], Meta(max_length=32)] = ()
    """ConfigMaps with further files of Slurm, such as job_submit.lua or topology.conf (Isthmus only)."""


class SlurmClusterStatus(ReportedStatus, frozen=True):
    """Status of the cluster."""

    phase: str = ""
    """Pending, Not available or Available."""
    name_prefix: str | None = None
    """Prefix of the names of its parts; chosen once."""
    ready_login: int = 0
    ready_workers: int = 0
    workers: str = ""
    """Ready and desired workers, such as 3/3."""
    ready_s_config_controller: int = field(name="readySConfigController", default=0)
    slurm_version: str = ""
    jail_image: str = ""
    """The image that the files of the shared root are from (Isthmus only)."""
    jail_filled_at: str = ""
    """When they were written (Isthmus only)."""
    jail_image_wanted: str = ""
    """The image that a refresh would update them to (Isthmus only)."""


class SlurmCluster(Object, frozen=True):
    """A Slurm cluster: its controller, workers, login nodes, accounting and REST API."""

    spec: SlurmClusterSpec = SlurmClusterSpec()
    status: SlurmClusterStatus = SlurmClusterStatus()


class Image(Data, frozen=True):
    """A container image, and when it is pulled."""

    repository: str = ""
    tag: str = ""
    pull_policy: _PullPolicy | None = None

    @property
    def reference(self) -> str:
        """The image as a container names it; empty for ours."""
        return f"{self.repository}:{self.tag}" if self.tag else self.repository


class ContainerSecurity(Data, frozen=True):
    """What a container may do."""

    limits_config: str = ""
    app_armor_profile: str = ""
    proc_mount: _ProcMount | None = None


class SetVolumeMount(_VolumeMount, frozen=True):
    """A volume, where it is mounted, and what it is: a volume source, or a claim that is made for each pod."""

    volume_source: FreeForm | None = None
    volume_claim_template_spec: FreeForm | None = None


class SetVolumes(Data, frozen=True):
    """Volumes of a worker."""

    spool: FreeForm | None = None
    jail: FreeForm | None = None
    jail_sub_mounts: tuple[SetVolumeMount, ...] = ()
    custom_volume_mounts: tuple[SetVolumeMount, ...] = ()
    shared_memory_size: Quantity | None = None
    persistent_volume_claim_retention_policy: ClaimRetention = ClaimRetention(
        when_deleted="Delete", when_scaled="Delete"
    )


class SideContainer(Data, frozen=True):
    """A container beside slurmd."""

    image: Image = Image()
    resources: Resources = field(default_factory=dict)
    liveness_probe: FreeForm | None = None
    readiness_probe: FreeForm | None = None
    security: ContainerSecurity | None = None


class SlurmdContainer(SideContainer, frozen=True):
    """The container of slurmd."""

    custom_env: tuple[FreeForm, ...] = ()
    volumes: SetVolumes = SetVolumes()
    port: Annotated[int, Meta(ge=1, le=65535)] = 6818


class NodeConfig(Data, frozen=True):
    """More settings of the nodes in Slurm."""

    features: tuple[Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9_.:=+-]+$")], ...] = ()
    auto_resume: bool | None = None
    static: _Line = ""
    """More fields of the nodes, as in a NodeName line of slurm.conf."""
    dynamic: _Line = ""
    """Slurm's `Extra` field of the nodes; kept as it is written, never seen by a shell."""
    gres_config: tuple[_Line, ...] = ()


class NvidiaSpec(Data, frozen=True):
    """Settings for GPUs of NVIDIA."""

    gdr_copy_enabled: bool | None = None


class GpuSpec(Data, frozen=True):
    """Whether the nodes have GPUs."""

    enabled: bool = False
    nvidia: NvidiaSpec | None = None


class DockerSpec(Data, frozen=True):
    """Whether jobs can run Docker."""

    enabled: bool | None = None


class SetTopology(Data, frozen=True):
    """Where the nodes are in the network."""

    fabric: Annotated[str, Meta(max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")] = "root"
    """Jobs never have nodes of two fabrics."""


class NodeSetSpec(Data, frozen=True):
    """Worker nodes of one shape, of a SlurmCluster."""

    cluster_name: _Name = ""
    """The SlurmCluster; empty for the only one of the namespace."""
    replicas: _Size = 1
    max_unavailable: IntOrString = 500
    ephemeral_nodes: bool = False
    """Slurm starts nodes when it gives them to jobs, and stops idle ones; `replicas` is how many there can be."""
    initial_number_ephemeral_nodes: _Size = 1
    """How many of these are started with the NodeSet."""
    ephemeral_topology_wait_timeout: Annotated[int, Meta(ge=60, le=86400)] = 180
    """For how many seconds a node with GPUs that Slurm starts waits for its place in Slurm's topology."""
    enable_host_user_namespace: bool = False
    worker_init_random_delay_seconds: Annotated[int, Meta(ge=0, le=86400)] = 0
    slurmd: SlurmdContainer = SlurmdContainer()
    munge: SideContainer | None = None
    sssd: SideContainer | None = None
    sssd_debug_level: Annotated[int, Meta(ge=0, le=65535)] = 0
    sssd_conf_secret_ref_name: _Name = ""
    sssd_ldap_ca_config_map_ref_name: _Name = field(name="sssdLdapCAConfigMapRefName", default="")
    node_config: NodeConfig = NodeConfig()
    gpu: GpuSpec = GpuSpec()
    docker: DockerSpec | None = None
    topology: SetTopology | None = None
    config_map_ref_supervisord: _Name = ""
    config_map_ref_sshd: _Name = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: FreeForm | None = None
    tolerations: tuple[FreeForm, ...] = ()
    priority_class: str = ""
    worker_annotations: dict[str, str] = field(default_factory=dict)
    custom_init_containers: tuple[FreeForm, ...] = ()
    image_pull_secrets: tuple[LocalReference, ...] = ()
    update_strategy: Literal["rollingUpdate", "slurmAwareRollingUpdate"] = "rollingUpdate"
    """Both drain a node before they replace it."""
    drain: DrainPolicy = Draining()
    """What happens when a node is removed while jobs run on it (Isthmus only)."""
    autoscale: Autoscale | None = None
    """Limits within which Slurm starts and stops nodes, if ephemeralNodes is true (Isthmus only)."""
    devices: Annotated[tuple[DeviceFiles, ...], Meta(max_length=16)] = ()
    """Device files of resources that the operator does not know, or that differ on these nodes (Isthmus only)."""


class NodeSetStatus(ReportedStatus, frozen=True):
    """Status of the workers."""

    phase: str = ""
    """Pending, Provisioning, Ready, Degraded or Terminating."""
    replicas: int = 0
    label_selector: str = ""


class NodeSet(Data, frozen=True):
    """Worker nodes of a SlurmCluster."""

    spec: Annotated[
        NodeSetSpec,
        rules(
            Rule(
                "!has(self.maxUnavailable) ||"
                " (type(self.maxUnavailable) == int ? (self.maxUnavailable >= 1 && self.maxUnavailable <= 500)"
                " : self.maxUnavailable.matches('^([1-9][0-9]?|100)%$'))",
                "maxUnavailable is a number from 1 to 500, or a percentage from 1% to 100%",
            )
        ),
    ] = NodeSetSpec()
    metadata: ObjectMeta = ObjectMeta()
    status: NodeSetStatus = NodeSetStatus()


_SSSD: Final = ("sssd", "sssdDebugLevel", "sssdConfSecretRefName", "sssdLdapCAConfigMapRefName")

INERT: Final = frozenset(
    (
        "plugStackConfig.ncclDebug",
        "plugStackConfig.ncclInspectorPreConf",
        "plugStackConfig.pyxis",
        "sConfigController.container.args",
        "sConfigController.container.command",
        "sConfigController.container.port",
        "sConfigController.container.securityLimitsConfig",
        "sConfigController.reconfigurePollInterval",
        "sConfigController.runAsGid",
        "sConfigController.runAsUid",
        "sConfigController.serviceAccountName",
        "slurmNodes.accounting.mariadbOperator.metrics",
        "slurmNodes.accounting.mariadbOperator.port",
        "slurmNodes.accounting.mariadbOperator.protectedSecret",
        "slurmNodes.accounting.mariadbOperator.replicas",
        "slurmNodes.accounting.mariadbOperator.replication",
        "slurmNodes.accounting.mariadbOperator.securityLimitsConfig",
        "slurmNodes.accounting.munge",
        "slurmNodes.accounting.size",
        "slurmNodes.accounting.slurmdbd.securityLimitsConfig",
        "slurmNodes.controller.munge",
        "slurmNodes.controller.slurmctld.securityLimitsConfig",
        "slurmNodes.controller.sssd",
        "slurmNodes.controller.sssdConfSecretRefName",
        "slurmNodes.controller.sssdDebugLevel",
        "slurmNodes.controller.sssdLdapCAConfigMapRefName",
        "slurmNodes.exporter.exporter",
        "slurmNodes.exporter.exporterContainer.securityLimitsConfig",
        "slurmNodes.exporter.munge",
        "slurmNodes.exporter.volumes",
        "slurmNodes.login.munge",
        "slurmNodes.login.sshd.securityLimitsConfig",
        "slurmNodes.login.sshdConfigMapRefName",
        "slurmNodes.login.sssd",
        "slurmNodes.login.sssdDebugLevel",
        "slurmNodes.login.sssdLdapCAConfigMapRefName",
        "slurmNodes.login.userIsolation",
        "slurmNodes.rest.rest.securityLimitsConfig",
        "slurmNodes.worker.cgroupVersion",
        "slurmNodes.worker.munge",
        "slurmNodes.worker.slurmd.securityLimitsConfig",
        "slurmNodes.worker.sssd",
        "slurmNodes.worker.sssdConfSecretRefName",
        "slurmNodes.worker.sssdDebugLevel",
        "slurmNodes.worker.sssdLdapCAConfigMapRefName",
        "useDefaultAppArmorProfile",
    )
)
"""Fields of a SlurmCluster (below `spec`) that are taken but have no effect yet. Each stands for all within it."""

INERT_IN_NODESET: Final = frozenset(
    (
        "workerInitRandomDelaySeconds",
        *_SSSD,
        "munge",
        "nodeConfig.autoResume",
        "slurmd.security.limitsConfig",
        "docker",
        "configMapRefSupervisord",
        "configMapRefSshd",
    )
)
"""The same for a NodeSet."""

SLURM_CLUSTERS = Kind(SlurmCluster, f"{GROUP}/v1", "slurmclusters", "SlurmCluster")
NEBIUS_NODESETS = Kind(NodeSet, f"{GROUP}/v1alpha1", "nodesets", "NodeSet")
