"""Every label, annotation, reason and metric name that Isthmus puts into the world, a sentence each."""

from typing import NamedTuple


class MetricName(NamedTuple):
    """A Prometheus metric: its name and the sentence that `/metrics` and the reference print beside it."""

    name: str
    help: str


# The bridge: what its users write, and what it writes onto pods and nodes. The names are slurm-bridge's.
SCHEDULER_NAME = "slurm-bridge-scheduler"
"""The `schedulerName` of pods that Slurm places, unless the configuration gives another."""

CONTROLLERS_LEASE = "69d5fe47.my.slinky.slurm.net"
"""The Lease of the bridge's controllers. The scheduler's is named like the scheduler."""

JOB_ANNOTATIONS = "slurmjob.slinky.slurm.net/"
"""The prefix of annotations that ask for something of Slurm: `slurmjob.slinky.slurm.net/partition` and so on."""

JOB_ANNOTATIONS_OLD = "slinky.slurm.net/"
"""The prefix that these annotations had before slurm-bridge 1.0; still read, where the newer one is not there."""

JOB_ID_LABEL = "scheduler.slinky.slurm.net/slurm-jobid"
"""On a pod: the id of its Slurm job. All pods of one job share it; it is written with the binding."""

POD_NODE_ANNOTATION = "slinky.slurm.net/slurm-node"
"""On a pod: the Kubernetes node that Slurm's choice came to."""

POD_JOB_ANNOTATION = "slurm.job.id"
"""On a pod: the id of its Slurm job, as an annotation."""

POD_SLURM_NODE_ANNOTATION = "slurm.node"
"""On a pod: the Slurm node that Slurm chose."""

NODE_NAME_LABEL = "slinky.slurm.net/slurm-nodename"
"""On a node: its name in Slurm, where that is not its name in Kubernetes. Also read as an annotation."""

EXTERNAL_NODE_LABEL = "scheduler.slinky.slurm.net/external-node"
"""On a node: register it in Slurm as an external node. The value does not matter."""

NODE_PARTITIONS_ANNOTATION = "scheduler.slinky.slurm.net/external-node-partitions"
"""On an external node: the features, separated by commas, by which partitions take it in."""

DEVICES_COMMENT = "isthmus devices: "
"""How Slurm's comment of a node begins whose devices are only counted, or too few."""

NODE_TOPOLOGY_ANNOTATION = "topology.slinky.slurm.net/spec"
"""On a node: its place in Slurm's topology, such as `topo-switch:s2,topo-block:b2`."""

NODE_CORDON_ANNOTATION = "scheduler.slinky.slurm.net/cordoned"
"""On a node that we cordoned because Slurm drained it or set it down: who did so there, and why."""

NODE_GRES_CONDITION = "SlinkySlurmGRESCompatible"
"""A condition of a node with devices of drivers (DRA): whether Slurm counts them as the drivers do."""

