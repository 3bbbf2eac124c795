"""Shell blocks of README and docs, the commands in them, and the marks that say who runs them.

A block without a language, or in `console` or `sh`, is a shell block; write `text` for pictures and output. A mark
is a comment of HTML: above a block for that block, below the title of a page for the whole page, and below the
title of runbooks/README.md for all runbooks.

    <!-- run by e2e/test_bridge.py::test_slurm_places -->     also scripts/demo, and several, with blanks between
    <!-- not run: needs a registry -->
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = {"", "console", "sh"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL)
MARK = r"<!-- (?:run by (?P<by>[\w/.: ]+)|not run: (?P<why>.+?)) -->"
ABOVE = re.compile(rf"{MARK}\n+\Z")
BELOW_TITLE = re.compile(rf"\A# .*\n+(?:<!-- Made by .* -->\n+)?{MARK}")


class Mark(NamedTuple):
    by: tuple[str, ...]
    why: str


class Block(NamedTuple):
    page: str
    line: int
    body: str
    mark: Mark | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> list[Block]:
    return [block for page in PAGES for block in _of(page)]


def _of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for_all = _mark(BELOW_TITLE.match(text)) or _mark(BELOW_TITLE.match(_index(page)))
    for match in FENCE.finditer(text):
        if match["language"] in SHELL:
            line = text.count("\n", 0, match.start()) + 1
            above = _mark(ABOVE.search(text[: match.start()].rstrip(" ")))
            yield Block(str(page.relative_to(ROOT)), line, match["body"], above or for_all)


def _index(page: Path) -> str:
    index = page.parent / "README.md"
    return index.read_text() if page.parent.name == "runbooks" and index.exists() else ""


def _mark(found: re.Match[str] | None) -> Mark | None:
    return Mark(tuple((found["by"] or "").split()), found["why"] or "") if found else None


def commands(block: Block) -> Iterator[str]:
    """List what is typed, one command each: what follows the prompt, where there are prompts."""
    text = re.sub(r"<<-? ?'?(\w+)'?\n.*?^\s*\1$", "", block.body, flags=re.MULTILINE | re.DOTALL)
    lines = [it.strip() for it in re.sub(r" *\\\n *", " ", text).splitlines()]
    if any(it.startswith("$ ") for it in lines):
        lines = [it[2:] for it in lines if it.startswith("$ ")]
    yield from (it for it in lines if it)


def words(command: str, program: str) -> Iterator[list[str]]:
    """List the arguments of each call of a program in a command, also within `"$(…)"`."""
    inner = re.findall(r"\$\(([^()]*)\)", command)
    plain = re.sub(r"\$\([^()]*\)", "SUBSTITUTED", command)
    for part in (*re.split(r"\s(?:\||&&|\|\||;)\s", plain), *inner):
        try:
            found = shlex.split(part, comments=True)
        except ValueError:
            continue
        while found and re.fullmatch(r"[A-Z_]+=.*|export", found[0]):
            found = found[1:]
        if found and found[0] == program:
            yield found[1:]
