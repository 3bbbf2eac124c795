"""A seeded choice among all faults of the tree, and where the result of a line is read.

Every fault has the same chance, so a long module gives more of them than a short one. The same seed chooses the
same faults of the same `src`, whichever tests are then run: that is how two states of the tests are compared.
"""

import ast
import difflib
import random
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutations import Mutation, mutated, mutations


class Mutant(NamedTuple):
    """One fault of one file, named by its path below the checkout."""

    path: str
    mutation: Mutation
    diff: str

    @property
    def place(self) -> str:
        return f"{self.path}:{self.mutation.line}"


def sample(root: Path, seed: int, count: int) -> list[Mutant]:
    """Choose faults of the checkout's `src`."""
    every = [
        (file, mutation)
        for file in sorted((root / "src").rglob("*.py"))
        for mutation in mutations(file.read_text())
    ]
    chosen = random.Random(seed).sample(every, min(count, len(every)))  # noqa: S311 - no secret
    return [_mutant(file, str(file.relative_to(root)), mutation) for file, mutation in chosen]


def _mutant(file: Path, path: str, mutation: Mutation) -> Mutant:
    before = file.read_text()
    lines = difflib.unified_diff(
        before.splitlines(), mutated(before, mutation).splitlines(), path, path, n=0, lineterm=""
    )
    return Mutant(path, mutation, "\n".join(list(lines)[3:]))


def readers(root: Path) -> dict[str, set[tuple[str, int]]]:
    """Find in which lines of functions each name is read: a variable, or an attribute of something."""
    found: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    for file in sorted((root / "src").rglob("*.py")):
        path = str(file.relative_to(root))
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for statement in node.body:
                    for name, line in _names_in(statement):
                        found[name].add((path, line))
    return found


def _names_in(statement: ast.stmt) -> set[tuple[str, int]]:
    nodes = list(ast.walk(statement))
    return {(it.id, it.lineno) for it in nodes if isinstance(it, ast.Name)} | {
        (it.attr, it.lineno) for it in nodes if isinstance(it, ast.Attribute)
    }
