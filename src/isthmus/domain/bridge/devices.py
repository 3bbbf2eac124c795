"""The devices of a node as their drivers publish them, and as what Slurm counts each.

    gpu:DRIVER, gpu:PROFILE    a device with an index, that Slurm gives to one job at a time
    cpu                        CPUs, one by one or as a group of which a request takes so many
    nothing                    parts of what Slurm counts already: for pods that have their node to themselves

A device with a taint that repels is counted apart, so that a shared node can go on with the others.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from isthmus.domain.bridge import devicefacts
from isthmus.domain.kube.deviceclaims import Choice
from isthmus.domain.kube.feasibility import tolerated
from isthmus.domain.languages import quantity
from isthmus.domain.languages.gresnames import checked
from isthmus.domain.languages.hostlist import natural_key
from isthmus.errors import Terminal
from isthmus.model.dra import Device, ResourceSlice, Result

CPU: Final = "cpu"
"""Stands for the GRES of CPUs, which Slurm counts by themselves."""
CPU_CAPACITY: Final = "dra.cpu/cpu"
"""How many CPUs a group of them has."""

_CPU_DRIVER: Final = "dra.cpu"
_GPU: Final = "gpu"
_TAINTED: Final = ".tainted"

_CHOICES: Final = 64
"""Choices whose devices a node remembers: pods may have selectors of their own, each another one."""

Counters = Mapping[str, int]
"""Counters that devices share, each by its driver, pool, set and name, in billionths."""


class DeviceId(NamedTuple):
    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"


class NodeDevice(msgspec.Struct, frozen=True, gc=False):
    """A device, and the GRES that it is one of, such as `gpu:gpu.example.com`; empty if Slurm does not count it."""

    id: DeviceId
    gres: str
    device: Device
    takes: tuple[tuple[str, int], ...] = ()
    """What it takes of shared counters."""

    @property
    def shared(self) -> bool:
        """Whether several requests may have it at once."""
        return self.device.allow_multiple_allocations

    @property
    def counted(self) -> str:
        """The GRES by which a node of ours has it."""
        apart = self.gres not in {"", CPU} and devicefacts.repelling(self.device)
        return f"{self.gres}{_TAINTED}" if apart else self.gres

    @property
    def cpus(self) -> int:
        """How many CPUs it stands for."""
        if self.gres != CPU:
            return 0
        group = self.device.capacity.get(CPU_CAPACITY)
        return quantity.whole(group.value) if group else 1


class Profile(msgspec.Struct, frozen=True):
    """Devices of a driver that are a GRES of their own: `gres_name:name`."""

    name: str
    driver: str
    selector: str = ""
    gres_name: str = _GPU

    def covers(self, driver: str, device: Device) -> bool:
        return driver == self.driver and (not self.selector or devicefacts.hold((self.selector,), driver, device))


class NodeDevices:
    """The devices of one node, in the order of their GRES, then of their index or name."""

    __slots__ = (
        "_matching",
        "complete",
        "counted",
        "counters",
        "cpus",
        "devices",
        "gres",
        "positions",
        "skipped",
        "uncounted",
    )

    def __init__(
        self,
        devices: Sequence[NodeDevice] = (),
        skipped: Mapping[str, str] | None = None,
        counters: Counters | None = None,
        *,
        complete: bool = True,
    ) -> None:
        self.devices = tuple(devices)
        self.complete = complete
        """Whether no driver is about to publish more: slices of a pool come one by one."""
        self.positions = {it.id: at for at, it in enumerate(devices)}
        self.skipped = dict(skipped or {})
        """Why Slurm does not count some of them, by their name."""
        self.counters = dict(counters or {})
        self.counted = tuple(it.counted for it in devices)
        self.gres = Counter(it for it in self.counted if it not in {"", CPU})
        """How many devices of each GRES a node of ours has."""
        self.uncounted = frozenset(at for at, it in enumerate(devices) if not it.gres)
        self.cpus = sum(it.cpus for it in devices)
        """How many CPUs its drivers give away; 0 if none does."""
        self._matching: dict[object, tuple[int, ...]] = {}

    def places(self, results: Iterable[Result]) -> set[int]:
        """The positions of those devices of allocations that are here."""
        ids = (DeviceId(it.driver, it.pool, it.device) for it in results)
        return {at for id_ in ids if (at := self.positions.get(id_)) is not None}

    def is_group(self, position: int) -> bool:
        """Whether a device is a group of CPUs: everybody's, until its capacity is used up."""
        it = self.devices[position]
        return it.shared and it.gres == CPU

    def matching(self, choice: Choice, of_class: tuple[str, ...]) -> tuple[int, ...]:
        """The positions of the devices that a choice may take; found once for all pods of a template."""
        key = of_class, choice.selectors, choice.tolerations, choice.capacity
        found = self._matching.get(key)
        if found is None:
            if len(self._matching) >= _CHOICES:
                self._matching.clear()
            found = self._matching[key] = tuple(
                at
                for at, it in enumerate(self.devices)
                if devicefacts.hold((*of_class, *choice.selectors), it.id.driver, it.device)
                and all(tolerated(taint, choice.tolerations) for taint in devicefacts.repelling(it.device))
                and (not choice.capacity or self.consumed(at, choice) is not None)
            )
        return found

    def consumed(self, position: int, choice: Choice) -> dict[str, int] | None:
        """How much a choice takes of each capacity of a device."""
        it = self.devices[position]
        return devicefacts.consumed(it.id.driver, it.device, choice.capacity)


