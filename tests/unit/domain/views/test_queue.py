"""One list of both worlds: nothing twice, nothing left out, and filters that people of either side try."""

from datetime import UTC, datetime
from typing import Any

import pytest

from isthmus import names
from isthmus.domain.bridge import marker
from isthmus.domain.bridge.groups import group_of
from isthmus.domain.views import queue
from isthmus.domain.views.queue import Entry, Filter
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Pod, PodSpec, PodStatus
from isthmus.model.slurm import Job, Number

NOW = 1_800_000_000.0


def job(job_id: int, state: str = "RUNNING", **fields: Any) -> Job:
    return Job(job_id, (state,), **{"user_name": "ann", "partition": "main", **fields})


def pod(name: str, *, namespace: str = "team", node: str = "", phase: str = "Pending", job_id: int = 0) -> Pod:
    labels = {names.JOB_ID_LABEL: str(job_id)} if job_id else {}
    created = datetime.fromtimestamp(NOW - 120, UTC)
    meta = ObjectMeta(name=name, namespace=namespace, uid=name, labels=labels, creation_timestamp=created)
    return Pod(metadata=meta, spec=PodSpec(node_name=node), status=PodStatus(phase=phase))


def marked(job_id: int, *pods: Pod, state: str = "RUNNING", **fields: Any) -> Job:
    mark = marker.mark(group_of(pods[0]), pods[0].metadata.uid, pods, cluster="c")
    return job(job_id, state, admin_comment=marker.write(mark), **fields)


def listed(jobs: list[Job], pods: list[Pod]) -> list[Entry]:
    return list(queue.entries(jobs, pods, now=NOW))


def test_a_pod_with_a_job_is_one_entry() -> None:
    placed, waiting = pod("a", node="k1", phase="Running", job_id=1), pod("b")
    found = listed(
        [marked(1, placed, nodes="n1"), marked(2, waiting, state="PENDING"), job(3, name="x")], [placed, waiting]
    )
    assert [(it.kind, it.ref, it.name, it.phase) for it in found] == [
        ("pod", "job/1", "team/a", "running"),
        ("slurm", "job/3", "x", "running"),
        ("pod", "job/2", "team/b", "waiting"),
    ]
    assert found[0].pods == ("team/a",)
    assert found[0].namespace == "team"


def test_a_pod_whose_job_is_over_or_unknown_is_its_own_entry() -> None:
    again = pod("a")
    orphan = pod("b", node="k1", phase="Running", job_id=9)
    found = {it.ref: it for it in listed([marked(1, again, state="CANCELLED")], [again, orphan])}
    assert found["job/1"].phase == "cancelled"
    assert found["pod/team/a"].phase == "waiting"
    assert (found["pod/team/b"].job, found["pod/team/b"].hosts) == (9, "k1")


def test_what_waits_is_in_the_order_of_priority() -> None:
    found = listed([job(1, "PENDING", priority=Number.of(5)), job(2, "PENDING", priority=Number.of(9))], [])
    assert [it.job for it in found] == [2, 1]


@pytest.mark.parametrize(
    ("by", "refs"),
    [
        (Filter(), ["job/1", "job/2", "pod/other/p"]),
        (Filter(home="team"), ["job/1", "job/2"]),
        (Filter(states=("PENDING",)), ["job/2", "pod/other/p"]),
        (Filter(states=("PD",)), ["job/2", "pod/other/p"]),
        (Filter(states=("completed",)), ["job/3"]),
        (Filter(states=("all",), user="ann"), ["job/1", "job/2", "job/3"]),
        (Filter(user="bob"), []),
        (Filter(partition="gpu"), ["job/2"]),
        (Filter(namespace="other"), ["pod/other/p"]),
    ],
)
def test_filters(by: Filter, refs: list[str]) -> None:
    jobs = [job(1), job(2, "PENDING", partition="main,gpu"), job(3, "COMPLETED")]
    assert [it.ref for it in queue.select(listed(jobs, [pod("p", namespace="other")]), by)] == refs


def test_times_are_of_the_run_or_of_the_wait() -> None:
    times: dict[str, Any] = {"submit_time": Number.of(NOW - 7200), "start_time": Number.of(NOW - 600)}
    runs, waits, over = listed(
        [
            job(1, **times),
            job(2, "PENDING", submit_time=Number.of(NOW - 7200)),
            job(3, "COMPLETED", **times, end_time=Number.of(NOW - 590)),
        ],
        [],
    )
    assert [queue.age(it, now=NOW) for it in (runs, waits, over)] == ["10m", "2h", "10s"]


def test_the_last_column_is_a_place_or_a_reason() -> None:
    assert queue.where(Entry(ref="", kind="slurm", hosts="n[1-2]", reason="x")) == "n[1-2]"
    assert queue.where(Entry(ref="", kind="slurm", reason="Resources")) == "(Resources)"
    assert queue.where(Entry(ref="", kind="slurm")) == "-"
