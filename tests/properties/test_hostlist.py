"""Host lists: whatever is folded expands to the same, and no text does worse than an error of ours."""

from hypothesis import given
from hypothesis import strategies as st

from isthmus.domain.languages import hostlist
from isthmus.domain.languages.hostlist import HostListError

STEMS = st.text("abz-._%é", min_size=1, max_size=4)
NUMBERS = st.one_of(st.just(""), st.integers(0, 10**19).map(str), st.from_regex(r"0[0-9]{0,4}", fullmatch=True))
NAMES = st.builds(lambda stem, number: stem + number, STEMS, NUMBERS)


@given(st.lists(NAMES))
def test_folding_loses_no_name_and_no_order(names: list[str]) -> None:
    assert hostlist.expand(hostlist.fold(names)) == names


@given(st.text("n", min_size=1, max_size=1), st.integers(0, 10_000), st.integers(1, 300), st.integers(0, 6))
def test_a_run_of_numbers_folds_into_one_range(stem: str, first: int, count: int, width: int) -> None:
    names = [f"{stem}{number:0{width}d}" for number in range(first, first + count)]
    folded = hostlist.fold(names)
    assert "," not in folded
    assert hostlist.expand(folded) == names


@given(st.lists(NAMES).flatmap(lambda names: st.tuples(st.just(names), st.permutations(names))))
def test_order_does_not_matter_to_a_comparison(lists: tuple[list[str], list[str]]) -> None:
    names, shuffled = lists
    assert hostlist.same_hosts(hostlist.fold(names), hostlist.fold(shuffled))


@given(st.sets(st.integers(0, 200) | st.integers(0, 12), min_size=1), st.integers(0, 4))
def test_sorted_names_fold_into_as_few_ranges_as_there_are_runs(numbers: set[int], width: int) -> None:
    names = sorted((f"n{number:0{width}d}" for number in numbers), key=hostlist.natural_key)
    runs = sum(number - 1 not in numbers for number in numbers)
    assert hostlist.fold(names).count(",") == runs - 1


@given(st.text("n1209[]-,x {}\n\0é", max_size=40))
def test_any_text_is_a_list_or_an_error_of_ours(text: str) -> None:
    try:
        names = hostlist.expand(text, limit=1000)
    except HostListError:
        return
    assert len(names) <= 1000
    assert not any(separator in name for name in names for separator in "[], \n")
