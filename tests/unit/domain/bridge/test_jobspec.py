import math
from typing import Any

import pytest

from isthmus.domain.bridge.joboptions import NOTHING, JobOptions
from isthmus.domain.bridge.jobspec import Defaults, may_start_at_once, request
from isthmus.domain.kube.podshape import Shape
from isthmus.errors import Terminal
from isthmus.model.slurm import JobRequest, Number

MIB = 1 << 20
POD = Shape(1500, 512 * MIB)
SHARED = JobOptions(exclusive=False)


def job(*shapes: Shape, options: JobOptions = NOTHING, defaults: Defaults | None = None, **more: Any) -> JobRequest:
    settings = {"name": "web-1", "comment": "default/web-1", "admin_comment": "{}"} | more
    return request(shapes=shapes or (POD,), options=options, defaults=defaults or Defaults(), **settings)


def test_one_pod_is_one_task_on_one_node() -> None:
    assert job() == JobRequest(
        name="web-1",
        comment="default/web-1",
        admin_comment="{}",
        flags=("EXTERNAL_JOB",),
        environment=("PATH=/usr/local/bin:/usr/bin:/bin",),
        current_working_directory="/tmp",  # noqa: S108 - on no machine of ours
        minimum_nodes=1,
        maximum_nodes=1,
        tasks=1,
        tasks_per_node=1,
        cpus_per_task=2,
        memory_per_node=Number.of(512),
        shared=("none",),
    )


@pytest.mark.parametrize(("size", "megabytes"), [(1, 1), (MIB, 1), (MIB + 1, 2), (2 * MIB - 1, 2)])
def test_weakness_30_memory_is_rounded_up(size: int, megabytes: int) -> None:
    assert job(Shape(memory=size)).memory_per_node == Number.of(megabytes)


def test_what_a_pod_does_not_ask_for_is_left_to_slurm() -> None:
    made = job(Shape())
    assert (made.cpus_per_task, made.memory_per_node, made.tres_per_node) == (
        None,
        None,
        None,
    )  # 0 would be all memory
    gang = job(Shape(), Shape(), options=SHARED)
    assert (gang.cpus_per_task, gang.memory_per_cpu, gang.memory_per_node, gang.tres_per_task) == (None,) * 4


def test_weakness_23_a_pod_can_share_its_node() -> None:
    assert job(options=SHARED).shared == ()
    assert job(defaults=Defaults(exclusive=False)).shared == ()
    assert job(options=JobOptions(exclusive=True), defaults=Defaults(exclusive=False)).shared == ("none",)


def test_weakness_23_slices_of_gpus_are_accounted() -> None:
    assert job(Shape(devices={"nvidia.com/mig-1g.5gb": 2})).tres_per_node == "gres/gpu:mig-1g.5gb=2"


def test_weakness_24_every_kind_of_gres_is_sent() -> None:
    devices = {"nvidia.com/gpu": 2, "example.com/fpga": 1, "rdma/hca": 1}
    table = {"example.com/fpga": "fpga:x", "rdma/hca": ""}
    made = job(Shape(devices=devices), defaults=Defaults(gres=table))
    assert made.tres_per_node == "gres/fpga:x=1,gres/gpu=2"


def test_devices_that_are_one_gres_add_up() -> None:
    devices = {"nvidia.com/gpu": 1, "amd.com/gpu": 2}
    assert job(Shape(devices=devices)).tres_per_node == "gres/gpu=3"


def test_a_device_that_slurm_could_not_account_is_refused() -> None:
    with pytest.raises(Terminal, match=r"no GRES for example\.com/a, example\.com/b") as caught:
        job(Shape(devices={"example.com/b": 1, "example.com/a": 1}))
    assert "annotation gres" in caught.value.remedy
    assert job(Shape(devices={"example.com/a": 1}), options=JobOptions(gres="gres/a=1")).tres_per_node == "gres/a=1"


def test_a_gres_with_and_without_type_is_refused() -> None:
    with pytest.raises(
        Terminal, match=r"gpu both with and without a type, as in nvidia\.com/gpu, nvidia\.com/mig-1g"
    ):
        job(Shape(devices={"nvidia.com/gpu": 1, "nvidia.com/mig-1g": 1}))


