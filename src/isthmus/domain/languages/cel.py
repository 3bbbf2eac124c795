"""The Common Expression Language, as far as selectors of devices use it.

    device.driver == "gpu.example.com" && device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))

An expression is read once and becomes a function of its variables. What the API server accepts and this does not
know raises `Terminal` when it is read, so that nothing is decided by half an expression. What goes wrong while it
is evaluated, such as an attribute that is not there, raises `CelError`; as in Kubernetes, `&&` and `||` do
without a side that fails where the other one decides.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, Final, NoReturn

from isthmus.domain.languages.celvalues import (
    FUNCTIONS,
    METHODS,
    CelError,
    Optional,
    Value,
    any_number,
    boolean,
    equal,
    look_up,
    mapping,
    maybe,
    number,
    within,
)
from isthmus.errors import Terminal

Scope = Mapping[str, Value]
Program = Callable[[Scope], Value]

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
      | (?P<int>0x[0-9a-fA-F]+|\d+)(?P<unsigned>[uU]?)
      | (?P<string>[rR]?(?:\"{3}(?s:.*?)\"{3}|'{3}(?s:.*?)'{3}|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<comment>//[^\n]*)
      | (?P<op>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
      )""",
    re.VERBOSE | re.ASCII,
)
_KINDS: Final = ("float", "int", "string", "name", "comment", "op")
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
_COMPARISONS: Final = {"<": lt, "<=": le, ">": gt, ">=": ge}
_DEEPEST: Final = 60


@lru_cache(maxsize=1024)
def compiled(text: str) -> Program:
    """Read an expression. Raises `Terminal` for one that is not valid or uses what is not supported."""
    try:
        return _Parser(text, _tokens(text)).whole()
    except RecursionError:
        raise Terminal("a CEL expression is nested too deeply", remedy="write it as several selectors") from None


