"""The commands of the bridge as a person, or a manifest, types them, as far as neither world is needed."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isthmus.bridge.config import Config
from isthmus.cli import bridge as command
from isthmus.cli import explain, loglevels
from isthmus.cli.main import app
from isthmus.errors import Terminal
from isthmus.inspect.returned import Returned
from isthmus.inspect.status import Leader, Nodes, Slurm, Status, Waiting
from isthmus.processes import bridge
from isthmus.runtime import addresses
from isthmus.runtime.addresses import Address

COMMANDS = {
    ("bridge",): "Let Slurm place pods: run the processes, and show their status.",
    ("bridge", "scheduler"): "Run the scheduler: pods become jobs, and jobs that start become bindings.",
    (
        "bridge",
        "controllers",
    ): "Run the controllers, which keep pods, jobs and nodes in sync between Kubernetes and Slurm.",
    ("bridge", "admission"): "Run the webhooks, which hand new pods to Slurm.",
    ("bridge", "all"): "Run everything in one process.",
    ("bridge", "status"): "Show the leader, whether Slurm answers, which pods wait and why,",
    ("explain",): "Show each gate from admission to running: passed, waiting or refused,",
}


class Ran(Exception):  # noqa: N818 - it is how far a test lets a command get
    def __init__(self, parts: frozenset[str], config: Config, options: bridge.Options) -> None:
        super().__init__("the process would run now")
        self.parts, self.config, self.options = parts, config, options


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Give what a process would be started with."""
    file = tmp_path / "config.yaml"
    file.write_text("slurmRestApi: http://slurm:6820\n")

    def stop(parts: frozenset[str], config: Config, options: bridge.Options) -> None:
        raise Ran(parts, config, options)

    def read(*words: str) -> Ran:
        monkeypatch.setattr(bridge, "run", stop)
        done = CliRunner().invoke(app, ["bridge", *words, f"--config={file}"])
        assert isinstance(done.exception, Ran), done.output
        return done.exception

    return read


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_says_in_a_sentence_what_it_does(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*words, "--help"])
    assert done.exit_code == 0
    assert COMMANDS[words] in " ".join(done.output.split())


def test_the_documented_flags_of_the_controllers_are_taken(flags: Any) -> None:
    ran = flags(
        "controllers",
        "--metrics-bind-address=:8080",
        "--health-probe-bind-address=:8081",
        "--leader-elect=true",
        "--leader-election-id=69d5fe47.my.slinky.slurm.net",
        "--metrics-secure=false",
        "--enable-http2=false",
    )
    assert ran.parts == {"controllers"}
    assert ran.options.election_id == bridge.lease_of(ran.parts, ran.config) == "69d5fe47.my.slinky.slurm.net"
    assert (ran.options.metrics_address, ran.options.health_address) == (":8080", ":8081")
    assert ran.config.features.enable_leader_election
    assert not ran.config.features.secure_metrics


def test_the_documented_flags_of_the_scheduler_are_taken(flags: Any) -> None:
    ran = flags("scheduler", "--kubeconfig=/path/to/kubeconfig", "--v=2")
    assert ran.options.kubeconfig == Path("/path/to/kubeconfig")
    assert bridge.lease_of(ran.parts, ran.config) == "slurm-bridge-scheduler"


@pytest.mark.parametrize(
    ("words", "elects"),
    [
        ((), True),
        (("--leader-elect",), True),
        (("--leader-elect=1",), True),
        (("--leader-elect=TRUE",), True),
        (("--leader-elect=false",), False),
        (("--leader-elect=f",), False),
        (("--no-leader-elect",), False),
        (("--leader-elect=false", "--leader-elect=true"), True),
    ],
)
def test_switches_are_taken_as_go_writes_them(flags: Any, words: tuple[str, ...], elects: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert flags("all", *words).config.features.enable_leader_election is elects


def test_all_is_all(flags: Any) -> None:
    assert flags("all").parts == bridge.PARTS


def test_a_switch_with_another_word_is_refused() -> None:
    done = CliRunner().invoke(app, ["bridge", "all", "--leader-elect=perhaps"])
    assert done.exit_code == 2
    assert "leader-elect" in done.output


@pytest.mark.parametrize(
    ("text", "level"), [("0", "info"), ("2", "info"), ("4", "debug"), ("10", "debug"), ("WARNING", "warning")]
)
def test_verbosity_is_a_number_or_a_word(text: str, level: str) -> None:
    assert loglevels.level(text) == level


def test_a_verbosity_that_is_neither_is_refused() -> None:
    with pytest.raises(Terminal, match="'loud' is not a log level"):
        loglevels.level("loud")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", Address("", 8080)),
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("[::1]:8080", Address("::1", 8080)),
        ("0", None),
        (":0", Address("", 0)),
    ],
)
def test_addresses_are_read_as_go_writes_them(text: str, address: Address | None) -> None:
    assert addresses.parse(text) == address


