"""Which device an index of Slurm is."""

import pytest

from isthmus.domain.bridge.devices import DeviceId, NodeDevice, NodeDevices
from isthmus.domain.bridge.gresindex import given, needed, table, written
from isthmus.model.dra import Device
from isthmus.model.node import Taint

A, B = "gpu:a", "gpu:b"


def devices(*kinds: str, pool: str = "n1") -> NodeDevices:
    return NodeDevices(
        [NodeDevice(DeviceId("d.org", pool, f"g{at}"), kind, Device(f"g{at}")) for at, kind in enumerate(kinds)]
    )


def test_indices_go_through_all_types_of_a_name() -> None:
    found = table(devices(A, A, B, B), "gpu:a:2,gpu:b:2", (), node="n1")
    assert found == {"gpu": (0, 1, 2, 3)}
    # As Slurm has them, not as we would.
    assert table(devices(A, A, B, B), "gpu:b:2(S:0),gpu:a:2(S:0-1)", (), node="n1") == {"gpu": (2, 3, 0, 1)}
    # What no driver published takes up places, too.
    assert table(devices(B), "gpu:a:2,gpu:b:1,nic:1", (), node="n1") == {"gpu": (None, None, 0), "nic": (None,)}


def test_what_was_written_down_decides_the_order() -> None:
    now = devices(A, A)
    order = ((A, ("d.org//g1", "d.org//g0")),)
    assert table(now, "gpu:a:2", order, node="n1") == {"gpu": (1, 0)}
    gone = ((A, ("d.org//g1", "d.org//g9")),)
    assert "other devices" in str(table(now, "gpu:a:2", gone, node="n1"))


def test_a_tainted_device_has_its_own_place_on_a_node_of_ours_alone() -> None:
    broken = Device("g1", taints=(Taint("broken", "NoSchedule"),))
    found = (Device("g0"), broken, Device("g2"))
    now = NodeDevices([NodeDevice(DeviceId("d.org", "n1", it.name), A, it) for it in found])
    order = written(now, node="n1")
    assert order == ((A, ("d.org//g0", "d.org//g2")), (f"{A}.tainted", ("d.org//g1",)))
    assert table(now, f"{A}:2,{A}.tainted:1", order, node="n1") == {"gpu": (0, 2, 1)}
    assert isinstance(table(now, f"{A}:3", order, node="n1"), str)
    # With a slurmd, the machine has what it has.
    assert table(now, f"{A}:3", (), node="n1") == {"gpu": (0, 1, 2)}
    assert needed(now) == f"{A}:3"


def test_alike_nodes_are_written_alike() -> None:
    one = written(devices(A, B, pool="n1"), node="n1")
    assert one == written(devices(A, B, pool="n2"), node="n2") == ((A, ("d.org//g0",)), (B, ("d.org//g1",)))
    assert written(devices(A, pool="shared"), node="n1") == ((A, ("d.org/shared/g0",)),)


@pytest.mark.parametrize("gres", ["gpu:a:3", "gpu:a:1", "", "gpu:4", "nonsense!"])
def test_a_node_that_slurm_counts_otherwise_has_no_indices(gres: str) -> None:
    assert isinstance(table(devices(A, A), gres, (), node="n1"), str)
    assert needed(devices(A, A, B)) == "gpu:a:2,gpu:b:1"


@pytest.mark.parametrize(
    ("detail", "positions"),
    [
        ("gpu:a:1(IDX:1)", {1}),
        ("gpu:a:2(IDX:0-1)", {0, 1}),
        ("gpu:a:1(IDX:0),gpu:b:1(IDX:3)", {0, 3}),
        ("gpu:b:2(IDX:2,3)", {2, 3}),
        ("gpu:a(CNT:2)", {0, 1}),
        ("gpu:b(CNT:2),gpu:a:1(IDX:0)", {0, 2, 3}),
        ("", set()),
        ("nic:1(IDX:0)", set()),
    ],
)
def test_a_job_has_the_devices_of_its_indices(detail: str, positions: set[int]) -> None:
    places = {"gpu": (0, 1, 2, 3)}
    assert given(detail, places, "gpu:a:2,gpu:b:2") == positions


def test_without_indices_a_part_of_the_devices_cannot_be_told() -> None:
    assert "File=" in str(given("gpu:a(CNT:1)", {"gpu": (0, 1)}, "gpu:a:2"))
    assert isinstance(given("what?", {"gpu": (0, 1)}, "gpu:a:2"), str)