def holds(text: str, scope: Scope) -> bool:
    """Whether an expression is true. Raises `CelError` if it cannot be evaluated."""
    result = compiled(text)(scope)
    if not isinstance(result, bool):
        raise CelError(f"the result is not true or false but {result!r}")
    return result


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str, tokens: list[tuple[str, str]]) -> None:
        self._text = text
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Program:
        program = self._ternary()
        if self._at < len(self._tokens):
            self._refuse(f"unexpected {self._tokens[self._at][1]!r}")
        return program

    def _refuse(self, what: str) -> NoReturn:
        raise Terminal(
            f"the CEL expression {self._text[:200]!r} cannot be used: {what}",
            remedy="write it with comparisons, &&, ||, in, has() and functions of strings, quantities and versions",
        )

    def _peek(self) -> str:
        """The next token if it is an operator or a name, else nothing."""
        if self._at >= len(self._tokens):
            return ""
        kind, text = self._tokens[self._at]
        return text if kind in {"op", "name"} else ""

    def _take(self, *wanted: str) -> str:
        found = self._peek()
        if found and found in wanted:
            self._at += 1
            return found
        return ""

    def _expect(self, wanted: str) -> None:
        if not self._take(wanted):
            self._refuse(f"{wanted!r} is missing")

    def _name(self) -> str:
        if self._at < len(self._tokens) and self._tokens[self._at][0] == "name":
            self._at += 1
            return self._tokens[self._at - 1][1]
        return self._refuse("a name is missing")

    def _ternary(self) -> Program:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse("it is nested too deeply")
        condition = self._or()
        if self._take("?"):
            yes = self._or()
            self._expect(":")
            no = self._ternary()
            choice = condition

            def chosen(scope: Scope) -> Value:
                return (yes if boolean(choice(scope)) else no)(scope)

            condition = chosen
        self._depth -= 1
        return condition

    def _or(self) -> Program:
        left = self._and()
        while self._take("||"):
            left = _either(left, self._and(), decides=True)
        return left

    def _and(self) -> Program:
        left = self._relation()
        while self._take("&&"):
            left = _either(left, self._relation(), decides=False)
        return left

    def _relation(self) -> Program:
        left = self._sum()
        while operator := self._take("==", "!=", "<", "<=", ">", ">=", "in"):
            left = _related(operator, left, self._sum())
        return left

    def _sum(self) -> Program:
        left = self._product()
        while operator := self._take("+", "-"):
            left = _calculated(operator, left, self._product())
        return left

    def _product(self) -> Program:
        left = self._unary()
        while operator := self._take("*", "/", "%"):
            left = _calculated(operator, left, self._unary())
        return left

    def _unary(self) -> Program:
        if self._take("!"):
            inner = self._unary()
            return lambda scope: not boolean(inner(scope))
        if self._take("-"):
            inner = self._unary()
            return lambda scope: number(-any_number(inner(scope)))
        return self._member()

    def _member(self) -> Program:
        program = self._primary()
        while operator := self._take(".", "["):
            optional = bool(self._take("?"))
            if operator == "[":
                key = self._ternary()
                self._expect("]")
                program = _indexed(program, key, optional=optional)
                continue
            name = self._name()
            if self._peek() == "(" and not optional:
                program = self._method(program, name)
            else:
                program = _selected(program, name, optional=optional)
        return program

    def _method(self, target: Program, name: str) -> Program:
        if name in _MACROS:
            self._expect("(")
            variable = self._name()
            self._expect(",")
            body = self._ternary()
            self._expect(")")
            return _over(target, name, variable, body)
        arguments = self._arguments()
        if (name, len(arguments)) not in METHODS:
            self._refuse(f"the method .{name}() with {len(arguments)} arguments is not supported")
        function = METHODS[name, len(arguments)]
        return lambda scope: function(target(scope), *(it(scope) for it in arguments))

    def _arguments(self) -> list[Program]:
        self._expect("(")
        found: list[Program] = []
        if self._take(")"):
            return found
        found.append(self._ternary())
        while self._take(","):
            found.append(self._ternary())
        self._expect(")")
        return found

    def _primary(self) -> Program:
        if self._at >= len(self._tokens):
            self._refuse("it ends too early")
        kind, text = self._tokens[self._at]
        if kind in {"int", "float", "string"}:
            self._at += 1
            value = _literal(kind, text)
            return lambda _scope: value
        if self._take("("):
            inner = self._ternary()
            self._expect(")")
            return inner
        if self._take("["):
            items = self._items("]")
            return lambda scope: [it(scope) for it in items]
        if kind == "name":
            return self._named()
        return self._refuse(f"unexpected {text!r}")

    def _items(self, end: str) -> list[Program]:
        found: list[Program] = []
        while not self._take(end):
            found.append(self._ternary())
            if not self._take(","):
                self._expect(end)
                break
        return found

    def _named(self) -> Program:
        name = self._name()
        if name in {"true", "false", "null"}:
            constant = {"true": True, "false": False, "null": None}[name]
            return lambda _scope: constant
        if self._peek() == "(":
            return self._function(name)
        if name == "cel" and self._peek() == ".":
            return self._binding()

        def variable(scope: Scope) -> Value:
            try:
                return scope[name]
            except KeyError:
                raise CelError(f"{name} is not defined") from None

        return variable

    def _function(self, name: str) -> Program:
        if name == "has":
            return self._has()
        arguments = self._arguments()
        if name not in FUNCTIONS or len(arguments) != 1:
            self._refuse(f"the function {name}() with {len(arguments)} arguments is not supported")
        function, argument = FUNCTIONS[name], arguments[0]
        return lambda scope: function(argument(scope))

    def _has(self) -> Program:
        """Read `has(a.b)`: the field of a member, which need not be there."""
        start = self._at
        self._expect("(")
        self._member()
        end = self._at
        self._expect(")")
        *_, dot, field = self._tokens[start:end]
        if dot != ("op", ".") or field[0] != "name":
            self._refuse("has() needs a field, as in has(device.attributes['example.com'].model)")
        target, name = _Parser(self._text, self._tokens[start + 1 : end - 2]).whole(), field[1]

        def there(scope: Scope) -> bool:
            found = target(scope)
            if isinstance(found, Optional):
                return found.there and name in mapping(found.value)
            return name in mapping(found)

        return there

    def _binding(self) -> Program:
        """Read `cel.bind(name, value, expression)`."""
        self._expect(".")
        if self._name() != "bind":
            self._refuse("of the cel functions, only cel.bind() is supported")
        self._expect("(")
        name = self._name()
        self._expect(",")
        value = self._ternary()
        self._expect(",")
        body = self._ternary()
        self._expect(")")
        return lambda scope: body({**scope, name: value(scope)})


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            raise Terminal(f"the CEL expression {text[:200]!r} cannot be read at {text[at : at + 20]!r}")
        kind = next(it for it in _KINDS if match[it] is not None)
        if kind != "comment":
            found.append((kind, match[kind]))
        at = match.end()
    return found


