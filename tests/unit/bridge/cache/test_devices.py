"""What is known of devices: kept by events, our own writes included."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from isthmus import names
from isthmus.bridge.cache.feasible import FeasibleNodes
from isthmus.bridge.cache.world import World
from isthmus.domain.bridge.devices import DeviceId
from isthmus.domain.bridge.noderecord import Record
from isthmus.errors import Terminal
from isthmus.model.base import EMPTY
from isthmus.model.dra import DeviceClass, ResourceClaim, ResourceSlice
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.node import Node, NodeStatus
from isthmus.model.pod import Pod
from isthmus.model.slurm import Node as SlurmNode
from isthmus.slurm.client import Client

DRIVER = "gpu.example.com"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{DRIVER}"


class Bed:
    """A world with one node n1 that has two devices."""

    def __init__(self) -> None:
        self.world = World(None, Client(None), cluster="c")  # type: ignore[arg-type] # caches need no client
        self.devices = self.world.devices
        self.changes: list[str] = []
        self.devices.on_change(self.changes.append)
        allocatable = {"cpu": "4", "memory": "4Gi", "pods": "9"}
        self.world.nodes.put(Node(ObjectMeta(name="n1"), status=NodeStatus(allocatable=allocatable)))
        self.put_class(DRIVER)
        self.publish("g0", "g1")
        self.feasible = FeasibleNodes(
            self.world.nodes, self.world.map, self.world.slurm_nodes, self.world.capacity, self.devices
        )

    def put_class(self, name: str, **spec: Any) -> None:
        selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
        made = {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}
        self.devices.classes.put(msgspec.convert(made, DeviceClass))

    def publish(self, *names_: str, generation: int = 1, node: str = "n1", model: str = "") -> None:
        pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
        devices = [{"name": it, "attributes": {"model": {"string": model}}} for it in names_]
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        store: Any = self.devices.informers["resource slices"].store
        store.put(msgspec.convert({"metadata": {"name": f"s-{node}"}, "spec": spec}, ResourceSlice))

    def register(self, gres: str, *devices: str, node: str = "n1") -> None:
        order = ((f"gpu:{DRIVER}", tuple(f"{DRIVER}//{it}" for it in devices or ("g0", "g1"))),)
        record = Record("c", 4, 4096, gres, devices=order)
        self.world.slurm_nodes.put(node, SlurmNode(node, cpus=4, gres=gres, extra=record.write()))


def claim(*devices: str, name: str = "c1", version: int = 1, user: str = "") -> ResourceClaim:
    results = [{"request": "r", "driver": DRIVER, "pool": "n1", "device": it} for it in devices]
    requests = [{"name": "r", "exactly": {"deviceClassName": DRIVER}}]
    status: dict[str, Any] = {"allocation": {"devices": {"results": results}}} if devices else {}
    if user:
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": f"uid-{user}"}]
    meta = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    made = {"metadata": meta, "spec": {"devices": {"requests": requests}}, "status": status}
    return msgspec.convert(made, ResourceClaim)


def pod(
    name: str,
    *,
    scheduler: str = names.SCHEDULER_NAME,
    claims: tuple[str, ...] = (),
    requests: Mapping[str, str] = EMPTY,
) -> Pod:
    uses = [{"name": it, "resourceClaimName": it} for it in claims]
    container = {"name": "main", "resources": {"requests": {"cpu": "1", **requests}}}
    spec = {"schedulerName": scheduler, "resourceClaims": uses, "containers": [container]}
    meta = {"namespace": "ns", "name": name, "uid": f"uid-{name}"}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def test_a_pod_without_claims_needs_nothing() -> None:
    bed = Bed()
    assert bed.devices.of_pod(pod("p")).needs == ()
    assert bed.world.constraints(pod("p")).devices == ()


def test_what_we_wrote_counts_until_the_watch_shows_it() -> None:
    bed, device = Bed(), DeviceId(DRIVER, "n1", "g0")
    bed.devices.claims.put(claim(version=1))
    bed.devices.note(claim("g0", version=3))
    assert [it.metadata.name for it in bed.devices.holders(device)] == ["c1"]
    bed.devices.claims.put(claim(version=2))  # The watch is behind.
    assert bed.devices.holders(device)
    bed.devices.claims.put(claim("g0", version=3))
    assert bed.devices.holders(device)
    bed.devices.claims.put(claim(version=4))
    assert bed.devices.holders(device) == []
    bed.devices.note(claim("g0", version=3))  # An answer that comes late.
    assert bed.devices.holders(device) == []
    bed.devices.claims.put(claim("g0", version=5))
    bed.devices.claims.remove(Key("ns", "c1"))
    assert bed.devices.holders(device) == []


def test_who_waits_for_a_device_is_woken_once() -> None:
    bed, woken = Bed(), list[int]()
    bed.devices.claims.put(claim("g0"))
    bed.devices.on_release("n1", lambda: woken.append(1))
    bed.devices.claims.put(claim(version=2))
    bed.devices.claims.put(claim("g0", version=3))
    assert woken == [1]


def test_only_devices_of_others_pods_change_which_nodes_fit() -> None:
    bed = Bed()
    bed.world.pods.put(pod("ours", claims=("c1",)))
    bed.devices.claims.put(claim("g0", user="ours"))
    assert bed.changes == ["n1"]  # by its slice alone
    bed.devices.claims.put(claim("g1", name="c2", user="theirs"))
    assert bed.changes == ["n1"]
    bed.world.pods.put(pod("theirs", scheduler="default-scheduler", claims=("c2",)))  # known after its claim
    assert bed.changes == ["n1", "n1"]
    bed.devices.claims.remove(Key("ns", "c2"))
    assert bed.changes == ["n1", "n1", "n1"]
    bed.devices.claims.put(claim("g1", name="c3"))  # Nobody uses it, and nobody releases it.
    assert bed.changes == ["n1", "n1", "n1", "n1"]


def test_nodes_fit_claims_if_slurm_counts_their_devices_alike() -> None:
    bed = Bed()
    bed.devices.claims.put(claim())
    bed.register(f"gpu:{DRIVER}:2")
    constraints = bed.world.constraints(pod("p", claims=("c1",)), shared=True)
    assert bed.feasible.excluded(constraints).feasible == 1
    assert bed.feasible.taken(constraints).gres == {f"gpu:{DRIVER}": 1}
    bed.register("")
    assert "counts differently" in bed.feasible.excluded(constraints).why
    bed.register(f"gpu:{DRIVER}:2")
    assert bed.feasible.excluded(constraints).feasible == 1
    bed.publish("g0", "g2", generation=2)
    assert bed.feasible.excluded(constraints).feasible == 0
    bed.publish(generation=3)
    assert "does not have the devices" in bed.feasible.excluded(constraints).why


def test_a_node_is_looked_at_again_when_its_driver_has_published_the_rest() -> None:
    bed = Bed()
    store: Any = bed.devices.informers["resource slices"].store
    more = msgspec.structs.replace(store.get(Key("", "s-n1")), metadata=ObjectMeta(name="more"))
    pool = msgspec.structs.replace(more.spec.pool, generation=2)
    for count in (2, 1):
        newer = msgspec.structs.replace(pool, resource_slice_count=count)
        store.put(msgspec.structs.replace(more, spec=msgspec.structs.replace(more.spec, pool=newer)))
        assert bed.devices.on("n1").complete is (count == 1)
        assert len(bed.devices.on("n1").devices) == (2 if count == 1 else 0)
    assert bed.changes == ["n1"] * 3


@pytest.mark.parametrize("shared", [True, False])
def test_slurm_is_asked_for_one_alternative_and_gives_no_node_for_which_that_is_too_little(*, shared: bool) -> None:
    """Node n1 has two small devices, n2 one that is large; a small one does not do where two are needed."""
    bed = Bed()
    bed.publish("g0", "g1", model="small")
    bed.register(f"gpu:{DRIVER}:2")
    allocatable = {"cpu": "4", "memory": "4Gi", "pods": "9"}
    model = f"device.attributes['{DRIVER}'].model"
    made = claim()
    alternatives = [
        {
            "name": name,
            "deviceClassName": DRIVER,
            "count": count,
            "selectors": [{"cel": {"expression": f"{model} == '{name}'"}}],
        }
        for name, count in (("large", 1), ("small", 2))
    ]
    request = {"name": "r", "firstAvailable": alternatives}
    spec = msgspec.convert({"devices": {"requests": [request]}}, type(made.spec))
    bed.devices.claims.put(msgspec.structs.replace(made, spec=spec))
    constraints = bed.world.constraints(pod("p", claims=("c1",)), shared=shared)

    def asked() -> tuple[int, str]:
        found = bed.feasible.excluded(constraints)
        return bed.feasible.taken(constraints).gres[f"gpu:{DRIVER}"], found.hostlist

    assert asked() == (2, "")
    bed.world.nodes.put(Node(ObjectMeta(name="n2"), status=NodeStatus(allocatable=allocatable)))
    bed.publish("g0", node="n2", model="large")
    bed.register(f"gpu:{DRIVER}:1", "g0", node="n2")
    assert asked() == (1, "n1" if shared else "")
    assert bed.feasible.misfits(constraints) == set()  # It can be used by who has it.
    bed.world.slurm_nodes.drop("n2")
    assert asked() == (2, "")


def test_a_resource_is_of_devices_unless_a_device_plugin_offers_it() -> None:
    bed = Bed()
    bed.put_class("named", extendedResourceName="example.com/gpu")
    both = pod("p", requests={IMPLICIT: "1", "example.com/gpu": "2"})
    found = bed.devices.of_pod(both)
    assert found.extended is not None
    assert {class_: count for _, class_, count in found.extended.requests} == {DRIVER: 1, "named": 2}
    assert not {name for name, _ in bed.world.constraints(both).needs} & {IMPLICIT, "example.com/gpu"}
    offered = NodeStatus(allocatable={"cpu": "4", "example.com/gpu": "1"})
    bed.world.nodes.put(Node(ObjectMeta(name="n2"), status=offered))
    assert not bed.devices.backs("example.com/gpu")
    assert bed.devices.of_pod(both).resources == {IMPLICIT}
    bed.world.nodes.remove(Key("", "n2"))
    assert bed.devices.backs("example.com/gpu")


def test_a_resource_of_which_a_device_plugin_left_nothing_but_the_name_is_of_devices() -> None:
    bed = Bed()
    bed.put_class("named", extendedResourceName="example.com/gpu")
    for amount, backed in (("0", True), ("2", False), ("0", True)):
        status = NodeStatus(allocatable={"cpu": "4", "example.com/gpu": amount})
        bed.world.nodes.put(Node(ObjectMeta(name="n2"), status=status))
        assert bed.devices.backs("example.com/gpu") is backed


def test_a_class_that_is_not_there_is_named() -> None:
    bed = Bed()
    bed.devices.classes.remove(Key("", DRIVER))
    bed.devices.claims.put(claim())
    with pytest.raises(Terminal, match=f"ResourceClaim ns/c1: there is no DeviceClass {DRIVER}"):
        bed.devices.of_pod(pod("p", claims=("c1",)))
