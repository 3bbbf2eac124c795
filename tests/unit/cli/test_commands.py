"""The commands as a person types them, as far as no cluster is needed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isthmus import __version__
from isthmus.cli import lifecycle, render
from isthmus.cli.helppage import CLUSTERS, JOBS, LOCAL, PROCESSES, PROGRAM
from isthmus.errors import Terminal
from isthmus.local.binaries import MODULES
from tests.unit.cli.helping import help_of

COMMANDS = {
    ("up",): "Create a cluster on this machine, or repair the existing one.",
    ("down",): "Remove a cluster and everything that it left on this machine; the cache stays.",
    ("status",): "Show the clusters of this machine, their nodes, and what does not run.",
    ("kubeconfig",): "Print the path of the administrator's kubeconfig:",
    (
        "logs",
    ): "Show what a job or a pod writes; of a component of the local cluster, its log on all nodes that have one.",
    ("node",): "Look into, stop, start, reboot, disconnect and reconnect nodes.",
    ("node", "exec"): "Run a command on a node, such as `crictl ps`; without a command, a shell.",
    ("node", "stop"): "Switch a node off, as if its power failed.",
    ("node", "start"): "Switch a node on again.",
    ("node", "reboot"): "Switch a node off and on again.",
    ("node", "cut"): "Disconnect a node's network; what runs there keeps running.",
    ("node", "heal"): "Connect a node's network again.",
    ("rebooter",): "Drain and reboot this machine, as conditions of its Node ask.",
    ("images",): "Build, list and load container images.",
    ("images", "build"): "Build images that the cache does not hold.",
    ("images", "list"): "List the images, and which of them are built.",
    ("images", "load"): "Load images into every node of a running cluster.",
    ("addon",): "Install JobSet, LeaderWorkerSet, PodGroup and monitoring.",
    ("addon", "install"): "Install add-ons into a running cluster, and wait until they are ready.",
    ("addon", "list"): "List the available add-ons.",
    ("version",): "Print the versions of Isthmus and of everything that it brings or needs.",
    ("chart",): "Find the Helm charts that come with Isthmus.",
    ("chart", "list"): "Show the charts and their directories.",
    ("chart", "path"): "Print a chart's directory:",
}


def isthmus(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("isthmus"), *words],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "ISTHMUS_NAME": "nowhere"},
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_says_in_a_sentence_what_it_does(words: tuple[str, ...]) -> None:
    assert COMMANDS[words] in help_of(words)


def test_without_arguments_the_way_in_is_shown() -> None:
    done = isthmus()
    assert "Start with: isthmus up" in done.stdout + done.stderr
    for first, *_ in COMMANDS:
        assert f"  {first} " in done.stdout + done.stderr


def test_the_version_is_told() -> None:
    assert isthmus("--version").stdout == f"isthmus {__version__}\n"


def test_the_versions_of_all_components_are_told_to_people_and_to_programs() -> None:
    heads, *rows = isthmus("version").stdout.splitlines()
    assert heads.split() == ["COMPONENT", "VERSION", "STATE", "FROM"]
    told = json.loads(isthmus("version", "--json").stdout)
    assert [row.split()[0] for row in rows] == [each["name"].split()[0] for each in told]
    assert {"name": "Kubernetes", "version": MODULES["kubernetes"].version}.items() <= told[4].items()


@pytest.mark.parametrize(
    ("words", "hint"),
    [(("up", "--nmae", "x"), "--name"), (("stauts",), "Did you mean 'status'?"), (("node", "strat"), "'start'")],
)
def test_a_slip_of_the_finger_gets_a_hint(words: tuple[str, ...], hint: str) -> None:
    done = isthmus(*words)
    assert done.returncode == 2
    assert hint in done.stderr


def test_a_word_that_is_no_choice_is_told_with_those_there_are() -> None:
    said = isthmus("jobs", "-o", "foo").stderr
    assert "Invalid value for '--output' / '-o': 'foo' is not one of 'table', 'wide'" in said


def test_an_error_is_a_sentence_with_a_remedy_and_not_a_traceback() -> None:
    done = isthmus("kubeconfig")
    assert done.returncode == 1
    assert done.stderr.startswith("isthmus: there is no cluster 'nowhere' on this machine")
    assert "\n  → " in done.stderr
    assert "Traceback" not in done.stderr


def test_help_is_there_before_a_person_notices_that_it_was_asked_for() -> None:
    script = (
        "import sys; from isthmus.cli.main import app; app(['--help'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    for slow in ("rich", "aiohttp", "cryptography", "msgspec", "asyncio"):
        assert slow not in done.stdout.split()


@pytest.mark.parametrize(
    ("text", "pair"), [("30022", (30022, 30022)), ("40022:30022", (40022, 30022)), ("1:65535", (1, 65535))]
)
def test_ports_are_read(text: str, pair: tuple[int, int]) -> None:
    assert lifecycle._port_pair(text) == pair


@pytest.mark.parametrize("text", ["", "ssh", "0", "65536", "1:2:3", "1:", ":1", "-1", "1:ssh"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(Terminal, match=r"is not a port\n  → write --publish 30022"):
        lifecycle._port_pair(text)


def test_a_table_has_straight_columns_and_no_blanks_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    render.table(("NAME", "SIZE"), [("a", "1"), ("longer", "22")])
    assert capsys.readouterr().out == "NAME     SIZE\na        1\nlonger   22\n"


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    mark = tmp_path / "begun"
    script = f"""
import pathlib, time, typer
from isthmus.cli.render import progress
app = typer.Typer()
@app.command()
def work() -> None:
    with progress() as shown, shown.step("Work"):
        pathlib.Path({str(mark)!r}).touch()
        while True:  # one long wait would not be ended by a signal that comes just before it
            time.sleep(0.01)
app()
"""
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not mark.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "✗ Work" in said
    assert said.endswith("isthmus: interrupted; run the same command again to continue, or: isthmus down\n")


def test_help_names_each_command_once_with_its_whole_sentence() -> None:
    for done in (isthmus("--help"), isthmus("cluster", "--help"), isthmus("health", "--help")):
        assert "..." not in done.stdout.replace("[ARGS]...", "")
    titles = [line for line in isthmus("--help").stdout.splitlines() if line.endswith(":") and line[0] != " "]
    assert titles == ["Options:", *(f"{it}:" for it in (JOBS, CLUSTERS, LOCAL, PROCESSES, PROGRAM))]
