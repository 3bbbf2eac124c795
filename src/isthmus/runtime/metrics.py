"""What a process counts about itself, for Prometheus.

One `Metrics` per process, passed to whatever counts. Children are bound once, when a queue or controller is made:
that costs a third per count, and every series stands at 0 from the start, so that a rate or an alert over it works
before the first error happens. Big families (a sample per node or per job) do not go through here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from isthmus import names
from isthmus.errors import Retry, Terminal, Wait
from isthmus.names import MetricName
from isthmus.runtime.bounded import Bounded, Family

# From a tenth of a millisecond, which is what a key costs on an idle loop, to far beyond what anybody should wait.
_QUEUE_BUCKETS = (0.0001, 0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 1800)
_CALL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WAIT_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400)

_START_BUCKETS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)

RECONCILE_RESULTS = ("success", "requeue_after", "error")
_ERROR_CLASSES = {Retry: "retry", Wait: "wait", Terminal: "terminal"}
_OF_POD = ("namespace", "account", "kind")
_OF_NODESET = ("namespace", "nodeset", "cause")


class QueueMetrics(msgspec.Struct, frozen=True):
    adds: Counter
    retries: Counter
    wait: Histogram
    work: Histogram
    depth: Gauge
    unfinished: Gauge
    longest: Gauge

    def watch(self, *, depth: Callable[[], int], running: Callable[[], Sequence[float]]) -> None:
        """Read the gauges from the queue whenever they are scraped, which costs nothing in between."""
        self.depth.set_function(depth)
        self.unfinished.set_function(lambda: sum(running()))
        self.longest.set_function(lambda: max(running(), default=0.0))


class ControllerMetrics(msgspec.Struct, frozen=True):
    """The series of one controller; `results` by result."""

    results: dict[str, Counter]
    errors: Counter
    terminal_errors: Counter
    panics: Counter
    seconds: Histogram
    active: Gauge


class WebhookMetrics(msgspec.Struct, frozen=True):
    """The series of one webhook; `codes` by HTTP status."""

    codes: Callable[[int], Counter]
    seconds: Histogram
    in_flight: Gauge


class SchedulingMetrics(msgspec.Struct, frozen=True):
    """The series of the bridge's scheduler; `wait` and `returned` by namespace, account and kind."""

    wait: Bounded[Histogram]
    bind: Histogram
    steps: Callable[[str], Histogram]
    decisions: Callable[[str], Counter]
    submit_errors: Mapping[str, Counter]
    waiting: Bounded[Gauge]
    """By namespace."""
    returned: Bounded[Counter]

    def submit_failed(self, error: Exception) -> None:
        """Count a submission that failed with one of our errors."""
        found = next((name for kind, name in _ERROR_CLASSES.items() if isinstance(error, kind)), None)
        if found:
            self.submit_errors[found].inc()


class PodMetrics(msgspec.Struct, frozen=True):
    """The series of the bridge's pod controller, by namespace, account and kind; `evicted` by reason, too."""

    started: Bounded[Counter]
    evicted: Bounded[Counter]


class NodeSetMetrics(msgspec.Struct, frozen=True):
    """The series of the NodeSet controller, by namespace, NodeSet and cause."""

    drains: Bounded[Counter]
    replaced: Bounded[Counter]
    start: Bounded[Histogram]
    """By step instead of cause; likewise `node_seconds` by use."""
    node_seconds: Bounded[Counter]
    unused_starts: Bounded[Counter]
    """By namespace and NodeSet."""


Readings = Iterable[tuple[tuple[str, ...], float]]
"""Samples: the values of their labels, and their own."""