MANAGED_TAINT = "slinky.slurm.net/managed-node"
"""The taint that keeps the pods of others away from nodes that Slurm manages; its value is the scheduler name."""

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""On a pod: the PodGroup of scheduler-plugins that it belongs to."""

LWS_NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
"""On a pod of a LeaderWorkerSet: the set, the group within the set, and its place within the group."""

TEMPLATE_HASH_LABEL = "pod-template-hash"
"""On a pod of a Deployment: which of its ReplicaSets made it."""

JOBSET_NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
JOBSET_JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-global-index"
JOBSET_REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
"""On a pod of a JobSet: the set, the number of its Job within the set, and the template of that."""

RAY_CLUSTER_LABEL = "ray.io/cluster"
RAY_NODE_TYPE_LABEL = "ray.io/node-type"
RAY_GROUP_LABEL = "ray.io/group"
"""On a pod of a RayCluster, by KubeRay: the cluster, `head` or `worker`, and the group of workers."""

TRAINING_JOB_LABEL = "training.kubeflow.org/job-name"
TRAINING_OPERATOR_LABEL = "training.kubeflow.org/operator-name"
TRAINING_ROLE_LABEL = "training.kubeflow.org/job-role"
TRAINING_TYPE_LABEL = "training.kubeflow.org/replica-type"
TRAINING_INDEX_LABEL = "training.kubeflow.org/replica-index"
"""On a pod of an MPIJob or PyTorchJob: the job, who made it, `launcher` or `master`, its kind, and its index."""

VOLCANO_JOB_LABEL = "volcano.sh/job-name"
VOLCANO_TASK_LABEL = "volcano.sh/task-spec"
VOLCANO_INDEX_LABEL = "volcano.sh/task-index"
"""On a pod of a Volcano Job: the Job, the task, and its index within the task."""

KUEUE_GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT_ANNOTATION = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_SERVING_ANNOTATION = "kueue.x-k8s.io/pod-group-serving"
"""On a pod of a Kueue pod group: the group, how many pods it has, and whether they start one by one."""

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
JOB_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
"""On a pod of a Job: the Job, and its index if the Job is indexed."""

STATEFUL_INDEX_LABEL = "apps.kubernetes.io/pod-index"
"""On a pod of a StatefulSet: its ordinal."""

RETURNED_REASON = "SlurmNodeRejected"
"""The reason of Events and conditions of pods whose node went back to Slurm: Kubernetes could not use it."""

SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"
"""On a claim that waits for its first consumer: the node on which the volume is to be made."""

# The operator: what it writes onto the objects it makes, and what it reads from those of users. Names with "slinky"
# are slurm-operator's.
OPERATOR = "isthmus-operator"
"""The operator's value of `app.kubernetes.io/name`, also on its Lease, whatever the installation is called."""

NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
COMPONENT_LABEL = "app.kubernetes.io/component"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
"""On everything that the operator makes: the daemon, the custom resource it is of, its role, and who made it."""

SCRAPED_LABEL = "isthmus.dev/scraped"
"""On the one Service of slurmctld by which a ServiceMonitor finds it."""

CLUSTER_LABEL = "slinky.slurm.net/cluster"
"""On what belongs to a cluster: the name of its Controller."""

REVISION_LABEL = "controller-revision-hash"
"""On a worker pod: the hash of what it was made from."""

POD_NAME_LABEL = "nodeset.slinky.slurm.net/pod-name"
POD_INDEX_LABEL = "nodeset.slinky.slurm.net/pod-index"
POD_HOSTNAME_LABEL = "nodeset.slinky.slurm.net/pod-hostname"
SCALING_MODE_LABEL = "nodeset.slinky.slurm.net/scaling-mode"
"""On a worker pod: its name, ordinal and Slurm node name, and the mode in which it was made."""

POD_PROTECT_LABEL = "nodeset.slinky.slurm.net/pod-protect"
"""On a worker pod that must not be evicted: every one whose Slurm node is not drained."""

SAFE_TO_EVICT_ANNOTATION = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT_ANNOTATION = "karpenter.sh/do-not-disrupt"
"""On such a pod as well: they keep Cluster Autoscaler and Karpenter from taking its node away."""

POD_CORDON_ANNOTATION = "nodeset.slinky.slurm.net/pod-cordon"
"""On a worker pod, by its user: "true" drains its Slurm node."""

POD_DELETION_COST_ANNOTATION = "nodeset.slinky.slurm.net/pod-deletion-cost"
"""On a worker pod, by its user: which pods go first when there are too many; the lower, the sooner."""

POD_DEADLINE_ANNOTATION = "nodeset.slinky.slurm.net/pod-deadline"
"""On a worker pod: when the last of its running jobs ends at the latest."""

NODE_CORDON_REASON_ANNOTATION = "nodeset.slinky.slurm.net/node-cordon-reason"
"""On a Kubernetes node: the reason for the drain in Slurm when it is cordoned."""

NODE_FEATURES_ANNOTATION = "features.slinky.slurm.net/spec"
"""On a Kubernetes node: features, separated by commas, that its Slurm nodes get as k8s/FEATURE."""

