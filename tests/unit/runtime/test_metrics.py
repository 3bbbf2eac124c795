import pytest

from isthmus.errors import Retry, Terminal, Wait
from isthmus.names import MetricName
from isthmus.runtime.metrics import Metrics, Readings


def test_requests_of_a_client_are_counted_by_code_host_and_method() -> None:
    metrics = Metrics()
    observe = metrics.client("127.0.0.1:6443")
    observe("GET", 200, 0.5)
    observe("GET", 200, 0.25)
    observe("PATCH", 0, 1.0)
    value = metrics.registry.get_sample_value
    host = {"host": "127.0.0.1:6443"}
    assert value("rest_client_requests_total", {"code": "200", "method": "GET", **host}) == 2
    assert value("rest_client_requests_total", {"code": "<error>", "method": "PATCH", **host}) == 1
    assert value("rest_client_request_duration_seconds_sum", {"verb": "GET", **host}) == 0.75


def test_two_processes_worth_of_metrics_do_not_meet() -> None:
    first, second = Metrics(), Metrics()
    first.leading("isthmus").set(1)
    second.leading("isthmus")
    assert first.registry.get_sample_value("leader_election_master_status", {"name": "isthmus"}) == 1
    assert second.registry.get_sample_value("leader_election_master_status", {"name": "isthmus"}) == 0


def test_the_text_is_what_prometheus_reads() -> None:
    metrics = Metrics()
    metrics.queue("pods")
    body, content_type = metrics.render("")
    assert content_type.startswith("text/plain")
    assert b'workqueue_depth{name="pods"} 0.0' in body
    assert b"process_resident_memory_bytes" in body
    assert b"_created" not in body
    assert metrics.render("application/openmetrics-text; version=1.0.0")[1].startswith(
        "application/openmetrics-text"
    )


def test_a_gauge_that_is_read_costs_nothing_until_it_is_scraped_and_may_be_absent() -> None:
    metrics, asked = Metrics(), list[int]()
    samples: list[tuple[tuple[str, ...], float]] = []

    def read() -> Readings:
        asked.append(1)
        return samples

    metrics.read(MetricName("jobs", "Jobs."), read, "state")
    assert not asked
    assert metrics.registry.get_sample_value("jobs", {"state": "running"}) is None
    samples.append((("running",), 7.0))
    assert metrics.registry.get_sample_value("jobs", {"state": "running"}) == 7
    with pytest.raises(ValueError, match="Duplicated"):
        metrics.read(MetricName("jobs", "Jobs."), read, "state")


def test_submissions_that_fail_are_counted_by_what_happens_next() -> None:
    metrics = Metrics()
    value = metrics.registry.get_sample_value
    scheduling, name = metrics.scheduling(), "isthmus_bridge_submit_errors_total"
    assert [value(name, {"class": it}) for it in ("retry", "wait", "terminal")] == [0, 0, 0]
    scheduling.submit_failed(Retry("away"))
    scheduling.submit_failed(Wait("full", after=1))
    scheduling.submit_failed(Terminal("no such account"))
    scheduling.submit_failed(Terminal("no such partition"))
    assert [value(name, {"class": it}) for it in ("retry", "wait", "terminal")] == [1, 1, 2]


def test_families_with_labels_of_users_are_bounded() -> None:
    metrics = Metrics()
    for number in range(300):
        metrics.pods().evicted.of(f"ns-{number}", "physics", "Job", "timeout").inc()
    body, _ = metrics.render("")
    assert body.count(b"isthmus_bridge_pods_evicted_total{") == 201
    folded = {"family": "isthmus_bridge_pods_evicted_total"}
    assert metrics.registry.get_sample_value("isthmus_metrics_folded_series", folded) == 100
    together = {"namespace": "other", "account": "other", "kind": "Job", "reason": "timeout"}
    assert metrics.registry.get_sample_value("isthmus_bridge_pods_evicted_total", together) == 100
