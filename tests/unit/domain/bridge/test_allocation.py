"""Which devices claims get."""

from collections.abc import Iterable
from typing import Any

import pytest

from isthmus.domain.bridge import allocation
from isthmus.domain.bridge.allocation import allocate, fit, load_of
from isthmus.domain.bridge.devices import DeviceId, NodeDevices, Profile, inventory
from isthmus.domain.kube.deviceclaims import Choice, Need, Request, Rule
from isthmus.domain.languages import quantity
from isthmus.model.dra import Result
from isthmus.model.pod import Toleration
from tests.unit.domain.bridge.made_devices import (
    CLASSES,
    DRIVER,
    GRES,
    MODEL,
    cpu_group,
    device,
    need,
    node,
    slice_of,
)


def names_of(found: NodeDevices, *needs: Need, may: Iterable[int] | None = None) -> list[str] | None:
    allowed = set(range(len(found.devices)) if may is None else may)
    picked = allocate(needs, found, CLASSES.get, may=allowed.__contains__)
    return None if picked is None else [found.devices[it.position].id.name for it in picked]


def test_each_request_gets_devices_of_its_own() -> None:
    found = node(device("a"), device("b", model="large"), device("c"))
    assert names_of(found, need(Choice("any", count=2), Choice("any"))) == ["a", "b", "c"]
    assert names_of(found, need(Choice("any", count=4))) is None
    assert names_of(found, need(Choice("large"), Choice("small", count=2))) == ["b", "a", "c"]
    assert names_of(found, need(Choice("any")), need(Choice("large"))) == ["a", "b"]
    # The first takes what the second needs, and has to give it back.
    assert names_of(node(device("a", model="large"), device("b")), need(Choice("any")), need(Choice("large"))) == [
        "b",
        "a",
    ]


def test_only_devices_that_may_be_taken_are() -> None:
    found = node(*(device(f"gpu-{at}") for at in range(4)))
    assert names_of(found, need(Choice("any", count=2)), may={1, 3}) == ["gpu-1", "gpu-3"]
    assert names_of(found, need(Choice("any", count=3)), may={1, 3}) is None


def test_all_devices_means_all_of_them_or_none() -> None:
    found = node(device("a"), device("b", model="large"), device("c"))
    assert names_of(found, need(Choice("small", every=True))) == ["a", "c"]
    assert names_of(found, need(Choice("small", every=True)), may={0, 1}) is None
    assert names_of(found, need(Choice("none", every=True))) is None


def test_administrators_use_devices_beside_those_who_have_them() -> None:
    found = node(device("a"))
    assert names_of(found, need(Choice("any", admin=True)), may=()) == ["a"]
    assert names_of(found, need(Choice("any", admin=True), Choice("any"))) == ["a", "a"]


def test_the_first_alternative_that_can_be_had_is_taken() -> None:
    request = Request("r", (Choice("large", name="best"), Choice("small", count=2, name="two")))
    picked = allocate([Need((request,))], node(device("a"), device("b")), CLASSES.get, may=lambda _: True)
    assert picked is not None
    assert [it.result for it in picked] == ["r/two", "r/two"]
    picked = allocate([Need((request,))], node(device("a", model="large")), CLASSES.get, may=lambda _: True)
    assert picked is not None
    assert [it.result for it in picked] == ["r/best"]


def test_constraints_hold_between_the_devices_of_a_claim() -> None:
    found = node(device("a", numa=0), device("b", numa=1), device("c", numa=1))
    same, distinct = Rule(f"{DRIVER}/numa"), Rule(f"{DRIVER}/numa", distinct=True)
    assert names_of(found, need(Choice("any", count=2), rules=(same,))) == ["b", "c"]
    assert names_of(found, need(Choice("any", count=2), rules=(distinct,)), may={1, 2}) is None
    assert names_of(found, need(Choice("any", count=2), rules=(distinct,))) == ["a", "b"]
    assert names_of(found, need(Choice("any", count=3), rules=(same,))) is None
    assert names_of(found, need(Choice("any"), rules=(Rule("other.org/numa"),))) is None
    assert names_of(
        found, need(Choice("any", count=2), Choice("any"), rules=(Rule(f"{DRIVER}/numa", ("r0",)),))
    ) == [
        "b",
        "c",
        "a",
    ]


def test_a_tainted_device_is_for_those_who_tolerate_it() -> None:
    found = node(device("a", taints=[{"key": "broken", "effect": "NoSchedule"}]), device("b"))
    assert names_of(found, need(Choice("any", count=2))) is None
    tolerant = Choice("any", count=2, tolerations=(Toleration("broken", "Exists"),))
    assert names_of(found, need(tolerant)) == ["a", "b"]


def test_a_selector_that_fails_for_a_device_does_not_match_it() -> None:
    found = node({"name": "bare"}, device("b"))
    assert names_of(found, need(Choice("small", count=1))) == ["b"]
    assert names_of(found, need(Choice("missing class"))) is None


