"""scripts/house finds what is written twice, and only that."""

import runpy
from pathlib import Path
from typing import Any

HOUSE: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "house"))
ONCE = """
def total(orders, rate):
    taxed = [it.price * rate for it in orders]
    first = taxed[0] if taxed else None
    rest = sum(it for it in taxed[1:])
    if first is None or rest > first:
        raise ValueError(f"no order in {orders}")
    return first + rest
"""


def _pairs(root: Path, one: str, other: str) -> list[tuple[int, tuple[str, str]]]:
    for name, text in (("one", one), ("other", other)):
        (root / "src").mkdir(exist_ok=True)
        (root / "src" / f"{name}.py").write_text(text)
    return [(it.lines, it.places) for it in HOUSE["pairs"](root)]


def test_lines_of_the_same_shape_are_a_pair(tmp_path: Path) -> None:
    again = ONCE.replace("orders", "pods").replace("taxed", "ready").replace("no order in", "none of")
    assert _pairs(tmp_path, ONCE, f"import os\n\n# a comment\n{again}") == [
        (7, ("src/one.py:2-8", "src/other.py:5-11"))
    ]


def test_fields_and_parameters_are_no_pair(tmp_path: Path) -> None:
    fields = "class {}:\n" + "".join(f"    {it}: int = 0\n" for it in "abcdefgh")
    assert _pairs(tmp_path, fields.format("One"), fields.format("Other").replace(": int", ": str")) == []


def test_five_lines_are_no_pair(tmp_path: Path) -> None:
    assert _pairs(tmp_path, ONCE, "\n".join(ONCE.splitlines()[3:])) == []
