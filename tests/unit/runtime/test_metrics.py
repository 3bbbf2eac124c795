from isthmus.runtime.metrics import Metrics


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
