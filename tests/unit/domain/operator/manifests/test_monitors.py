"""ServiceMonitors of slurmctld, of a Controller and of a SlurmCluster."""

from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.clusterparts import Parts, parts_of
from isthmus.domain.operator.manifests import controller as slurmctld
from isthmus.domain.operator.manifests import monitors
from isthmus.domain.operator.manifests.common import Settings
from isthmus.model.slinky import CONTROLLERS, Controller
from isthmus.model.soperator import SlurmCluster

KEYS = {"slurmKeyRef": {"name": "k", "key": "k"}, "jwtKeyRef": {"name": "j", "key": "j"}}


def controller(**monitor: Any) -> Controller:
    metrics = {"enabled": True, "serviceMonitor": {"enabled": True, **monitor}}
    wanted = {"metadata": {"name": "slurm", "namespace": "ns"}, "spec": {**KEYS, "metrics": metrics}}
    return msgspec.convert(wanted, Controller)


def made_of(*, monitored: bool = True, **spec: Any) -> tuple[Controller, Parts]:
    """Make the Controller of a SlurmCluster with openMetrics."""
    wanted = {"metadata": {"name": "demo", "namespace": "ns"}, "spec": spec}
    found = parts_of(msgspec.convert(wanted, SlurmCluster), prefix="", settings=Settings(), monitored=monitored)
    (child,) = (it for it in found.children if it.kind is CONTROLLERS)
    return msgspec.convert(child.manifest, Controller), found


def with_metrics(**monitor: Any) -> dict[str, Any]:
    return {"controller": {"openMetrics": {"serviceMonitor": monitor}}}


def test_what_a_controller_asks_for_arrives() -> None:
    made = monitors.service_monitor(
        controller(
            labels={"release": "p"},
            annotations={"a": "b"},
            interval="1m",
            scrapeTimeout="10s",
            endpoints=[{"path": "/metrics/jobs", "interval": "2m"}, {"path": "/metrics/nodes"}],
        )
    )
    assert made["metadata"]["name"] == "slurm-controller"
    assert made["metadata"]["labels"]["release"] == "p"
    assert made["metadata"]["annotations"] == {"a": "b"}
    first, second = made["spec"]["endpoints"]
    assert (first["path"], first["interval"], first["scrapeTimeout"]) == ("/metrics/jobs", "2m", "10s")
    assert (second["path"], second["interval"]) == ("/metrics/nodes", "1m")
    assert first["followRedirects"] is True


def test_without_endpoints_there_are_four_with_the_times_of_prometheus() -> None:
    endpoints = monitors.service_monitor(controller())["spec"]["endpoints"]
    assert [it["path"] for it in endpoints] == [
        "/metrics/jobs",
        "/metrics/nodes",
        "/metrics/partitions",
        "/metrics/scheduler",
    ]
    assert all("interval" not in it and it["port"] == "slurmctld" for it in endpoints)


def test_one_service_alone_is_scraped_though_several_have_the_same_pods() -> None:
    """Each Service that matches would be scraped, and each figure counted once for each."""
    chosen = controller()
    wanted = monitors.service_monitor(chosen)["spec"]["selector"]["matchLabels"].items()
    matching = [it for it in slurmctld.services(chosen) if wanted <= it["metadata"]["labels"].items()]
    assert [it["metadata"]["name"] for it in matching] == ["slurm-controller"]
    assert len(slurmctld.services(chosen)) > 1


def test_fields_of_a_slurmcluster_arrive_at_its_controller() -> None:
    chosen, found = made_of(slurmNodes=with_metrics(interval="10s", endpoints=["jobs"], labels={"release": "p"}))
    made = monitors.service_monitor(chosen)
    (endpoint,) = made["spec"]["endpoints"]
    assert (endpoint["path"], endpoint["interval"], endpoint["scrapeTimeout"]) == ("/metrics/jobs", "10s", "10s")
    assert endpoint["metricRelabelings"] == [{"action": "labeldrop", "regex": "pod|instance|container"}]
    assert made["metadata"]["labels"]["release"] == "p"
    assert found.problems == found.ignored == ()
    usual, _ = made_of(slurmNodes={"controller": {"openMetrics": {}}})
    endpoints = monitors.service_monitor(usual)["spec"]["endpoints"]
    assert len(endpoints) == 5
    assert {(it["interval"], it["scrapeTimeout"]) for it in endpoints} == {("30s", "28s")}


def test_a_slurmcluster_is_told_what_keeps_its_metrics_away() -> None:
    _, found = made_of(monitored=False, slurmNodes=with_metrics(interval="10s"))
    where = "slurmNodes.controller.openMetrics"
    assert found.ignored == (
        f"{where}.serviceMonitor (the definitions of monitoring.coreos.com/v1 are not installed)",
    )
    _, found = made_of(monitored=False, slurmNodes={"controller": {"openMetrics": {}}})
    assert found.ignored == (), "nobody asked for a ServiceMonitor in particular"
    _, found = made_of(customSlurmConfig="PrivateData=jobs\n", slurmNodes=with_metrics())
    assert found.ignored == (f"{where} (slurmctld serves no metrics while PrivateData is set)",)
    _, found = made_of(slurmNodes=with_metrics(interval="10s", scrapeTimeout="11s"))
    assert found.problems == (f"{where}.serviceMonitor.scrapeTimeout: it is longer than interval",)


@pytest.mark.parametrize("metrics", [{"enabled": False}, {"enabled": True}])
def test_no_service_is_marked_where_nobody_scrapes(metrics: dict[str, Any]) -> None:
    wanted = {"metadata": {"name": "slurm", "namespace": "ns"}, "spec": {**KEYS, "metrics": metrics}}
    made = slurmctld.services(msgspec.convert(wanted, Controller))
    assert not [it for it in made if "isthmus.dev/scraped" in it["metadata"]["labels"]]
