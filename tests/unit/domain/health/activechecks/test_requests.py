"""The Slurm jobs of a run."""

from typing import Any

import pytest

from isthmus.domain.health.activechecks import requests, scripts
from isthmus.domain.health.activechecks.plan import Part, Plan
from isthmus.domain.health.activechecks.requests import Run
from isthmus.model.slurm import JobRequest, Number
from tests.unit.domain.health.activechecks.values import check


def run(script: str = "", *, each: bool = False, reservation: str = "", limit: int = 0, **spec: Any) -> Run:
    text = f"#!/bin/bash\n{script}\n"
    in_slurm = {"sbatchScript": text, "eachWorkerJobs": each, "maxNumberOfJobs": limit}
    in_slurm["jobContainer"] = {
        "env": [
            {"name": "DEPTH", "value": "3"},
            {"name": "SBATCH_QOS", "value": "high"},
            {"name": "POD", "valueFrom": {}},
        ]
    }
    made = check(slurmJobSpec=in_slurm, **spec)
    options = scripts.read(text, requests.variables(made))
    return Run(check=made, uid="uid", script=text, options=options, reservation=reservation)


def first(it: Run, *nodes: str, node: str = "") -> Plan:
    return requests.first_plan(it, partition="hidden", nodes=nodes, node=node, now=1000)


def job(it: Run, plan: Plan, place: int = 0) -> JobRequest:
    return requests.request(it, plan, place, now=1000)


def test_a_check_of_every_worker_has_a_job_pinned_to_each() -> None:
    it = run(each=True)
    plan = first(it, "n1", "n2")
    assert [part.nodes for part in plan.parts] == ["n1", "n2"]
    made = job(it, plan, 1)
    assert (made.required_nodes, made.minimum_nodes, made.maximum_nodes) == (("n2",), 1, 1)
    assert (made.name, made.partition, made.qos, made.requeue) == ("gpu", "hidden", "high", False)
    assert made.standard_output == "/dev/null"
    assert made.time_limit == Number.of(30)


def test_of_many_workers_some_are_chosen() -> None:
    plan = first(run(each=True, limit=3), *(f"n{it}" for it in range(9)))
    assert len(plan.parts) == 3


def test_variables_with_values_reach_the_job() -> None:
    it = run(each=True)
    assert set(job(it, first(it, "n1")).environment) >= {
        "DEPTH=3",
        "ACTIVE_CHECK_NAME=gpu",
        "EACH_WORKER_JOBS=true",
    }
    assert not any(word.startswith(("SBATCH_", "POD")) for word in job(it, first(it, "n1")).environment)


def test_a_single_job_is_placed_by_slurm() -> None:
    it = run("#SBATCH --nodes=4 --time=5 --exclusive")
    plan = first(it, "n1", "n2")
    assert plan.parts == (Part(),)
    made = job(it, plan)
    assert (made.required_nodes, made.minimum_nodes, made.maximum_nodes) == ((), 4, 4)
    assert made.time_limit == Number.of(5)
    assert made.shared == ("none",)


def test_a_range_of_nodes_is_kept() -> None:
    it = run("#SBATCH --nodes=2-4")
    made = job(it, first(it))
    assert (made.minimum_nodes, made.maximum_nodes) == (2, 4)


def test_a_part_of_a_search_runs_on_its_nodes_with_its_share_of_tasks() -> None:
    it = run("#SBATCH --nodes=4 --ntasks=8", jitterSeconds=50)
    made = job(it, Plan(parts=(Part("n[1-4]"), Part("n[1-2]"))), 1)
    assert (made.required_nodes, made.minimum_nodes, made.tasks) == (("n1", "n2"), 2, 4)
    assert made.begin_time is None


def test_a_test_of_one_node_runs_there_in_its_reservation() -> None:
    it = run("#SBATCH --nodes=4", reservation="health-n7")
    plan = first(it, "n1", node="n7")
    made = job(it, plan)
    assert (made.required_nodes, made.reservation, made.maximum_nodes) == (("n7",), "health-n7", 1)


def test_jitter_delays_the_begin_and_a_deadline_counts_from_there() -> None:
    it = run("#SBATCH --deadline=now+1hour", each=True, jitterSeconds=100)
    begins = [job(it, first(it, *(f"n{at}" for at in range(20))), place).begin_time for place in range(20)]
    delays = {(begin.value or 0) - 1000 for begin in begins if begin}
    assert len(delays) > 5
    assert all(0 < delay <= 100 for delay in delays)
    made = job(it, first(it, "n3"))
    later = int((made.begin_time.value or 0) if made.begin_time else 1000)
    assert made.deadline == later + 3600


@pytest.mark.parametrize(
    ("spec", "script", "there", "chosen"),
    [
        ("", "", ["main", "hidden"], "hidden"),
        ("mine", "", ["main", "hidden"], "mine"),
        ("", "#SBATCH -p other", ["main"], "other"),
        ("", "", ["main"], ""),
    ],
)
def test_the_partition(spec: str, script: str, there: list[str], chosen: str) -> None:
    it = check(slurmJobSpec={"sbatchScript": script, "partition": spec})
    assert requests.partition(it, scripts.read(script, {}), there) == chosen


def test_who_runs_it() -> None:
    assert requests.users(check()) == ("soperatorchecks", "root")
    assert requests.users(check(slurmJobSpec={"sbatchScript": "", "user": "alice"})) == ("alice",)


def test_what_cannot_be_run_is_said() -> None:
    single, several = run(each=True), run("#SBATCH --nodes=2-4")
    assert "no node" in requests.impossible(single, first(single), node="", there=())
    assert "has no node n9" in requests.impossible(single, first(single, node="n9"), node="n9", there={"n1"})
    assert "needs 2 nodes" in requests.impossible(several, first(several, node="n1"), node="n1", there={"n1"})
    assert not requests.impossible(single, first(single, "n1"), node="", there={"n1"})
