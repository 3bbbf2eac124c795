"""What is written into claims, and when drivers have made devices ready."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from isthmus.domain.bridge import claimstatus
from isthmus.domain.bridge.allocation import Picked
from isthmus.domain.bridge.devices import DeviceId, NodeDevice, NodeDevices
from isthmus.domain.bridge.podclaims import devices_of, is_own
from isthmus.domain.kube.deviceclaims import Choice
from isthmus.model.dra import Device, DeviceClass, ResourceClaim
from isthmus.model.pod import Pod

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
NODE = NodeDevices(
    [NodeDevice(DeviceId("d.org", "n1", f"g{at}"), "gpu:d.org", Device(f"g{at}")) for at in range(2)]
)


def pod(uid: str = "u1", **more: Any) -> Pod:
    return msgspec.convert({"metadata": {"namespace": "ns", "name": "p", "uid": uid}, **more}, Pod)


def claim(**status: Any) -> ResourceClaim:
    config = [{"requests": ["r"], "opaque": {"driver": "d.org", "parameters": {"a": 1}}}]
    spec = {"devices": {"requests": [], "config": config}}
    meta = {"namespace": "ns", "name": "c", "uid": "cu"}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, ResourceClaim)


def results(*devices: str, **more: Any) -> dict[str, Any]:
    found = [{"request": "r", "driver": "d.org", "pool": "n1", "device": it, **more} for it in devices]
    return {"allocation": {"devices": {"results": found}, "allocationTimestamp": NOON.isoformat()}}


def test_an_allocation_names_devices_node_and_configuration() -> None:
    class_ = msgspec.convert({"spec": {"config": [{"opaque": {"driver": "d.org", "parameters": {}}}]}}, DeviceClass)
    picked = (Picked(0, "r", Choice("x", name="sub"), 1), Picked(0, "admin", Choice("y", admin=True), 0))
    config = claim().spec.devices.config
    found = claimstatus.allocation(
        picked, NODE, node="n1", config=config, classes={"x": class_}.get, now=NOON, new_id=lambda: "id"
    )
    written = msgspec.json.decode(msgspec.json.encode(found))
    assert [
        (it["request"], it["device"], it.get("adminAccess", False)) for it in written["devices"]["results"]
    ] == [
        ("r/sub", "g1", False),
        ("admin", "g0", True),
    ]
    first, second = written["devices"]["config"]
    assert (first["source"], first["requests"]) == ("FromClass", ["r/sub"])
    assert (second["source"], second["requests"], second["opaque"]["parameters"]) == ("FromClaim", ["r"], {"a": 1})
    terms = written["nodeSelector"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    has = msgspec.structs.replace(claim(), status=msgspec.structs.replace(claim().status, allocation=found))
    assert claimstatus.is_on(has, "n1")
    assert not claimstatus.is_on(has, "n2")
    assert devices_of(has) == (DeviceId("d.org", "n1", "g1"),)


def test_a_part_of_a_device_has_a_name_and_a_size() -> None:
    capacity = {"memory": {"value": "80Gi"}, "compute": {"value": "1500m"}}
    shared = msgspec.convert({"name": "g", "allowMultipleAllocations": True, "capacity": capacity}, Device)
    node = NodeDevices([NodeDevice(DeviceId("d.org", "n1", "g"), "gpu:d.org", shared)])
    choices = Choice("x", capacity=(("memory", "10Gi"),)), Choice("x", admin=True)
    picked = [Picked(0, "r", it, 0) for it in choices]
    found = claimstatus.allocation(
        picked, node, node="n1", classes=lambda _: None, now=NOON, new_id=iter(["one", "two"]).__next__
    )
    written = msgspec.json.decode(msgspec.json.encode(found))["devices"]["results"]
    assert written[0]["shareID"] == "one"
    assert written[0]["consumedCapacity"] == {"memory": "10737418240", "compute": "1500m"}
    assert not {"shareID", "consumedCapacity"} & written[1].keys()


def test_a_pod_is_added_once_and_released_alone() -> None:
    other = {"resource": "pods", "name": "o", "uid": "u2"}
    shared = claim(reservedFor=[other], **results("g0"))
    added = claimstatus.status(shared, pod(), None)
    assert [it["uid"] for it in added["reservedFor"]] == ["u2", "u1"]
    assert "allocation" not in added
    both = claim(reservedFor=added["reservedFor"], **results("g0"))
    assert claimstatus.released(both, pod()) == {"reservedFor": [other]}
    own = claim(reservedFor=[{**other, "uid": "u1"}], **results("g0"))
    assert claimstatus.released(own, pod()) == {"reservedFor": None, "allocation": None, "devices": None}
    assert is_own(own, pod())
    assert not is_own(both, pod())


@pytest.mark.parametrize(
    ("conditions", "seconds", "expected"),
    [
        ([], 1, "waiting"),
        ([("ready", "True")], 1, "ready"),
        ([("ready", "False")], 1, "waiting"),
        ([("ready", "True"), ("failed", "True")], 1, "failed"),
        ([], 601, "failed"),
    ],
)
def test_a_pod_waits_for_what_drivers_have_to_prepare(
    conditions: list[tuple[str, str]], seconds: int, expected: str
) -> None:
    said = [{"type": type_, "status": status} for type_, status in conditions]
    devices = [{"driver": "d.org", "pool": "n1", "device": "g0", "conditions": said}]
    found = claim(
        devices=devices, **results("g0", bindingConditions=["ready"], bindingFailureConditions=["failed"])
    )
    assert claimstatus.binding([found], now=NOON + timedelta(seconds=seconds)) == expected
    assert claimstatus.binding([claim(), claim(**results("g0"))], now=NOON) == "ready"
