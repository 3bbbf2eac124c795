"""Devices of a node, and as what Slurm counts them."""

from typing import Any

import pytest

from isthmus.domain.bridge.devices import NodeDevices, Profile, gres_of, inventory
from isthmus.domain.kube.deviceclaims import Choice
from isthmus.errors import Terminal
from isthmus.model.dra import Device
from tests.unit.domain.bridge.made_devices import DRIVER, GRES, MODEL, cpu_group, device, node, slice_of

KEYS = ("socketID", "coreID", "cpuID")


def test_a_pool_counts_only_when_it_is_complete_and_only_its_newest_generation() -> None:
    first, second = slice_of(device("a"), count=2), slice_of(device("b"), count=2)
    assert [it.id.name for it in inventory([first, second]).devices] == ["a", "b"]
    assert inventory([first]).devices == ()
    newer = slice_of(device("c"), generation=2)
    assert [it.id.name for it in inventory([first, second, newer]).devices] == ["c"]
    assert inventory([first, second, slice_of(device("d"), generation=3, count=2)]).devices == ()


def test_indices_follow_the_index_attribute_and_then_the_number_in_the_name() -> None:
    names = [it.id.name for it in node(device("gpu-10"), device("gpu-2"), device("gpu-1")).devices]
    assert names == ["gpu-1", "gpu-2", "gpu-10"]
    indexed = [{"name": name, "attributes": {"index": {"int": at}}} for name, at in (("x", 2), ("y", 0), ("z", 1))]
    assert [it.id.name for it in node(*indexed).devices] == ["y", "z", "x"]


def test_a_device_is_a_gpu_of_its_driver_unless_a_profile_says_otherwise() -> None:
    assert gres_of(DRIVER, Device("a")) == GRES
    profiles = (Profile("big", DRIVER, f"{MODEL} == 'large'"), Profile("net", "dra.net", gres_name="nic"))
    found = node(device("a"), device("b", model="large"), profiles=profiles)
    assert {it.id.name: it.gres for it in found.devices} == {"a": GRES, "b": "gpu:big"}
    assert gres_of("dra.net", Device("eth0"), profiles) == "nic:net"


def test_what_slurm_cannot_count_is_for_pods_with_a_node_to_themselves() -> None:
    with pytest.raises(Terminal, match="not a valid GRES"):
        gres_of("1.example.com", Device("a"))
    found = inventory([slice_of(device("a"), driver="1.example.com")])
    assert not found.gres
    assert found.uncounted == {0}
    assert "not a valid GRES" in found.skipped["a"]


def test_a_tainted_device_is_counted_apart() -> None:
    found = node(device("a", taints=[{"key": "broken", "effect": "NoExecute"}]), device("b"), device("c"))
    assert found.gres == {GRES: 2, f"{GRES}.tainted": 1}
    harmless = node(device("a", taints=[{"key": "noted", "effect": "None"}]))
    assert harmless.gres == {GRES: 1}


def test_cpus_are_counted_as_cpus_and_stand_by_cores() -> None:
    made = [
        {
            "name": name,
            "attributes": {f"dra.cpu/{key}": {"int": value} for key, value in zip(KEYS, at, strict=True)},
        }
        for name, at in (("d0", (0, 1, 1)), ("d1", (1, 0, 2)), ("d2", (0, 0, 0)), ("d3", (0, 0, 4)))
    ]
    found = inventory([slice_of(*made, driver="dra.cpu")])
    assert [it.id.name for it in found.devices] == ["d2", "d3", "d0", "d1"]
    assert (found.cpus, found.gres.total(), len(found.uncounted)) == (4, 0, 0)
    group = cpu_group("numa0", 31)
    assert inventory([slice_of(group, driver="dra.cpu")]).cpus == 31
    machine = inventory([slice_of({**group, "name": "cpudevmachine", "attributes": {}}, driver="dra.cpu")])
    assert not machine.devices
    assert "--group-by=machine" in machine.skipped["cpudevmachine"]


def partition(name: str, *, of: str, memory: int) -> dict[str, Any]:
    uses = [{"counterSet": of, "counters": {"memory": {"value": f"{memory}Gi"}}}]
    return device(name, model="part" if memory < 80 else "whole", consumesCounters=uses)


COUNTERS = [{"name": f"g{at}", "counters": {"memory": {"value": "80Gi"}}} for at in range(2)]
PARTS = slice_of(
    *(partition(f"gpu-{at}", of=f"g{at}", memory=80) for at in range(2)),
    *(partition(f"gpu-{at}-part-{part}", of=f"g{at}", memory=20) for at in range(2) for part in range(4)),
    count=2,
)
SETS = slice_of(count=2, counters=COUNTERS)


def counted(found: NodeDevices) -> list[str]:
    return [it.id.name for it in found.devices if it.gres]


def test_of_devices_that_share_counters_the_whole_ones_count() -> None:
    found = inventory([PARTS, SETS])
    assert counted(found) == ["gpu-0", "gpu-1"]
    assert (found.gres, len(found.uncounted)) == ({GRES: 2}, 8)
    assert "part of a device that Slurm counts" in found.skipped["gpu-1-part-3"]


def test_a_profile_makes_parts_count() -> None:
    found = inventory([PARTS, SETS], (Profile("quarter", DRIVER, f"{MODEL} == 'part'"),))
    assert found.gres == {"gpu:quarter": 8}
    assert {it.id.name for it in found.devices if not it.gres} == {"gpu-0", "gpu-1"}


def test_parts_that_can_all_be_had_at_once_count() -> None:
    """As MIG instances that are not made anew."""
    static = slice_of(*(partition(f"mig-{at}", of="g0", memory=20) for at in range(4)), count=2)
    assert counted(inventory([static, SETS])) == [f"mig-{at}" for at in range(4)]


def test_a_node_remembers_the_answers_for_some_selectors_and_not_for_all_that_ever_were() -> None:
    found = node(device("a"), device("b"))
    for at in range(1000):
        choice = Choice("any", (f'device.attributes["{DRIVER}"].numa == {at}',))
        assert found.matching(choice, ()) == (() if at else (0, 1))
    assert len(found._matching) <= 64
