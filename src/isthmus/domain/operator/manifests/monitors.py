"""PodMonitors and ServiceMonitors: what the Prometheus operator has to scrape.

Their kinds are another project's and may be missing. Pods that serve metrics then carry annotations, which a
Prometheus without that operator goes by.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.manifests import controller as slurmctld
from isthmus.domain.operator.manifests.common import Manifest
from isthmus.model.slinky import Controller, MetricsEndpoint, ServiceMonitor
from isthmus.model.soperator import OpenMetricsServiceMonitor, PodMonitorConfig

NOT_INSTALLED: Final = "the definitions of monitoring.coreos.com/v1 are not installed"
"""Why there is no monitor."""

_DROP: Final[Manifest] = {"action": "labeldrop", "regex": "pod|instance|container"}
"""A pod that is replaced goes on with the series of the one before."""

_PATHS: Final = ("jobs", "nodes", "partitions", "scheduler")
_PATHS_OF_CLUSTER: Final = ("jobs", "jobs-users-accts", "nodes", "partitions", "scheduler")
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}


def annotations(port: int) -> dict[str, str]:
    """Say in the usual words that a pod is to be scraped."""
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": "/metrics"}


def pod_monitor(metadata: Manifest, select: Mapping[str, str], config: PodMonitorConfig) -> Manifest:
    """Make the PodMonitor of an exporter: what it says of Slurm, and what it says of itself."""
    own = dict(metadata["labels"])
    return {
        "metadata": {**metadata, "labels": {**config.labels, **own}},
        "spec": {
            **({"jobLabel": config.job_label} if config.job_label else {}),
            "selector": {"matchLabels": dict(select)},
            "namespaceSelector": {"matchNames": [metadata["namespace"]]},
            "podMetricsEndpoints": [
                {
                    "port": port,
                    "path": "/metrics",
                    "scheme": "http",
                    "interval": config.interval,
                    "scrapeTimeout": timeout(config, usual="20s"),
                    "metricRelabelings": [_DROP, *config.metric_relabel_configs],
                    **({"relabelings": list(config.relabel_config)} if config.relabel_config else {}),
                }
                for port in ("metrics", "monitoring")
            ],
        },
    }


def service_monitor(controller: Controller) -> Manifest:
    """Make the ServiceMonitor of slurmctld, which serves metrics at the port where it serves everything."""
    meta, asked = controller.metadata, controller.spec.metrics.service_monitor
    given = asked.endpoints or [MetricsEndpoint(path=f"/metrics/{it}") for it in _PATHS]
    return {
        "metadata": common.metadata(
            slurmctld.monitor(controller),
            meta.namespace,
            slurmctld.labels(controller),
            own=asked.labels,
            annotations=asked.annotations,
        ),
        "spec": {
            "selector": {"matchLabels": slurmctld.scraped(controller)},
            "namespaceSelector": {"matchNames": [meta.namespace]},
            "endpoints": [_endpoint(it, asked) for it in given],
        },
    }


def of_cluster(asked: OpenMetricsServiceMonitor) -> Manifest:
    """Write the ServiceMonitor of a SlurmCluster as that of its Controller."""
    return {
        "enabled": True,
        "labels": dict(asked.labels),
        "interval": asked.interval,
        "scrapeTimeout": timeout(asked, usual="28s"),
        "endpoints": [{"path": f"/metrics/{it}"} for it in asked.endpoints or _PATHS_OF_CLUSTER],
        "metricRelabelings": [_DROP],
    }


def timeout(asked: OpenMetricsServiceMonitor | PodMonitorConfig, *, usual: str) -> str:
    """Choose a time-out that Prometheus takes: one that is longer than the interval would be refused."""
    return asked.scrape_timeout or min(usual, asked.interval or usual, key=_seconds)


def is_too_long(asked: OpenMetricsServiceMonitor | PodMonitorConfig) -> bool:
    """Whether the time-out is longer than the interval."""
    return bool(asked.interval and asked.scrape_timeout) and _seconds(asked.scrape_timeout) > _seconds(
        asked.interval
    )


def _seconds(text: str) -> float:
    found: Sequence[tuple[str, str]] = re.findall(r"([0-9]+)(ms|[smhdwy])", text)
    return sum(int(amount) * _UNITS[unit] for amount, unit in found)


def _endpoint(endpoint: MetricsEndpoint, asked: ServiceMonitor) -> Manifest:
    times: dict[str, Any] = {
        "interval": endpoint.interval or asked.interval,
        "scrapeTimeout": endpoint.scrape_timeout or asked.scrape_timeout,
        "metricRelabelings": list(asked.metric_relabelings),
    }
    return {
        "port": slurmctld.APP,
        "scheme": "http",
        "path": endpoint.path,
        "followRedirects": True,
        **{name: value for name, value in times.items() if value},
    }
