"""What selectors, constraints and requests for capacity see of a device.

Names without a domain have that of the driver: `memory` of a device of gpu.example.com is `gpu.example.com/memory`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NoReturn

from isthmus.domain.languages import cel, quantity
from isthmus.domain.languages.celvalues import CelError, Quantity, Value, Version, WithDefault
from isthmus.errors import Terminal
from isthmus.model.dra import Attribute, Capacity, Device, RequestPolicy
from isthmus.model.node import Taint

_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})


def hold(selectors: Sequence[str], driver: str, device: Device) -> bool:
    """Whether all selectors hold for a device. One that fails for it does not."""
    by_driver = [_of_driver(text, driver) for text in selectors]
    if False in by_driver:
        return False
    left = [text for text, known in zip(selectors, by_driver, strict=True) if known is None]
    if not left:
        return True
    try:
        scope = _scope(driver, device)
        return all(cel.holds(text, scope) for text in left)
    except (CelError, Terminal):
        return False


@lru_cache(maxsize=4096)
def _of_driver(text: str, driver: str) -> bool | None:
    """Whether a selector holds for all devices of a driver, or for none; None if that depends on the device.

    Most classes name a driver and nothing else, and nodes have hundreds of CPUs.
    """
    try:
        return cel.holds(text, {"device": _DriverAlone(driver=driver)})
    except (CelError, Terminal):
        return None


class _DriverAlone(dict[str, Value]):
    """A device of which only the driver is known: who asks for anything else, or whether it is there, fails."""

    def __missing__(self, key: str) -> NoReturn:
        raise CelError(f"{key} is not known")

    def __contains__(self, key: object) -> bool:
        return key == "driver" or self.__missing__(str(key))

    def __len__(self) -> int:
        return self.__missing__("size")

    def __iter__(self) -> Iterator[str]:
        return self.__missing__("fields")

    def keys(self) -> NoReturn:
        self.__missing__("fields")


def attribute(driver: str, device: Device, name: str) -> tuple[str, Value] | None:
    """Find the value of an attribute by its full name, together with its type."""
    domain, _, short = name.rpartition("/")
    found = device.attributes.get(name) or (device.attributes.get(short) if domain == driver else None)
    if found is None:
        return None
    for kind in ("integer", "boolean", "string", "version"):
        if (value := getattr(found, kind)) is not None:
            return kind, value
    return None


def integer(driver: str, device: Device, name: str) -> int:
    """The value of an attribute that is a number; -1 where there is none."""
    found = attribute(driver, device, f"{driver}/{name}")
    return found[1] if found and found[0] == "integer" else -1


def repelling(device: Device) -> tuple[Taint, ...]:
    """The taints that keep requests without a toleration away."""
    return tuple(taint for taint in device.taints if taint.effect in _REPELLING)


def consumed(driver: str, device: Device, asked: Sequence[tuple[str, str]]) -> dict[str, int] | None:
    """How much a request takes of each capacity of a device, in billionths; None if it cannot have that.

    What is not asked for is taken as the driver says, or as a whole.
    """
    wanted = {_full(name, driver): quantity.parse(amount) for name, amount in asked}
    if wanted.keys() - {_full(name, driver) for name in device.capacity}:
        return None
    found: dict[str, int] = {}
    for name, capacity in device.capacity.items():
        amount = _rounded(capacity, wanted.get(_full(name, driver)))
        if amount is None or amount > quantity.parse(capacity.value):
            return None
        found[name] = amount
    return found


def _rounded(capacity: Capacity, wanted: int | None) -> int | None:
    """Round a request up to what its policy allows; None if that allows no such amount."""
    policy = capacity.request_policy or RequestPolicy()
    if wanted is None:
        return quantity.parse(policy.default or capacity.value)
    if policy.valid_values:
        return min((it for it in map(quantity.parse, policy.valid_values) if it >= wanted), default=None)
    if (valid := policy.valid_range) is not None:
        least = quantity.parse(valid.min)
        wanted = max(wanted, least)
        if valid.step and (step := quantity.parse(valid.step)) > 0:
            wanted = least - -(wanted - least) // step * step
        if valid.max and wanted > quantity.parse(valid.max):
            return None
    return wanted


def _scope(driver: str, device: Device) -> Mapping[str, Value]:
    """What `device` is to a selector."""
    attributes, capacity = WithDefault(), WithDefault()
    for name, found in device.attributes.items():
        domain, _, short = _full(name, driver).rpartition("/")
        attributes.setdefault(domain, {})[short] = _value(found)
    for name, amount in device.capacity.items():
        domain, _, short = _full(name, driver).rpartition("/")
        capacity.setdefault(domain, {})[short] = Quantity(quantity.parse(amount.value))
    return {
        "device": {
            "driver": driver,
            "allowMultipleAllocations": device.allow_multiple_allocations,
            "attributes": attributes,
            "capacity": capacity,
        }
    }


def _full(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def _value(found: Attribute) -> Value:
    if found.version is not None:
        return Version.of(found.version)
    return next((it for it in (found.integer, found.boolean, found.string) if it is not None), None)
