"""What people are told about a node: what comes next, and what would return it."""

from datetime import UTC, datetime

import pytest

from isthmus.domain.health.outlook import active, next_step, way_back
from isthmus.model.health import (
    Finding,
    HealthPolicySpec,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    Phase,
    RepairStep,
)

NOW = datetime(2026, 11, 18, 8, 0, tzinfo=UTC)
DISK = Finding(source="healthcheck", check="boot_disk_full", proof="test")
CARELESS = HealthPolicySpec()


def health(phase: Phase, *findings: Finding) -> NodeHealth:
    return NodeHealth(
        spec=NodeHealthSpec(cluster="demo", node="worker-1"),
        status=NodeHealthStatus(phase=phase, findings=findings),
    )


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("Suspect", "nothing until it is found again"),
        ("Waiting", "limits allow"),
        ("Draining", "when its jobs have ended"),
        ("Testing", "if its test passes"),
        ("OutOfService", "isthmus health release NODE"),
        ("Recovered", "it is in use"),
    ],
)
def test_every_phase_has_a_next_step(phase: Phase, said: str) -> None:
    assert said in next_step(NodeHealthStatus(phase=phase), CARELESS)


def test_the_rung_that_is_at_work_is_named() -> None:
    steps = (RepairStep(rung="restartPod", started=NOW, ended=NOW), RepairStep(rung="reboot", started=NOW))
    assert next_step(NodeHealthStatus(phase="Repairing", steps=steps), CARELESS) == "its test, when reboot is done"


def test_pause_and_shadow_are_said_where_they_stop_something_and_only_there() -> None:
    paused, shadow = HealthPolicySpec(paused=True), HealthPolicySpec(mode="shadow")
    assert "isthmus health resume" in next_step(NodeHealthStatus(phase="Waiting"), paused)
    assert "shadow" in next_step(NodeHealthStatus(phase="Suspect"), shadow)
    assert "paused" not in next_step(NodeHealthStatus(phase="Testing"), paused), "what has begun goes on"


def test_a_node_returns_after_the_check_that_condemned_it() -> None:
    gone = Finding(source="check", check="gpu-checks", cleared=NOW)
    assert way_back(health("Testing", DISK, gone), CARELESS) == ("boot_disk_full passes on this node",)


def test_what_no_test_can_check_must_be_gone_for_a_while() -> None:
    silent = Finding(source="notReady", check="Ready")
    policy = HealthPolicySpec(healthy_delay="2m")
    assert way_back(health("Repairing", silent), policy) == ("Ready has been gone for 2m",)


def test_what_only_a_repair_or_another_machine_proves_is_said_so() -> None:
    killed = Finding(source="prolog", check="Kill task failed", proof="repair")
    broken = Finding(source="condition", check="HardwareIssuesSuspected", proof="machine")
    assert way_back(health("Draining", killed, broken), CARELESS) == (
        "a repair step is completed, for Kill task failed",
        "it runs on another machine, for HardwareIssuesSuspected",
    )


def test_a_human_is_named_and_one_out_of_service_needs_one() -> None:
    drained = Finding(source="human", check="alice")
    assert way_back(health("OutOfService", drained, DISK), CARELESS) == (
        "boot_disk_full passes on this node",
        "alice resumes it in Slurm",
        "and an administrator returns it: isthmus health release worker-1",
    )


@pytest.mark.parametrize("phase", ["Suspect", "Recovered"])
def test_a_node_in_use_needs_no_way_back(phase: Phase) -> None:
    assert way_back(health(phase, DISK), CARELESS) == ()


def test_without_an_active_finding_the_test_decides() -> None:
    gone = Finding(source="check", check="gpu-checks", cleared=NOW)
    assert active((gone, DISK)) == (DISK,)
    assert way_back(health("Testing", gone), CARELESS) == ("its test passes",)
