"""The values of CEL and its functions: strings, numbers, quantities, semantic versions, lists and maps.

Regular expressions are matched by Python, which may take very long where the API server's do not: those that could
are refused.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from isthmus.domain.languages import quantity
from isthmus.errors import Terminal

Value = Any

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
_REPEATS: Final = re.compile(r"[*+?{]", re.ASCII)
_MAX_REPEATS: Final = 3
"""In a regular expression: attributes have 64 characters at most, so this many take a moment at worst."""


class CelError(Exception):
    """An expression cannot be evaluated for what it was given."""


@dataclass(frozen=True, order=True, slots=True)
class Quantity:
    """A quantity of Kubernetes, in billionths."""

    size: int


@dataclass(frozen=True, order=True, slots=True)
class Version:
    """A semantic version; what follows `+` does not count."""

    numbers: tuple[int, int, int]
    is_release: bool
    candidate: tuple[tuple[int, int, str], ...]
    """What follows `-`: numbers come before words."""

    @classmethod
    def of(cls, text: str) -> "Version":
        found = _SEMVER.fullmatch(text)
        if found is None:
            raise CelError(f"{text[:60]!r} is not a semantic version")
        words = [it for it in (found[4] or "").split(".") if it]
        candidate = tuple((0, int(it), "") if it.isdecimal() else (1, 0, it) for it in words)
        return cls((int(found[1]), int(found[2]), int(found[3])), not candidate, candidate)


class WithDefault(dict[str, Value]):
    """A mapping that gives an empty one where it has nothing, as `device.attributes` does for unknown domains."""

    def __missing__(self, _key: str) -> Value:
        return {}


class Optional:
    """A value that may be absent, as `a.?b` gives it."""

    __slots__ = ("there", "value")

    def __init__(self, value: Value = None, *, there: bool = True) -> None:
        self.value, self.there = value, there


ABSENT: Final = Optional(there=False)


def equal(one: Value, other: Value) -> bool:
    """Compare as CEL does: values of different types are not equal, but numbers are compared by their size."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
    return type(one) is type(other) and bool(one == other)


def within(item: Value, values: Value) -> bool:
    if isinstance(values, Mapping):
        return item in values
    if not isinstance(values, list):
        raise CelError(f"{values!r} is not a list or a map")
    return any(equal(item, it) for it in values)


def any_number(value: Value) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CelError(f"{value!r} is not a number")
    return value


def number(value: Any) -> Any:
    if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
        raise CelError("a number is too large")
    return value


def boolean(value: Value) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"{value!r} is not true or false")
    return value


def mapping(value: Value) -> Mapping[str, Value]:
    if not isinstance(value, Mapping):
        raise CelError(f"{value!r} has no fields")
    return value


def look_up(value: Value, key: Value) -> Value:
    if isinstance(value, list):
        if isinstance(key, bool) or not isinstance(key, int) or not 0 <= key < len(value):
            raise CelError(f"there is no item {key!r}")
        return value[key]
    try:
        return mapping(value)[key]
    except KeyError:
        raise CelError(f"there is no {key!r}") from None


def maybe(value: Value, key: Value) -> Optional:
    if isinstance(value, Optional):
        return maybe(value.value, key) if value.there else ABSENT
    if isinstance(value, Mapping) and key not in value:
        return ABSENT
    try:
        return Optional(look_up(value, key))
    except CelError:
        if isinstance(value, list):
            return ABSENT
        raise


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise CelError(f"{value!r} is not a string")
    return value


def _matches(value: Value, pattern: Value) -> bool:
    return _pattern(_text(pattern)).search(_text(value)) is not None


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    repeats = len(_REPEATS.findall(re.sub(r"\\.|\(\?", "", text)))
    if repeats > _MAX_REPEATS or re.search(r"\)[*+{]|\\[1-9]|\(\?[^:i]", text):
        raise CelError(
            f"the regular expression {text[:60]!r} is not supported, because it may take too long to match"
        )
    try:
        return re.compile(text)
    except re.error as error:
        raise CelError(f"the regular expression {text[:60]!r} is not valid: {error}") from None


