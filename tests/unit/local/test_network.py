"""Cables between real namespaces. The last slot of addresses is used, which no cluster gets before the other 15."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from isthmus.local import files, network
from isthmus.local.addresses import SLOTS, Addresses
from isthmus.local.machine import Machine
from tests.bed.slurm_box import wait_until

ADDRESSES = Addresses(SLOTS - 1)


@dataclass(frozen=True)
class Plant:
    switch: Machine
    nodes: tuple[Machine, Machine]

    def plug(self) -> None:
        network.plug_host(self.switch, ADDRESSES)
        for index, node in enumerate(self.nodes):
            network.plug_node(self.switch, node, index, ADDRESSES)


@pytest.fixture
def plant(tmp_path: Path, group: str) -> Iterator[Plant]:
    switch, *nodes = (Machine(tmp_path / name, hostname=name, group=f"{group}/{name}") for name in ("s", "a", "b"))
    with files.locked(Path("/run/lock")):  # the interface on the host has one name for all who test
        network.unplug_host(ADDRESSES)  # of a run that was killed
        try:
            for machine in (switch, *nodes):
                machine.boot()
            yield Plant(switch, (nodes[0], nodes[1]))
        finally:
            network.unplug_host(ADDRESSES)
            for machine in (switch, *nodes):
                machine.halt()


# The kernel says after three seconds that nobody is there, and a cable may begin to carry something after that.
REFUSED = """
import socket, sys, time
deadline = time.monotonic() + float(sys.argv[2])
while (left := deadline - time.monotonic()) > 0:
    try:
        socket.create_connection((sys.argv[1], 9), timeout=left)
    except ConnectionRefusedError:
        print("somebody is there")
        break
    except OSError:
        time.sleep(0.01)
"""


def reaches(address: str, *, machine: Machine | None = None, within: float = 60) -> bool:
    """Whether somebody at the address refuses a connection, which is an answer, too."""
    enter = ["nsenter", f"--target={machine.init}", "--net"] if machine else []
    argv = [*enter, sys.executable, "-c", REFUSED, address, str(within)]
    return "somebody" in subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def test_host_and_nodes_reach_each_other_and_nothing_else(plant: Plant) -> None:
    plant.plug()
    a, b = plant.nodes
    assert reaches(ADDRESSES.node(0))
    assert reaches(ADDRESSES.node(1), machine=a)
    assert reaches(ADDRESSES.host, machine=b)
    routes = a.run("ip", "route").splitlines()
    assert len(routes) == 1 + 1 + 15
    assert not [route for route in routes if route.startswith("default")]


def test_a_pulled_cable_is_seen_and_can_be_plugged_in_again(plant: Plant) -> None:
    plant.plug()
    assert not network.is_cut(plant.switch, 1)
    network.cut(plant.switch, 1)
    assert network.is_cut(plant.switch, 1)
    assert not reaches(ADDRESSES.node(1), within=0.3)
    assert not network.is_cut(plant.switch, 0)
    network.heal(plant.switch, 1)
    assert reaches(ADDRESSES.node(1))
    network.cut(plant.switch, 1)
    plant.plug()  # as `up` does
    assert reaches(ADDRESSES.node(1))


def test_a_cable_is_not_pulled_only_because_it_carries_nothing_yet(plant: Plant) -> None:
    plant.plug()
    plant.nodes[1].ip("link set eth0 down")
    wait_until(
        lambda: "NO-CARRIER" in plant.switch.run("ip", "link", "show", "port1"), what="the port is dead", within=60
    )
    assert not network.is_cut(plant.switch, 1)


def test_a_node_that_was_never_plugged_in_counts_as_cut_off(plant: Plant) -> None:
    assert network.is_cut(plant.switch, 0)


def test_whoever_was_stopped_half_way_goes_on(plant: Plant) -> None:
    a = plant.nodes[0]
    plant.switch.ip("link add br0 type bridge")
    plant.switch.ip(f"link add port0 type veth peer name eth0 netns {a.init}")
    subprocess.run(
        ["ip", "link", "add", f"isthmus{ADDRESSES.slot}", "type", "veth", "peer", "name", "host", "netns",
         str(plant.switch.init)],
        check=True,
    )  # fmt: skip
    plant.plug()
    assert reaches(ADDRESSES.node(0))
    assert reaches(ADDRESSES.node(0), machine=plant.nodes[1])


def test_a_node_that_is_switched_off_and_on_at_once_gets_a_new_cable(plant: Plant) -> None:
    plant.plug()
    a = plant.nodes[0]
    for _ in range(3):
        a.halt()
        a.boot()
        network.plug_node(plant.switch, a, 0, ADDRESSES)
        assert reaches(ADDRESSES.node(0))


def test_an_interface_that_the_kernel_removes_at_the_same_moment_is_gone_as_it_should(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant.plug()
    a, look = plant.nodes[0], network._links
    a.ip("link delete eth0")
    plant.switch.ip("link add port0 type veth peer name other")

    def look_and_lose(machine: Machine | None = None) -> dict[str, list[str]]:
        found = look(machine)
        if machine is plant.switch and "other" in found:
            machine.ip("link delete other")
        if machine is None and f"isthmus{ADDRESSES.slot}" in found:
            plant.switch.ip("link delete host")
        return found

    monkeypatch.setattr(network, "_links", look_and_lose)
    network.plug_node(plant.switch, a, 0, ADDRESSES)
    assert reaches(ADDRESSES.node(0), machine=plant.nodes[1])
    network.unplug_host(ADDRESSES)
    assert f"isthmus{ADDRESSES.slot}" not in look()


def test_nothing_for_a_node_leaves_the_machine_while_the_switch_is_away(plant: Plant) -> None:
    def way(address: str) -> str:
        return subprocess.run(["ip", "route", "get", address], check=False, capture_output=True, text=True).stderr

    plant.plug()
    assert reaches(ADDRESSES.node(0))
    plant.switch.halt()
    for address in (ADDRESSES.node(0), ADDRESSES.api_service, ADDRESSES.pods(1).replace(".0/24", ".9")):
        wait_until(lambda: "No route to host" in way(address), what=f"{address} to be unreachable", within=60)  # noqa: B023 - now
    network.unplug_host(ADDRESSES)
    routes = subprocess.run(["ip", "route"], check=True, capture_output=True, text=True).stdout
    assert ADDRESSES.whole not in routes


def test_a_new_switch_takes_over_the_interface_that_the_old_one_left(plant: Plant) -> None:
    plant.plug()
    for machine in (plant.switch, *plant.nodes):
        machine.halt()
        machine.boot()
    plant.plug()
    assert reaches(ADDRESSES.node(1))
    network.unplug_host(ADDRESSES)
    network.unplug_host(ADDRESSES)
    links = subprocess.run(["ip", "-brief", "link"], check=True, capture_output=True, text=True).stdout
    assert f"isthmus{ADDRESSES.slot}@" not in links


def test_a_new_switch_plugs_nodes_in_though_the_kernel_has_not_let_go_of_the_old_one(plant: Plant) -> None:
    plant.plug()
    with Path(f"/proc/{plant.switch.init}/ns/net").open("rb"):  # as long as this is open, so are the old cables
        plant.switch.halt()
        plant.switch.boot()
        plant.plug()
        assert reaches(ADDRESSES.node(1))
        assert reaches(ADDRESSES.node(0), machine=plant.nodes[1])