NODE_HOSTNAME_ANNOTATION = "nodeset.slinky.slurm.net/hostname-override"
"""On a Kubernetes node: the name of its Slurm node in DaemonSet mode."""

WORKER_TAINT = "nodeset.slinky.slurm.net/worker"
"""A taint that worker pods put up with."""

RESERVATION_FINALIZER = "nodeset.slinky.slurm.net/reservation"
DRAIN_FINALIZER = "nodeset.slinky.slurm.net/drain"
"""On a NodeSet: its reservation has to be removed, or its nodes have to be drained, before it goes."""

CONTROLLER_FINALIZER = "controller.slinky.slurm.net/nodesets"
"""On a Controller: it stays until its NodeSets that are going have drained their nodes."""

SLURM_CLUSTER_FINALIZER = "slurm.nebius.ai/ordered-deletion"
"""On a SlurmCluster: its workers go before what they need for draining."""

AGGREGATION_LABEL = "slurm.nebius.ai/jailed-aggregation"
"""On a JailedConfig, by its user: those of a cluster with the same value are followed by one reconfigure."""

JAIL_IMAGE_ANNOTATION = "isthmus.dev/jail-image"
JAIL_HASH_ANNOTATION = "isthmus.dev/jail-hash"
"""On a Job that fills or refreshes a shared root: from which image, and a hash of all that it was made from."""

WORKLOAD_NAME_ANNOTATION = "isthmus.dev/workload-name"
"""On a Controller: what its StatefulSet, and so its pods, are called, where that is not NAME-controller."""

DESCRIPTION_ANNOTATION = "kubernetes.io/description"
"""On pods whose use is not seen from their names: what they are for, in a sentence."""

PLACEHOLDER_ANNOTATION = "isthmus.dev/controller-placeholder"
"""On a Controller: "true" keeps a warm stand-in for it on every other node that it could move to."""

CONFIG_HASH_ANNOTATION = "isthmus.dev/config-hash"
"""On a pod: the configuration that it should have; writing it makes kubelet bring volumes up to date at once."""

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
SLICE_MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
"""On an EndpointSlice: the Service that it is of, and who writes it; Kubernetes leaves ours alone."""

FILES_HASH_ANNOTATION = "isthmus.dev/files-hash"
"""On a pod: users and, on a login pod, all other files that it should have, for the same reason."""

SPEC_HASH_ANNOTATION = "isthmus.dev/spec-hash"
TEMPLATE_HASH_ANNOTATION = "isthmus.dev/template-hash"
"""On workloads: hashes of what users specified, and of the pod template that was made from it."""

SPEC_HASH_ANNOTATION_OLD = "isthmus.dev/wishes"
TEMPLATE_HASH_ANNOTATION_OLD = "isthmus.dev/made"
"""The names of these two before 0.2.0; read until 0.3.0, so that an upgrade restarts no pods."""

SLURM_CONFIG_HASH_ANNOTATION = "slinky.slurm.net/slurm-config-hash"
SLURMDBD_CONF_HASH_ANNOTATION = "slinky.slurm.net/slurmdbd-conf-hash"
DATABASE_ACCESS_ANNOTATION = "isthmus.dev/database-access"
"""On pod templates: hashes of what slurmrestd and slurmdbd read only when they start, and which password holds."""

CHANGED_AT_ANNOTATION = "isthmus.dev/changed-at"
"""On the ConfigMap and the Secret of a cluster: when they got what they hold."""

TRIED_AT_ANNOTATION = "isthmus.dev/tried-at"
"""On a StatefulSet or Deployment whose pods are refused: when Kubernetes was last made to create them again."""

DRAIN_REASON_PREFIX = "slurm-operator: "
"""How the reason of every drain begins that is the operator's own; others are never touched."""

ACTIVE_NODES_ANNOTATION = "isthmus.dev/active-nodes"
"""On a NodeSetPowerState: the ordinals that the operator wrote last, so that it sees which ones others changed."""

