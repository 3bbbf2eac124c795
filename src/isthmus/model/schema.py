"""Words for what a field may hold, at the place where it is declared; `kube.crd` has the API server enforce them.

    class Spec(Data, frozen=True):
        replicas: Annotated[int, Meta(ge=0)] = 1
        ports: Annotated[tuple[Port, ...], keyed_by("name")] = ()
        size: Annotated[Quantity, rules(Rule("quantity(self).isGreaterThan(quantity('0'))", "must be more than 0"))]
        template: FreeForm = {}

Ranges, lengths and patterns are msgspec's own `Meta`. A string literal below a field is its description.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

IntOrString = Annotated[int | str, Meta(extra_json_schema={"x-kubernetes-int-or-string": True})]
"""A number, or a text such as a percentage or a port's name."""

Quantity = Annotated[
    int | str,
    Meta(
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$",
        }
    ),
]
"""An amount of a resource: see `domain.languages.quantity`."""

FreeForm = Annotated[dict[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})]
"""An object whose fields are passed on unread, and therefore kept as they are."""


class Rule(msgspec.Struct, frozen=True):
    """A CEL expression over `self` (and `oldSelf`) that must hold, and what to say when it does not."""

    rule: str
    message: str
    field_path: str = ""


def rules(*rules: Rule) -> Meta:
    """State rules that a value must obey."""
    written = [
        {"rule": rule.rule, "message": rule.message} | ({"fieldPath": rule.field_path} if rule.field_path else {})
        for rule in rules
    ]
    return Meta(extra_json_schema={"x-kubernetes-validations": written})


def keyed_by(*keys: str) -> Meta:
    """Distinguish the elements of a list by these fields, so that each can have a manager of its own."""
    return Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


def nullable() -> Meta:
    """Let a field be null, which is then something else than absent."""
    return Meta(extra_json_schema={"nullable": True})
