"""Quantities as people write them."""

import pytest

from isthmus.domain.languages.quantity import ONE, Style, canonical, milli, parse, whole, write
from isthmus.errors import Terminal


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("0", "0"),
        ("0Ki", "0"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.1", "100m"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("100000", "100k"),
        ("1e3", "1e3"),
        ("3e1", "30"),
        ("15e-4", "1500e-6"),
        ("8Ei", "9223372036854775807"),
        ("0.1n", "1n"),
        ("-0.5Ki", "-512"),
    ],
)
def test_canonical_form(text: str, kept: str) -> None:
    assert canonical(text) == kept


def test_units() -> None:
    assert parse("1") == ONE
    assert milli("250m") == 250
    assert milli("0.0001") == 1
    assert whole("1.5Gi") == 1536 << 20
    assert whole("100m") == 1
    assert whole("-1500m") == -1


def test_sums_do_not_drift() -> None:
    assert write(sum(parse("0.1") for _ in range(10))) == "1"
    assert write(3 * parse("512Mi"), Style.BINARY) == "1536Mi"


@pytest.mark.parametrize(
    "text", ["", ".", "Ki", "1ki", "1 Gi", " 1", "1e", "1e1.5", "0x1", "1,5", "--1", "1Mib", "1000E", "1e400", "٣"]
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(Terminal):
        parse(text)


def test_a_sum_that_kubernetes_cannot_keep_is_not_written() -> None:
    with pytest.raises(Terminal):
        write(parse("999E") + parse("1E"))
