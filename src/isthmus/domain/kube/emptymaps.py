"""Leaves maps that hold nothing out of a manifest, before it is applied.

The API server makes null of a map from which an apply takes the last field that its manager owned, if the manifest
still names that map. Our kinds allow no null there, so the whole is refused. A map that is not named just goes.
Only maps that a kind's type knows are looked at: in what is passed on unread, an empty one may mean something, such
as `emptyDir: {}`.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import inspect as types


def pruned(type_: type, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the empty maps of an object of this type."""
    made = {}
    fields = _fields(type_)
    for name, value in manifest.items():
        inner = fields.get(name)
        kept = pruned(inner, value) if inner is not None and isinstance(value, Mapping) else value
        if name not in fields or not isinstance(kept, Mapping) or kept:
            made[name] = kept
    return made


@cache
def _fields(type_: type) -> dict[str, type | None]:
    """The fields of a struct, each with the struct that it holds, if it holds one."""
    info = types.type_info(type_)
    assert isinstance(info, types.StructType)  # noqa: S101 - kinds are structs
    return {it.encode_name: _struct(it.type) for it in info.fields}


def _struct(info: types.Type) -> type | None:
    if isinstance(info, types.Metadata):
        return _struct(info.type)
    if isinstance(info, types.UnionType):
        return next((found for it in info.types if (found := _struct(it))), None)
    return info.cls if isinstance(info, types.StructType) else None
