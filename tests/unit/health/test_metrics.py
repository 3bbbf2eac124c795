"""What the health loop counts when a node returns."""

from datetime import UTC, datetime, timedelta

from isthmus import names
from isthmus.health.metrics import HealthMetrics
from isthmus.model.health import Finding, NodeHealthStatus, RepairStep
from isthmus.runtime.metrics import Metrics
from tests.bed.metrics import counted

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def record(before: NodeHealthStatus | None, *steps: RepairStep) -> Metrics:
    metrics = Metrics()
    HealthMetrics(metrics).recorded(before, NodeHealthStatus(phase="Recovered", since=NOW, steps=steps))
    return metrics


def test_a_repair_takes_from_the_first_finding_of_its_episode_to_the_return() -> None:
    findings = (
        Finding(source="check", check="old", last_seen=ago(600), cleared=ago(500)),
        Finding(source="check", check="gpu", last_seen=ago(30)),
        Finding(source="healthcheck", check="disk", last_seen=ago(20)),
    )
    step = RepairStep(rung="restartPod", started=ago(25))
    metrics = record(NodeHealthStatus(phase="Testing", findings=findings), step)
    assert counted(metrics, names.REPAIR_SECONDS, "_sum") == 1800
    assert counted(metrics, names.FALSE_POSITIVES) == 0


def test_a_passed_test_without_any_repair_is_a_false_positive_of_its_check() -> None:
    findings = (Finding(source="check", check="gpu", last_seen=ago(5)),)
    earlier = RepairStep(rung="reboot", started=ago(6000))
    metrics = record(NodeHealthStatus(phase="Testing", findings=findings), earlier)
    assert counted(metrics, names.FALSE_POSITIVES, check="gpu") == 1


def test_what_was_never_held_is_no_repair() -> None:
    findings = (Finding(source="check", check="gpu", last_seen=ago(5)),)
    for before in (None, NodeHealthStatus(phase="Suspect", findings=findings)):
        assert counted(record(before), names.REPAIR_SECONDS, "_count") == 0
