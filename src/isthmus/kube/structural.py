"""Structural schemas from types: what the API server needs to check, default and prune a custom resource.

Every field has a type, nothing is recursive, nothing is a union but int-or-string. What a type says that such a
schema cannot is refused, with the path of the field. Defaults go along, numbers and flags also when they are 0 or
false: a CEL rule fails on a field that is absent. Empty text and empty collections stay absent.
"""

import ast
import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect as types

from isthmus.errors import Terminal

Schema = dict[str, Any]

_INT_OR_STRING = "x-kubernetes-int-or-string"
_FREE_FORM = "x-kubernetes-preserve-unknown-fields"


def schema(type_: Any, path: str) -> Schema:
    """Make the schema of a type. `path` is where it stands, for the error that refuses it."""
    try:
        info = types.type_info(type_)
    except TypeError as error:
        raise _refused(path, str(error)) from error
    return _of(info, path, ())


def _of(info: types.Type, path: str, above: tuple[type, ...]) -> Schema:
    """Write one type. `above` holds the structs that we are inside of, to find recursion."""
    extra: Schema = {}
    if isinstance(info, types.Metadata):
        extra = dict(info.extra_json_schema or {})
        info = info.type
    if isinstance(info, types.UnionType):
        return _union(info, path, above, extra)
    if extra.get(_FREE_FORM):
        return {"type": "object", **extra}
    writer = _WRITERS.get(type(info))
    if writer is None:
        raise _refused(path, f"{type(info).__name__.removesuffix('Type')} has no structural schema")
    return writer(info, path, above) | extra


def _union(info: types.UnionType, path: str, above: tuple[type, ...], extra: Schema) -> Schema:
    choices = [choice for choice in info.types if not isinstance(choice, types.NoneType)]
    if len(choices) == 1:
        # "or None" only says that the field may be absent; `model.schema.nullable` says that it may be null.
        return _of(choices[0], path, above) | extra
    if extra.get(_INT_OR_STRING) and all(isinstance(choice, types.IntType | types.StrType) for choice in choices):
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], **extra}
    raise _refused(path, "a union has no structural schema, except IntOrString")


def _string(info: types.StrType, _path: str, _above: tuple[type, ...]) -> Schema:
    return _given(type="string", minLength=info.min_length, maxLength=info.max_length, pattern=info.pattern)


def _number(info: types.IntType | types.FloatType, _path: str, _above: tuple[type, ...]) -> Schema:
    written = _given(
        type="integer" if isinstance(info, types.IntType) else "number",
        minimum=info.ge if info.gt is None else info.gt,
        maximum=info.le if info.lt is None else info.lt,
        multipleOf=info.multiple_of,
    )
    if info.gt is not None:
        written["exclusiveMinimum"] = True
    if info.lt is not None:
        written["exclusiveMaximum"] = True
    return written


def _list(info: types.VarTupleType | types.ListType, path: str, above: tuple[type, ...]) -> Schema:
    items = _of(info.item_type, f"{path}[]", above)
    return _given(type="array", items=items, minItems=info.min_length, maxItems=info.max_length)


def _set(info: types.FrozenSetType | types.SetType, path: str, above: tuple[type, ...]) -> Schema:
    items = _of(info.item_type, f"{path}[]", above)
    written = _given(type="array", items=items, minItems=info.min_length, maxItems=info.max_length)
    return written | {"x-kubernetes-list-type": "set"}


def _map(info: types.DictType, path: str, above: tuple[type, ...]) -> Schema:
    if not isinstance(info.key_type, types.StrType):
        raise _refused(path, "the keys of a map are text")
    values = _of(info.value_type, f"{path}.*", above)
    return _given(
        type="object", additionalProperties=values, minProperties=info.min_length, maxProperties=info.max_length
    )


def _literal(info: types.LiteralType, path: str, _above: tuple[type, ...]) -> Schema:
    return _enum(list(info.values), path)


def _enumeration(info: types.EnumType, path: str, _above: tuple[type, ...]) -> Schema:
    return _enum([member.value for member in info.cls], path)


