"""Soperator's families, as dashboards know them: a name or a label that changes here breaks a board somewhere."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from isthmus.domain.exporter import catalog
from isthmus.exporter.metrics import ExporterMetrics

_FLAGS = (
    "state_is_drain state_is_maintenance state_is_reserved state_is_completing state_is_fail state_is_planned"
    " state_is_not_responding state_is_invalid state_is_cloud state_is_power_down state_is_power_drain"
    " state_is_powered_down state_is_powering_down state_is_powering_up state_is_power_up"
)
_STATE = "node_name state_base state_is_drain state_is_maintenance state_is_reserved"
_OUTAGES = "30 60 300 600 1800 3600 7200 14400 28800 43200 86400 172800 259200 604800 1209600 2592000"
_JOB = (
    "job_id job_state job_state_reason slurm_partition job_name user_name user_mail user_id standard_error"
    " standard_output array_job_id array_task_id submit_time start_time end_time finished_time"
)
FAMILIES = {
    "slurm_node_info": (
        "gauge",
        f"node_name instance_id state_base {_FLAGS} is_unavailable reservation_name address reason comment",
    ),
    **{f"slurm_node_cpus_{it}": ("gauge", "node_name") for it in ("total", "allocated", "idle", "effective")},
    **{
        f"slurm_node_memory_{it}_bytes": ("gauge", "node_name")
        for it in ("total", "allocated", "free", "effective")
    },
    "slurm_node_partition": ("gauge", "node_name partition"),
    "slurm_node_nvlink_instance_group": ("gauge", "node_name instance_id nvlink_instance_group nodeset_name"),
    "slurm_node_gpu_seconds_total": ("counter", _STATE),
    "slurm_node_fails_total": ("counter", f"{_STATE} reason"),
    "slurm_node_unavailability_duration_seconds": ("histogram", "node_name"),
    "slurm_node_draining_duration_seconds": ("histogram", "node_name"),
    "slurm_job_info": ("gauge", _JOB),
    "slurm_node_job": ("gauge", "job_id node_name nvlink_instance_group nodeset_name"),
    "slurm_job_duration_seconds": ("gauge", "job_id"),
    "slurm_job_cpus": ("gauge", "job_id"),
    "slurm_job_memory_bytes": ("gauge", "job_id"),
    "slurm_controller_rpc_calls_total": ("counter", "message_type"),
    "slurm_controller_rpc_duration_seconds_total": ("counter", "message_type"),
    "slurm_controller_rpc_user_calls_total": ("counter", "user user_id"),
    "slurm_controller_rpc_user_duration_seconds_total": ("counter", "user user_id"),
    "slurm_controller_server_thread_count": ("gauge", ""),
}


def test_each_family_has_its_type_and_labels() -> None:
    found = {it.name: it for it in catalog.SOPERATOR}
    assert found.keys() == FAMILIES.keys()
    for name, (kind, labels) in FAMILIES.items():
        assert (found[name].kind, set(found[name].labels)) == (kind, set(labels.split())), name
    for name in ("slurm_node_unavailability_duration_seconds", "slurm_node_draining_duration_seconds"):
        assert found[name].buckets == tuple(map(float, _OUTAGES.split()))


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("collection_duration_seconds_count", ""),
        ("collection_attempts_total", ""),
        ("collection_failures_total", ""),
        ("collector_duration_seconds_count", '{collector="jobs"}'),
        ("collector_errors_total", '{collector="jobs"}'),
        ("collector_inflight", '{collector="jobs"}'),
        ("collector_skipped_total", '{collector="jobs"}'),
        ("metrics_requests_total", ""),
        ("metrics_exported", ""),
    ],
)
def test_what_it_counts_of_itself_has_its_names(name: str, labels: str) -> None:
    registry = CollectorRegistry()
    ExporterMetrics(registry).collector("jobs")
    assert f"\nslurm_exporter_{name}{labels} " in generate_latest(registry).decode()
