"""What makes each alert fire, and what ends it: series as promtool writes them, `value+step x samples`."""

from typing import NamedTuple

NS = 'namespace="hpc"'


class Case(NamedTuple):
    """Series that make an alert fire at one time, and no longer at another; both in minutes."""

    alert: str
    series: dict[str, str]
    fires: int
    resolved: int
    severity: str = "warning"
    interval: str = "1m"


class Quiet(NamedTuple):
    """Series that look like trouble and are none."""

    alert: str
    why: str
    series: dict[str, str]
    until: int


def _wait(le: str) -> str:
    return f'isthmus_slurm_job_wait_seconds_bucket{{{NS},partition="main",le="{le}"}}'


def _ended(state: str) -> str:
    return f'isthmus_slurm_jobs_ended_total{{{NS},partition="main",state="{state}"}}'


def _volume(what: str, claim: str = "statesave-slurm-controller-0") -> str:
    return f'kubelet_volume_stats_{what}{{{NS},persistentvolumeclaim="{claim}"}}'


_QUEUE_MOVES = {
    f'isthmus_slurm_jobs_pending{{{NS},partition="main",reason="Resources"}}': "5x60",
    f"isthmus_slurm_up{{{NS}}}": "1x60",
}
_BACKFILL = f"isthmus_slurm_backfill_last_cycle_timestamp_seconds{{{NS}}}"
_EXITS = f"isthmus_slurm_scheduler_exits_total{{{NS},reason="
_RPC = f"slurm_controller_rpc_user_duration_seconds_total{{{NS},user="
_DRAIN = f'isthmus_slurm_node_drain_timestamp_seconds{{{NS},node="n1",owner="root"}}'
_STATE = f'isthmus_slurm_node_state{{{NS},node="n1",reason_class='
_ACTIVE = f'isthmus_operator_active_controller{{{NS},controller="slurm",instance='
_BIND = 'isthmus_bridge_bind_seconds_bucket{job="bridge",le='
_ELASTIC = f'isthmus_operator_elastic_nodes{{{NS},nodeset="gpu",state='
_STARTED = f'isthmus_operator_elastic_start_seconds_count{{{NS},nodeset="gpu",step='
_HEALTH = f'isthmus_health_nodes{{{NS},cluster="slurm",phase='
_RUNS = 'isthmus_check_runs_total{check="gpu-checks",result='

