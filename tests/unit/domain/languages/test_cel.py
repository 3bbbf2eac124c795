"""CEL, as far as selectors of devices use it."""

import pytest

from isthmus.domain.languages.cel import compiled, holds
from isthmus.domain.languages.celvalues import CelError, Quantity, Version, WithDefault
from isthmus.errors import Terminal

GIB = (1 << 30) * 10**9
DEVICE = {
    "driver": "gpu.example.com",
    "allowMultipleAllocations": False,
    "attributes": WithDefault(
        {
            "gpu.example.com": {
                "index": 3,
                "model": "LATEST-GPU-MODEL",
                "ecc": True,
                "driverVersion": Version.of("1.10.0"),
            }
        }
    ),
    "capacity": WithDefault({"gpu.example.com": {"memory": Quantity(80 * GIB)}}),
}
A = 'device.attributes["gpu.example.com"]'
M = 'device.capacity["gpu.example.com"].memory'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("device.driver == 'gpu.example.com'", True),
        ('device.driver == "other"', False),
        ("device.driver in ['a', 'gpu.example.com']", True),
        (f"{A}.index in [0, 1, 2]", False),
        (f"{A}.index == 3 && {A}.ecc", True),
        (f"{A}['index'] >= 2 || false", True),
        (f"!{A}.ecc", False),
        (f"{A}.index == '3'", False),
        (f"{A}.ecc == 1", False),
        (f"{A}.model.startsWith('LATEST') && {A}.model.endsWith('MODEL') && {A}.model.contains('GPU')", True),
        (f"{A}.model.lowerAscii() == 'latest-gpu-model'", True),
        (f"{A}.model.matches('^LATEST-[A-Z]+-MODEL$')", True),
        (f"{M}.isGreaterThan(quantity('40Gi'))", True),
        (f"{M}.compareTo(quantity('80Gi')) == 0", True),
        (f"{M}.isLessThan(quantity('80Gi'))", False),
        (f"{A}.driverVersion.isGreaterThan(semver('1.9.9'))", True),
        (f"{A}.driverVersion.isLessThan(semver('1.10.0-rc.1'))", False),
        (f"{A}.driverVersion.major() == 1 && {A}.driverVersion.minor() == 10", True),
        (f"has({A}.index)", True),
        (f"has({A}.none)", False),
        ("has(device.attributes['nobody.example'].none)", False),
        (f"has({A}.none) && {A}.none == 1", False),
        (f"{A}.none == 1 || {A}.index == 3", True),
        (f"{A}.none == 1 && false", False),
        (f"{A}.?none.orValue(7) == 7", True),
        (f"{A}.?index.orValue(7) == 3", True),
        (f"cel.bind(a, {A}, a.index == 3 && a.ecc)", True),
        (f"[1, 2, 3].exists(i, i == {A}.index)", True),
        (f"[1, 2].all(i, i < {A}.index)", True),
        ("[1, 2, 3].filter(i, i > 1).map(i, i * 2) == [4, 6]", True),
        (f"{A}.index > 2 ? true : false", True),
        ("-7 / 2 == -3 && -7 % 2 == -1", True),
        ("1 + 2 * 3 == 7 && (1 + 2) * 3 == 9", True),
        ("size('abc') == 3 && [1].size() == 1", True),
        ("'a' + \"b\" == 'ab'", True),
        (r"'\x41\u0042\103' == 'ABC'", True),
        (r"r'\n'.size() == 2", True),
        ("0x10 == 16", True),
        ("1.5 > 1 && 2 == 2.0", True),
        ("device.allowMultipleAllocations == false // shared\n", True),
    ],
)
def test_an_expression_is_evaluated_as_the_api_server_does(text: str, expected: bool) -> None:  # noqa: FBT001
    assert holds(text, {"device": DEVICE}) is expected


@pytest.mark.parametrize(
    "text",
    [
        f"{A}.none == 1",
        f"{A}.none == 1 && true",
        f"{A}.none == 1 || false",
        f"{A}.model > 3",
        f"{A}.index",
        f"{A}.model.isGreaterThan(quantity('1'))",
        "quantity('1 banana') == quantity('1')",
        "semver('one').major() == 1",
        "1 / 0 == 1",
        "9223372036854775807 + 1 > 0",
        "[1][2] == 1",
        "'aaaa'.matches('(a+)+$')",
        "'aaaa'.matches('a*a*a*a*b')",
    ],
)
def test_what_cannot_be_evaluated_is_an_error_and_no_answer(text: str) -> None:
    with pytest.raises(CelError):
        holds(text, {"device": DEVICE})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "device.",
        "f(1)",
        "'a'.split('b') == []",
        "has(1)",
        "has(device['driver'])",
        "a b",
        "[1,",
        "#",
        "cel.f(1)",
    ],
)
def test_what_is_not_known_here_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(Terminal):
        compiled(text)


def test_an_expression_nested_without_end_is_refused() -> None:
    with pytest.raises(Terminal, match="nested"):
        compiled("(" * 5000 + "1" + ")" * 5000)
    with pytest.raises(Terminal, match="nested"):
        compiled("!" * 50000 + "true")
