"""How the end of pods reads in Slurm's accounts."""

from datetime import UTC, datetime

import pytest

from isthmus.domain.bridge.exitstatus import exit_status
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.pod import ContainerState, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus, Terminated


def ended(*codes: int | Terminated) -> tuple[ContainerStatus, ...]:
    states = [code if isinstance(code, Terminated) else Terminated(code) for code in codes]
    return tuple(ContainerStatus(f"c{number}", ContainerState(state)) for number, state in enumerate(states))


def pod(phase: str, *codes: int | Terminated, leaving: bool = False, **status: object) -> Pod:
    deleted = datetime(2026, 1, 1, tzinfo=UTC) if leaving else None
    return Pod(
        ObjectMeta("web", "team", "uid", deletion_timestamp=deleted),
        PodSpec(node_name="n1"),
        PodStatus(phase=phase, container_statuses=ended(*codes), **status),  # type: ignore[arg-type] # its fields
    )


SUCCEEDED = pod("Succeeded", 0)
DELETED = pod("Running", leaving=True)
EVICTED = pod("Failed", 137, reason="Evicted")


@pytest.mark.parametrize(
    ("here", "status"),
    [
        (SUCCEEDED, 0),
        (pod("Succeeded", 0, leaving=True), 0),
        (pod("Failed", 1), 256),
        (pod("Failed", 0, 3), 3 << 8),
        (pod("Failed", Terminated(137, reason="OOMKilled")), 9),
        (pod("Failed", Terminated(0, signal=15)), 15),
        (pod("Failed", 143, reason="DeadlineExceeded"), 15),
        (pod("Failed", 128), 128 << 8),
        (pod("Failed", 255), 255 << 8),
        (pod("Failed", 3221225786), 255 << 8),
        (pod("Failed", -1), 255 << 8),
        (pod("Failed", reason="UnexpectedAdmissionError"), 256),
        (pod("Failed", init_container_statuses=ended(4)), 4 << 8),
        (pod("Failed", 143, leaving=True), None),
        (pod("Running"), None),
        (EVICTED, None),
        (pod("Failed", 137, conditions=(PodCondition("DisruptionTarget", "True", "TerminationByKubelet"),)), None),
    ],
)
def test_the_status_of_one_pod(here: Pod, status: int | None) -> None:
    assert exit_status(here=[here]) == status
    assert exit_status(here=[], gone=[here]) == status


@pytest.mark.parametrize(
    ("gang", "status"),
    [
        ([SUCCEEDED, SUCCEEDED], 0),
        ([SUCCEEDED, pod("Failed", 3), pod("Failed", 2)], 3 << 8),
        ([pod("Failed", 3), pod("Failed", 137)], 9),
        ([pod("Failed", 143), pod("Failed", 137)], 15),
        ([pod("Failed", 255), pod("Failed", 137)], 255 << 8),
        ([SUCCEEDED, DELETED], None),
        ([SUCCEEDED, EVICTED], None),
        ([DELETED, EVICTED, pod("Failed", 7)], 7 << 8),
        ([], None),
    ],
)
def test_the_worst_member_speaks_for_a_gang(gang: list[Pod], status: int | None) -> None:
    assert exit_status(here=gang) == status
    assert exit_status(here=reversed(gang)) == status


def test_a_pod_that_nobody_saw_was_deleted() -> None:
    assert exit_status(here=[SUCCEEDED], missing=[Key("team", "other")]) is None
