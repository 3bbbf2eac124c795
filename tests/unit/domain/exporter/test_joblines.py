import pytest

from isthmus.domain.exporter import joblines
from isthmus.domain.exporter.pastjobs import as_job, is_stale
from isthmus.model.slurm import Job, Number
from isthmus.model.slurmdb import PastArray, PastJob, PastResources, PastState, PastTimes, PastTres


def _job(**changes: object) -> Job:
    fields: dict[str, object] = {
        "job_id": 7,
        "job_state": ("RUNNING",),
        "name": "train",
        "partition": "gpu",
        "user_name": "alice",
        "user_id": 2001,
        "nodes": "n[1-2]",
        "submit_time": Number.of(100),
        "start_time": Number.of(160),
        "end_time": Number.of(400),
        "tres_allocated": "cpu=8,mem=2G,node=2",
    }
    return Job(**(fields | changes))  # type: ignore[arg-type] # fields of a job


def test_a_running_job_has_nodes_sizes_and_a_duration_to_come() -> None:
    found = joblines.lines(_job(), place_of=lambda node: (f"rack-{node}", "set"))
    assert 'job_id="7",job_state="RUNNING"' in found.info
    assert 'submit_time="100",start_time="160",end_time="400",finished_time=""' in found.info
    assert found.nodes.splitlines() == [
        'slurm_node_job{job_id="7",node_name="n1",nvlink_instance_group="rack-n1",nodeset_name="set"} 1',
        'slurm_node_job{job_id="7",node_name="n2",nvlink_instance_group="rack-n2",nodeset_name="set"} 1',
    ]
    assert found.cpus == 'slurm_job_cpus{job_id="7"} 8\n'
    assert found.memory == 'slurm_job_memory_bytes{job_id="7"} 2147483648\n'
    assert (found.duration, found.running, found.started) == ("", 'slurm_job_duration_seconds{job_id="7"} ', 160)


def test_a_job_that_is_over_has_a_duration_that_stays() -> None:
    found = joblines.lines(_job(job_state=("FAILED",)))
    assert found.duration == 'slurm_job_duration_seconds{job_id="7"} 240\n'
    assert found.running == ""
    assert 'finished_time="400"' in found.info


def test_a_task_is_told_apart_from_its_array_even_if_it_is_the_first() -> None:
    task = joblines.lines(_job(array_job_id=Number.of(5), array_task_id=Number.of(0)))
    assert 'array_job_id="5",array_task_id="0"' in task.info
    alone = joblines.lines(_job(array_job_id=Number.of(0)))
    assert 'array_job_id="",array_task_id=""' in alone.info


@pytest.mark.parametrize("nodes", [None, "", "n[", "n[0-99999999]"])
def test_a_list_of_nodes_that_cannot_be_read_is_left_out(nodes: str | None) -> None:
    assert joblines.lines(_job(nodes=nodes)).nodes == ""


def test_hostile_names_stay_within_their_line() -> None:
    found = joblines.lines(_job(name='a"b\\c\nd' + "x" * 10_000 + "\ud800"))
    assert found.info.count("\n") == 1
    assert 'job_name="a\\"b\\\\c\\nd' in found.info
    assert len(found.info) < 1_000
    found.info.encode()


def test_accounted_jobs_look_like_those_of_slurmctld() -> None:
    past = PastJob(
        7,
        name="train",
        user="alice",
        nodes="None assigned",
        array=PastArray(job_id=5, task_id=Number.of(2)),
        state=PastState(current=("PENDING",), reason="Priority"),
        time=PastTimes(submission=100),
        tres=PastResources(
            requested=(
                PastTres("cpu", "", 4),
                PastTres("mem", "", 2048),
                PastTres("gres", "gpu", 1),
                PastTres("energy", "", -2),
            )
        ),
    )
    job = as_job(past)
    assert job.tres_requested == "cpu=4,mem=2048M,gres/gpu=1"
    found = joblines.lines(job)
    assert 'array_job_id="5",array_task_id="2"' in found.info
    assert found.cpus.endswith(" 4\n")
    assert found.memory.endswith(f" {2 << 30}\n")
    assert found.nodes == ""


def test_a_job_that_has_waited_for_a_month_in_the_accounts_is_not_there() -> None:
    waiting = PastJob(7, state=PastState(current=("PENDING",)), time=PastTimes(submission=100))
    assert is_stale(waiting, now=100 + 31 * 86400)
    assert not is_stale(waiting, now=100 + 29 * 86400)
    running = PastJob(7, state=PastState(current=("RUNNING",)), time=PastTimes(submission=100))
    assert not is_stale(running, now=100 + 31 * 86400)