def test_annotations_can_ask_for_more_than_the_pod_requests() -> None:
    options = JobOptions(cpus_per_task=8, memory_per_node=64, gres="gres/gpu:a100=4,gres/shard=1")
    made = job(Shape(1000, MIB, {"nvidia.com/gpu": 4}), options=options)
    assert (made.cpus_per_task, made.memory_per_node) == (8, Number.of(64))
    assert made.tres_per_node == "gres/gpu:a100=4,gres/shard=1"


def test_annotations_cannot_ask_for_less_than_the_pod_requests() -> None:
    options = JobOptions(exclusive=False, cpus_per_task=1, memory_per_node=1, gres="gres/gpu:a100=1,gres/shard=1")
    large = Shape(64_000, 512 * MIB, {"nvidia.com/gpu": 4, "example.com/unknown": 1})
    made = job(large, options=options)
    assert (made.cpus_per_task, made.memory_per_node) == (64, Number.of(512))
    assert made.tres_per_node == "gres/shard=1,gres/gpu=4"


def test_types_of_a_gres_count_together() -> None:
    options = JobOptions(gres="gres/gpu:a100=2,gres/gpu:h100=2")
    assert job(Shape(devices={"nvidia.com/gpu": 4}), options=options).tres_per_node == options.gres
    assert job(Shape(devices={"nvidia.com/gpu": 5}), options=options).tres_per_node == "gres/gpu=5"


def test_a_gang_gets_a_node_for_each_pod_large_enough_for_any() -> None:
    made = job(Shape(2000, MIB), Shape(1000, 9 * MIB, {"nvidia.com/gpu": 1}))
    assert (made.minimum_nodes, made.maximum_nodes, made.tasks, made.tasks_per_node) == (2, 2, 2, 1)
    assert (made.cpus_per_task, made.memory_per_node, made.tres_per_node) == (2, Number.of(9), "gres/gpu=1")


def test_a_gang_may_start_with_less_than_all() -> None:
    made = job(*[POD] * 3, slots=5, minimum=2)
    assert (made.minimum_nodes, made.maximum_nodes, made.tasks) == (2, 5, None)
    made = job(*[POD] * 5, minimum=3, options=JobOptions(min_nodes=4, max_nodes=9))
    assert (made.minimum_nodes, made.maximum_nodes) == (4, 5)


def test_a_gang_that_shares_nodes_is_counted_in_tasks() -> None:
    made = job(*[Shape(3000, 1000 * MIB, {"nvidia.com/gpu": 1})] * 4, options=SHARED)
    assert (made.tasks, made.cpus_per_task, made.memory_per_cpu) == (4, 3, Number.of(334))
    assert (made.tres_per_task, made.tres_per_node, made.memory_per_node) == ("gres/gpu=1", None, None)
    assert (made.minimum_nodes, made.maximum_nodes, made.tasks_per_node, made.shared) == (None, None, None, ())


def test_a_gang_that_shares_nodes_takes_what_annotations_say_of_nodes() -> None:
    options = JobOptions(exclusive=False, min_nodes=1, max_nodes=2, memory_per_node=2048)
    made = job(*[POD] * 4, options=options)
    assert (made.minimum_nodes, made.maximum_nodes, made.memory_per_node, made.memory_per_cpu) == (
        1,
        2,
        Number.of(2048),
        None,
    )


def test_memory_by_the_node_must_be_enough_for_all_pods_of_a_gang_that_shares() -> None:
    made = job(*[POD] * 4, options=JobOptions(exclusive=False, memory_per_node=2047))
    assert (made.memory_per_node, made.memory_per_cpu) == (None, Number.of(256))


def test_nodes_for_pods_that_are_not_there_are_refused() -> None:
    with pytest.raises(Terminal, match="asks for 3 nodes, but there is 1 pod to be") as caught:
        job(options=JobOptions(min_nodes=3))
    assert "gang" in caught.value.remedy
    with pytest.raises(Terminal, match="2 nodes at most, but 3 pods need one each"):
        job(*[POD] * 3, options=JobOptions(max_nodes=2))


def test_weakness_26_deadlines_become_time_limits() -> None:
    assert job(deadline_seconds=61).time_limit == Number.of(2)
    assert job(deadline_seconds=61, options=JobOptions(time_limit=30)).time_limit == Number.of(30)
    assert job(options=JobOptions(time_limit=math.inf)).time_limit == Number(infinite=True)
    assert job().time_limit is None


