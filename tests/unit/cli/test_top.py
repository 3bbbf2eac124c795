"""`isthmus top` without a terminal, and the tables that it shows in one."""

import json

import pytest
from typer.testing import CliRunner

from isthmus.cli import query, top
from isthmus.cli.flags import show_json
from isthmus.cli.main import app
from isthmus.domain.views.screen import Tone
from isthmus.inspect.worlds import KUBERNETES, Observation
from isthmus.model.slurm import Job, Node
from tests.unit.cli.test_jobs import nowhere

__all__ = ["nowhere"]

SEEN = Observation(
    (Job(1, ("RUNNING",), "one"), Job(2, ("PENDING",), "two", "Priority"), Job(3, ("FAILED",))),
    (Node("n1", ("ALLOCATED",), cpus=4, alloc_cpus=4), Node("n2", ("DOWN",), cpus=4, reason="disk")),
    absent={KUBERNETES: "no kubeconfig"},
)


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("words", [["--once"], ["--json"], []])
def test_without_anybody_to_ask_it_fails(words: list[str]) -> None:
    done = CliRunner().invoke(app, ["top", *words])
    assert done.exit_code == query.NOTHING
    assert not done.stdout


def test_the_title_sums_up_both_worlds() -> None:
    assert top.title(SEEN) == "Jobs: 1 running, 1 waiting   Nodes: 2 (1 allocated, 1 down)   CPUs: 4/8"


def test_rows_know_what_they_are_and_how_they_do() -> None:
    found = top.tables(SEEN)
    assert found["jobs"].refs == ("job/1", "job/2")
    assert found["jobs"].tones == (Tone.GOOD, Tone.WAITS)
    assert found["nodes"].refs == ("node/n1", "node/n2")
    assert found["nodes"].tones == (Tone.GOOD, Tone.BAD)
    assert found["nodes"].lines[1].endswith("disk")
    assert found["people"].lines[0].split()[-5:] == ["1", "0", "0", "1", "-"]
    assert top.tables(SEEN, namespace="team")["jobs"].lines == ()


def test_it_can_be_read_by_programs(capsys: pytest.CaptureFixture[str]) -> None:
    show_json(top._values(SEEN, ""))
    whole = json.loads(capsys.readouterr().out)
    assert [it["job"] for it in whole["jobs"]] == [1, 2]
    assert whole["absent"] == {"kubernetes": "no kubeconfig"}
