"""`isthmus report` from the file of an exporter."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isthmus.cli.main import app
from isthmus.domain.exporter.jobrun import JobRun
from isthmus.errors import Terminal
from isthmus.exporter import usage


@pytest.fixture
def store(tmp_path: Path) -> Path:
    now = int(time.time())
    hour: dict[str, Any] = {
        "submit": now - 7200,
        "start": now - 3660,
        "end": now - 60,
        "elapsed": 3600,
        "state": "completed",
    }
    runs = [
        JobRun(job_id=1, user="alice", cpus=8, gpus=1, cpu_seconds=14400.0, memory=100, max_memory=40, **hour),
        JobRun(job_id=2, user="bob", cpus=2, cpu_seconds=10.0, **hour),
        JobRun(job_id=3, user="carol", kind="pod", namespace="team", **hour | {"state": "failed"}),
    ]
    file = tmp_path / "exporter.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(usage.SCHEMA)
        usage.write(connection, runs)
    return file


def said(*words: str) -> str:
    result = CliRunner().invoke(app, ["report", *words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_a_table_has_a_line_for_each_group_and_the_sum(store: Path) -> None:
    lines = said("--store", str(store)).splitlines()
    assert " ".join(lines[0].split()) == "USER JOBS SUCCESS CPU-H GPU-H CPU EFF MEM EFF WAIT P95 IDLE"
    assert lines[1].split()[:5] == ["alice", "1", "100", "%", "8.0"]
    assert "50 %" in lines[1]
    assert "40 %" in lines[1]
    assert lines[2].split()[-1] == "1"
    assert lines[-1].startswith("total")


def test_csv_and_json_have_numbers(store: Path) -> None:
    rows = said("--store", str(store), "-o", "csv", "--sort", "idle").splitlines()
    assert rows[0].startswith("user,jobs,success_rate,cpu_hours")
    assert rows[1].startswith("bob,1,1.0,2.0")
    found = json.loads(said("--store", str(store), "-o", "json", "--by", "kind", "--kind", "pod"))
    assert [(line["group"], line["success_rate"]) for line in found["lines"]] == [("pod", 0.0)]


def test_mistakes_are_named(store: Path, tmp_path: Path) -> None:
    for words, problem in (
        (["--store", str(store), "--sort", "colour"], "there is no column 'colour'"),
        (["--store", str(store), "--since", "soon"], "'soon' is not a valid time"),
        (["--store", str(tmp_path / "none.db")], "there is no file"),
        (["--store", str(store), "--exporter", "http://x"], "cannot be used together"),
        (["--exporter", "nowhere"], "not a valid URL"),
    ):
        with pytest.raises(Terminal, match=problem):
            said(*words)
    (tmp_path / "text.db").write_text("no database at all")
    with pytest.raises(Terminal, match="is not the file of an exporter"):
        said("--store", str(tmp_path / "text.db"))


def test_no_job_is_no_table(store: Path) -> None:
    assert said("--store", str(store), "--user", "dave") == "No job ended in this period.\n"
