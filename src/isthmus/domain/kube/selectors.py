"""Selectors of labels, as Kubernetes reads them.

One comparison (`holds`) serves label selectors of pods and namespaces and the terms of node selectors, which know
two operators more.
"""

import re
from collections.abc import Mapping
from typing import Final

from isthmus.model.pod import LabelSelector, Requirement

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_INT64: Final = range(-(1 << 63), 1 << 63)


def holds(requirement: Requirement, value: str | None) -> bool:
    """Compare with the value of a label; None is a label that is not there."""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return len(requirement.values) == 1 and compares(value, operator, requirement.values[0])
    return False


def compares(value: str | None, operator: str, bound: str) -> bool:
    """Compare as whole numbers: `value` with operator Gt or Lt. A value that is not a number never matches."""
    left, right = integer(value), integer(bound)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector selects these labels. None selects nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        holds(requirement, labels.get(requirement.key)) for requirement in selector.match_expressions
    )


def integer(text: str | None) -> int | None:
    """Read a whole number of 64 bits, the way Go does: Python alone would take `1_000` and blanks."""
    if text is None or len(text) > 20 or not _INTEGER.fullmatch(text):  # noqa: PLR2004 - a sign and 19 digits
        return None
    number = int(text)
    return number if number in _INT64 else None