@pytest.mark.parametrize("text", ["8080", ":http", ":65536", "localhost", ":-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Terminal, match=r"is not a valid listen address\n  → write :8080"):
        addresses.parse(text)


def isthmus(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("isthmus"), *words],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environ},
    )


def test_without_a_slurm_the_scheduler_says_what_to_set() -> None:
    done = isthmus("bridge", "scheduler")
    assert done.returncode == 1
    assert done.stderr.startswith("isthmus: slurmRestApi is not set\n  → set slurmRestApi")


def test_a_wrong_setting_ends_the_process_with_file_and_key(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("schedulername: x\n")
    done = isthmus("bridge", "all", f"--config={file}")
    assert done.returncode == 1
    assert re.search(r"config\.yaml is not valid:\n  schedulername: .*did you mean schedulerName\?", done.stderr)


def test_a_token_that_is_none_is_not_repeated() -> None:
    done = isthmus("explain", "x", SLURM_REST_API="http://127.0.0.1:1", SLURM_JWT="not-a-token", KUBECONFIG="/none")
    assert done.returncode == 1
    assert "not-a-token" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("text", "target"),
    [("pod/a", ("pod", "a")), ("po/a", ("pod", "a")), ("a", ("pod", "a")), ("job/7", ("job", "7"))],
)
def test_what_is_to_be_explained_is_read(text: str, target: tuple[str, str]) -> None:
    assert explain._target(text) == target


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job/train", "not the id of a Slurm job"),
        ("node/a", "cannot be explained"),
        ("pod/", "cannot be explained"),
    ],
)
def test_what_cannot_be_explained_is_refused(text: str, said: str) -> None:
    with pytest.raises(Terminal, match=said):
        explain._target(text)


def test_the_status_reads_well() -> None:
    found = Status(
        scheduler="slurm-bridge-scheduler",
        leaders=(
            Leader("scheduler", "slurm/slurm-bridge-scheduler", "host_1", 1.5, alive=True),
            Leader("controllers", "slurm/x", "", 40.0, alive=False),
        ),
        slurm=Slurm(answers=True, cluster="hpc", release="26.05.5", api="v0.0.45"),
        waiting=(Waiting("SlurmPending", 12, 7200, "batch/train-0"),),
        bound=3,
        jobs={"RUNNING": 3, "PENDING": 12},
        nodes=Nodes(4, 5, 3, unregistered=("w4",), drained=("w1", "w2"), unmapped=()),
        policies=0,
        warnings=("no BridgePolicy applies to namespace batch",),
        troubles={"nodes": "forbidden"},
        returned=(Returned("batch/train-1", 180.0, "Slurm gave node w3, but w3 is too small"),),
    )
    assert not found.well
    assert "\n".join(command._lines(found)) == (
        "Scheduler: slurm-bridge-scheduler\n"
        "  scheduler    led by host_1, renewed 2 s ago\n"
        "  controllers  ✗ no leader, renewed 40 s ago\n"
        "Slurm: hpc answers, release 26.05.5, API v0.0.45\n"
        "Jobs of the bridge: 12 pending, 3 running\n"
        "Nodes: 4 in Kubernetes, 5 in Slurm, 3 registered by the bridge\n"
        "       1 labelled as external, but not in Slurm: w4\n"
        "       2 drained or down in Slurm: w[1-2]\n"
        "Pods: 3 have a node, 12 wait\n"
        "      12 SlurmPending, the longest for 2 h: isthmus explain pod/train-0 -n batch\n"
        "Returned: ✗ 1 allocations that Kubernetes could not use, in the last hour\n"
        "  batch/train-1, 3 min ago: Slurm gave node w3, but w3 is too small\n"
        "Policies: none\n"
        "  ! no BridgePolicy applies to namespace batch\n"
        "✗ nodes cannot be read: forbidden"
    )