def _quantity(value: Value) -> Quantity:
    try:
        return Quantity(quantity.parse(_text(value)))
    except Terminal as error:
        raise CelError(error.what) from None


def _version(value: Value) -> Version:
    return Version.of(_text(value))


def _is_valid(read: Callable[[Value], object]) -> Callable[[Value], bool]:
    def valid(value: Value) -> bool:
        _text(value)
        try:
            read(value)
        except CelError:
            return False
        return True

    return valid


def _size(value: Value) -> int:
    if not isinstance(value, str | list | Mapping):
        raise CelError(f"{value!r} has no size")
    return len(value)


def _to_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise CelError(f"string() does not support {value!r}")


def _to_int(value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise CelError(f"int() does not support {value!r}")
    try:
        return int(number(int(value)))
    except ValueError:
        raise CelError(f"{value!r} is not a number") from None


def _ordered(value: Value, other: Value) -> tuple[Any, Any]:
    if not isinstance(value, Quantity | Version) or type(value) is not type(other):
        raise CelError(f"{value!r} and {other!r} cannot be compared")
    return value, other


def _compare(value: Value, other: Value) -> int:
    one, two = _ordered(value, other)
    return int(one > two) - int(one < two)


def _numbers(value: Value, which: int) -> int:
    if not isinstance(value, Version):
        raise CelError(f"{value!r} is not a version")
    return value.numbers[which]


def _or_value(value: Value, other: Value) -> Value:
    if not isinstance(value, Optional):
        raise CelError(f"{value!r} is not optional")
    return value.value if value.there else other


def _sign(value: Value) -> int:
    if not isinstance(value, Quantity):
        raise CelError(f"{value!r} is not a quantity")
    return (value.size > 0) - (value.size < 0)


def _as_integer(value: Value) -> int:
    if not isinstance(value, Quantity) or value.size % quantity.ONE:
        raise CelError(f"{value!r} is not a whole number")
    return int(number(value.size // quantity.ONE))


def _value(value: Value) -> Value:
    if not isinstance(value, Optional) or not value.there:
        raise CelError("there is no value")
    return value.value


def _has_value(value: Value) -> bool:
    if not isinstance(value, Optional):
        raise CelError(f"{value!r} is not optional")
    return value.there


FUNCTIONS: Final[Mapping[str, Callable[[Value], Value]]] = {
    "size": _size,
    "quantity": _quantity,
    "isQuantity": _is_valid(_quantity),
    "semver": _version,
    "isSemver": _is_valid(_version),
    "string": _to_text,
    "int": _to_int,
    "dyn": lambda value: value,
}
METHODS: Final[Mapping[tuple[str, int], Callable[..., Value]]] = {
    ("size", 0): _size,
    ("startsWith", 1): lambda value, other: _text(value).startswith(_text(other)),
    ("endsWith", 1): lambda value, other: _text(value).endswith(_text(other)),
    ("contains", 1): lambda value, other: _text(other) in _text(value),
    ("matches", 1): _matches,
    ("lowerAscii", 0): lambda value: re.sub("[A-Z]+", lambda it: it[0].lower(), _text(value)),
    ("upperAscii", 0): lambda value: re.sub("[a-z]+", lambda it: it[0].upper(), _text(value)),
    ("compareTo", 1): _compare,
    ("isGreaterThan", 1): lambda value, other: _compare(value, other) > 0,
    ("isLessThan", 1): lambda value, other: _compare(value, other) < 0,
    ("sign", 0): _sign,
    ("asInteger", 0): _as_integer,
    ("major", 0): lambda value: _numbers(value, 0),
    ("minor", 0): lambda value: _numbers(value, 1),
    ("patch", 0): lambda value: _numbers(value, 2),
    ("orValue", 1): _or_value,
    ("hasValue", 0): _has_value,
    ("value", 0): _value,
}
