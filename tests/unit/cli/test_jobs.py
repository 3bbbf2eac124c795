"""`isthmus jobs` and `isthmus nodes` where there is nothing to ask, and how they write what they found."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from isthmus.cli import jobs, nodes, query
from isthmus.cli.main import app
from isthmus.domain.diagnosis.facts import HostFacts
from isthmus.domain.views import rows
from isthmus.domain.views.queue import Entry
from isthmus.errors import Terminal
from isthmus.inspect import hostfacts
from isthmus.inspect.worlds import KUBERNETES, SLURM, Observation
from isthmus.model.slurm import Job, Node

NOW = 1_800_000_000.0


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with neither Slurm nor Kubernetes."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "SLURM_REST_API", "SLURM_JWT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("isthmus.cli.connection._local_clusters", lambda: iter(()))


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("command", ["jobs", "nodes"])
def test_nothing_to_ask_is_not_an_empty_table(command: str) -> None:
    done = run(command)
    assert done.exit_code == query.NOTHING
    assert not done.stdout
    assert "Kubernetes is not shown: there is no kubeconfig at" in done.stderr
    assert "Slurm is not shown: no Slurm is set up here" in done.stderr


@pytest.mark.usefixtures("nowhere")
def test_a_slurm_that_does_not_answer_is_not_an_empty_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JWT", "a.b.c")
    done = run("jobs", "--slurm-rest-api", "http://127.0.0.1:1")
    assert done.exit_code == query.NOTHING
    assert not done.stdout
    assert "Slurm cannot be read" in done.stderr


def test_a_part_is_shown_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = Observation((Job(1),), troubles={"pods": "no answer"}, absent={})
    assert not found.blind
    with pytest.raises(typer.Exit) as ended:
        query.conclude(found, {"pods"})
    assert ended.value.exit_code == query.PARTLY
    assert capsys.readouterr().err == "isthmus: pods of Kubernetes cannot be read: no answer\n"


def test_a_side_that_is_not_set_up_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    found = Observation((Job(1),), absent={KUBERNETES: "no kubeconfig"})
    query.conclude(found, {"pods"}, quiet=True)
    assert not capsys.readouterr().err
    query.conclude(found, {"pods"})
    assert "no kubeconfig" in capsys.readouterr().err


def test_formats_for_programs_say_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    found = Observation((Job(1),), troubles={SLURM: "away", "claims": "unimportant"})
    entry = Entry(ref="pod/a/b", kind="pod", name="a/b")
    for output, read in ((query.Output.JSON, json.loads), (query.Output.YAML, yaml.safe_load)):
        query.show_items([entry], found, output, ref=lambda it: it.ref)
        whole: dict[str, Any] = read(capsys.readouterr().out)
        assert whole["troubles"] == {"slurm": "away"}
        assert whole["items"][0]["name"] == "a/b"
    query.show_items([entry], found, query.Output.NAME, ref=lambda it: it.ref)
    assert capsys.readouterr().out == "pod/a/b\n"


def test_an_empty_table_says_how_many_there_are_that_were_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Observation((Job(1, ("COMPLETED",)), Job(2, ("RUNNING",))), (Node("n1", ("IDLE",)),))
    for module in (jobs, nodes):
        monkeypatch.setattr(module, "see", lambda *_, **__: found)
    # A slip of the finger, and people who look for a job that has ended.
    for words, said in (
        (("jobs", "--state=runing"), "None of 2 jobs and pods: isthmus jobs -A --state all"),
        (("jobs", "--user=ann"), "None of 2 jobs and pods: isthmus jobs -A --state all"),
        (("nodes", "--state=drainde"), "None of 1 nodes: isthmus nodes"),
    ):
        assert run(*words).stdout.splitlines() == [said]
    monkeypatch.setattr(jobs, "see", lambda *_, **__: Observation())
    assert run("jobs").stdout.splitlines() == ["No jobs."]


def test_texts_of_users_cannot_write_on_the_screen() -> None:
    (_, line) = jobs._lines([Entry(ref="", kind="slurm", name="\x1b[2Jgone\n", state="R")], wide=False, now=NOW)
    assert "\x1b" not in line
    assert "�[2Jgone�" in line


def test_rows_have_a_cell_for_each_column() -> None:
    entry = Entry(ref="job/1", kind="slurm", memory=3 << 30, limit=-1, reason="x" * 100)
    assert len(jobs.row(entry, now=NOW)) == len(jobs.HEADS)
    assert len(jobs.row(entry, now=NOW, wide=True)) == len(jobs.HEADS + jobs._WIDE)
    node = dict(zip(rows.NODE_COLUMNS, rows.node_row("n1", Node("n1"), None), strict=True))
    assert len(nodes.row(node, now=NOW)) == len(nodes.HEADS)
    assert len(nodes.row(node, now=NOW, wide=True)) == len(nodes.HEADS + nodes._WIDE)


@pytest.mark.parametrize(("count", "text"), [(0, "-"), (512, "512"), (4 << 30, "4096Mi"), (40 << 30, "40Gi")])
def test_sizes(count: int, text: str) -> None:
    assert jobs.size(count) == text


@pytest.mark.usefixtures("nowhere")
def test_a_script_that_nobody_can_take_is_refused_with_both_ways(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    done = run("submit", str(tmp_path / "script"))
    assert isinstance(done.exception, Terminal)
    assert "there is neither sbatch on this machine nor a kubeconfig" in str(done.exception)


@pytest.mark.usefixtures("nowhere")
def test_the_doctor_says_what_it_could_not_examine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(**_: float) -> HostFacts:
        return HostFacts()

    monkeypatch.setattr(hostfacts, "host_facts", nothing)  # other tests may have clusters on this machine
    done = run("doctor")
    assert "Kubernetes is not examined: there is no kubeconfig here" in done.stderr
    assert "Examined: this machine" in done.stdout
