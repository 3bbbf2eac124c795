"""Every label, annotation, reason and metric name that Isthmus puts into the world, a sentence each."""

from typing import NamedTuple


class MetricName(NamedTuple):
    """A Prometheus metric: its name and the sentence that `/metrics` and the reference print beside it."""

    name: str
    help: str


# Queues. The names are client-go's, so that dashboards and alerts made for Go controllers work unchanged.
QUEUE_DEPTH = MetricName("workqueue_depth", "Keys that are due and wait for a worker.")
QUEUE_ADDS = MetricName("workqueue_adds_total", "Keys that were asked for, before duplicates are folded together.")
QUEUE_WAIT = MetricName("workqueue_queue_duration_seconds", "How long a key waited from being due to being taken.")
QUEUE_WORK = MetricName("workqueue_work_duration_seconds", "How long a key was being worked on.")
QUEUE_RETRIES = MetricName("workqueue_retries_total", "Keys that were put back after a failure.")
QUEUE_UNFINISHED = MetricName(
    "workqueue_unfinished_work_seconds",
    "Seconds of work under way, summed over all keys; a stuck worker makes it grow.",
)
QUEUE_LONGEST = MetricName(
    "workqueue_longest_running_processor_seconds", "How long the key that is worked on longest has been taking."
)

# Controllers. The names are controller-runtime's.
RECONCILES = MetricName(
    "controller_runtime_reconcile_total", "Reconciles by controller and result (success, requeue_after, error)."
)
RECONCILE_ERRORS = MetricName("controller_runtime_reconcile_errors_total", "Reconciles that failed, of any kind.")
RECONCILE_TERMINAL_ERRORS = MetricName(
    "controller_runtime_terminal_reconcile_errors_total",
    "Reconciles that failed for good until the object changes.",
)
RECONCILE_PANICS = MetricName(
    "controller_runtime_reconcile_panics_total", "Reconciles that failed with an error nobody foresaw: a bug."
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
CLIENT_SECONDS = MetricName("rest_client_request_duration_seconds", "How long an answer took, by host and method.")

# Our own.
CERTIFICATE_EXPIRY = MetricName(
    "isthmus_serving_certificate_expiry_timestamp_seconds",
    "When the serving certificate ends, in seconds since 1970; it is renewed long before.",
)
