"""How large the Slurm nodes of a NodeSet are."""

from typing import Any

import pytest

from isthmus.domain.operator.nodeset.shape import Shape, shape_of, tokens
from isthmus.errors import Terminal
from isthmus.model.slurm import Node as SlurmNode
from tests.unit.domain.operator.nodeset.views import nodeset


def shape(extra: str = "", *, limits: Any = None, requests: Any = None, **spec: Any) -> Shape:
    resources = {key: value for key, value in (("limits", limits), ("requests", requests)) if value}
    return shape_of(nodeset(1, extraConf=extra, slurmd={"resources": resources}, **spec))


def test_nothing_given_is_left_to_slurmd() -> None:
    assert shape().conf() == "Features=worker"


@pytest.mark.parametrize(("cpu", "expected"), [("1", 1), ("1500m", 1), ("3999m", 3), (4, 4), ("1e1", 10)])
def test_cpus_are_never_rounded_up(cpu: str | int, expected: int) -> None:
    """W22."""
    assert shape(limits={"cpu": cpu}).cpus == expected


def test_less_than_a_cpu_is_an_error_that_says_so() -> None:
    with pytest.raises(Terminal, match="less than one") as error:
        shape(limits={"cpu": "500m"})
    assert "resources.limits.cpu" in error.value.remedy


def test_a_request_counts_where_there_is_no_limit() -> None:
    found = shape(requests={"cpu": "2", "memory": "1Gi"}, limits={"cpu": "4"})
    assert (found.cpus, found.memory) == (4, 1024)


def test_memory_is_in_whole_mib() -> None:
    assert shape(limits={"memory": "1G"}).memory == 953


def test_less_memory_than_slurm_can_count_is_an_error_that_says_so() -> None:
    assert shape(limits={"memory": "1Mi"}).memory == 1
    with pytest.raises(Terminal, match="counts in MiB") as error:
        shape(limits={"memory": "1023Ki"})
    assert "resources.limits.memory" in error.value.remedy


def test_resources_of_the_pod_count_where_the_container_has_none() -> None:
    template = {"spec": {"resources": {"limits": {"cpu": "8", "memory": "2Gi"}}}}
    assert shape(template=template).conf() == "CPUs=8 RealMemory=2048 Features=worker"
    assert shape(template=template, limits={"cpu": "3"}).cpus == 3
    assert shape(template=template, requests={"cpu": "3"}).cpus == 8


def test_resources_may_stand_with_the_container_of_the_template() -> None:
    container = {"name": "slurmd", "resources": {"limits": {"cpu": "2"}}}
    assert shape(template={"spec": {"containers": [container]}}).cpus == 2


def test_devices_become_gres() -> None:
    """W22."""
    limits = {"nvidia.com/gpu": 2, "nvidia.com/mig-1g.5gb": "3", "example.org/nic": 1}
    assert shape(limits=limits).gres_text == "gpu:2,gpu:mig-1g.5gb:3"


def test_what_is_said_goes_before_what_follows() -> None:
    found = shape("CPUs=2 RealMemory=100 Gres=gpu:a100:4,demo:2", limits={"cpu": 8, "memory": "8Gi"})
    assert found.conf() == "Gres=demo:2,gpu:a100:4 Features=worker CPUs=2 RealMemory=100"


def test_a_topology_of_cores_is_left_alone() -> None:
    found = shape("SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=2", limits={"cpu": 8})
    assert found.cpus is None


def test_features_are_those_of_the_nodeset_and_of_the_user() -> None:
    assert shape("Feature=fast,big Features=ssd").features == ("big", "fast", "ssd", "worker")
    named = shape(template={"spec": {"hostname": "gpu-"}})
    assert named.features == ("gpu",)


@pytest.mark.parametrize(
    "text",
    [
        "Weight",
        "Weight=",
        "=10",
        'Reason="a',
        "Weight=1;rm",
        "Weight=$(id)",
        "Weight=`id`",
        "Weight='1'",
        "Weight=1\\",
        "Weight=1#2",
        "We-ight=1",
        "Weight=1 weight=2",
        "NodeName=other",
        "NodeHostname=other",
        "Gres=gpu:two:2:3x",
        "Weight=1" * 2000,
    ],
)
def test_what_is_no_setting_is_refused(text: str) -> None:
    """W38."""
    with pytest.raises(Terminal):
        shape(text)


def test_a_line_break_only_parts_words() -> None:
    assert tokens("Weight=1\nFeature=a") == [("Weight", "1"), ("Feature", "a")]


def record(**fields: Any) -> SlurmNode:
    known = {"cpus": 2, "real_memory": 100, "features": ("worker",), "gres": ""}
    return SlurmNode(name="worker-0", **{**known, **fields})


def test_a_record_of_another_shape_does_not_fit() -> None:
    """W13."""
    wanted = shape(limits={"cpu": 2, "memory": "100Mi"})
    assert wanted.fits(record())
    assert wanted.fits(record(features=("worker", "k8s/rack-1")))
    assert not wanted.fits(record(cpus=4))
    assert not wanted.fits(record(real_memory=200))
    assert not wanted.fits(record(features=()))
    assert not wanted.fits(record(gres="gpu:1"))


def test_parts_of_gpus_have_the_types_that_slurm_gives_them() -> None:
    wanted = shape("Gres=gpu:a100:2,shard:6")
    assert wanted.fits(record(gres="gpu:a100:2(S:0),shard:a100:6(S:0)"))
    assert not wanted.fits(record(gres="gpu:a100:2,shard:a100:5"))


def test_types_that_are_said_are_not_counted_beside_the_resource() -> None:
    limits = {"nvidia.com/gpu": 4}
    assert shape("Gres=gpu:a100:4,demo:2", limits=limits).gres_text == "demo:2,gpu:a100:4"
    assert shape("Gres=demo:2", limits=limits).gres_text == "demo:2,gpu:4"


def test_gres_fit_however_slurm_writes_them() -> None:
    wanted = shape("Gres=gpu:2,demo")
    assert wanted.fits(record(gres="demo:1,gpu:2(S:0-1)"))
    assert not wanted.fits(record(gres="demo:1,gpu:3(S:0)"))