def _enum(values: list[Any], path: str) -> Schema:
    if all(isinstance(value, str) for value in values):
        return {"type": "string", "enum": values}
    if all(isinstance(value, int) for value in values):
        return {"type": "integer", "enum": values}
    raise _refused(path, "the values of an enumeration are all text or all whole numbers")


def _struct(info: types.StructType, path: str, above: tuple[type, ...]) -> Schema:
    cls = info.cls
    if cls in above:
        raise _refused(path, f"{cls.__name__} contains itself")
    if info.array_like or info.tag is not None:
        raise _refused(path, f"{cls.__name__} is not encoded as an object")
    properties: Schema = {}
    told = _field_docs(cls)
    for field in info.fields:
        where = f"{path}.{field.encode_name}"
        written = _of(field.type, where, (*above, cls))
        default = _default(field, written)
        if default is not None:
            written["default"] = default
        if field.name in told:
            # What a field is for says more than what its type is.
            written |= {"description": told[field.name]}
        properties[field.encode_name] = written
    required = [field.encode_name for field in info.fields if field.required]
    written = {"type": "object", "properties": properties}
    # Only a docstring of its own: a subclass without one would have its base's.
    if doc := cls.__dict__.get("__doc__"):
        written = {"description": inspect.cleandoc(doc)} | written
    return written | ({"required": required} if required else {})


def _default(field: types.Field, written: Schema) -> Any:
    """Find what the API server must fill in: a default that says something, or that leads to one that does."""
    value = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if isinstance(value, msgspec.Struct):
        filled = msgspec.to_builtins(value)
        return filled if filled or _has_default(written) else None
    if isinstance(value, bool | int | float):
        return value
    if value is msgspec.NODEFAULT or value is msgspec.UNSET or not value:
        return None
    return list(msgspec.to_builtins(value)) if isinstance(value, tuple) else msgspec.to_builtins(value)


def _has_default(written: Schema) -> bool:
    properties = written.get("properties", {}).values()
    return any("default" in inner or _has_default(inner) for inner in properties)


def _field_docs(cls: type) -> dict[str, str]:
    """Read the string literals that stand below the fields of a class and of its bases."""
    told: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        told |= _docs_of_module(base.__module__).get(base.__qualname__, {})
    return told


@cache
def _docs_of_module(name: str) -> dict[str, dict[str, str]]:
    """Read a module's source once for all its classes: to look for each by itself takes far longer."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError, KeyError):
        return {}  # no source: built in, or made at run time
    found: dict[str, dict[str, str]] = {}
    _collect_docs(tree, "", found)
    return found


def _collect_docs(node: ast.AST, path: str, found: dict[str, dict[str, str]]) -> None:
    """Go through classes, and functions that hold some, by their qualified names."""
    for inner in ast.iter_child_nodes(node):
        match inner:
            case ast.ClassDef(name=name):
                found[path + name] = _docs_in(inner)
                _collect_docs(inner, f"{path}{name}.", found)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                _collect_docs(inner, f"{path}{name}.<locals>.", found)


def _docs_in(body: ast.ClassDef) -> dict[str, str]:
    told: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                told[name] = inspect.cleandoc(text)
    return told


def _given(**keywords: Any) -> Schema:
    return {name: value for name, value in keywords.items() if value is not None}


def _refused(path: str, why: str) -> Terminal:
    return Terminal(f"{path}: {why}", remedy="give the field another type, or one of model.schema")


_WRITERS: dict[type[types.Type], Callable[[Any, str, tuple[type, ...]], Schema]] = {
    types.StrType: _string,
    types.IntType: _number,
    types.FloatType: _number,
    types.BoolType: lambda _info, _path, _above: {"type": "boolean"},
    types.DateTimeType: lambda _info, _path, _above: {"type": "string", "format": "date-time"},
    types.VarTupleType: _list,
    types.ListType: _list,
    types.FrozenSetType: _set,
    types.SetType: _set,
    types.DictType: _map,
    types.LiteralType: _literal,
    types.EnumType: _enumeration,
    types.StructType: _struct,
}
