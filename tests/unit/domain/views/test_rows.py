"""Rows have as many values as columns, whatever the record lacks, and texts of a bounded length."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.domain.views import jobwhy, rows
from isthmus.model.node import Node as KubeNode
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job, Node, Number

NOW = 1_800_000_000.0
LONG = "x" * 10_000


def job(**fields: Any) -> Job:
    return Job(7, fields.pop("job_state", ("PENDING",)), **fields)


def named(columns: tuple[str, ...], row: list[Any]) -> dict[str, Any]:
    return dict(zip(columns, row, strict=True))


def kube(text: str) -> KubeNode:
    return msgspec.json.decode(text, type=KubeNode)


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (("PENDING",), "waiting"),
        (("RUNNING",), "running"),
        (("RUNNING", "COMPLETING"), "ending"),
        (("SUSPENDED",), "suspended"),
        (("COMPLETED",), "completed"),
        (("CANCELLED",), "cancelled"),
        (("PREEMPTED",), "cancelled"),
        (("OUT_OF_MEMORY",), "failed"),
        (("NODE_FAIL",), "failed"),
        ((), "unknown"),
    ],
)
def test_each_state_has_a_phase(state: tuple[str, ...], phase: str) -> None:
    assert named(rows.JOB_COLUMNS, rows.job_row(job(job_state=state), now=NOW))["phase"] == phase


def test_a_bare_record_makes_a_whole_row() -> None:
    assert len(rows.job_row(Job(1), now=NOW)) == len(rows.JOB_COLUMNS)
    assert len(rows.pod_row(Pod(), job_id=None, ours=False)) == len(rows.POD_COLUMNS)
    assert len(rows.node_row("n1", Node("n1"), None)) == len(rows.NODE_COLUMNS)
    assert len(rows.node_row("k1", None, KubeNode())) == len(rows.NODE_COLUMNS)


numbers = st.builds(
    Number, st.booleans(), st.booleans(), st.integers(-(2**31), 2**40) | st.floats(0, 1e15, allow_nan=False)
)
COUNTS = {"array_job_id", "array_task_id", "het_job_id", "het_job_offset", "cpus", "node_count"}  # never infinite
NUMBERS = [it.name for it in msgspec.structs.fields(Job) if it.type is Number and it.name not in COUNTS]
TEXTS = [
    "name",
    "user_name",
    "state_reason",
    "nodes",
    "admin_comment",
    "array_tasks",
    "tres_requested",
    "tres_allocated",
]


@given(
    st.lists(st.sampled_from(["PENDING", "RUNNING", "COMPLETING", "FAILED", "SUSPENDED", "NEW"]), max_size=3),
    st.fixed_dictionaries({}, optional=dict.fromkeys(NUMBERS, numbers)),
    st.fixed_dictionaries({}, optional=dict.fromkeys(TEXTS, st.text(max_size=30))),
)
def test_no_record_of_slurm_is_too_odd(states: list[str], counts: dict[str, Any], texts: dict[str, Any]) -> None:
    odd = Job(7, tuple(states), **counts, **texts)
    assert len(rows.job_row(odd, now=NOW)) == len(rows.JOB_COLUMNS)
    assert jobwhy.gates(odd, [odd, job()], now=NOW)
    assert jobwhy.estimate(odd, now=NOW) is not None
    jobwhy.blockers(odd, [odd, job()], now=NOW)
    jobwhy.helps(odd, [Node("n1", ("IDLE", "DRAIN"))])


def test_long_texts_are_cut() -> None:
    wild = job(name=LONG, user_name=LONG, account=LONG, partition=LONG, qos=LONG, state_reason=LONG, nodes=LONG)
    row = rows.job_row(msgspec.structs.replace(wild, job_state=("RUNNING",)), now=NOW)
    assert max(len(it) for it in row if isinstance(it, str)) <= 240
    assert len(msgspec.json.encode(row)) < 4000
    node = Node("n1", reason=LONG, reason_set_by_user=LONG, partitions=(LONG,), topology=LONG)
    assert len(msgspec.json.encode(rows.node_row("n1", node, None))) < 2000


def test_a_waiting_job_tells_when_it_is_expected_and_no_nodes() -> None:
    waits = job(start_time=Number.of(NOW + 90), nodes="n[1-2]", state_reason="JobHeldUser", priority=Number.of(0))
    row = named(rows.JOB_COLUMNS, rows.job_row(waits, now=NOW))
    assert (row["start"], row["hosts"], row["outlook"]) == (NOW + 90, "", "held")
    past = named(rows.JOB_COLUMNS, rows.job_row(job(start_time=Number.of(NOW - 90)), now=NOW))
    assert past["start"] == 0


def test_a_job_without_a_time_limit_says_so() -> None:
    assert named(rows.JOB_COLUMNS, rows.job_row(job(time_limit=Number.of(float("inf"))), now=NOW))["limit"] == -1
    assert named(rows.JOB_COLUMNS, rows.job_row(job(time_limit=Number.of(30)), now=NOW))["limit"] == 1800


def test_ids_are_written_as_squeue_does() -> None:
    task = job(array_job_id=Number.of(5), array_task_id=Number.of(3))
    rest = job(array_job_id=Number.of(5), array_tasks="4-9%2")
    part = job(het_job_id=Number.of(6), het_job_offset=Number.of(1))
    assert [rows.job_label(it) for it in (job(), task, rest, part)] == ["7", "5_3", "5_[4-9%2]", "6+1"]


def test_a_node_of_both_worlds_has_both_layers() -> None:
    machine = kube('{"metadata":{"name":"k1"},"status":{"allocatable":{"cpu":"7500m","nvidia.com/gpu":"2"}}}')
    node = Node("n1", ("MIXED",), cpus=8, alloc_cpus=3, gres="gpu:a100:4", gres_used="gpu:a100:1(IDX:0)")
    row = named(rows.NODE_COLUMNS, rows.node_row("n1", node, machine, pods=2, pod_milli=2500))
    assert (row["cpus"], row["cpusUsed"], row["gpus"], row["gpusUsed"]) == (8, 3, 4, 1)
    assert (row["kube"], row["pods"], row["podCpus"], row["kubeCpus"]) == ("k1", 2, 2.5, 7.5)
    alone = named(rows.NODE_COLUMNS, rows.node_row("k1", None, machine))
    assert (alone["state"], alone["gpus"], alone["block"]) == ("kubernetes", 2, "Kubernetes only")


@pytest.mark.parametrize(
    ("slurm", "labels", "block"),
    [
        (Node("n1", topology="topo:root:s1:leaf-3"), "", "leaf-3"),
        (Node("n1", partitions=("main",)), '{"topology.kubernetes.io/rack":"r4"}', "r4"),
        (Node("n1", partitions=("main", "debug")), "{}", "main"),
        (Node("n1"), "{}", ""),
    ],
)
def test_nodes_are_grouped_by_where_they_stand(slurm: Node, labels: str, block: str) -> None:
    machine = kube(f'{{"metadata":{{"name":"k1","labels":{labels or "{}"}}}}}')
    assert named(rows.NODE_COLUMNS, rows.node_row("n1", slurm, machine))["block"] == block


def test_a_machine_that_kubernetes_lost_is_not_ready() -> None:
    conditions = '{"status":{"conditions":[{"type":"Ready","status":"%s"}]},"spec":{"unschedulable":%s}}'
    states = [("True", "false"), ("True", "true"), ("Unknown", "false")]
    found = [
        rows.node_row("n1", None, kube(conditions % it))[rows.NODE_COLUMNS.index("kubeState")] for it in states
    ]
    assert found == ["ready", "cordoned", "not ready"]
