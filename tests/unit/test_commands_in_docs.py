"""What README and docs tell people to type is run by a test or marked, and exists: commands, options, files.

How to mark a block is told in doccommands.py.
"""

import re
from typing import Any

import pytest
import typer
import yaml
from typer.core import TyperGroup

from isthmus.cli.defaultgroup import ShowsByDefault
from isthmus.cli.main import app
from tests.unit.doccommands import ROOT, Block, blocks, commands, words
from tests.unit.test_weaknesses import TESTS, names_in

BLOCKS = blocks()
PROGRAM = typer.main.get_command(app)
GIVEN = re.compile(r"--set(?:-string)?[= ]'?\"?([\w.-]+)")
TEXTS = ROOT / "docs" / "messages.txt"
SAID = re.compile(r"(?:^|[:;,(`] |[(`])isthmus ((?!\{)[a-z][^;,|#()`]*)")
FILES = re.compile(r"(?:^|[\s=])((?:charts|examples|scripts|helm-charts)/[\w./-]+)")


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_shell_block_is_run_by_a_test_or_says_why_not(block: Block) -> None:
    assert block.mark, (
        "say who runs it: <!-- run by e2e/test_x.py::test_y -->, or <!-- not run: why -->; see doccommands.py"
    )
    for runner in block.mark.by:
        if runner.startswith("scripts/"):
            assert (ROOT / runner).is_file()
            continue
        file, _, name = runner.partition("::")
        assert (TESTS / file).is_file(), f"there is no tests/{file}"
        assert not name or name in names_in(TESTS / file), f"there is no {runner}"


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_command_of_isthmus_that_is_shown_exists_with_its_options(block: Block) -> None:
    for command in commands(block):
        for arguments in words(command, "isthmus"):
            parsed(arguments)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_file_and_every_value_of_a_chart_that_is_shown_exists(block: Block) -> None:
    for command in commands(block):
        for file in FILES.findall(command):
            assert (ROOT / file).exists(), f"there is no {file}"
        if chart := re.search(r"\b(?:install|upgrade)\b.*?\b((?:helm-)?charts/[\w-]+)", command):
            for path in GIVEN.findall(command):
                require_value(chart[1], path)


@pytest.mark.parametrize(
    "said", sorted({it for line in TEXTS.read_text().splitlines() for it in SAID.findall(line.strip())})
)
def test_every_command_that_a_message_names_exists_with_its_options(said: str) -> None:
    parsed(said.removesuffix(".").split())


def require_value(chart: str, path: str) -> None:
    values: Any = yaml.safe_load((ROOT / chart / "values.yaml").read_text())
    for key in path.split("."):
        if not values or isinstance(values, list):
            return  # free form
        assert key in values, f"{chart} has no value {path}"
        values = values[key]


def parsed(arguments: list[str]) -> None:
    """Find the command that the program would, and its options, without running anything."""
    said = f"isthmus {' '.join(arguments)}"
    command: Any = PROGRAM
    context, rest = command.make_context("isthmus", [], resilient_parsing=True), list(arguments)
    while isinstance(command, TyperGroup):
        if isinstance(command, ShowsByDefault) and (not rest or rest[0] not in command.commands):
            rest = ["show", *rest]
        if not rest or rest[0].startswith("-"):
            break
        found = command.get_command(context, rest[0])
        assert found, f"there is no command {said}"
        command, rest = found, rest[1:]
    if command.context_settings.get("ignore_unknown_options"):
        return  # what follows is kubectl's, or helm's
    known = {it for param in command.params for it in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}
    given = rest[: rest.index("--")] if "--" in rest else rest
    strange = [it for it in given if it.startswith("-") and it.partition("=")[0] not in known]
    assert not strange, f"{said}: there is no option {strange}"
    if not any(it.param_type_name == "argument" for it in command.params):
        valued = {it for param in command.params if not param.is_flag for it in param.opts}
        pairs = zip(["", *given], given, strict=False)
        surplus = [it for before, it in pairs if not it.startswith("-") and before not in valued]
        assert not surplus, f"{said}: it takes no {surplus}"
