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
    "text",
    [
        "device.driver == 'gpu.example.com'",
        "device.driver in ['a', 'gpu.example.com']",
        f"{A}.index == 3 && {A}.ecc",
        f"{A}['index'] >= 2 || false",
        f"{A}.model.startsWith('LATEST') && {A}.model.endsWith('MODEL') && {A}.model.contains('GPU')",
        f"{A}.model.lowerAscii() == 'latest-gpu-model'",
        f"{A}.model.matches('^LATEST-[A-Z]+-MODEL$')",
        f"{M}.isGreaterThan(quantity('40Gi'))",
        f"{M}.compareTo(quantity('80Gi')) == 0",
        f"{A}.driverVersion.isGreaterThan(semver('1.9.9'))",
        f"{A}.driverVersion.major() == 1 && {A}.driverVersion.minor() == 10",
        f"has({A}.index)",
        f"{A}.none == 1 || {A}.index == 3",
        f"{A}.?none.orValue(7) == 7",
        f"{A}.?index.orValue(7) == 3",
        f"cel.bind(a, {A}, a.index == 3 && a.ecc)",
        f"[1, 2, 3].exists(i, i == {A}.index)",
        f"[1, 2].all(i, i < {A}.index)",
        "[1, 2, 3].filter(i, i > 1).map(i, i * 2) == [4, 6]",
        f"{A}.index > 2 ? true : false",
        "-7 / 2 == -3 && -7 % 2 == -1",
        "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9",
        "size('abc') == 3 && [1].size() == 1",
        "'a' + \"b\" == 'ab'",
        r"'\x41\u0042\103' == 'ABC'",
        r"r'\n'.size() == 2",
        "0x10 == 16",
        "1.5 > 1 && 2 == 2.0",
        "device.allowMultipleAllocations == false // shared\n",
    ],
)
def test_an_expression_holds_where_it_does_for_the_api_server(text: str) -> None:
    assert holds(text, {"device": DEVICE}) is True


@pytest.mark.parametrize(
    "text",
    [
        'device.driver == "other"',
        f"{A}.index in [0, 1, 2]",
        f"!{A}.ecc",
        f"{A}.index == '3'",
        f"{A}.ecc == 1",
        f"{M}.isLessThan(quantity('80Gi'))",
        f"{A}.driverVersion.isLessThan(semver('1.10.0-rc.1'))",
        f"has({A}.none)",
        "has(device.attributes['nobody.example'].none)",
        f"has({A}.none) && {A}.none == 1",
        f"{A}.none == 1 && false",
    ],
)
def test_an_expression_does_not_hold_where_it_does_not_for_the_api_server(text: str) -> None:
    assert holds(text, {"device": DEVICE}) is False


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