def _literal(kind: str, text: str) -> Value:
    if kind == "int":
        return number(int(text, 0 if text.startswith("0x") else 10))
    if kind == "float":
        return float(text)
    raw = text[0] in "rR"
    quoted = text[1:] if raw else text
    width = 3 if quoted[:3] in {'"""', "'''"} else 1
    inside = quoted[width:-width]
    return inside if raw else _ESCAPE.sub(_unescaped, inside)


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "xuU":
        return chr(int(code[1:], 16))
    if len(code) == 3:  # noqa: PLR2004 - octal
        return chr(int(code, 8))
    return _ESCAPED.get(code, code)


def _either(left: Program, right: Program, *, decides: bool) -> Program:
    """Join by `||` (`decides` is True) or `&&`: a side that decides makes up for a failure of the other."""

    def joined(scope: Scope) -> bool:
        try:
            if boolean(left(scope)) is decides:
                return decides
        except CelError:
            if boolean(right(scope)) is decides:
                return decides
            raise
        return boolean(right(scope))

    return joined


def _related(operator: str, left: Program, right: Program) -> Program:
    if operator == "==":
        return lambda scope: equal(left(scope), right(scope))
    if operator == "!=":
        return lambda scope: not equal(left(scope), right(scope))
    if operator == "in":
        return lambda scope: within(left(scope), right(scope))
    compare = _COMPARISONS[operator]

    def compared(scope: Scope) -> bool:
        one, other = left(scope), right(scope)
        if not _comparable(one, other):
            raise CelError(f"{one!r} and {other!r} cannot be compared by {operator}")
        return bool(compare(one, other))

    return compared


def _comparable(one: Value, other: Value) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return isinstance(one, bool) and isinstance(other, bool)
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return numbers or (isinstance(one, str) and isinstance(other, str))


def _calculated(operator: str, left: Program, right: Program) -> Program:
    def calculated(scope: Scope) -> Value:
        one, other = left(scope), right(scope)
        if operator == "+" and isinstance(one, str) and isinstance(other, str):
            return one + other
        if operator == "+" and isinstance(one, list) and isinstance(other, list):
            return [*one, *other]
        if type(one) is not type(other):
            raise CelError(f"{one!r} {operator} {other!r} is not defined")
        return number(_arithmetic(operator, any_number(one), any_number(other)))

    return calculated


def _arithmetic(operator: str, one: Any, other: Any) -> Any:
    if operator == "+":
        return one + other
    if operator == "-":
        return one - other
    if operator == "*":
        return one * other
    if isinstance(one, float):
        if operator == "%" or not other:
            raise CelError(f"{operator} does not support {one!r} and {other!r}")
        return one / other
    if not other:
        raise CelError("division by zero")
    size = abs(one) // abs(other)
    truncated = size if (one < 0) == (other < 0) else -size
    return truncated if operator == "/" else one - truncated * other


def _selected(target: Program, name: str, *, optional: bool) -> Program:
    return _indexed(target, lambda _scope: name, optional=optional)


def _indexed(target: Program, key: Program, *, optional: bool) -> Program:
    def found(scope: Scope) -> Value:
        value = target(scope)
        if optional or isinstance(value, Optional):
            return maybe(value, key(scope))
        return look_up(value, key(scope))

    return found


def _over(target: Program, macro: str, variable: str, body: Program) -> Program:
    """Go through the items of a list, or the keys of a map."""

    def items(scope: Scope) -> list[Scope]:
        found = target(scope)
        if not isinstance(found, list | Mapping):
            raise CelError(f"{found!r} has no items")
        return [{**scope, variable: it} for it in found]

    if macro == "map":
        return lambda scope: [body(it) for it in items(scope)]
    if macro == "filter":
        return lambda scope: [it[variable] for it in items(scope) if boolean(body(it))]
    if macro == "exists_one":
        return lambda scope: sum(boolean(body(it)) for it in items(scope)) == 1
    return lambda scope: _judged(items(scope), body, decides=macro == "exists")


def _judged(items: Iterable[Scope], body: Program, *, decides: bool) -> bool:
    """Look for an item that decides; only where none does, a failure of others counts."""
    failed: CelError | None = None
    for it in items:
        try:
            if boolean(body(it)) is decides:
                return decides
        except CelError as error:
            failed = error
    if failed:
        raise failed
    return not decides
