"""Of all tests, those are asked about a fault that run the faulty code, the quickest first."""

from pathlib import Path

from tests.mutants.mutations import Mutation
from tests.mutants.reach import ModuleReach, Reach
from tests.mutants.sample import Mutant, readers, sample

PATH = "src/isthmus/a.py"
UNIT = ModuleReach(
    tests=["tests/unit/test_a.py::slow", "tests/unit/test_a.py::quick", "tests/unit/test_a.py::broken"],
    seconds=[2.0, 1.0, 0.1],
    failed=["tests/unit/test_a.py::broken"],
    lines={PATH: {3: [0, 1, 2], 4: [0]}, "src/isthmus/b.py": {9: [1]}},
)


def mutant(first: int, last: int, *names: str) -> Mutant:
    return Mutant(PATH, Mutation(0, 0, "", "wrong constant", first, (first, last), names), "")


def test_those_are_asked_that_run_a_line_of_the_statement() -> None:
    reach = Reach([UNIT])
    assert reach.of(mutant(4, 5), {}) == {"tests/unit/test_a.py::slow"}
    assert reach.of(mutant(5, 6), {}) == set()


def test_the_quickest_comes_first_and_who_fails_anyway_is_not_asked() -> None:
    reach = Reach([UNIT])
    chosen = reach.choose(reach.of(mutant(3, 3), {}), PATH)
    assert chosen.tests == ["tests/unit/test_a.py::quick", "tests/unit/test_a.py::slow"]
    assert chosen.left_out == 0


def test_what_would_take_too_long_is_left_out() -> None:
    tests = [f"tests/unit/test_a.py::t{it}" for it in range(4)]
    reach = Reach([ModuleReach(tests, [9.0, 9.5, 10.0, 10.5], [], {PATH: {3: [0, 1, 2, 3]}})])
    assert reach.choose(set(tests), PATH) == (tests[:3], 1)
    slow = Reach([ModuleReach(tests[:1], [99.0], [], {PATH: {3: [0]}})])
    assert slow.choose({tests[0]}, PATH) == (tests[:1], 0), "one is always asked"


def test_of_a_constant_those_are_asked_that_read_it() -> None:
    reach = Reach([UNIT])
    assert reach.of(mutant(1, 1, "A"), {"A": {("src/isthmus/b.py", 9)}}) == {"tests/unit/test_a.py::quick"}


def test_of_a_constant_that_no_function_reads_all_are_asked_that_use_the_module() -> None:
    reach = Reach([UNIT])
    assert reach.of(mutant(1, 1, "A"), {}) == {"tests/unit/test_a.py::slow", "tests/unit/test_a.py::quick"}


def test_flows_of_several_modules_take_turns_and_are_bounded() -> None:
    one = ModuleReach(
        [f"tests/flows/test_1.py::t{it:02}" for it in range(20)], [0.1] * 20, [], {PATH: {3: [*range(20)]}}
    )
    other = ModuleReach(["tests/flows/test_2.py::t"], [9.0], [], {PATH: {3: [0]}})
    reach = Reach([one, other])
    chosen = reach.choose(reach.of(mutant(3, 3), {}), PATH)
    assert chosen.tests[:3] == [
        "tests/flows/test_1.py::t00",
        "tests/flows/test_2.py::t",
        "tests/flows/test_1.py::t01",
    ]
    assert (len(chosen.tests), chosen.left_out) == (12, 9)


def test_flows_named_after_the_file_or_its_package_come_first() -> None:
    quick = ModuleReach(["tests/flows/test_1.py::t"], [0.1], [], {PATH: {3: [0]}})
    named = [
        ModuleReach(
            [f"tests/flows/test_{name}.py::t{it}" for it in range(9)], [5.0] * 9, [], {PATH: {3: [*range(9)]}}
        )
        for name in ("isthmus", "a")
    ]
    reach = Reach([quick, *named])
    chosen = reach.choose(reach.of(mutant(3, 3), {}), PATH).tests
    assert [it.partition("::")[0] for it in chosen[:7]] == [*["tests/flows/test_a.py"] * 6, "tests/flows/test_1.py"]


def test_the_same_seed_chooses_the_same_faults(tmp_path: Path) -> None:
    file = tmp_path / "src/isthmus/a.py"
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"A{it} = {it}\n" for it in range(50)))
    first, second = sample(tmp_path, 1, 10), sample(tmp_path, 2, 10)
    assert first == sample(tmp_path, 1, 10)
    assert first != second
    assert len(sample(tmp_path, 1, 99)) == 50
    assert first[0].place == f"{PATH}:{first[0].mutation.line}"
    number = first[0].mutation.line - 1
    assert first[0].diff == f"-A{number} = {number}\n+A{number} = {number + 1}"


def test_names_are_read_in_functions(tmp_path: Path) -> None:
    file = tmp_path / "src/isthmus/a.py"
    file.parent.mkdir(parents=True)
    file.write_text("A = 1\nB = A\nasync def c(d):\n    return (A,\n        d.e)\n")
    assert readers(tmp_path) == {"A": {(PATH, 4)}, "d": {(PATH, 5)}, "e": {(PATH, 5)}}
