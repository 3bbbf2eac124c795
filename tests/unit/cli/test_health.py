"""`isthmus health` as a person sees it, as far as no Kubernetes is needed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from typer.testing import CliRunner

from isthmus.cli import health
from isthmus.cli.main import app
from isthmus.inspect.health import Overview, assemble
from isthmus.inspect.healthcontrol import Switch
from isthmus.model.health import (
    Finding,
    HealthPolicy,
    HealthPolicySpec,
    HealthPolicyStatus,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    RepairStep,
)
from isthmus.model.meta import Key, ObjectMeta
from tests.unit.cli.helping import help_of

NOW = datetime(2026, 11, 18, 8, 0, tzinfo=UTC)
FINDING = Finding(
    source="check",
    check="gpu-checks",
    evidence="GPU 3 has fallen off the bus",
    devices=("gpu:3",),
    first_seen=NOW - timedelta(hours=3),
    last_seen=NOW - timedelta(minutes=5),
    count=2,
    proof="slurmTest",
)
SICK = NodeHealth(
    metadata=ObjectMeta(namespace="hpc", name="demo.worker-1"),
    spec=NodeHealthSpec(cluster="demo", node="worker-1"),
    status=NodeHealthStatus(
        phase="Testing",
        since=NOW - timedelta(minutes=4),
        message="restartPod took 12 s; gpu-checks runs again",
        machine="k8s-7",
        reason="[node_problem] gpu-checks: job 12 [slurm_job]",
        findings=(FINDING, Finding(source="condition", check="DiskPressure", cleared=NOW - timedelta(minutes=9))),
        steps=(
            RepairStep(rung="restartPod", started=NOW - timedelta(minutes=6), ended=NOW - timedelta(minutes=4)),
        ),
        test="gpu-checks-test-1",
    ),
)
POLICY = HealthPolicy(
    metadata=ObjectMeta(namespace="hpc", name="default"),
    spec=HealthPolicySpec(paused=True),
    status=HealthPolicyStatus(storms=("nccl condemned 5 of 10 nodes within 5m",)),
)
COMMANDS = {
    ("health",): "Show nodes with findings, run checks, pause and resume repair.",
    ("health", "show"): "Show what was found on nodes, what happens next, and the limits;",
    ("health", "run"): "Run a check now. With --wait, exit codes: 0 passed, 1 failed, 2",
    ("health", "pause"): "Start no new drain or repair until resumed.",
    ("health", "resume"): "Act on findings again.",
    ("health", "release"): "Return a node to service without a test:",
}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_says_in_a_sentence_what_it_does(words: tuple[str, ...]) -> None:
    assert COMMANDS[words] in help_of(words)


@pytest.mark.parametrize("words", [[], ["worker-1"], ["-A"], ["-n", "hpc", "-o", "wide"], ["show", "worker-1"]])
def test_what_is_no_command_is_the_node_that_is_shown(words: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["health", *words, "--kubeconfig", str(tmp_path / "none")])
    assert done.exit_code == 1
    assert "there is no kubeconfig" in str(done.exception)


def seen() -> Overview:
    return assemble((SICK,), (POLICY,), (Key("hpc", "demo"), Key("hpc", "other")))


def test_a_row_has_the_node_its_findings_and_what_comes_next() -> None:
    cells = health.row(seen().nodes[0], now=NOW.timestamp())
    assert cells == ("worker-1", "hpc/demo", "Testing", "4 min", "gpu-checks", "in use again if its test passes")
    wide = health.row(seen().nodes[0], now=NOW.timestamp(), wide=True)
    assert wide[6:] == ("k8s-7", "gpu-checks-test-1", "default", "restartPod took 12 s; gpu-checks runs again")


def test_the_summary_names_limit_storm_and_pause() -> None:
    lines = [click.unstyle(it) for it in health.summary(seen())]
    assert lines == [
        "hpc/demo: 1 held, limit 20% of each NodeSet, policy default, PAUSED",
        "  ! storm: nccl condemned 5 of 10 nodes within 5m",
        "hpc/other: 0 held, limit 20% of each NodeSet, policy default, PAUSED",
        "  ! storm: nccl condemned 5 of 10 nodes within 5m",
    ]
    assert "isthmus cluster create" in next(health.summary(Overview()))


def test_one_node_is_shown_with_findings_steps_and_the_way_back() -> None:
    found = seen()
    told = click.unstyle("\n".join(health.details(found.nodes[0], found.clusters[0], now=NOW.timestamp())))
    for part in (
        "worker-1 of hpc/demo: Testing for 4 min",
        "drained as [node_problem] gpu-checks: job 12 [slurm_job]",
        "✗ gpu-checks (check) 2 times, last 5 min ago",
        "GPU 3 has fallen off the bus",
        "devices: gpu:3",
        "✓ DiskPressure (condition) once, gone for 9 min",
        "restartPod  6 min ago, took 2 min",
        "gpu-checks passes on this node",
        "kubectl describe job gpu-checks-test-1 -n hpc",
    ):
        assert part in told, told


def test_pausing_says_what_it_did() -> None:
    policy = Key("hpc", "default")
    assert next(health.switched((Switch(policy, new=True),), paused=True)) == (
        "HealthPolicy hpc/default created, paused."
    )
    assert list(health.switched((Switch(policy),), paused=False)) == ["HealthPolicy hpc/default resumed."]
    assert "was paused already" in next(health.switched((Switch(policy, done=True),), paused=True))
    assert "there is no HealthPolicy" in next(health.switched((), paused=False))


def test_an_error_of_a_check_run_has_its_own_exit_code(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["health", "run", "gpu-checks", "--kubeconfig", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert [health._verdict(it)[2] for it in ("passed", "failed", "error")] == [0, 1, 2]
