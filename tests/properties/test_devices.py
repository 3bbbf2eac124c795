"""Devices, GRES and indices, for slices and claims of any kind."""

from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.domain.bridge import gresindex
from isthmus.domain.bridge.allocation import _UNUSED, Picked, _Search, allocate, fit, load_of
from isthmus.domain.bridge.devices import NodeDevices, Profile, inventory
from isthmus.domain.bridge.noderecord import describe, line
from isthmus.domain.kube.deviceclaims import Choice, Need, Request, Rule
from isthmus.domain.languages import quantity
from isthmus.domain.languages.tres import parse_gres
from isthmus.model.dra import ResourceSlice, Result
from isthmus.model.meta import ObjectMeta
from isthmus.model.node import Node, NodeAddress, NodeStatus

DRIVERS = ("gpu.example.com", "dra.net", "a.org")
MODELS = ("small", "large")
PROFILES = (Profile("big", "gpu.example.com", "device.attributes['gpu.example.com'].model == 'large'"),)
CLASSES: dict[str, tuple[str, ...]] = {
    **{driver: (f"device.driver == '{driver}'",) for driver in DRIVERS},
    **{model: (f"device.attributes['gpu.example.com'].?model.orValue('') == '{model}'",) for model in MODELS},
}


SETS = ("even", "odd")
USES = st.one_of(
    st.just(()),
    st.builds(
        lambda name, units: ({"counterSet": name, "counters": {"units": {"value": str(units)}}},),
        st.sampled_from(SETS),
        st.integers(1, 4),
    ),
)


@st.composite
def slices(draw: st.DrawFn) -> list[ResourceSlice]:
    """Slices of some drivers of one node, some of them of outdated or incomplete pools."""
    found = []
    for driver in draw(st.lists(st.sampled_from(DRIVERS), unique=True)):
        pool = draw(st.sampled_from(["n1", "other/pool"]))
        for generation in draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)):
            numbers = draw(st.lists(st.integers(0, 12), unique=True, max_size=5))
            devices = [
                {
                    "name": f"d-{number}",
                    "attributes": {
                        "model": {"string": draw(st.sampled_from(MODELS))},
                        "numa": {"int": draw(st.integers(0, 1))},
                    },
                    "capacity": {"memory": {"value": "8"}},
                    "allowMultipleAllocations": draw(st.integers(0, 9)) == 0,
                    "consumesCounters": draw(USES),
                }
                for number in numbers
            ]
            spec = {
                "driver": driver,
                "nodeName": "n1",
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": draw(st.integers(1, 2))},
                "devices": devices,
                "sharedCounters": [{"name": it, "counters": {"units": {"value": "4"}}} for it in SETS],
            }
            found.append(msgspec.convert({"spec": spec}, ResourceSlice))
    return found


def unique(made: list[ResourceSlice]) -> NodeDevices:
    """The devices of slices of which no two describe the same one, as drivers take care."""
    found = inventory(made, PROFILES)
    devices = [it for at, it in enumerate(found.devices) if found.positions[it.id] == at]
    return NodeDevices(devices, counters=found.counters)