ANNOUNCED_ANNOTATION = "isthmus.dev/announced"
"""On a NodeSet that has or had a policy, and on its pods: their nodes stand in slurm.conf, and have to stay there
while jobs run. The slurmd of a pod without it made its node known by itself, and ends when it finds it there."""

TOPOLOGY_ANNOTATION = "isthmus.dev/topology"
"""On a worker pod: `known` as soon as Slurm has read where its machine is, for which a pod that starts may wait."""

SIZE_ANNOTATION = "isthmus.dev/size"
"""On the NodeSet of a SlurmCluster's own workers: how many the cluster asks for, which others may have changed."""

CHECK_NODE_ANNOTATION = "isthmus.dev/check-node"
CHECK_RESERVATION_ANNOTATION = "isthmus.dev/check-reservation"
"""On a Job of an ActiveCheck that tests one node: its name in Slurm, and the reservation in which it is tested."""

NODE_DRAIN_CONDITION = "SlurmNodeDrain"
NODE_REBOOT_CONDITION = "SlurmNodeReboot"
"""Conditions of a Kubernetes node: True asks its rebooter to drain or to reboot it; reasons say how far it is."""

EVICTION_TAINT = "node.kubernetes.io/NoExecute"
"""The taint, of value "true" and effect NoExecute, by which a rebooter takes pods off its node. The name is
Soperator's."""

REBOOTER_ANNOTATION = "isthmus.dev/rebooter"
"""On a node that is drained or rebooted: what the rebooter changed, to undo just that; and which reboot it is."""

REBOOT_LEASE = "isthmus-reboot"
"""The Lease that a rebooter holds while its machine is rebooted; with more than one at a time, also NAME-2 and so
on."""

CHECK_LABEL = "isthmus.dev/check"
"""On a CronJob or Job of an ActiveCheck: the name of the check."""

UNHEALTHY_DEVICES = "isthmus.dev/unhealthy-devices"
"""On a Kubernetes node: its devices that are out of order, as an annotation, separated by commas, or as a taint."""

ACTIVE_CHECK_ANNOTATION = "slurm.nebius.ai/activecheck"
"""On a Job of an ActiveCheck and on its pod: the name of the check. The name is Soperator's."""

SLURM_JOBS_ANNOTATION = "slurm-job-id"
OPEN_SLURM_JOBS_ANNOTATION = "unhandled-slurm-job-id"
SKIPPED_ANNOTATION = "slurm-skipped-reason"
FINAL_STATE_ANNOTATION = "soperator-checks-final-state-time"
"""On a Job of an ActiveCheck: its Slurm jobs, those that are not over, why it was skipped, and when its last Slurm
job ended, in seconds since 1970. The names are Soperator's."""

CHECK_PLAN_ANNOTATION = "isthmus.dev/check-plan"
"""On a Job of an ActiveCheck: which Slurm jobs it consists of, on which nodes, and what became of each."""

CHECK_FINALIZER = "isthmus.dev/activecheck"
"""On a Job of an ActiveCheck that runs: its Slurm jobs are cancelled before it goes."""

ACTIVE_CHECK_FINALIZER = "slurm.nebius.ai/activecheck-finalizer"
"""On an ActiveCheck that Soperator had before us; what it makes goes with it now, so it is only taken away."""

HEALTH_RESERVATION_PREFIX = "health-"
"""How the reservation in Slurm is called that keeps a node for its test: this, and the node's name."""

FIELD_MANAGER = "isthmus"
WRITER_FIELD_MANAGER = "isthmus-sconfig"
"""Who owns fields of objects: the operator and the bridge; sconfigcontroller, in the status of JailedConfigs."""