NO_DEVICES: Final = NodeDevices()


def inventory(slices: Iterable[ResourceSlice], profiles: Sequence[Profile] = ()) -> NodeDevices:
    """Make the devices of a node of its slices, of which incomplete and outdated pools count for nothing."""
    found: list[NodeDevice] = []
    skipped: dict[str, str] = {}
    counters: dict[str, int] = {}
    there, complete = usable(slices)
    for it in there:
        spec, pool = it.spec, f"{it.spec.driver}/{it.spec.pool.name}"
        for each in spec.shared_counters:
            counters |= {
                f"{pool}/{each.name}/{name}": quantity.parse(counter.value)
                for name, counter in each.counters.items()
            }
        for device in spec.devices:
            if spec.driver == _CPU_DRIVER and _is_machine(device):
                skipped[device.name] = "its driver must be told which CPUs: run it without --group-by=machine"
                continue
            takes = tuple(
                (f"{pool}/{use.counter_set}/{name}", quantity.parse(counter.value))
                for use in device.consumes_counters
                for name, counter in use.counters.items()
            )
            try:
                gres = gres_of(spec.driver, device, profiles)
            except Terminal as error:
                gres, skipped[device.name] = "", error.what
            found.append(NodeDevice(DeviceId(spec.driver, spec.pool.name, device.name), gres, device, takes))
    found = _without_overlaps(found, counters, profiles, skipped)
    found.sort(key=_order)
    return NodeDevices(found, skipped, counters, complete=complete)


def usable(slices: Iterable[ResourceSlice]) -> tuple[list[ResourceSlice], bool]:
    """The slices of complete pools, of their highest generation, and whether all pools are complete."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for it in slices:
        pools.setdefault((it.spec.driver, it.spec.pool.name), []).append(it)
    kept: list[ResourceSlice] = []
    complete = True
    for members in pools.values():
        newest = max(it.spec.pool.generation for it in members)
        current = [it for it in members if it.spec.pool.generation == newest]
        if len(current) == current[0].spec.pool.resource_slice_count:
            kept += current
        else:
            complete = False
    return kept, complete


def gres_of(driver: str, device: Device, profiles: Sequence[Profile] = ()) -> str:
    """The GRES of a device. Raises `Terminal` for one that Slurm cannot count."""
    for profile in profiles:
        if profile.covers(driver, device):
            return checked(f"{profile.gres_name}:{profile.name}", resource=driver)
    return CPU if driver == _CPU_DRIVER else checked(f"{_GPU}:{driver}", resource=driver)


def _is_machine(device: Device) -> bool:
    """Whether a group of CPUs is all of them: its driver gives none away by itself."""
    place = {f"{_CPU_DRIVER}/numaNodeID", f"{_CPU_DRIVER}/socketID"}
    return device.allow_multiple_allocations and place.isdisjoint(device.attributes)


def _without_overlaps(
    found: Sequence[NodeDevice], counters: Counters, profiles: Sequence[Profile], skipped: dict[str, str]
) -> list[NodeDevice]:
    """Let Slurm count only devices that can all be had at once.

    Of those that share counters, the first are those of profiles, in their order, and then the largest.
    """
    left = dict(counters)

    def first(it: NodeDevice) -> tuple[int, float]:
        covering = (at for at, profile in enumerate(profiles) if profile.covers(it.id.driver, it.device))
        share = sum(amount / counters[name] for name, amount in it.takes if counters.get(name))
        return next(covering, len(profiles)), -share

    kept = [it for it in found if not it.takes]
    for it in sorted((it for it in found if it.takes), key=first):
        if it.gres and all(left.get(name, 0) >= amount for name, amount in it.takes):
            for name, amount in it.takes:
                left[name] -= amount
            kept.append(it)
        else:
            skipped.setdefault(it.id.name, "it is part of a device that Slurm counts")
            kept.append(msgspec.structs.replace(it, gres=""))
    return kept


def _order(device: NodeDevice) -> tuple[object, ...]:
    id_, facts = device.id, device.device
    # CPUs of one core are neighbours, as Slurm counts them.
    numbers = ("socketID", "coreID", "cpuID") if device.gres == CPU else ("index",)
    place = tuple(devicefacts.integer(id_.driver, facts, name) for name in numbers)
    return device.gres, id_.driver, id_.pool, place, natural_key(id_.name)
