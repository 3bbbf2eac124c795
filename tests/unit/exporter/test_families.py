"""Families that follow changes of stores."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from isthmus.domain.exporter import catalog, metricsets
from isthmus.domain.exporter.aliases import SETS
from isthmus.domain.exporter.folding import Limits
from isthmus.exporter.aggregates import Aggregates
from isthmus.exporter.controller import Controller
from isthmus.exporter.jobs import Gate, JobSums, PerJob
from isthmus.exporter.lines import Lines
from isthmus.exporter.metrics import ExporterMetrics
from isthmus.exporter.nodes import Nodes
from isthmus.exporter.page import Page
from isthmus.exporter.slimrecords import Slimmer
from isthmus.model.slurm import CycleExits, Job, Node, Number, RpcCount, RpcUser, Statistics
from isthmus.slurm.store import Store


def _running(job_id: int, **changes: object) -> Job:
    return Job(
        job_id,
        job_state=("RUNNING",),
        partition="gpu",
        account="physics",
        qos="normal",
        user_name="alice",
        start_time=Number.of(1_000),
        tres_allocated="cpu=4,mem=1G,node=1",
        **changes,  # type: ignore[arg-type] # fields of a job
    )


class _Site:
    def __init__(self, name: str = "own") -> None:
        self.jobs: Store[int, Job] = Store()
        self.nodes: Store[str, Node] = Store()
        alias = SETS.get(name)
        sets = (metricsets.OWN, alias or metricsets.SOPERATOR)
        sums = JobSums(self.jobs)
        nodes = Nodes(self.nodes, [table for each in sets for table in each.nodes])
        self.per_job = PerJob()
        self.per_job.follow(self.jobs)
        self.aggregates = Aggregates(
            sets, jobs=sums.sums, nodes=nodes.sums, waiting=sums.waiting, limits=Limits(series=1000, top=2)
        )
        self.metrics = ExporterMetrics(CollectorRegistry())
        behind = Gate(lambda: True, self.aggregates.of_nodes, self.aggregates.of_jobs, self.per_job.text)
        self.page = Page(
            [nodes, behind],
            folded=lambda: self.aggregates.folded,
            metrics=self.metrics,
            scraped=lambda _: None,
            clock=lambda: 1_060.0,
        )

    def shown(self) -> dict[str, float]:
        lines = self.page.render().decode().splitlines()
        return {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")
        }


def test_a_job_is_shown_changes_and_goes() -> None:
    site = _Site()
    site.jobs.put(7, _running(7, nodes="n1"))
    shown = site.shown()
    assert shown['isthmus_slurm_jobs{partition="gpu",account="physics",qos="normal",state="running"}'] == 1
    assert shown['isthmus_slurm_account_memory_bytes{account="physics"}'] == 1 << 30
    assert shown['slurm_job_duration_seconds{job_id="7"}'] == 60
    assert any(series.startswith('slurm_node_job{job_id="7",node_name="n1"') for series in shown)
    site.jobs.put(
        7, Job(7, job_state=("COMPLETED",), partition="gpu", start_time=Number.of(1_000), end_time=Number.of(1_030))
    )
    shown = site.shown()
    assert shown['slurm_job_duration_seconds{job_id="7"}'] == 30
    assert not [series for series in shown if "running" in series]
    site.jobs.drop(7)
    assert not [series for series in site.shown() if "job" in series]


def test_a_clock_that_was_set_back_makes_no_negative_duration() -> None:
    site = _Site()
    site.jobs.put(7, _running(7, nodes="n1"))
    assert "".join(site.per_job.text(500.0)).splitlines()[-1] == 'slurm_job_duration_seconds{job_id="7"} 0'


def test_a_node_is_shown_changes_and_goes() -> None:
    site = _Site()
    node = Node(
        "n1", state=("IDLE", "DRAIN"), cpus=4, reason="Bob", partitions=("gpu",), reason_changed_at=Number.of(5)
    )
    site.nodes.put("n1", node)
    shown = site.shown()
    assert shown['isthmus_slurm_node_state{node="n1",reason_class="human"}'] == 11
    assert shown['isthmus_slurm_nodes_out{reason_class="human"}'] == 1
    assert shown['isthmus_slurm_node_drain_timestamp_seconds{node="n1",owner=""}'] == 5
    assert shown['isthmus_slurm_pending_cpus{partition="gpu"}'] == 0
    site.nodes.put("n1", Node("n1", state=("IDLE",), cpus=4, partitions=("gpu",)))
    shown = site.shown()
    assert shown['isthmus_slurm_nodes{state="idle"}'] == 1
    assert not [series for series in shown if "drain_timestamp" in series or "nodes_out" in series]
    site.nodes.drop("n1")
    assert not [series for series in site.shown() if "n1" in series]


def test_the_oldest_job_that_may_begin_is_told_for_each_partition() -> None:
    site = _Site()
    waiting = {"job_state": ("PENDING",), "partition": "gpu", "priority": Number.of(3)}
    for job_id, eligible in ((1, 900), (2, 800), (3, 5_000)):
        site.jobs.put(job_id, Job(job_id, eligible_time=Number.of(eligible), **waiting))  # type: ignore[arg-type] # fields
    site.jobs.put(
        4, Job(4, job_state=("PENDING",), partition="gpu", priority=Number.of(0), eligible_time=Number.of(1))
    )
    assert site.shown()['isthmus_slurm_oldest_pending_timestamp_seconds{partition="gpu"}'] == 800


def test_users_beyond_the_limit_are_added_up_and_this_is_told() -> None:
    site = _Site()
    for number in range(5):
        site.jobs.put(number + 1, Job(number + 1, job_state=("FAILED",), user_name=f"u{number}"))
    shown = site.shown()
    assert shown['isthmus_slurm_user_jobs{user="other",state="failed"}'] == 3
    assert shown['isthmus_slurm_folded_series{family="isthmus_slurm_user_jobs"}'] == 3


@pytest.mark.parametrize("name", ["own", *SETS])
def test_every_set_is_a_page_that_prometheus_reads(name: str) -> None:
    site = _Site(name)
    site.jobs.put(7, _running(7, name='"\\\n', nodes="n1"))
    site.nodes.put("n1", Node("n1", state=("MIXED",), cpus=4, partitions=("gpu",), gres="gpu:2", gres_used="gpu:1"))
    families = [family.name for family in text_string_to_metric_families(site.page.render().decode())]
    assert len(families) == len(set(families))
    assert "isthmus_slurm_jobs" in families


def test_nothing_is_shown_of_jobs_before_all_have_been_read() -> None:
    known = False
    gate = Gate(lambda: known, lambda _: ["jobs"])
    assert list(gate.text(0.0)) == []
    known = True
    assert list(gate.text(0.0)) == ["jobs"]
    known = False
    assert list(gate.text(0.0)) == ["jobs"]


def test_a_page_counts_its_series() -> None:
    site = _Site()
    site.jobs.put(7, _running(7))
    shown = site.shown()
    assert site.metrics.exported._value.get() == len(shown)


def test_slim_records_say_the_same() -> None:
    job = _running(7, nodes="n1", comment="x" * 1000, gres_detail=("gpu:1(IDX:0)",), features="a")
    small, large, slim = _Site(), _Site(), Slimmer()
    large.jobs.put(7, job)
    small.jobs.put(7, slim(job))
    assert small.shown() == large.shown()
    assert slim(job).comment is None
    assert slim(job).restarts == 0
    assert slim(job).batch_flag is False
    copy = msgspec.json.decode(msgspec.json.encode(job), type=Job)
    assert slim(copy) == slim(job)
    assert slim(copy).start_time is slim(job).start_time


def test_lines_are_joined_again_only_after_a_change() -> None:
    lines = Lines[str](catalog.NODE_GPUS)
    assert lines.text() == ""
    lines.put("n1", "a\n")
    text = lines.text()
    lines.put("n1", "a\n")
    assert lines.text() is text
    lines.drop("n1")
    assert lines.text() == ""


def test_slurmctlds_statistics_become_gauges_and_counters() -> None:
    controller = Controller((metricsets.OWN, metricsets.SOPERATOR), limits=Limits(top=1), rpcs=True)
    assert list(controller.text(0.0)) == []
    first = Statistics(
        server_thread_count=3,
        schedule_cycle_total=10,
        schedule_cycle_last=2_500_000,
        rpcs_by_message_type=(RpcCount("REQUEST_PING", 5, 1_000_000),),
        rpcs_by_user=(RpcUser("alice", 1, 5, 0), RpcUser("bob", 2, 1, 0)),
    )
    controller.take(first)
    second = Statistics(
        server_thread_count=4,
        schedule_cycle_total=12,
        schedule_exit=CycleExits(end_job_queue=2),
        rpcs_by_message_type=(RpcCount("REQUEST_PING", 9, 3_000_000),),
        rpcs_by_user=(RpcUser("alice", 1, 6, 0), RpcUser("bob", 2, 4, 0)),
    )
    controller.take(second)
    text = "".join(controller.text(0.0))
    assert "slurm_controller_server_thread_count 4\n" in text
    assert "isthmus_slurm_scheduler_cycles_total 2\n" in text
    assert 'isthmus_slurm_scheduler_exits_total{reason="end_job_queue"} 2\n' in text
    assert 'slurm_controller_rpc_calls_total{message_type="REQUEST_PING"} 4\n' in text
    assert 'slurm_controller_rpc_duration_seconds_total{message_type="REQUEST_PING"} 2\n' in text
    assert 'slurm_controller_rpc_user_calls_total{user="other",user_id="other"} 3\n' in text
    assert controller.folded["slurm_controller_rpc_user_calls_total"] == 1
    assert "backfill_last_cycle_timestamp" not in text