def test_a_node_to_itself_needs_enough_matching_devices() -> None:
    found = node(device("a"), device("b", model="large"))
    fits = fit([need(Choice("large"))], found, CLASSES.get, shared=False)
    assert not isinstance(fits, str)
    assert (fits.gres, fits.detours) == ({GRES: 1}, 0)
    assert isinstance(fit([need(Choice("large", count=2))], found, CLASSES.get, shared=False), str)
    held = [Result("r", DRIVER, "n1", "b")]
    assert isinstance(fit([need(Choice("large"))], found, CLASSES.get, shared=False, foreign=held), str)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (need(Choice("large")), "only some match"),
        (need(Choice("any", every=True)), "asks for all devices"),
        (need(Choice("any", count=2), rules=(Rule(f"{DRIVER}/model"),)), "may break a constraint"),
    ],
)
def test_on_a_shared_node_whatever_slurm_picks_must_do(wanted: Need, why: str) -> None:
    found = node(device("a"), device("b", model="large"))
    told = fit([wanted], found, CLASSES.get, shared=True)
    assert isinstance(told, str)
    assert why in told


def test_a_shared_node_whose_devices_are_alike_fits() -> None:
    found = node(device("a"), device("b"))
    fits = fit([need(Choice("small", count=2), rules=(Rule(f"{DRIVER}/model"),))], found, CLASSES.get, shared=True)
    assert not isinstance(fits, str)
    assert fits.gres == {GRES: 2}
    held = [Result("r", DRIVER, "n1", "b")]
    assert isinstance(fit([need(Choice("small"))], found, CLASSES.get, shared=True, foreign=held), str)


def test_types_of_a_profile_are_told_apart_on_a_shared_node() -> None:
    profiles = (Profile("big", DRIVER, f"{MODEL} == 'large'"),)
    found = node(device("a"), device("b", model="large"), profiles=profiles)
    fits = fit([need(Choice("large"))], found, CLASSES.get, shared=True)
    assert not isinstance(fits, str)
    assert fits.gres == {"gpu:big": 1}


def shared(name: str, *, memory: str = "80Gi", policy: dict[str, Any] | None = None) -> dict[str, Any]:
    capacity = {"memory": {"value": memory, **({"requestPolicy": policy} if policy else {})}}
    return device(name, allowMultipleAllocations=True, capacity=capacity)


def part(amount: str, *, count: int = 1) -> Choice:
    return Choice("any", count=count, capacity=(("memory", amount),))


def test_requests_share_a_device_until_its_capacity_is_used_up() -> None:
    found = node(shared("a"), shared("b"))
    assert names_of(found, need(part("40Gi"), part("40Gi"), part("50Gi"))) == ["a", "a", "b"]
    assert names_of(found, need(part("30Gi", count=4))) == ["a", "a", "b", "b"]
    assert names_of(found, need(part("30Gi", count=5))) is None
    assert names_of(found, need(part("81Gi"))) is None
    # Who does not say how much takes all of it.
    assert names_of(found, need(Choice("any"), part("1"))) == ["a", "b"]
    fits = fit([need(part("40Gi"), part("40Gi"))], found, CLASSES.get, shared=True)
    assert not isinstance(fits, str)
    assert fits.gres == {GRES: 1}


def test_a_device_that_is_not_shared_has_what_is_asked_of_its_capacity() -> None:
    small = device("a", capacity={"memory": {"value": "10Gi"}})
    found = node(small, device("b", capacity={"memory": {"value": "80Gi"}}), device("c"))
    assert names_of(found, need(part("40Gi"))) == ["b"]
    assert names_of(found, need(part("1Gi", count=2))) == ["a", "b"]


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        ({"default": "10Gi"}, None, "10Gi"),
        ({"validRange": {"min": "4Gi", "max": "20Gi", "step": "2Gi"}}, "5Gi", "6Gi"),
        ({"validRange": {"min": "4Gi", "max": "20Gi"}}, "1Gi", "4Gi"),
        ({"validRange": {"min": "4Gi", "max": "20Gi"}}, "21Gi", None),
        ({"validValues": ["10Gi", "20Gi"]}, "11Gi", "20Gi"),
        ({"validValues": ["10Gi", "20Gi"]}, "21Gi", None),
    ],
)
def test_a_request_is_rounded_up_to_what_the_driver_allows(
    policy: dict[str, Any], asked: str | None, taken: str | None
) -> None:
    found = node(shared("a", policy=policy))
    choice = part(asked) if asked else Choice("any")
    consumed = found.consumed(0, choice)
    assert consumed == (None if taken is None else {"memory": quantity.parse(taken)})
    assert (names_of(found, need(choice)) is None) is (taken is None)


