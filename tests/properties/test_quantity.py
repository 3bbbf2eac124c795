"""Quantities against exact fractions, and fuzzed."""

from contextlib import suppress
from fractions import Fraction

from hypothesis import assume, example, given
from hypothesis import strategies as st

from isthmus.domain.languages.quantity import ONE, milli, parse, whole, write
from isthmus.errors import Terminal

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

digits = st.text("0123456789", max_size=12)
numbers = st.tuples(st.sampled_from(["", "-", "+"]), digits, st.one_of(st.none(), digits)).filter(
    lambda parts: parts[1] or parts[2]
)
suffixes = st.one_of(
    st.sampled_from([*DECIMAL, *BINARY]),
    st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-12, 8)),
)


@st.composite
def quantities(draw: st.DrawFn) -> tuple[str, Fraction]:
    """A quantity as text, and what it is by plain arithmetic."""
    sign, before, after = draw(numbers)
    suffix = draw(suffixes)
    text = f"{sign}{before}{'' if after is None else '.' + after}{suffix}"
    value = Fraction(int(f"{before}{after or ''}" or "0"), 10 ** len(after or ""))
    if suffix in BINARY:
        value *= 2 ** BINARY[suffix]
    elif suffix in DECIMAL:
        value *= Fraction(10) ** DECIMAL[suffix]
    else:
        value *= Fraction(10) ** int(suffix[1:])
    return text, -value if sign == "-" else value


@given(quantities())
def test_a_quantity_is_its_value_rounded_up_to_billionths(pair: tuple[str, Fraction]) -> None:
    text, value = pair
    assume(abs(value) < 2**63)
    exact = value * ONE
    read = parse(text)
    assert abs(read) >= abs(exact)
    assert abs(read) - abs(exact) < 1
    assert (read < 0) == (exact < 0)


@given(quantities())
def test_writing_a_quantity_loses_nothing(pair: tuple[str, Fraction]) -> None:
    text, value = pair
    assume(abs(value) < 10**21)
    assert parse(write(parse(text))) == parse(text)


@given(st.integers(-(10**30) + 1, 10**30 - 1))
def test_what_was_written_reads_back(billionths: int) -> None:
    assert parse(write(billionths)) == billionths


@given(quantities())
def test_whole_and_milli_round_up(pair: tuple[str, Fraction]) -> None:
    text, value = pair
    assume(abs(value) < 2**63)
    assert whole(text) - 1 < Fraction(parse(text), ONE) <= whole(text)
    assert milli(text) - 1 < Fraction(parse(text), ONE // 1000) <= milli(text)


@given(st.text())
@example("1e9999")
@example("9" * 10_000)
@example("1e-9999")
@example("\u0661")
def test_any_text_is_a_quantity_or_a_clear_error(text: str) -> None:
    with suppress(Terminal):
        assert isinstance(parse(text), int)
