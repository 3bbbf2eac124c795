"""Logs in files are read on from where they were, and lines of several pods say whose they are."""

from pathlib import Path
from typing import Any

import pytest

from isthmus.domain.views.workfile import BatchScript
from isthmus.errors import Terminal
from isthmus.inspect import worklogs
from isthmus.inspect.slurmsource import RestSource
from isthmus.inspect.submission import exit_code, submit_script
from isthmus.inspect.worklogs import LogOptions
from isthmus.model.slurm import ExitCode, Job, Number, Signal
from isthmus.slurm import commands
from isthmus.slurm.commands import SlurmCommands

HERE = SlurmCommands(commands.on_this_machine)


def job(file: Path, state: str = "COMPLETED") -> Job:
    return Job(3, (state,), standard_output=str(file), batch_flag=True)


async def shown(file: Path, state: str = "COMPLETED", **options: Any) -> bytes:
    pieces: list[bytes] = []
    await worklogs.of_job(HERE, job(file, state), pieces.append, LogOptions(**options))
    return b"".join(pieces)


async def test_a_whole_file_or_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "- a 'name'"
    file.write_bytes(b"one\ntwo\n\xff")
    assert await shown(file) == b"one\ntwo\n\xff"
    assert await shown(file, tail=2) == b"two\n\xff"
    assert await shown(file, tail=0) == b""
    monkeypatch.setattr(worklogs, "_PIECE", 3)
    assert await shown(file) == b"one\ntwo\n\xff"


async def test_what_is_added_is_read_once_and_a_new_file_from_its_start(tmp_path: Path) -> None:
    file, pieces = tmp_path / "log", list[bytes]()
    reader = worklogs._FileReader(commands.on_this_machine, str(file), pieces.append, tail=1)
    assert not await reader.read()
    file.write_text("a\nb\n")
    assert await reader.read()
    with file.open("a") as more:
        more.write("c\n")
    await reader.read()
    assert b"".join(pieces) == b"b\nc\n"
    pieces.clear()
    file.write_text("x\n")
    await reader.read()
    assert b"".join(pieces) == b"x\n"


async def test_a_job_without_a_file_says_why(tmp_path: Path) -> None:
    with pytest.raises(Terminal, match="it has not started"):
        await shown(tmp_path / "no", "PENDING")
    with pytest.raises(Terminal, match="there is no file"):
        await shown(tmp_path / "no")
    with pytest.raises(Terminal, match="not a batch job"):
        await worklogs.of_job(HERE, Job(3), print, LogOptions())


async def test_slurmrestd_gives_no_files(tmp_path: Path) -> None:
    rest: Any = None
    with pytest.raises(Terminal, match="slurmrestd does not serve files"):
        await worklogs.of_job(RestSource(rest), job(tmp_path / "elsewhere"), print, LogOptions())
    (tmp_path / "here").write_text("seen\n")
    pieces: list[bytes] = []
    await worklogs.of_job(RestSource(rest), job(tmp_path / "here"), pieces.append, LogOptions())
    assert pieces == [b"seen\n"]


def test_every_line_has_its_prefix() -> None:
    pieces: list[bytes] = []
    prefixed = worklogs.LinePrefix("[a] ", pieces.append)
    for piece in (b"on", b"e\ntwo\nth", b"ree"):
        prefixed.write(piece)
    prefixed.end()
    prefixed.end()
    assert b"".join(pieces) == b"[a] one\n[a] two\n[a] three\n"


@pytest.mark.parametrize(
    ("state", "code", "signal", "expected"),
    [
        ("COMPLETED", 0, 0, 0),
        ("FAILED", 3, 0, 3),
        ("FAILED", 0, 9, 137),
        ("CANCELLED", 0, 0, 1),
        ("TIMEOUT", 0, 0, 1),
    ],
)
def test_exit_codes_are_those_of_a_shell(state: str, code: int, signal: int, expected: int) -> None:
    ended = ExitCode(return_code=Number.of(code), signal=Signal(Number.of(signal)))
    assert exit_code(Job(1, (state,), exit_code=ended)) == expected


async def test_who_submits_is_never_a_guess() -> None:
    with pytest.raises(Terminal, match="--user is for a cluster in Kubernetes"):
        await submit_script(HERE, BatchScript("#!/bin/sh"), user="bob")
    with pytest.raises(Terminal, match="cannot have arguments"):
        await submit_script(HERE, BatchScript("#!/bin/sh"), arguments=("a",))
