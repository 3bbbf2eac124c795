"""Which CPUs a job has, by the cores that Slurm gave it."""

from typing import Any

import pytest

from isthmus.domain.bridge.cores import cores_in, given
from isthmus.domain.bridge.devices import NodeDevices, inventory
from tests.unit.domain.bridge.made_devices import cpu_group, slice_of

KEYS = ("socketID", "coreID", "cpuID")


def cpu(socket: int, core: int, number: int) -> dict[str, Any]:
    values = zip(KEYS, (socket, core, number), strict=True)
    return {"name": f"cpu{number}", "attributes": {f"dra.cpu/{key}": {"int": value} for key, value in values}}


def node() -> NodeDevices:
    """Two sockets with two cores with two threads, numbered as Linux does: siblings far from one another."""
    made = [cpu(number % 4 // 2, number % 2, number) for number in range(8)]
    return inventory([slice_of(*made, driver="dra.cpu")])


def names_of(found: NodeDevices, positions: set[int] | str) -> list[str]:
    assert not isinstance(positions, str)
    return [found.devices[at].id.name for at in sorted(positions)]


@pytest.mark.parametrize(
    ("bitmap", "cores"), [("0x0f", {0, 1, 2, 3}), ("f0", {4, 5, 6, 7}), ("5", {0, 2}), ("0x", set()), ("", set())]
)
def test_a_bitmap_has_its_first_core_last(bitmap: str, cores: set[int]) -> None:
    assert cores_in(bitmap) == cores


def test_a_core_of_a_node_of_ours_is_a_cpu_and_siblings_are_neighbours() -> None:
    found = node()
    assert names_of(found, given(found, frozenset({0, 1, 6}), total=8, ours=True)) == ["cpu0", "cpu4", "cpu3"]
    # Pods of others take the last two.
    assert names_of(found, given(found, frozenset({5}), total=6, ours=True)) == ["cpu6"]


def test_a_core_of_a_machine_is_all_its_cpus() -> None:
    found = node()
    assert names_of(found, given(found, frozenset({1, 2}), total=4, ours=False)) == ["cpu1", "cpu5", "cpu2", "cpu6"]
    told = given(found, frozenset({0}), total=6, ours=False)
    assert told == "Slurm counts 6 cores where the driver has 8 CPUs of 4 cores"


def test_a_group_of_cpus_is_there_for_every_job() -> None:
    group = cpu_group("numa0", 8)
    assert given(inventory([slice_of(group, driver="dra.cpu")]), frozenset(), total=8, ours=True) == {0}