NEEDS = st.lists(
    st.builds(
        lambda class_, count, admin, memory: Choice(
            class_, count=count, admin=admin, capacity=(("memory", str(memory)),) if memory else ()
        ),
        st.sampled_from(sorted(CLASSES)),
        st.integers(1, 3),
        st.integers(0, 7).map(lambda it: it == 0),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=3,
).map(lambda choices: Need(tuple(Request(f"r{at}", (it,)) for at, it in enumerate(choices))))


@given(slices())
def test_every_index_of_a_node_that_we_make_is_a_device_and_stays_that_one(made: list[ResourceSlice]) -> None:
    devices = unique(made)
    status = NodeStatus(
        allocatable={"cpu": "4", "memory": "4Gi"}, addresses=(NodeAddress("InternalIP", "192.0.2.1"),)
    )
    wanted = describe(Node(ObjectMeta(name="n1"), status=status), "n1", cluster="c", devices=devices)
    line([wanted])  # It can be written.
    record = msgspec.json.decode(wanted.record.write(), type=type(wanted.record))
    places = gresindex.table(devices, record.gres, record.devices, node="n1")
    assert not isinstance(places, str)
    positions = [at for row in places.values() for at in row]
    assert {at for at in positions if at is not None} == set(range(len(devices.devices))) - devices.uncounted
    assert len([at for at in positions if at is not None]) == devices.gres.total()
    # All of each GRES are those devices.
    for gres in parse_gres(record.gres):
        kind = f"{gres.name}:{gres.type}"
        held = gresindex.given(f"{kind}(CNT:{gres.count})", places, record.gres)
        assert held == {at for at, it in enumerate(devices.devices) if it.gres == kind}


@given(slices(), NEEDS, st.data())
@settings(max_examples=200)
def test_whatever_slurm_picks_on_a_node_that_fits_serves_the_claims(
    made: list[ResourceSlice], need: Need, data: st.DataObject
) -> None:
    devices = unique(made)
    rule = data.draw(st.sampled_from([(), (Rule("gpu.example.com/numa"),)]))
    need = msgspec.structs.replace(need, rules=rule)
    fits = fit([need], devices, CLASSES.get, shared=True)
    if isinstance(fits, str):
        return
    granted: set[int] = set()
    for gres, count in fits.gres.items():
        has = [at for at, it in enumerate(devices.devices) if it.gres == gres]
        granted |= set(data.draw(st.permutations(has))[:count])
    picked = allocate([need], devices, CLASSES.get, may=granted.__contains__)
    assert picked is not None
    assert {it.position for it in picked if not it.choice.admin} <= granted
    assert_possible(devices, picked)


@given(slices())
def test_all_that_slurm_counts_can_be_had_at_once(made: list[ResourceSlice]) -> None:
    devices = unique(made)
    used: Counter[str] = Counter()
    for it in devices.devices:
        if it.gres:
            used.update(dict(it.takes))
    assert all(amount <= devices.counters[name] for name, amount in used.items())


@st.composite
def crowded(draw: st.DrawFn) -> NodeDevices:
    """A few devices of one driver, many of them parts of others or shared."""
    devices = [
        {
            "name": f"d-{at}",
            "capacity": {"memory": {"value": "8"}},
            "allowMultipleAllocations": draw(st.booleans()),
            "consumesCounters": draw(USES),
        }
        for at in range(draw(st.integers(1, 5)))
    ]
    sets = [{"name": it, "counters": {"units": {"value": "4"}}} for it in SETS]
    spec = {"driver": "a.org", "nodeName": "n1", "pool": {"name": "n1"}, "devices": devices, "sharedCounters": sets}
    return inventory([msgspec.convert({"spec": spec}, ResourceSlice)])


SMALL = st.lists(
    st.builds(
        lambda count, memory, admin: Choice("a.org", count=count, admin=admin, capacity=(("memory", str(memory)),)),
        st.integers(1, 2),
        st.integers(1, 8),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=2,
).map(lambda choices: Need(tuple(Request(f"r{at}", (it,)) for at, it in enumerate(choices))))


@given(crowded(), SMALL, SMALL, st.sets(st.integers(0, 4), min_size=1))
@settings(max_examples=300)
def test_an_allocation_has_what_was_asked_for_and_leaves_others_what_is_theirs(
    devices: NodeDevices, first: Need, second: Need, may: set[int]
) -> None:
    before = allocate([first], devices, CLASSES.get, may=lambda _: True) or ()
    held = [it.position for it in before if not it.choice.admin]
    free = may - {at for at in held if not devices.devices[at].shared}
    load = load_of(devices, results(devices, before))
    picked = allocate([second], devices, CLASSES.get, may=free.__contains__, load=load)
    if picked is None:
        return
    for request in second.requests:
        assert len([it for it in picked if it.request == request.name]) == request.choices[0].count
    assert {it.position for it in picked if not it.choice.admin} <= free
    assert_possible(devices, (*before, *picked))


@given(slices(), NEEDS, st.sets(st.integers(0, 12)))
def test_what_is_called_hopeless_could_not_be_had_by_trying_either(
    made: list[ResourceSlice], need: Need, may: set[int]
) -> None:
    search = _Search([need], unique(made), CLASSES.get, may.__contains__, _UNUSED)
    assert not (search.is_hopeless() and search.place(0))


def results(devices: NodeDevices, picked: tuple[Picked, ...]) -> list[Result]:
    """Write down what was picked as claims have it."""
    found = []
    for it in picked:
        consumed = devices.consumed(it.position, it.choice) or {}
        amounts = {name: quantity.write(amount) for name, amount in consumed.items()}
        shared = devices.devices[it.position].shared
        id_ = devices.devices[it.position].id
        found.append(Result("r", *id_, admin_access=it.choice.admin, consumed_capacity=amounts if shared else {}))
    return found


def assert_possible(devices: NodeDevices, picked: tuple[Picked, ...]) -> None:
    """Nothing is given twice: no device that is not shared, no capacity, no counter."""
    own = [it for it in picked if not it.choice.admin]
    users = Counter(it.position for it in own)
    used: Counter[str] = Counter()
    for at, count in users.items():
        assert count == 1 or devices.devices[at].shared
        used.update(dict(devices.devices[at].takes))
    assert all(amount <= devices.counters[name] for name, amount in used.items())
    for at in (it for it in users if devices.devices[it].shared):
        amounts = (devices.consumed(at, it.choice) for it in own if it.position == at)
        total = sum((it or {}).get("memory", 0) for it in amounts)
        assert total <= quantity.parse("8")
