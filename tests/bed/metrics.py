"""What a process has counted, read as Prometheus would."""

from isthmus.names import MetricName
from isthmus.runtime.metrics import Metrics


def counted(metrics: Metrics, metric: MetricName, suffix: str = "", /, **labels: str) -> float:
    """Add up the samples of a metric that have these labels, whatever else they have; 0 if there are none."""
    name = f"{metric.name}{suffix}"
    return sum(
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
