from hypothesis import given
from hypothesis import strategies as st

from isthmus.domain.exporter import jobfacts, jobsums, nodesums
from isthmus.domain.exporter.sums import ALL, Sums
from isthmus.model.slurm import Job, Node, Number

_STATES = st.sampled_from(
    [("PENDING",), ("RUNNING",), ("RUNNING", "COMPLETING"), ("FAILED",), ("PENDING", "REQUEUED")]
)
_JOBS = st.builds(
    Job,
    job_id=st.integers(1, 20),
    job_state=_STATES,
    partition=st.sampled_from(["a", "b", "a,b", None]),
    account=st.sampled_from(["x", "y"]),
    user_name=st.sampled_from(["u", "v"]),
    state_reason=st.sampled_from(["Priority", "Dependency"]),
    priority=st.sampled_from([Number.of(0), Number.of(5)]),
    array_tasks=st.sampled_from([None, "1-5"]),
    tres_requested=st.sampled_from(["", "cpu=3,mem=2G,node=1"]),
    tres_allocated=st.sampled_from(["", "cpu=4,mem=1G,node=2,gres/gpu=1"]),
)


def _add(sums: Sums, job: Job, sign: int = 1) -> None:
    found = jobfacts.facts(job)
    sums.add(jobsums.groups(found), jobsums.amounts(found), sign=sign)


@given(st.lists(_JOBS, max_size=40))
def test_sums_kept_by_differences_are_those_of_what_is_there(changes: list[Job]) -> None:
    sums, there = Sums(), dict[int, Job]()
    for job in changes:
        if job.job_id in there:
            _add(sums, there[job.job_id], -1)
        there[job.job_id] = job
        _add(sums, job)
    fresh = Sums()
    for job in there.values():
        _add(fresh, job)
    assert sums._groups == fresh._groups
    for job in there.values():
        _add(sums, job, -1)
    assert not sums._groups


def test_rows_have_names_and_states() -> None:
    sums = Sums()
    _add(sums, Job(1, job_state=("RUNNING",), partition="gpu", account="x", qos="q", user_name="u"))
    _add(sums, Job(2, job_state=("PENDING",), partition="gpu", state_reason="Priority", user_name="u"))
    assert dict(sums.states("user")) == {("u", "running"): 1, ("u", "pending"): 1}
    assert dict(sums.rows("partition", "pending")) == {("gpu",): 1}
    assert dict(sums.rows("reason", "jobs")) == {("gpu", "Priority"): 1}
    assert sums.get(ALL, "jobs") == 2


def test_idle_cpus_of_a_node_that_is_out_are_of_no_use() -> None:
    node = nodesums.facts(Node("n1", state=("MIXED", "DRAIN"), cpus=8, alloc_cpus=3, partitions=("p",), reason="x"))
    amounts = nodesums.amounts(node)
    assert (amounts["cpus_alloc"], amounts["cpus_idle"], amounts["cpus_other"]) == (3, 5, 5)
    assert amounts["draining"] == amounts["drain"] == amounts["mixed"] == 1
    assert ("class", "human") in nodesums.groups(node)
