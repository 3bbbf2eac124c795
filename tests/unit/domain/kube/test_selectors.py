import pytest

from isthmus.domain.kube.selectors import holds, integer, matches
from isthmus.model.pod import LabelSelector, Requirement


@pytest.mark.parametrize(
    ("operator", "values", "value", "expected"),
    [
        ("In", ("a", "b"), "a", True),
        ("In", ("a", "b"), "c", False),
        ("In", ("a", ""), None, False),
        ("NotIn", ("a",), "b", True),
        ("NotIn", ("a",), "a", False),
        ("NotIn", ("a",), None, True),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "", False),
        ("Gt", ("4",), "5", True),
        ("Gt", ("4",), "4", False),
        ("Gt", ("10",), "9", False),
        ("Gt", ("4",), None, False),
        ("Gt", ("4",), "many", False),
        ("Gt", ("few",), "4", False),
        ("Gt", ("1", "2"), "4", False),
        ("Gt", (), "4", False),
        ("Lt", ("4",), "-5", True),
        ("Lt", ("4",), "4", False),
        ("Near", ("4",), "4", False),
    ],
)
def test_a_requirement_holds_as_in_kubernetes(
    operator: str, values: tuple[str, ...], value: str | None, *, expected: bool
) -> None:
    assert holds(Requirement("k", operator, values), value) is expected


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("-12", -12),
        ("+12", 12),
        ("007", 7),
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", None),
        ("-9223372036854775808", -9223372036854775808),
        ("1_000", None),
        (" 1", None),
        ("1\n", None),
        ("1.5", None),
        ("\u0661", None),
        ("", None),
        (None, None),
        ("9" * 5000, None),
    ],
)
def test_whole_numbers_are_read_as_go_reads_them(text: str | None, number: int | None) -> None:
    assert integer(text) == number


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not matches(None, {"app": "web"})
    assert matches(LabelSelector(), {"app": "web"})
    assert matches(LabelSelector(), {})


def test_a_selector_needs_all_its_labels_and_expressions() -> None:
    selector = LabelSelector({"app": "web"}, (Requirement("tier", "NotIn", ("test",)),))
    assert matches(selector, {"app": "web"})
    assert matches(selector, {"app": "web", "tier": "live"})
    assert not matches(selector, {"app": "web", "tier": "test"})
    assert not matches(selector, {"tier": "live"})