def test_what_others_have_of_a_device_is_gone() -> None:
    found = node(shared("a"))
    has = Result("r", DRIVER, "n1", "a", consumed_capacity={"memory": "60Gi"})
    for asked, fits in (("20Gi", True), ("21Gi", False)):
        picked = allocate([need(part(asked))], found, CLASSES.get, may=lambda _: True, load=load_of(found, [has]))
        assert (picked is not None) is fits


def partitioned() -> NodeDevices:
    """A GPU with 80 GB, to be had as a whole or in halves."""
    sets = slice_of(count=2, counters=[{"name": "g", "counters": {"memory": {"value": "80Gi"}}}])
    devices = [
        device(name, consumesCounters=[{"counterSet": "g", "counters": {"memory": {"value": size}}}])
        for name, size in (("whole", "80Gi"), ("half-0", "40Gi"), ("half-1", "40Gi"))
    ]
    return inventory([sets, slice_of(*devices, count=2)])


def test_devices_that_share_counters_are_not_given_twice() -> None:
    found = partitioned()
    assert names_of(found, need(Choice("any"))) is not None
    assert set(names_of(found, need(Choice("any", count=2))) or ()) == {"half-0", "half-1"}
    assert names_of(found, need(Choice("any", count=3))) is None
    half = [Result("r", DRIVER, "n1", "half-1")]
    whole, other = (found.positions[DeviceId(DRIVER, "n1", it)] for it in ("whole", "half-0"))
    for position, fits in ((whole, False), (other, True)):
        only = {position}.__contains__
        picked = allocate([need(Choice("any"))], found, CLASSES.get, may=only, load=load_of(found, half))
        assert (picked is not None) is fits


def test_what_slurm_does_not_count_is_not_for_shared_nodes() -> None:
    found = partitioned()
    two = [need(Choice("any", count=2))]
    assert isinstance(fit(two, found, CLASSES.get, shared=True), str)
    fits = fit(two, found, CLASSES.get, shared=False)
    assert not isinstance(fits, str)
    assert fits.gres == {}


def cpus(count: int) -> NodeDevices:
    made = [
        {
            "name": f"cpudev{at:03}",
            "attributes": {"dra.cpu/cpuID": {"int": at}, "dra.cpu/numaNodeID": {"int": at % 2}},
        }
        for at in range(count)
    ]
    return inventory([slice_of(*made, driver="dra.cpu")])


def test_cpus_by_claims_are_cpus_of_the_job() -> None:
    classes = {"dra.cpu": ("device.driver == 'dra.cpu'",)}
    even = Choice("dra.cpu", ("device.attributes['dra.cpu'].numaNodeID == 0",), count=2)
    fits = fit([need(Choice("dra.cpu", count=3), even)], cpus(8), classes.get, shared=False)
    assert not isinstance(fits, str)
    assert (fits.gres, fits.cpus) == ({}, {(0, "r0"): 3, (0, "r1"): 2})
    assert "only some match" in str(fit([need(even)], cpus(8), classes.get, shared=True))
    group = cpu_group("numa0", 8)
    grouped = inventory([slice_of(group, driver="dra.cpu")])
    six = Choice("dra.cpu", capacity=(("dra.cpu/cpu", "6"),))
    # Who has a part of a group of CPUs leaves the rest to others.
    held = [Result("r", "dra.cpu", "n1", "numa0", consumed_capacity={"dra.cpu/cpu": "2"})]
    fits = fit([need(six)], grouped, classes.get, shared=True, foreign=held)
    assert not isinstance(fits, str)
    assert fits.cpus == {(0, "r0"): 6}
    assert isinstance(fit([need(six)], grouped, classes.get, shared=True, foreign=held * 2), str)


@pytest.mark.parametrize(
    "needs",
    [
        [need(Choice("any", count=8), Choice("none"))],
        [need(Choice("any", count=8)), need(Choice("any", count=8)), need(Choice("any"))],
        [need(Choice("small", count=8), Choice("any", count=9))],
    ],
)
def test_that_there_are_too_few_devices_is_seen_without_trying(needs: list[Need]) -> None:
    """By trying it would take the tenth of a second, on each node that is looked at."""
    found = node(*(device(f"gpu-{at}") for at in range(16)))
    search = allocation._Search(needs, found, CLASSES.get, lambda _: True, allocation._UNUSED)
    assert search.is_hopeless()
    assert allocate(needs, found, CLASSES.get, may=lambda _: True) is None


def test_what_can_be_had_is_never_called_hopeless() -> None:
    request = Request("r", (Choice("none", name="best"), Choice("any", count=2, name="two")))
    shared: dict[str, Any] = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8"}}}
    cases = [
        (node(device("a"), device("b")), [Need((request,))]),
        (node(device("a")), [need(Choice("any", admin=True), Choice("any"))]),
        (node(device("a", **shared)), [need(Choice("any", count=2, capacity=(("memory", "4"),)))]),
    ]
    for found, needs in cases:
        assert allocate(needs, found, CLASSES.get, may=lambda _: True) is not None