CASES = (
    Case(
        "IsthmusSlurmctldUnreachable",
        {f"isthmus_slurm_up{{{NS}}}": "1x4 0x10 1x10", 'isthmus_slurm_up{namespace="ml"}': "1x30"},
        fires=8,
        resolved=20,
        severity="critical",
    ),
    Case(
        "IsthmusSlurmctldNotReady",
        {
            f'isthmus_slurm_controller_up{{{NS},host="ctl-a"}}': "1x30",
            f'isthmus_slurm_controller_up{{{NS},host="ctl-b"}}': "1x4 0x10 1x10",
        },
        fires=9,
        resolved=20,
    ),
    Case(
        "IsthmusControllerFailover",
        {
            f'{_ACTIVE}"a",pod="slurm-controller-0"}}': "1x4 0x40",
            f'{_ACTIVE}"a",pod="slurm-controller-1"}}': "0x4 1x40",
            f'{_ACTIVE}"b",pod="slurm-controller-0"}}': "1x4 0x40",
            f'{_ACTIVE}"b",pod="slurm-controller-1"}}': "0x4 1x40",
        },
        fires=7,
        resolved=25,
    ),
    Case(
        "IsthmusSchedulerStalled",
        {
            **_QUEUE_MOVES,
            _BACKFILL: "0x30 1860+60x30",
            f'isthmus_slurm_jobs_submitted_total{{{NS},partition="main"}}': "0+1x60",
        },
        fires=20,
        resolved=35,
    ),
    Case(
        "IsthmusSchedulerSlow",
        {f"isthmus_slurm_scheduler_cycle_seconds{{{NS}}}": "1x4 10x10 1x20"},
        fires=12,
        resolved=20,
    ),
    Case(
        "IsthmusSchedulerSlow",
        {f"isthmus_slurm_scheduler_cycle_seconds{{{NS}}}": "1x4 40x10 1x20"},
        fires=12,
        resolved=20,
        severity="critical",
    ),
    Case(
        "IsthmusSchedulerBudgetHit",
        {f'{_EXITS}"max_sched_time"}}': "0+5x60 300x60", f'{_EXITS}"end_job_queue"}}': "0+5x120"},
        fires=40,
        resolved=90,
    ),
    Case(
        "IsthmusRpcStorm",
        {
            f'{_RPC}"eve"}}': "0+50x60",
            f'{_RPC}"bob"}}': "0+5x60",
            f"slurm_controller_server_thread_count{{{NS}}}": "240x30 20x30",
        },
        fires=25,
        resolved=40,
    ),
    Case(
        "IsthmusDbdBacklog",
        {f"isthmus_slurm_slurmdbd_queue_size{{{NS}}}": "0x4 200x10 0x10"},
        fires=12,
        resolved=20,
    ),
    Case(
        "IsthmusAgentBacklog", {f"isthmus_slurm_agent_queue_size{{{NS}}}": "0x4 900x10 0x10"}, fires=12, resolved=20
    ),
    Case("IsthmusAccountingDown", {f"isthmus_slurm_accounting_up{{{NS}}}": "1x4 0x10 1x10"}, fires=12, resolved=20),
    Case(
        "IsthmusStateDiskFull",
        {_volume("available_bytes"): "50x4 5x10 50x10", _volume("capacity_bytes"): "100x30"},
        fires=12,
        resolved=20,
        severity="critical",
    ),
    Case(
        "IsthmusStateDiskFull",
        {
            _volume("available_bytes", "slurm1-controller-spool"): "50x30",
            _volume("capacity_bytes", "slurm1-controller-spool"): "100x30",
            _volume("inodes_free", "slurm1-controller-spool"): "50x4 5x10 50x10",
            _volume("inodes", "slurm1-controller-spool"): "100x30",
        },
        fires=12,
        resolved=20,
        severity="critical",
    ),
    Case(
        "IsthmusNodesDown",
        {
            f'isthmus_slurm_partition_nodes{{{NS},partition="main",state="idle"}}': "9x60",
            f'isthmus_slurm_partition_nodes{{{NS},partition="main",state="not_responding"}}': "0x4 1x20 0x20",
        },
        fires=17,
        resolved=30,
    ),
    Case(
        "IsthmusDrainStuck",
        {_DRAIN: "-80000x240 _x60", f'{_STATE}"operator"}}': "10x240 0x60"},
        fires=200,
        resolved=260,
    ),
    Case(
        "IsthmusDrainStuck",
        {_DRAIN: "-250000x300 _x60", f'{_STATE}"human"}}': "11x300 0x60"},
        fires=250,
        resolved=320,
    ),
    Case(
        "IsthmusNodeFlapping",
        {
            # Its reason is a label, so that another series begins whenever it goes out.
            f'{_STATE}"none"}}': "0x2 stale _x2 0x2 stale _x2 0x2 stale _x2 0x2 stale _x2 0x400",
            f'{_STATE}"not_responding"}}': "_x3 14x2 stale _x2 14x2 stale _x2 14x2 stale _x2 14x2 stale _x400",
        },
        fires=4 * 30,
        resolved=26 * 60,
        interval="4m",
    ),
    Case(
        "IsthmusQueueWaitHigh",
        {_wait("3600"): "0x120 0+1x180", _wait("21600"): "0+1x300", _wait("+Inf"): "0+1x300"},
        fires=100,
        resolved=250,
        severity="info",
    ),
    Case(
        "IsthmusJobFailureRatio",
        {_ended("failed"): "0+3x120 360x240", _ended("completed"): "0+17x360"},
        fires=100,
        resolved=300,
    ),
    Case(
        "IsthmusJobFailureRatio",
        {_ended("node_fail"): "0+1x120 120x240", _ended("completed"): "0+1x360"},
        fires=100,
        resolved=300,
        severity="critical",
    ),
    Case(
        "IsthmusBridgeLostSlurm",
        {
            'isthmus_bridge_slurm_in_touch{job="bridge",pod="a"}': "1x4 0x10 1x10",
            'isthmus_bridge_slurm_in_touch{job="bridge",pod="b"}': "0x30",
        },
        fires=9,
        resolved=20,
        severity="critical",
    ),
    Case(
        "IsthmusPodBindSlow",
        {f'{_BIND}"5"}}': "0x30 0+1x30", f'{_BIND}"10"}}': "0+1x60", f'{_BIND}"+Inf"}}': "0+1x60"},
        fires=20,
        resolved=45,
    ),
    Case(
        "IsthmusSubmitErrors",
        {
            'isthmus_bridge_submit_errors_total{class="terminal"}': "0+1x20 20x40",
            'isthmus_bridge_submit_errors_total{class="wait"}': "0+1x60",
            'isthmus_bridge_decisions_total{step="submit"}': "0+10x60",
        },
        fires=15,
        resolved=35,
    ),
    Case(
        "IsthmusOrphanAllocation",
        {"isthmus_bridge_orphan_allocations": "0x4 1x10 0x10"},
        fires=9,
        resolved=20,
        severity="critical",
    ),
    Case("IsthmusGresMismatch", {f"isthmus_bridge_node_mismatch{{{NS}}}": "0x4 2x20 0x10"}, fires=20, resolved=30),
    Case(
        "IsthmusBridgeTokenExpiring",
        {'isthmus_bridge_token_expiry_timestamp_seconds{job="bridge"}': "3600x62 9000x20"},
        fires=61,
        resolved=70,
    ),
    Case(
        "IsthmusOperatorLostSlurm",
        {f'isthmus_operator_slurm_in_touch{{{NS},controller="slurm"}}': "1x4 0x10 1x10"},
        fires=12,
        resolved=20,
    ),
    Case(
        "IsthmusConfigNotApplied",
        {f'isthmus_operator_config_applied{{{NS},controller="slurm"}}': "1x4 0x20 1x10"},
        fires=20,
        resolved=30,
    ),
    Case(
        "IsthmusClusterDegraded",
        {f'isthmus_operator_degraded{{{NS},kind="NodeSet",name="gpu"}}': "0x4 1x20 0x10"},
        fires=22,
        resolved=30,
    ),
    Case(
        "IsthmusScaleStuck",
        {f'{_ELASTIC}"starting"}}': "0x10 3x50 0x20", f'{_STARTED}"register"}}': "4x80"},
        fires=50,
        resolved=70,
    ),
    Case(
        "IsthmusScaleStuck",
        {f'{_ELASTIC}"failed"}}': "0x4 1x20 0x20"},
        fires=20,
        resolved=30,
    ),
    Case(
        "IsthmusTokenExpiring",
        {
            f'isthmus_operator_token_issued_timestamp_seconds{{{NS},token="bridge"}}': "0x60 3600x30",
            f'isthmus_operator_token_expiry_timestamp_seconds{{{NS},token="bridge"}}': "3600x60 7200x30",
        },
        fires=58,
        resolved=70,
    ),
    Case(
        "IsthmusCertExpiring",
        {f'isthmus_serving_certificate_expiry_timestamp_seconds{{{NS},job="bridge"}}': "1210200x20 7776000x20"},
        fires=15,
        resolved=30,
    ),
    Case(
        "IsthmusExporterDataStale",
        {f'isthmus_slurm_data_age_seconds{{{NS},collector="jobs"}}': "10x4 400x10 10x10"},
        fires=12,
        resolved=20,
    ),
    Case(
        "IsthmusNodeOutOfService",
        {f'{_HEALTH}"OutOfService"}}': "0x5 1x30 _x30", f'{_HEALTH}"Testing"}}': "4x60"},
        fires=20,
        resolved=45,
    ),
    Case(
        "IsthmusHealthStorm",
        {f'isthmus_health_storms{{{NS},policy="slurm"}}': "0x5 1x20 0x20"},
        fires=8,
        resolved=35,
        severity="critical",
    ),
    Case(
        "IsthmusCheckErrors",
        {f'{_RUNS}"error"}}': "0+1x60 60x120", f'{_RUNS}"passed"}}': "0x60 0+1x120"},
        fires=60,
        resolved=150,
    ),
    Case(
        "IsthmusExporterAbsent",
        {f"isthmus_slurm_up{{{NS}}}": "1x10 _x40 1x10"},
        fires=30,
        resolved=58,
    ),
)