# Queues. The names are client-go's, so that dashboards and alerts made for Go controllers work unchanged.
QUEUE_DEPTH = MetricName("workqueue_depth", "Keys that are due and wait for a worker.")
QUEUE_ADDS = MetricName("workqueue_adds_total", "Keys that were added, before duplicates are merged.")
QUEUE_WAIT = MetricName("workqueue_queue_duration_seconds", "How long a key waited from being due to being taken.")
QUEUE_WORK = MetricName("workqueue_work_duration_seconds", "How long one key was processed.")
QUEUE_RETRIES = MetricName("workqueue_retries_total", "Keys that were put back after a failure.")
QUEUE_UNFINISHED = MetricName(
    "workqueue_unfinished_work_seconds",
    "Seconds of unfinished work, summed over all keys; a stuck worker makes it grow.",
)
QUEUE_LONGEST = MetricName(
    "workqueue_longest_running_processor_seconds", "How long the longest running key has been processed."
)

# Controllers. The names are controller-runtime's.
RECONCILES = MetricName(
    "controller_runtime_reconcile_total", "Reconciles by controller and result (success, requeue_after, error)."
)
RECONCILE_ERRORS = MetricName("controller_runtime_reconcile_errors_total", "Reconciles that failed, of any kind.")
RECONCILE_TERMINAL_ERRORS = MetricName(
    "controller_runtime_terminal_reconcile_errors_total",
    "Reconciles that failed and are not retried until the object changes.",
)
RECONCILE_PANICS = MetricName(
    "controller_runtime_reconcile_panics_total", "Reconciles that failed with an unexpected error: a bug."
)
RECONCILE_SECONDS = MetricName("controller_runtime_reconcile_time_seconds", "How long one reconcile took.")
RECONCILE_WORKERS = MetricName("controller_runtime_active_workers", "Workers that are reconciling at this moment.")
RECONCILE_WORKERS_MAX = MetricName(
    "controller_runtime_max_concurrent_reconciles", "Workers that a controller may use."
)

# Webhooks. The names are controller-runtime's.
WEBHOOK_REQUESTS = MetricName("controller_runtime_webhook_requests_total", "Webhook calls by path and HTTP status.")
WEBHOOK_SECONDS = MetricName("controller_runtime_webhook_latency_seconds", "How long a webhook call took.")
WEBHOOK_IN_FLIGHT = MetricName("controller_runtime_webhook_requests_in_flight", "Webhook calls being answered now.")

# Election and requests. The names are client-go's.
LEADING = MetricName("leader_election_master_status", "1 while this process leads, else 0.")
CLIENT_REQUESTS = MetricName(
    "rest_client_requests_total", "Requests to Kubernetes and Slurm, by status code, host and method."
)
CLIENT_SECONDS = MetricName("rest_client_request_duration_seconds", "How long requests took, by host and method.")

# Our own. Counters are counted by the replica that leads, gauges are read from the caches of every replica.
FOLDED = MetricName(
    "isthmus_metrics_folded_series",
    "Label sets of a family that are counted under the label value `other`, because the family has enough series.",
)
CERTIFICATE_EXPIRY = MetricName(
    "isthmus_serving_certificate_expiry_timestamp_seconds",
    "When the serving certificate ends, in seconds since 1970; it is renewed long before.",
)