class _ReadGauge(Collector):
    def __init__(self, metric: MetricName, labels: tuple[str, ...], read: Callable[[], Readings]) -> None:
        self._metric = metric
        self._labels = labels
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Name the family, so that two of one name are refused, without reading it."""
        return [GaugeMetricFamily(self._metric.name, self._metric.help, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(self._metric.name, self._metric.help, labels=self._labels)
        for labels, value in self._read():
            family.add_metric(labels, value)
        return [family]


class Metrics:
    """A registry with every metric of the process, and nothing global."""

    def __init__(self) -> None:
        # A `_created` series beside each counter is read by no dashboard; the library only has a global switch.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

        self._queue_adds = self._counter(names.QUEUE_ADDS, "name")
        self._queue_retries = self._counter(names.QUEUE_RETRIES, "name")
        self._queue_wait = self._histogram(names.QUEUE_WAIT, "name", buckets=_QUEUE_BUCKETS)
        self._queue_work = self._histogram(names.QUEUE_WORK, "name", buckets=_QUEUE_BUCKETS)
        self._queue_depth = self._gauge(names.QUEUE_DEPTH, "name")
        self._queue_unfinished = self._gauge(names.QUEUE_UNFINISHED, "name")
        self._queue_longest = self._gauge(names.QUEUE_LONGEST, "name")

        self._reconciles = self._counter(names.RECONCILES, "controller", "result")
        self._reconcile_errors = self._counter(names.RECONCILE_ERRORS, "controller")
        self._reconcile_terminal = self._counter(names.RECONCILE_TERMINAL_ERRORS, "controller")
        self._reconcile_panics = self._counter(names.RECONCILE_PANICS, "controller")
        self._reconcile_seconds = self._histogram(names.RECONCILE_SECONDS, "controller", buckets=_CALL_BUCKETS)
        self._workers = self._gauge(names.RECONCILE_WORKERS, "controller")
        self._workers_max = self._gauge(names.RECONCILE_WORKERS_MAX, "controller")

        self._webhook_requests = self._counter(names.WEBHOOK_REQUESTS, "webhook", "code")
        self._webhook_seconds = self._histogram(names.WEBHOOK_SECONDS, "webhook", buckets=_CALL_BUCKETS)
        self._webhook_in_flight = self._gauge(names.WEBHOOK_IN_FLIGHT, "webhook")

        self._leading = self._gauge(names.LEADING, "name")
        self._requests = self._counter(names.CLIENT_REQUESTS, "code", "host", "method")
        self._request_seconds = self._histogram(names.CLIENT_SECONDS, "host", "verb", buckets=_CALL_BUCKETS)

        self._folded = self._gauge(names.FOLDED, "family")
        self._pod_wait = self.bounded(
            names.POD_WAIT, self._histogram(names.POD_WAIT, *_OF_POD, buckets=_WAIT_BUCKETS)
        )
        self._bind_seconds = self._histogram(names.BIND_SECONDS, buckets=_CALL_BUCKETS)
        self._started = self.bounded(names.PODS_STARTED, self._counter(names.PODS_STARTED, *_OF_POD))
        self._evicted = self.bounded(
            names.PODS_EVICTED, self._counter(names.PODS_EVICTED, *_OF_POD, "reason"), kept=2
        )
        self._returned = self.bounded(names.RETURNED, self._counter(names.RETURNED, *_OF_POD))
        self._step_seconds = self._histogram(names.STEP_SECONDS, "step", buckets=_CALL_BUCKETS)
        self._decisions = self._counter(names.DECISIONS, "step")
        self._submit_errors = self._counter(names.SUBMIT_ERRORS, "class")
        self._waiting_groups = self.bounded(
            names.WAITING_GROUPS, self._gauge(names.WAITING_GROUPS, "namespace"), kept=0
        )
        self._node_actions = self._counter(names.NODE_ACTIONS, "action")

        self._drains = self.bounded(names.DRAINS, self._counter(names.DRAINS, *_OF_NODESET))
        self._replaced = self.bounded(names.PODS_REPLACED, self._counter(names.PODS_REPLACED, *_OF_NODESET))
        self._elastic_start = self.bounded(
            names.ELASTIC_START,
            self._histogram(names.ELASTIC_START, "namespace", "nodeset", "step", buckets=_START_BUCKETS),
        )
        self._elastic_seconds = self.bounded(
            names.ELASTIC_SECONDS, self._counter(names.ELASTIC_SECONDS, "namespace", "nodeset", "use")
        )
        self._elastic_unused = self.bounded(
            names.ELASTIC_UNUSED, self._counter(names.ELASTIC_UNUSED, "namespace", "nodeset"), kept=0
        )
        self.certificate_expiry = self._gauge(names.CERTIFICATE_EXPIRY)

    def queue(self, name: str) -> QueueMetrics:
        """Bind the series of a queue."""
        return QueueMetrics(
            adds=self._queue_adds.labels(name),
            retries=self._queue_retries.labels(name),
            wait=self._queue_wait.labels(name),
            work=self._queue_work.labels(name),
            depth=self._queue_depth.labels(name),
            unfinished=self._queue_unfinished.labels(name),
            longest=self._queue_longest.labels(name),
        )

    def controller(self, name: str, *, workers: int) -> ControllerMetrics:
        """Bind the series of a controller with so many workers."""
        self._workers_max.labels(name).set(workers)
        return ControllerMetrics(
            results={result: self._reconciles.labels(name, result) for result in RECONCILE_RESULTS},
            errors=self._reconcile_errors.labels(name),
            terminal_errors=self._reconcile_terminal.labels(name),
            panics=self._reconcile_panics.labels(name),
            seconds=self._reconcile_seconds.labels(name),
            active=self._workers.labels(name),
        )

    def webhook(self, path: str) -> WebhookMetrics:
        """Bind the series of a webhook."""
        codes = {code: self._webhook_requests.labels(path, str(code)) for code in (200, 500)}
        return WebhookMetrics(
            codes=lambda code: codes.get(code) or self._webhook_requests.labels(path, str(code)),
            seconds=self._webhook_seconds.labels(path),
            in_flight=self._webhook_in_flight.labels(path),
        )

    def node_action(self, action: str) -> Counter:
        """Bind the series that counts one kind of action on nodes."""
        return self._node_actions.labels(action)

    def scheduling(self) -> SchedulingMetrics:
        """Bind the series of the bridge's scheduler."""
        return SchedulingMetrics(
            wait=self._pod_wait,
            bind=self._bind_seconds,
            steps=self._step_seconds.labels,
            decisions=self._decisions.labels,
            submit_errors={name: self._submit_errors.labels(name) for name in _ERROR_CLASSES.values()},
            waiting=self._waiting_groups,
            returned=self._returned,
        )

    def pods(self) -> PodMetrics:
        """Bind the series of the bridge's pod controller."""
        return PodMetrics(started=self._started, evicted=self._evicted)

    def nodesets(self) -> NodeSetMetrics:
        """Bind the series of the NodeSet controller."""
        return NodeSetMetrics(
            drains=self._drains,
            replaced=self._replaced,
            start=self._elastic_start,
            node_seconds=self._elastic_seconds,
            unused_starts=self._elastic_unused,
        )

    def read(self, metric: MetricName, read: Callable[[], Readings], *labels: str) -> None:
        """Add a gauge whose samples are read when it is scraped, and that may have none."""
        self.registry.register(_ReadGauge(metric, labels, read))

    def bounded(self, metric: MetricName, family: Family, *, kept: int = 1) -> Bounded[Family]:
        """Bound the label sets of a family whose labels come from users."""
        return Bounded(family, kept=kept, folded=self._folded.labels(metric.name))

    def leading(self, name: str) -> Gauge:
        """Bind the series that says whether this process leads."""
        return self._leading.labels(name)

    def client(self, host: str) -> Callable[[str, int, float], None]:
        """Make the observer of a client. It takes the method, the HTTP code (0 for no answer) and the seconds."""
        counts: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

        def observe(method: str, code: int, seconds: float) -> None:
            bound = counts.get((method, code))
            if bound is None:
                counter = self._requests.labels(str(code) if code else "<error>", host, method)
                bound = counts[method, code] = counter, self._request_seconds.labels(host, method)
            bound[0].inc()
            bound[1].observe(seconds)

        return observe

    def render(self, accept: str) -> tuple[bytes, str]:
        """Write all metrics in the form that an Accept header asks for; return the text and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _counter(self, metric: MetricName, *labels: str) -> Counter:
        return Counter(metric.name, metric.help, labels, registry=self.registry)

    def _gauge(self, metric: MetricName, *labels: str) -> Gauge:
        return Gauge(metric.name, metric.help, labels, registry=self.registry)

    def _histogram(self, metric: MetricName, *labels: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(metric.name, metric.help, labels, buckets=buckets, registry=self.registry)