QUIET = (
    Quiet(
        "IsthmusScaleStuck",
        "nodes that start one after the other come up",
        {f'{_ELASTIC}"starting"}}': "2x90", f'{_STARTED}"register"}}': "0+1x90"},
        until=80,
    ),
    Quiet(
        "IsthmusCheckErrors",
        "one error of two runs says little",
        {f'{_RUNS}"error"}}': "0x10 1x60", f'{_RUNS}"passed"}}': "0x10 1x60"},
        until=60,
    ),
    Quiet(
        "IsthmusSchedulerStalled",
        "a full cluster in which nothing changes has no backfill cycles",
        {
            **_QUEUE_MOVES,
            _BACKFILL: "0x60",
            f'isthmus_slurm_jobs_submitted_total{{{NS},partition="main"}}': "7x60",
            f'isthmus_slurm_jobs_started_total{{{NS},partition="main"}}': "7x60",
        },
        until=50,
    ),
    Quiet(
        "IsthmusJobFailureRatio",
        "three failures of five jobs say little",
        {_ended("failed"): "0x10 3x120", _ended("completed"): "0x10 2x120"},
        until=100,
    ),
    Quiet(
        "IsthmusRpcStorm",
        "one user alone on an idle slurmctld disturbs nobody",
        {f'{_RPC}"eve"}}': "0+50x60", f"slurm_controller_server_thread_count{{{NS}}}": "3x60"},
        until=50,
    ),
    Quiet(
        "IsthmusStateDiskFull",
        "the volume of another program is not ours",
        {_volume("available_bytes", "data-db-0"): "1x60", _volume("capacity_bytes", "data-db-0"): "100x60"},
        until=50,
    ),
    Quiet(
        "IsthmusNodesDown",
        "nodes that are powered down are meant to be so",
        {
            f'isthmus_slurm_partition_nodes{{{NS},partition="main",state="powered_down"}}': "90x60",
            f'isthmus_slurm_partition_nodes{{{NS},partition="main",state="down"}}': "1x60",
        },
        until=50,
    ),
    Quiet(
        "IsthmusDrainStuck",
        "a node that is down is told by another alert",
        {_DRAIN: "-300000x300", f'{_STATE}"hardware"}}': "14x300"},
        until=250,
    ),
    Quiet(
        "IsthmusBridgeLostSlurm",
        "one replica that lost Slurm is not the bridge",
        {
            'isthmus_bridge_slurm_in_touch{job="bridge",pod="a"}': "1x60",
            'isthmus_bridge_slurm_in_touch{job="bridge",pod="b"}': "0x60",
        },
        until=50,
    ),
    Quiet(
        "IsthmusSubmitErrors",
        "to be told to wait is no error",
        {
            'isthmus_bridge_submit_errors_total{class="wait"}': "0+9x60",
            'isthmus_bridge_decisions_total{step="submit"}': "0+10x60",
        },
        until=50,
    ),
    Quiet(
        "IsthmusControllerFailover",
        "a restart of the operator is no fail-over",
        {
            f'{_ACTIVE}"a",pod="slurm-controller-0"}}': "1x20 _x30",
            f'{_ACTIVE}"b",pod="slurm-controller-0"}}': "_x22 1x30",
        },
        until=45,
    ),
    Quiet(
        "IsthmusCertExpiring",
        "a process without webhooks has no certificate",
        {f'isthmus_serving_certificate_expiry_timestamp_seconds{{{NS},job="operator"}}': "0x60"},
        until=50,
    ),
)

