"""Nodes with devices, for tests of what counts them and gives them away."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from isthmus.domain.bridge.devices import NodeDevices, Profile, inventory
from isthmus.domain.kube.deviceclaims import Choice, Need, Request, Rule
from isthmus.model.dra import ResourceSlice

DRIVER = "gpu.example.com"
GRES = f"gpu:{DRIVER}"
MODEL = f'device.attributes["{DRIVER}"].model'
CLASSES = {
    "any": (f"device.driver == '{DRIVER}'",),
    "small": (f"{MODEL} == 'small'",),
    "large": (f"{MODEL} == 'large'",),
    "none": ("device.driver == 'nobody'",),
}


def device(name: str, *, model: str = "small", numa: int = 0, **more: Any) -> dict[str, Any]:
    attributes = {"model": {"string": model}, "numa": {"int": numa}}
    return {"name": name, "attributes": attributes, **more}


def cpu_group(name: str, count: int) -> dict[str, Any]:
    """Describe the CPUs of a NUMA node, of which each request takes as many as it needs."""
    return {
        "name": name,
        "attributes": {"dra.cpu/numaNodeID": {"int": 0}},
        "allowMultipleAllocations": True,
        "capacity": {"dra.cpu/cpu": {"value": str(count)}},
    }


def slice_of(
    *devices: dict[str, Any],
    generation: int = 1,
    count: int = 1,
    driver: str = DRIVER,
    counters: Sequence[dict[str, Any]] = (),
) -> ResourceSlice:
    pool = {"name": "n1", "generation": generation, "resourceSliceCount": count}
    spec = {"driver": driver, "nodeName": "n1", "pool": pool, "devices": devices, "sharedCounters": counters}
    return msgspec.convert({"spec": spec}, ResourceSlice)


def node(*devices: dict[str, Any], profiles: Iterable[Profile] = ()) -> NodeDevices:
    return inventory([slice_of(*devices)], tuple(profiles))


def need(*choices: Choice, rules: tuple[Rule, ...] = ()) -> Need:
    return Need(tuple(Request(f"r{at}", (it,)) for at, it in enumerate(choices)), rules)
