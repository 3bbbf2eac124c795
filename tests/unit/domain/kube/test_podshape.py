from collections.abc import Mapping

import pytest

from isthmus.domain.kube.podshape import Shape, largest, shape_of
from isthmus.model.base import EMPTY
from isthmus.model.pod import Container, Pod, PodSpec, Resources

MIB = 1 << 20


def box(
    restart_policy: str = "", *, limits: Mapping[str, str] = EMPTY, gpus: str = "0", **requests: str
) -> Container:
    asked = requests | ({"nvidia.com/gpu": gpus} if gpus != "0" else {})
    return Container(resources=Resources(asked, limits), restart_policy=restart_policy)


def shape(*containers: Container, **spec: object) -> Shape:
    return shape_of(Pod(spec=PodSpec(containers=containers, **spec)))  # type: ignore[arg-type]


def test_containers_add_up() -> None:
    assert shape(box(cpu="500m", memory="1Mi"), box(cpu="1", memory="3Mi")) == Shape(1500, 4 * MIB)


def test_a_pod_that_asks_for_nothing_takes_nothing() -> None:
    assert shape(box()) == shape() == Shape()


def test_limits_stand_in_for_requests_that_are_missing() -> None:
    asked = shape(box(cpu="1", limits={"cpu": "4", "memory": "2Mi", "nvidia.com/gpu": "1"}))
    assert asked == Shape(1000, 2 * MIB, {"nvidia.com/gpu": 1})


def test_init_containers_run_one_after_another() -> None:
    init = (box(cpu="3"), box(memory="9Mi"))
    assert shape(box(cpu="1", memory="1Mi"), box(cpu="1"), init_containers=init) == Shape(3000, 9 * MIB)


def test_sidecars_add_to_what_starts_after_them() -> None:
    before, sidecar, after = box(cpu="4"), box("Always", cpu="1"), box(cpu="3500m")
    assert shape(box(cpu="2"), init_containers=(sidecar,)).milli_cpu == 3000
    assert shape(box(cpu="2"), init_containers=(before, sidecar)).milli_cpu == 4000
    assert shape(box(cpu="2"), init_containers=(sidecar, after)).milli_cpu == 4500


def test_resources_of_the_pod_stand_for_the_sum_of_its_containers() -> None:
    containers = (box(cpu="1", memory="1Mi", gpus="1"), box(cpu="1"))
    pod = Resources({"cpu": "3"}, {"cpu": "8", "memory": "7Mi"})
    assert shape(*containers, resources=pod) == Shape(3000, MIB, {"nvidia.com/gpu": 1})
    assert shape(box(), resources=Resources({}, {"memory": "7Mi"})) == Shape(0, 7 * MIB)


def test_the_overhead_of_the_sandbox_comes_on_top() -> None:
    assert shape(box(cpu="1"), overhead={"cpu": "250m", "memory": "1Mi"}) == Shape(1250, MIB)
    assert shape(box(), overhead={"cpu": "1"}, resources=Resources({"cpu": "2"})) == Shape(3000)


def test_devices_are_what_kubernetes_does_not_know_itself() -> None:
    asked = {"ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi", "example.com/nic": "2", "nvidia.com/gpu": "0"}
    assert shape(Container(resources=Resources(asked))) == Shape(devices={"example.com/nic": 2})


@pytest.mark.parametrize(("text", "milli"), [("1m", 1), ("100u", 1), ("0.1", 100), ("1e1", 10_000)])
def test_quantities_are_rounded_up(text: str, milli: int) -> None:
    assert shape(box(cpu=text)).milli_cpu == milli


def test_the_largest_takes_each_of_them_in() -> None:
    shapes = [Shape(1, 9, {"a/b": 2}), Shape(5, 3, {"a/b": 1, "a/c": 4})]
    assert largest(shapes) == Shape(5, 9, {"a/b": 2, "a/c": 4})
    assert largest([]) == Shape()
