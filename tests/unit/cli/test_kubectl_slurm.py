"""`kubectl slurm` and completion: the same commands, and names that never fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus.cli import completion, kubectl_slurm
from isthmus.cli.main import app
from isthmus.inspect.worlds import Observation
from isthmus.model.slurm import Job, Node, Number
from tests.unit.cli.test_jobs import nowhere

__all__ = ["nowhere"]

BIN = Path(sys.executable).parent
SEEN = Observation(
    (
        Job(12, ("RUNNING",), "fit"),
        Job(20, ("PENDING",), "many", array_job_id=Number.of(20), array_tasks="1-5"),
    ),
    (Node("n1"), Node("n10"), Node("w1")),
)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_seen", lambda _kinds: SEEN)


def test_it_has_the_commands_of_isthmus() -> None:
    done = CliRunner().invoke(kubectl_slurm.app, ["--help"])
    assert done.exit_code == 0
    assert all(
        f"  {name} " in done.output
        for name in ("queue", "why", "nodes", "top", "logs", "submit", "drain", "resume")
    )


@pytest.mark.parametrize("program", ["kubectl-slurm", "isthmus"])
def test_errors_are_sentences_and_exit_codes(program: str, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}
    done = subprocess.run(
        [BIN / program, "why", "12"], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"{program.replace('-', ' ')}: there is no kubeconfig at")
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["why", ""], [("12", "fit RUNNING"), ("20", "many PENDING")]),
        (["why", "1"], [("12", "fit RUNNING")]),
        (["why", "job/2"], [("job/20", "many PENDING")]),
        (["nodes", "n"], [("n1", ""), ("n10", "")]),
        (["drain", "w"], [("w1", "")]),
        (["queue", "--all-n"], [("--all-namespaces", "Also pods of other namespaces that Slurm does not place.")]),
    ],
)
def test_names_are_those_of_now(words: list[str], expected: list[tuple[str, str]]) -> None:
    *before, beginning = words
    assert list(completion.words_for(kubectl_slurm.app, before, beginning)) == expected


@pytest.mark.usefixtures("seen")
def test_kubectl_is_answered_as_cobra_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-slurm", "why", "12"])
    kubectl_slurm.complete()
    assert capsys.readouterr().out == "12\tfit RUNNING\n:4\n"
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-slurm", "submit", "x"])
    kubectl_slurm.complete()
    assert capsys.readouterr().out == ":0\n"


@pytest.mark.usefixtures("nowhere")
def test_where_nobody_answers_there_are_no_names() -> None:
    assert completion.complete_targets("") == []
    assert completion.complete_nodes("") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(shell: str) -> None:
    done = CliRunner().invoke(app, ["completion", shell])
    assert done.exit_code == 0
    assert f"_ISTHMUS_COMPLETE=complete_{shell}" in done.output


def test_bash_completes_commands(tmp_path: Path) -> None:
    script = (
        "source <(isthmus completion bash); COMP_WORDS=(isthmus subm); COMP_CWORD=1; "
        'complete -p isthmus; _isthmus_completion isthmus; echo "${COMPREPLY[@]}"'
    )
    environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1] == "submit"
