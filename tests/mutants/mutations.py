"""The small faults that a Python source can be given, each as an edit of a few bytes: all else stays as it is.

Pure: a source goes in, a list of edits comes out. Left out is what no test should notice: annotations, messages,
log lines, assertions, and the options of classes and decorators.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

COMPARISON = "flipped comparison"
CONDITION = "negated condition"
NOT = "removed not"
BOOLEAN = "and for or"
AWAIT = "dropped await"
ERROR = "swallowed error"
DEFAULT = "wrong default"
CONSTANT = "wrong constant"

_FLIPPED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: (r"==", "!="),
    ast.NotEq: (r"!=", "=="),
    ast.Lt: (r"<", "<="),
    ast.LtE: (r"<=", "<"),
    ast.Gt: (r">", ">="),
    ast.GtE: (r">=", ">"),
    ast.Is: (r"is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: (r"in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
_LOG = re.compile(r"_?log\.(debug|info|warning|error|exception|critical)")
_NEVER = re.compile(r"TYPE_CHECKING|__name__ == ")
_IMPOSSIBLE = re.compile(r"raise (NotImplementedError|AssertionError)\b")


class Mutation(NamedTuple):
    """One edit: the bytes from `start` to `end` become `replacement`."""

    start: int
    end: int
    replacement: str
    kind: str
    line: int
    runs: tuple[int, int]
    """The first and the last line of the code that a test runs when it meets this fault."""
    names: tuple[str, ...] = ()
    """Where that code runs at import, long before any test: the names under which its result is read."""


def mutations(source: str) -> list[Mutation]:
    """List the faults that a source can be given, in its order."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(finder.found)


def mutated(source: str, mutation: Mutation) -> str:
    """Return the source with the fault in it."""
    data = source.encode()
    return (data[: mutation.start] + mutation.replacement.encode() + data[mutation.end :]).decode()


class _Finder(ast.NodeVisitor):
    """Walks the syntax tree once, and remembers in which statement it is."""

    def __init__(self, source: str) -> None:
        self.found: list[Mutation] = []
        self._source = source.encode()
        self._lines = [0]
        for line in self._source.split(b"\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self._runs = (1, 1)
        self._names: tuple[str, ...] = ()
        self._in_function = False

    # Where in the source a node is

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr | ast.stmt) -> str:
        return self._source[self._start(node) : self._end(node)].decode()

    def _add(self, kind: str, node: ast.expr | ast.stmt, replacement: str) -> None:
        self._add_span(kind, node, (self._start(node), self._end(node)), replacement)

    def _add_span(self, kind: str, node: ast.expr | ast.stmt, span: tuple[int, int], replacement: str) -> None:
        self.found.append(Mutation(*span, replacement, kind, node.lineno, self._runs, self._names))

    def _add_between(self, kind: str, nodes: tuple[ast.expr, ast.expr], pattern: str, replacement: str) -> None:
        """Replace an operator. It has no place in the tree, but stands between its operands."""
        start, end = self._end(nodes[0]), self._start(nodes[1])
        gap = re.sub(rb"#.*", lambda comment: b"#" * len(comment[0]), self._source[start:end])
        if match := re.search(pattern.encode(), gap):
            self._add_span(kind, nodes[0], (start + match.start(), start + match.end()), replacement)

    # Statements: which of their lines run, and when

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, ast.stmt):
            super().visit(node)
            return
        before = self._runs
        self._runs = _own_lines(node)
        super().visit(node)
        self._runs = before

    def _visit_all(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        names, in_function = self._names, self._in_function
        self._names, self._in_function = (), True
        self._runs = (node.body[0].lineno, node.end_lineno or node.lineno)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self._default(default)
        self._visit_all(node.body)
        self._names, self._in_function = names, in_function

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - of ast

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for child in node.body:
            if isinstance(child, ast.AnnAssign | ast.Assign) and child.value and not self._in_function:
                self._names = tuple(_targets(child))
                self._runs = _own_lines(child)
                self._default(child.value)
                self._names = ()
            else:
                self.visit(child)

    def visit_Assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        if node.value is None:
            return
        if self._in_function:
            self.visit(node.value)
            return
        self._names = tuple(_targets(node))
        self.visit(node.value)
        self._names = ()

    visit_AnnAssign = visit_Assign  # noqa: N815 - of ast

    def visit_Assert(self, node: ast.Assert) -> None:
        """Pass by: it tells mypy what is so anyway."""

    # Faults

    def _default(self, value: ast.expr) -> None:
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
            self._add(DEFAULT, value, '""')
        elif (number := _other_number(value)) is not None:
            self._add(DEFAULT, value, number)
        else:
            self.visit(value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if (number := _other_number(node)) is not None:
            self._add(CONSTANT, node, number)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip((node.left, *node.comparators), node.ops, node.comparators, strict=False):
            self._add_between(COMPARISON, (left, right), *_FLIPPED[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._add_between(BOOLEAN, (left, right), rf"\b{words[0]}\b", words[1])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start = self._start(node)
            self._add_span(NOT, node, (start, start + len("not ")), "")
        self.generic_visit(node)

    def _negate(self, condition: ast.expr) -> None:
        # Comparisons and what begins with "not" have a fault of their own that does the same.
        if not isinstance(condition, ast.Compare | ast.UnaryOp | ast.Constant):
            self._add(CONDITION, condition, f"not ({self._text(condition)})")

    def visit_If(self, node: ast.If) -> None:
        if not _NEVER.match(self._text(node.test)):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_While(self, node: ast.While | ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    visit_IfExp = visit_While  # noqa: N815 - of ast

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._negate(condition)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Await):
            self._add(AWAIT, node, "pass")
            self.generic_visit(node.value)
        else:
            self.visit(node.value)

    def visit_Await(self, node: ast.Await) -> None:
        self._add(AWAIT, node, "None")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if not _IMPOSSIBLE.match(self._text(node)):
            self._add(ERROR, node, "pass")

    def visit_Call(self, node: ast.Call) -> None:
        if not _LOG.fullmatch(self._text(node.func)):
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        # Of two lists that are equally long anyway, nobody can tell whether that was looked at.
        if node.arg != "strict":
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self._text(node.value) not in ("Literal", "Annotated"):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Pass by: mostly a message, and before Python 3.12 its parts have no exact places."""


def _own_lines(node: ast.stmt) -> tuple[int, int]:
    """Return the lines of a statement without those of the statements in it."""
    body: list[ast.stmt] = getattr(node, "body", []) or []
    last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
    return node.lineno, max(last, node.lineno)


def _targets(node: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return (it.id for it in targets if isinstance(it, ast.Name))


def _other_number(node: ast.expr) -> str | None:
    if not isinstance(node, ast.Constant):
        return None
    if isinstance(node.value, bool):
        return str(not node.value)
    return repr(node.value + 1) if isinstance(node.value, int | float) else None
