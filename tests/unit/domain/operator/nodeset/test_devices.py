"""Where the devices of a node's GRES come from."""

from typing import Any

import pytest

from isthmus.domain.operator.nodeset.devices import sources
from tests.unit.domain.operator.nodeset.views import nodeset


def found(extra: str = "", *, devices: Any = (), gres: Any = (), **limits: Any) -> list[str]:
    amounts = {"cpu": 2, **{_resource(key): value for key, value in limits.items()}}
    subject = nodeset(
        1, extraConf=extra, slurmd={"resources": {"limits": amounts}}, devices=list(devices), gresConfig=list(gres)
    )
    return [it.line() for it in sources(subject)]


def _resource(name: str) -> str:
    return name.replace("__", "/").replace("_", ".").replace("mig.", "mig-")


NPU = {"resource": "example.org/npu", "gres": "npu:v2", "files": ["/dev/npu[0-9]*", "/dev/old"]}


def test_vendors_are_known_by_their_resources() -> None:
    assert found(nvidia_com__gpu=2) == ["gpu|-|2|nvidia|nvidia_gpu_env|/dev/nvidia[0-9]*"]
    assert found(amd_com__gpu=1) == ["gpu|-|1|files|amd_gpu_env|/dev/dri/renderD[0-9]*"]
    assert found() == []


def test_a_mig_profile_is_a_type() -> None:
    assert found(nvidia_com__mig_1g_5gb=3) == ["gpu|mig-1g.5gb|3|mig|nvidia_gpu_env|"]


def test_users_say_where_other_devices_are() -> None:
    assert found(example_org__npu=4, devices=[NPU]) == ["npu|v2|4|files|-|/dev/npu[0-9]* /dev/old"]
    mine = {"resource": "nvidia.com/gpu", "files": ["/dev/mine*"], "flags": "no_gpu_env"}
    assert found(nvidia_com__gpu=1, devices=[mine]) == ["gpu|-|1|files|no_gpu_env|/dev/mine*"]


def test_types_that_are_said_are_of_the_same_devices() -> None:
    lines = found("Gres=gpu:a100:1,gpu:h100:1", nvidia_com__gpu=2)
    assert lines == [f"gpu|{it}|1|nvidia|nvidia_gpu_env|/dev/nvidia[0-9]*" for it in ("a100", "h100")]


def test_parts_of_gpus_need_no_files() -> None:
    shards, gpus = found("Gres=gpu:2,shard:1K", nvidia_com__gpu=2)[::-1]
    assert shards == "shard|-|1024|share|-|"
    assert gpus.startswith("gpu|-|2|nvidia|")


def test_gpus_that_nobody_asked_for_are_looked_for() -> None:
    assert found("Gres=gpu:2") == ["gpu|-|2|guess|-|/dev/nvidia[0-9]*"]


def test_what_is_no_device_has_no_source() -> None:
    assert found("Gres=bandwidth:4,demo") == []


def test_where_the_author_wrote_gres_conf_nothing_is_found() -> None:
    assert found(nvidia_com__gpu=2, gres=["AutoDetect=nvidia"]) == []


@pytest.mark.parametrize("flags", ["", "amd_gpu_env"])
def test_all_gpus_of_a_node_have_the_same_flags(flags: str) -> None:
    """With different ones, slurmd ends."""
    mine = {"resource": "example.org/gpu", "gres": "gpu:mine", "files": ["/dev/mine*"], "flags": flags}
    lines = found(nvidia_com__gpu=1, example_org__gpu=1, devices=[mine])
    assert [it.split("|")[4] for it in lines] == ["-", "-"]