def test_weakness_26_a_priority_class_becomes_nice_where_that_is_turned_on() -> None:
    on = Defaults(nice_from_priority=True)
    assert job(pod_priority=1000).nice is None
    assert job(pod_priority=1000, defaults=on).nice == -1000
    assert job(pod_priority=-5, defaults=on).nice == 5
    assert job(pod_priority=2_000_001_000, defaults=on).nice == -2_000_001_000
    assert job(pod_priority=-(2**31), defaults=on).nice == 2**31 - 3
    assert job(pod_priority=1000, defaults=on).priority is None  # a raw priority would pass over fair share
    assert job(pod_priority=1000, defaults=on, options=JobOptions(nice=7)).nice == 7
    asked = job(pod_priority=1000, defaults=on, options=JobOptions(priority=0))
    assert (asked.priority, asked.nice) == (Number.of(0), None)


def test_weakness_26_begin_dependency_and_requeue_reach_slurm() -> None:
    made = job(options=JobOptions(begin=99, dependency="afterok:1", requeue=False, nice=3))
    assert (made.begin_time, made.dependency, made.requeue, made.nice) == (Number.of(99), "afterok:1", False, 3)


@pytest.mark.parametrize(
    "options",
    [
        JobOptions(user_id="alice"),
        JobOptions(group_id="alice"),
        JobOptions(priority=0),
        JobOptions(begin=1_900_000_000),
        JobOptions(dependency="afterok:5"),
    ],
)
def test_what_slurm_would_refuse_or_give_to_another_user_is_not_asked_for_at_once(options: JobOptions) -> None:
    assert may_start_at_once(job(options=JobOptions(priority=5)))
    assert not may_start_at_once(job(options=options))


def test_a_batch_placeholder_is_not_asked_for_at_once() -> None:
    assert not may_start_at_once(job(defaults=Defaults(placeholder="batch"), script="sleep infinity"))


def test_weakness_27_a_job_has_a_name_and_a_comment() -> None:
    assert (job().name, job().comment) == ("web-1", "default/web-1")
    assert job(options=JobOptions(job_name="mine")).name == "mine"


def test_weakness_28_partition_and_label_have_defaults() -> None:
    defaults = Defaults(partition="main", mcs_label="kubernetes")
    made = job(defaults=defaults)
    assert (made.partition, made.mcs_label) == ("main", "kubernetes")
    made = job(defaults=defaults, options=JobOptions(partition="gpu", mcs_label="secret"))
    assert (made.partition, made.mcs_label) == ("gpu", "secret")
    assert job().partition is None


def test_weakness_22_nodes_that_do_not_fit_are_excluded() -> None:
    made = job(excluded_nodes="n[1-3],x")
    assert (made.excluded_nodes, made.required_nodes) == (("n[1-3],x",), ())
    assert job().excluded_nodes == ()


def test_a_batch_placeholder_runs_its_script() -> None:
    made = job(defaults=Defaults(placeholder="batch"), script="#!/bin/sh\n")
    assert (made.flags, made.script) == ((), "#!/bin/sh\n")
    with pytest.raises(ValueError, match="needs a script"):
        job(defaults=Defaults(placeholder="batch"))
    with pytest.raises(ValueError, match="takes none"):
        job(script="#!/bin/sh\n")


@pytest.mark.parametrize(
    ("field", "text"),
    [("name", "a\nb"), ("comment", "a\x00"), ("admin_comment", "\x7f"), ("excluded_nodes", "n1\nn2")],
)
def test_control_characters_do_not_reach_slurm(field: str, text: str) -> None:
    settings: dict[str, Any] = {field: text}
    with pytest.raises(Terminal, match="control character"):
        job(**settings)


def test_what_is_too_long_is_refused() -> None:
    with pytest.raises(Terminal, match="longer than 1024"):
        job(comment="é" * 513)
    with pytest.raises(Terminal, match="longer than 255"):
        job(name="x" * 256)
    assert job(comment="é" * 512, admin_comment="x" * 200_000).comment


def test_a_job_without_pods_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one pod"):
        request(name="a", comment="", admin_comment="", shapes=(), options=NOTHING, defaults=Defaults())
