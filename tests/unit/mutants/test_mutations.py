"""Each kind of fault, as an edit of the source that leaves all else as it is."""

import ast
from pathlib import Path

import pytest

from tests.mutants import mutations as faults
from tests.mutants.mutations import mutated, mutations

EDITS: dict[str, dict[str, list[str]]] = {
    faults.COMPARISON: {
        "a = b == c": ["a = b != c"],
        "a = b < c <= d": ["a = b <= c <= d", "a = b < c < d"],
        "a = b is not None": ["a = b is None"],
        "a = (b) not  in (c)": ["a = (b) in (c)"],
        'a = "é" > b': ['a = "é" >= b'],
    },
    faults.CONDITION: {
        "if a: b()": ["if not (a): b()"],
        "while a and b: c()": ["while not (a and b): c()"],
        "a = b if c() else d": ["a = b if not (c()) else d"],
        "a = [b for b in c if b]": ["a = [b for b in c if not (b)]"],
    },
    faults.NOT: {
        "if not a: b()": ["if a: b()"],
    },
    faults.BOOLEAN: {
        "a = b and c and d": ["a = b or c and d", "a = b and c or d"],
        "a = (b or  # and\n  c)": ["a = (b and  # and\n  c)"],
    },
    faults.AWAIT: {
        "async def a():\n    await b(1)\n": ["async def a():\n    pass\n"],
        "async def a():\n    return await b()\n": ["async def a():\n    return None\n"],
    },
    faults.ERROR: {
        "try: a()\nexcept B:\n    raise\n": ["try: a()\nexcept B:\n    pass\n"],
        "if a < 1:\n    raise B(2) from c\n": ["if a < 1:\n    pass\n"],
    },
    faults.DEFAULT: {
        "def a(b, c=1): ...": ["def a(b, c=2): ..."],
        "def a(*, b=True, c): ...": ["def a(*, b=False, c): ..."],
        'class A:\n    b: str = "c"\n': ['class A:\n    b: str = ""\n'],
    },
    faults.CONSTANT: {
        "a = b[0] + 0.5": ["a = b[1] + 0.5", "a = b[0] + 1.5"],
        "a(b=False)": ["a(b=True)"],
    },
}
"""By the kind of fault: a source, and what it becomes."""


def variants(source: str, kind: str) -> list[str]:
    return [mutated(source, it) for it in mutations(source) if it.kind == kind]


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [(kind, source, expected) for kind, edits in EDITS.items() for source, expected in edits.items()],
)
def test_a_fault_is_a_small_edit(kind: str, source: str, expected: list[str]) -> None:
    assert variants(source, kind) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring: 1 == 2."""',
        "if TYPE_CHECKING:\n    a = 1\n",
        'if __name__ == "__main__":\n    main(1)\n',
        "log.info('so many', count=a + 1)",
        'a = f"{b + 1:02}"',
        "a: Literal[1, 2]",
        "a = Literal[True]",
        "assert a == 1",
        "raise NotImplementedError(1)",
        "class A(B, frozen=True): ...",
        "@a(maxsize=3)\ndef b(): ...",
        "a = zip(b, c, strict=True)",
        'def a():\n    return "text"\n',
    ],
)
def test_what_no_test_should_notice_is_left_alone(source: str) -> None:
    assert mutations(source) == []


def test_a_condition_that_compares_has_one_fault_only() -> None:
    assert [it.kind for it in mutations("if a == b: c()")] == [faults.COMPARISON]


def test_the_lines_that_a_test_has_to_run_are_those_of_the_statement() -> None:
    source = "def a():\n    if (\n        b\n        and c\n    ):\n        d()\n"
    assert {it.runs for it in mutations(source)} == {(2, 5)}


def test_a_default_shows_in_the_body_of_its_function() -> None:
    source = "def a(\n    b=1,\n):\n    c()\n    d()\n"
    assert [it.runs for it in mutations(source)] == [(4, 5)]


def test_what_runs_at_import_has_the_names_by_which_it_is_read() -> None:
    source = "A = 1\nclass B:\n    c: int = 2\n    def d(self):\n        e = 3\n"
    assert [it.names for it in mutations(source)] == [("A",), ("c",), ()]


def test_a_source_with_a_fault_is_python() -> None:
    source = (Path(faults.__file__).parent / "copies.py").read_text()
    found = mutations(source)
    assert len(found) > 10
    for it in found:
        assert ast.dump(ast.parse(mutated(source, it))) != ast.dump(ast.parse(source))