# The bridge. A kind is that of the workload to which a pod belongs; an account is empty if it is not known.
POD_WAIT = MetricName(
    "isthmus_bridge_pod_wait_seconds",
    "How long pods waited, from their creation to their binding, by namespace, account and kind.",
)
BIND_SECONDS = MetricName(
    "isthmus_bridge_bind_seconds",
    "How long it took from seeing that Slurm started a job to binding its pods.",
)
PODS_STARTED = MetricName(
    "isthmus_bridge_pods_started_total",
    "Pods of jobs whose containers began to run, by namespace, account and kind.",
)
PODS_EVICTED = MetricName(
    "isthmus_bridge_pods_evicted_total",
    "Pods that were deleted because they lost their job, by namespace, account, kind and the end of the job.",
)
RETURNED = MetricName(
    "isthmus_bridge_returned_allocations_total",
    "Allocations that were returned to Slurm because Kubernetes could not use the node; ideally 0.",
)
STEP_SECONDS = MetricName(
    "isthmus_bridge_step_seconds", "How long one step took for a group of pods: submit, or bind."
)
DECISIONS = MetricName("isthmus_bridge_decisions_total", "Decisions about groups of pods, by step.")
SUBMIT_ERRORS = MetricName(
    "isthmus_bridge_submit_errors_total", "Submissions of jobs that failed, by class: retry, wait, terminal."
)
WAITING_GROUPS = MetricName("isthmus_bridge_waiting_groups", "Groups of pods that wait to be placed, by namespace.")
BRIDGE_JOBS = MetricName("isthmus_bridge_jobs", "Jobs of pods in Slurm, by state: pending, running.")
ORPHANS = MetricName(
    "isthmus_bridge_orphan_allocations",
    "Running jobs without a live pod, and bound pods without a running job, for 30 seconds or longer.",
)
BRIDGE_SLURM = MetricName("isthmus_bridge_slurm_in_touch", "1 while Slurm answers, else 0.")
BRIDGE_LAST_CONTACT = MetricName(
    "isthmus_bridge_slurm_last_contact_timestamp_seconds",
    "When Slurm answered last, in seconds since 1970; absent if it never did.",
)
BRIDGE_TOKEN_EXPIRY = MetricName(
    "isthmus_bridge_token_expiry_timestamp_seconds",
    "When the token for Slurm expires, in seconds since 1970; absent if there is none or it does not expire.",
)
NODE_MISMATCH = MetricName(
    "isthmus_bridge_node_mismatch",
    "External nodes that Slurm does not have as Kubernetes describes them: another size or GRES, or refused.",
)
NODE_ACTIONS = MetricName(
    "isthmus_bridge_node_actions_total", "Actions that keep nodes in sync between Kubernetes and Slurm, by action."
)

# The operator.
OPERATOR_NODES = MetricName(
    "isthmus_operator_nodes",
    "Nodes of a NodeSet by state: desired, ready, updated, idle, allocated, draining, down.",
)
ROLLOUT_PODS = MetricName(
    "isthmus_operator_rollout_pods",
    "Pods of a NodeSet by state: updated to the current specification, or outdated.",
)
DRAINS = MetricName(
    "isthmus_operator_drains_total",
    "Slurm nodes that were drained, by cause: scale_in, rollout, repair, deletion, cordon, terminating.",
)
PODS_REPLACED = MetricName(
    "isthmus_operator_pods_replaced_total",
    "Worker pods that were deleted so that another takes their place, by cause: rollout, repair, ended.",
)
ELASTIC_NODES = MetricName(
    "isthmus_operator_elastic_nodes",
    "Nodes of an elastic NodeSet by power state: off, starting, on, stopping, held, failed, unknown. Their sum is "
    "spec.replicas.",
)
ELASTIC_DEMAND = MetricName(
    "isthmus_operator_elastic_demand_nodes",
    "Demand for nodes of an elastic NodeSet, by kind: jobs (allocated to jobs, also while the nodes start), or "
    "planned (for pending jobs).",
)
ELASTIC_START = MetricName(
    "isthmus_operator_elastic_start_seconds",
    "How long nodes of an elastic NodeSet take to start, by step: queue (until the pod has a machine), boot (until "
    "slurmd runs), register (until Slurm has the node).",
)
ELASTIC_SECONDS = MetricName(
    "isthmus_operator_elastic_node_seconds_total",
    "Seconds that nodes of an elastic NodeSet were not off, summed over nodes, by use: busy, idle, starting, "
    "stopping.",
)
ELASTIC_UNUSED = MetricName(
    "isthmus_operator_elastic_unused_starts_total",
    "Nodes of an elastic NodeSet that were started and stopped without a job in between.",
)
OPERATOR_SLURM = MetricName("isthmus_operator_slurm_in_touch", "1 while the Slurm of a Controller answers, else 0.")
ACTIVE_CONTROLLER = MetricName(
    "isthmus_operator_active_controller",
    "1 for the slurmctld of a Controller that is in charge, 0 for standbys.",
)
CONFIG_APPLIED = MetricName(
    "isthmus_operator_config_applied", "1 while every daemon of a Controller runs with its configuration, else 0."
)
CONFIG_CHANGED = MetricName(
    "isthmus_operator_config_changed_timestamp_seconds",
    "When the configuration files of a Controller changed last, in seconds since 1970.",
)
TOKEN_ISSUED = MetricName(
    "isthmus_operator_token_issued_timestamp_seconds", "When a token was issued, in seconds since 1970."
)
TOKEN_EXPIRY = MetricName(
    "isthmus_operator_token_expiry_timestamp_seconds",
    "When a token expires, in seconds since 1970; it is renewed before, unless refresh is off.",
)
OPERATOR_READY = MetricName("isthmus_operator_ready", "1 while a custom resource is ready, else 0.")
OPERATOR_DEGRADED = MetricName(
    "isthmus_operator_degraded", "1 while a custom resource needs attention (condition Degraded), else 0."
)

