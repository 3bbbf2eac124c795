"""What cannot be a structural schema is refused, with the path of the field."""

from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

import pytest

from isthmus.errors import Terminal
from isthmus.kube.crd import Conversion, Version, definition
from isthmus.kube.structural import schema
from isthmus.model.base import Data


class Tree(Data, frozen=True):
    children: tuple["Tree", ...] = ()


class Base(Data, frozen=True):
    """The story of the base."""

    one: int = 0
    """The first."""


class Derived(Base, frozen=True):
    two: int = 0


class Tagged(Data, frozen=True, tag="x"):
    one: int = 0


class Holder(Data, frozen=True):
    thing: Any = None


@pytest.mark.parametrize(
    ("type_", "path"),
    [
        (Holder, "Kind.thing"),
        (Tree, "Kind.children[]"),
        (int | str, "Kind"),
        (dict[int, str], "Kind"),
        (tuple[int, str], "Kind"),
        (dict[str, Any], "Kind.*"),
        (list[bytes], "Kind[]"),
        (Decimal, "Kind"),
        (timedelta, "Kind"),
        (Literal["a", 1], "Kind"),
        (Tagged, "Kind"),
        (Tagged | Base, "Kind"),
    ],
)
def test_what_has_no_structural_schema_is_refused_with_its_path(type_: Any, path: str) -> None:
    with pytest.raises(Terminal) as caught:
        schema(type_, "Kind")
    assert caught.value.what.startswith(f"{path}: ")


def test_a_subclass_tells_its_own_story_and_inherits_its_fields() -> None:
    written = schema(Derived, "Kind")
    assert "description" not in written
    assert written["properties"]["one"] == {"description": "The first.", "type": "integer", "default": 0}


class Defaults(Data, frozen=True):
    number: int = 0
    flag: bool = False
    text: str = ""
    listed: tuple[str, ...] = ()
    inner: Base = Base()
    set_inner: Base = Base(one=3)


def test_defaults_are_written_unless_they_are_empty_text_or_collections() -> None:
    properties = schema(Defaults, "Kind")["properties"]
    defaults = {name: written["default"] for name, written in properties.items() if "default" in written}
    assert defaults == {"number": 0, "flag": False, "inner": {}, "setInner": {"one": 3}}


def test_the_stored_version_must_be_there() -> None:
    with pytest.raises(Terminal, match="v9"):
        definition("g", "Kind", plural="kinds", versions=[Version("v1", Base)], stored="v9")


def test_versions_that_differ_need_a_conversion() -> None:
    versions = [Version("v1", Base), Version("v2", Derived)]
    with pytest.raises(Terminal, match="conversion"):
        definition("g", "Kind", plural="kinds", versions=versions)
    made = definition("g", "Kind", plural="kinds", versions=versions, conversion=Conversion("ns", "svc", ca=b"pem"))
    assert [version["storage"] for version in made["spec"]["versions"]] == [True, False]
    assert made["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] == "cGVt"
