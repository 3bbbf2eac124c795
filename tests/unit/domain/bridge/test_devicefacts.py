"""What selectors see of a device."""

import pytest

from isthmus.domain.bridge.devicefacts import hold
from isthmus.model.dra import Attribute, Device

DEVICE = Device("a", attributes={"model": Attribute(string="x"), "other.org/size": Attribute(integer=3)})


@pytest.mark.parametrize(
    ("selector", "holds"),
    [
        ("device.driver == 'd.org'", True),
        ("device.driver == 'e.org'", False),
        ("device.driver == 'd.org' && device.attributes['d.org'].model == 'x'", True),
        ("device.driver == 'e.org' || device.attributes['other.org'].size > 2", True),
        # What is not the driver is never taken for absent.
        ("has(device.attributes)", True),
        ("device.?attributes.hasValue()", True),
        ("'attributes' in device", True),
        ("size(device) == 1", False),
        ("device.exists(it, it == 'capacity')", True),
        ("device == {'driver': 'd.org'}", False),
        ("device.attributes['d.org'].nothing == 'x'", False),
    ],
)
def test_a_selector_sees_the_device_and_not_its_driver_alone(selector: str, holds: bool) -> None:  # noqa: FBT001
    assert hold((selector,), "d.org", DEVICE) is holds
