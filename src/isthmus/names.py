"""Every label, annotation, reason and metric name that Isthmus puts into the world, a sentence each."""

from typing import NamedTuple


class MetricName(NamedTuple):
    """A Prometheus metric: its name and the sentence that `/metrics` and the reference print beside it."""

    name: str
    help: str


# The bridge: what its users write, and what it writes onto pods and nodes. The names are slurm-bridge's.
SCHEDULER_NAME = "slurm-bridge-scheduler"
"""The `schedulerName` of pods that Slurm places, unless the configuration gives another."""

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

NODE_TOPOLOGY_ANNOTATION = "topology.slinky.slurm.net/spec"
"""On a node: its place in Slurm's topology, such as `topo-switch:s2,topo-block:b2`."""

NODE_CORDON_ANNOTATION = "scheduler.slinky.slurm.net/cordoned"
"""On a node that we cordoned because Slurm drained it or set it down: who did so there, and why."""

MANAGED_TAINT = "slinky.slurm.net/managed-node"
"""The taint that keeps the pods of others away from nodes that Slurm manages; its value is the scheduler name."""

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""On a pod: the PodGroup of scheduler-plugins that it belongs to."""

LWS_NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
"""On a pod of a LeaderWorkerSet: the set, the group within the set, and its place within the group."""

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
NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
COMPONENT_LABEL = "app.kubernetes.io/component"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
"""On everything that the operator makes: the daemon, the custom resource it is of, its role, and who made it."""

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
"""On a Kubernetes node: the reason that Slurm is told when it is cordoned."""

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
    "rest_client_requests_total", "Requests that we sent, by status code, host and method."
)
CLIENT_SECONDS = MetricName("rest_client_request_duration_seconds", "How long requests took, by host and method.")

# Our own.
PLACEMENT_SECONDS = MetricName(
    "isthmus_bridge_placement_seconds", "How long pods waited, from their creation to their binding."
)
STEP_SECONDS = MetricName(
    "isthmus_bridge_step_seconds", "How long one step took for a group of pods: submit, or bind."
)
DECISIONS = MetricName("isthmus_bridge_decisions_total", "Decisions about groups of pods, by step.")
WAITING_GROUPS = MetricName("isthmus_bridge_waiting_groups", "Groups of pods that wait to be placed.")
RETURNED = MetricName(
    "isthmus_bridge_returned_allocations_total",
    "Allocations that were returned to Slurm because Kubernetes could not use the node; ideally 0.",
)
NODE_ACTIONS = MetricName(
    "isthmus_bridge_node_actions_total", "Actions that keep nodes of both sides in sync, by action."
)
CERTIFICATE_EXPIRY = MetricName(
    "isthmus_serving_certificate_expiry_timestamp_seconds",
    "When the serving certificate ends, in seconds since 1970; it is renewed long before.",
)
OPERATOR_NODES = MetricName(
    "isthmus_operator_nodes",
    "Nodes of a NodeSet by what they are: desired, ready, updated, idle, allocated, draining, down.",
)
OPERATOR_SLURM = MetricName("isthmus_operator_slurm_in_touch", "1 while the Slurm of a Controller answers, else 0.")
OPERATOR_READY = MetricName("isthmus_operator_ready", "1 while a custom resource is ready, else 0.")
TOKEN_EXPIRY = MetricName(
    "isthmus_operator_token_expiry_timestamp_seconds",
    "When a token ends, in seconds since 1970; it is renewed before, unless refresh is off.",
)
