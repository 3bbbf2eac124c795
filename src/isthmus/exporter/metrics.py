"""What the exporter counts about itself."""

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from isthmus import names

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class CollectorMetrics(msgspec.Struct, frozen=True):
    """The series of one collector, and those of all."""

    seconds: Histogram
    errors: Counter
    inflight: Gauge
    skipped: Counter
    all_seconds: Histogram
    all_attempts: Counter
    all_failures: Counter

    def begin(self, under_way: int) -> None:
        self.all_attempts.inc()
        self.inflight.set(under_way)

    def end(self, seconds: float, *, under_way: int) -> None:
        self.inflight.set(under_way)
        for histogram in (self.seconds, self.all_seconds):
            histogram.observe(seconds)

    def fail(self) -> None:
        self.errors.inc()
        self.all_failures.inc()


class ExporterMetrics:
    """The series of an exporter; their names are Soperator's."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(metric: names.MetricName, *labels: str) -> Histogram:
            return Histogram(metric.name, metric.help, labels, buckets=_BUCKETS, registry=registry)

        def counter(metric: names.MetricName, *labels: str) -> Counter:
            return Counter(metric.name, metric.help, labels, registry=registry)

        def gauge(metric: names.MetricName, *labels: str) -> Gauge:
            return Gauge(metric.name, metric.help, labels, registry=registry)

        self._seconds = histogram(names.EXPORTER_COLLECTOR_SECONDS, "collector")
        self._errors = counter(names.EXPORTER_COLLECTOR_ERRORS, "collector")
        self._inflight = gauge(names.EXPORTER_COLLECTOR_INFLIGHT, "collector")
        self._skipped = counter(names.EXPORTER_COLLECTOR_SKIPPED, "collector")
        self._all_seconds = histogram(names.EXPORTER_COLLECTION_SECONDS)
        self._all_attempts = counter(names.EXPORTER_ATTEMPTS)
        self._all_failures = counter(names.EXPORTER_FAILURES)
        self.requests = counter(names.EXPORTER_REQUESTS)
        self.exported = gauge(names.EXPORTER_EXPORTED)

    def collector(self, name: str) -> CollectorMetrics:
        """Bind the series of a collector."""
        return CollectorMetrics(
            seconds=self._seconds.labels(name),
            errors=self._errors.labels(name),
            inflight=self._inflight.labels(name),
            skipped=self._skipped.labels(name),
            all_seconds=self._all_seconds,
            all_attempts=self._all_attempts,
            all_failures=self._all_failures,
        )