HEALTHY = {
    f'{_ELASTIC}"starting"}}': "2x240",
    f'{_ELASTIC}"failed"}}': "0x240",
    f'{_STARTED}"register"}}': "0+1x240",
    f"isthmus_bridge_node_mismatch{{{NS}}}": "0x240",
    f'{_HEALTH}"Recovered"}}': "2x240",
    f'isthmus_health_storms{{{NS},policy="slurm"}}': "0x240",
    f'{_RUNS}"passed"}}': "0+10x240",
    f'{_RUNS}"error"}}': "0+1x240",
    f"isthmus_slurm_up{{{NS}}}": "1x240",
    f'isthmus_slurm_data_age_seconds{{{NS},collector="jobs"}}': "2x240",
    f'isthmus_slurm_controller_up{{{NS},host="ctl-a"}}': "1x240",
    f"isthmus_slurm_accounting_up{{{NS}}}": "1x240",
    f"isthmus_slurm_slurmdbd_queue_size{{{NS}}}": "3x240",
    f"isthmus_slurm_agent_queue_size{{{NS}}}": "12x240",
    f"isthmus_slurm_scheduler_cycle_seconds{{{NS}}}": "0.2x240",
    f'{_EXITS}"end_job_queue"}}': "0+60x240",
    f'{_EXITS}"max_sched_time"}}': "0+1x240",
    _BACKFILL: "0+60x240",
    f'isthmus_slurm_jobs_pending{{{NS},partition="main",reason="Priority"}}': "40x240",
    f'isthmus_slurm_jobs_submitted_total{{{NS},partition="main"}}': "0+20x240",
    f'isthmus_slurm_jobs_started_total{{{NS},partition="main"}}': "0+20x240",
    _ended("completed"): "0+20x240",
    _ended("failed"): "0+1x240",
    _wait("3600"): "0+20x240",
    _wait("21600"): "0+20x240",
    _wait("+Inf"): "0+20x240",
    f'{_RPC}"root"}}': "0+5x240",
    f"slurm_controller_server_thread_count{{{NS}}}": "4x240",
    f'isthmus_slurm_partition_nodes{{{NS},partition="main",state="idle"}}': "100x240",
    f'isthmus_slurm_partition_nodes{{{NS},partition="main",state="down"}}': "1x240",
    f'{_STATE}"none"}}': "0x100 2x140",
    _volume("available_bytes"): "90x240",
    _volume("capacity_bytes"): "100x240",
    _volume("inodes_free"): "90x240",
    _volume("inodes"): "100x240",
    'isthmus_bridge_slurm_in_touch{job="bridge"}': "1x240",
    f'{_BIND}"5"}}': "0+30x240",
    f'{_BIND}"+Inf"}}': "0+30x240",
    'isthmus_bridge_submit_errors_total{class="retry"}': "0x240",
    'isthmus_bridge_decisions_total{step="submit"}': "0+30x240",
    "isthmus_bridge_orphan_allocations": "0x240",
    'isthmus_bridge_token_expiry_timestamp_seconds{job="bridge"}': "900+60x240",
    f'{_ACTIVE}"a",pod="slurm-controller-0"}}': "1x240",
    f'isthmus_operator_slurm_in_touch{{{NS},controller="slurm"}}': "1x240",
    f'isthmus_operator_config_applied{{{NS},controller="slurm"}}': "1x240",
    f'isthmus_operator_degraded{{{NS},kind="NodeSet",name="gpu"}}': "0x240",
    f'isthmus_operator_token_issued_timestamp_seconds{{{NS},token="bridge"}}': "0+60x240",
    f'isthmus_operator_token_expiry_timestamp_seconds{{{NS},token="bridge"}}': "900+60x240",
    f'isthmus_serving_certificate_expiry_timestamp_seconds{{{NS},job="bridge"}}': "7776000x240",
}
"""An ordinary four hours."""