# The exporter, about itself. The names are Soperator's.
EXPORTER_COLLECTION_SECONDS = MetricName(
    "slurm_exporter_collection_duration_seconds", "How long a reading of Slurm took, of any collector."
)
EXPORTER_ATTEMPTS = MetricName("slurm_exporter_collection_attempts_total", "Readings of Slurm that began.")
EXPORTER_FAILURES = MetricName(
    "slurm_exporter_collection_failures_total", "Readings of Slurm that failed; the last values stay."
)
EXPORTER_COLLECTOR_SECONDS = MetricName(
    "slurm_exporter_collector_duration_seconds", "How long a reading of one collector took."
)
EXPORTER_COLLECTOR_ERRORS = MetricName(
    "slurm_exporter_collector_errors_total", "Readings of one collector that failed."
)
EXPORTER_COLLECTOR_INFLIGHT = MetricName(
    "slurm_exporter_collector_inflight", "Readings of one collector that are under way."
)
EXPORTER_COLLECTOR_SKIPPED = MetricName(
    "slurm_exporter_collector_skipped_total",
    "Readings of one collector that did not begin because the one before was still under way.",
)
EXPORTER_REQUESTS = MetricName("slurm_exporter_metrics_requests_total", "Scrapes of the metrics of Slurm.")
EXPORTER_EXPORTED = MetricName("slurm_exporter_metrics_exported", "Series in the latest scrape.")

# The health of nodes.
CHECK_RUNS = MetricName(
    "isthmus_check_runs_total", "Runs of checks on nodes, by check and result: passed, failed, error."
)
REPAIR_SECONDS = MetricName(
    "isthmus_node_repair_seconds", "How long nodes were out, from what was found to their return into service."
)
FALSE_POSITIVES = MetricName(
    "isthmus_check_false_positives_total",
    "Nodes that passed the check that they had failed, although nothing was repaired.",
)
HEALTH_FINDINGS = MetricName(
    "isthmus_health_findings", "Findings about nodes that are seen now, by source and check."
)
HEALTH_STORMS = MetricName(
    "isthmus_health_storms",
    "Checks of a HealthPolicy whose findings are ignored, because they failed on too many nodes at once.",
)
HEALTH_NODES = MetricName("isthmus_health_nodes", "Nodes with a health record, by phase.")
NOTIFICATIONS = MetricName(
    "isthmus_health_notifications_total",
    "Messages to receivers, by format and result: sent, failed, dropped (too many waited).",
)

TOPOLOGY_PREFIX = "topology.nebius.com/"
"""On a Kubernetes node, before tier-1 (the leaf switch above it), tier-2 and so on."""

NVLINK_GROUP_LABEL = "topology.nebius.com/nvl-instance-group-id"
"""On a Kubernetes node, by its cloud: the NVLink instance group that it is in."""

BLOCK_LABELS = (NVLINK_GROUP_LABEL, "topology.nebius.com/tier-0", "topology.nebius.com/tier-1")
"""On a Kubernetes node: its topology block, where neither Slurm nor our annotation says it; the first counts."""
