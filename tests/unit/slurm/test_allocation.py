"""How a request is written in the fields of job_desc_msg_t."""

import math

import msgspec
import pytest

from isthmus.model.slurm import JobRequest, Number
from isthmus.slurm.allocation import describe


@pytest.mark.parametrize(
    ("request_", "written"),
    [
        (JobRequest(name="web", constraints="a&b"), {"name": "web", "features": "a&b"}),
        (
            JobRequest(minimum_nodes=1, tasks=2, tasks_per_node=1),
            {"min_nodes": 1, "num_tasks": 2, "ntasks_per_node": 1},
        ),
        (JobRequest(memory_per_node=Number.of(64)), {"pn_min_memory": 64}),
        (JobRequest(memory_per_cpu=Number.of(64)), {"pn_min_memory": 0x8000000000000040}),
        (JobRequest(time_limit=Number.of(90)), {"time_limit": 90}),
        (JobRequest(time_limit=Number.of(math.inf)), {"time_limit": 0xFFFFFFFF}),
        (JobRequest(nice=-5, priority=Number.of(7)), {"nice": 0x7FFFFFFB, "priority": 7}),
        (JobRequest(requeue=False, shared=("none",)), {"requeue": 0, "shared": 0}),
        (JobRequest(excluded_nodes=("n[1-3]", "e1")), {"exc_nodes": "n[1-3],e1"}),
        (JobRequest(environment=("A=b",)), {}),
    ],
)
def test_each_field_has_the_name_and_the_form_of_slurm(request_: JobRequest, written: dict[str, str | int]) -> None:
    assert describe(msgspec.structs.replace(request_, flags=("EXTERNAL_JOB",))) == written


def test_a_request_with_what_the_helper_does_not_know_is_not_for_it() -> None:
    external = JobRequest(flags=("EXTERNAL_JOB",))
    for more in (
        {"begin_time": Number.of(5)},
        {"user_id": "alice"},
        {"shared": ("user",)},
        {"flags": ()},
        {"immediate": True},
    ):
        assert describe(msgspec.structs.replace(external, **more)) is None
