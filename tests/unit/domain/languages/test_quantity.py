"""Quantities as people write them."""

import pytest

from isthmus.domain.languages.quantity import ONE, milli, parse, whole, write
from isthmus.errors import Terminal


def test_units() -> None:
    assert parse("1") == ONE
    assert milli("250m") == 250
    assert milli("0.0001") == 1
    assert whole("1.5Gi") == 1536 << 20
    assert whole("100m") == 1
    assert whole("-1500m") == -1


def test_sums_do_not_drift() -> None:
    assert write(sum(parse("0.1") for _ in range(10))) == "1"
    assert write(3 * parse("512Mi")) == write(parse("1.5Gi")) == "1610612736"


@pytest.mark.parametrize(
    "text", ["", ".", "Ki", "1ki", "1 Gi", " 1", "1e", "1e1.5", "0x1", "1,5", "--1", "1Mib", "1000E", "1e400", "٣"]
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(Terminal):
        parse(text)


def test_a_sum_that_kubernetes_cannot_keep_is_not_written() -> None:
    with pytest.raises(Terminal):
        write(parse("999E") + parse("1E"))
