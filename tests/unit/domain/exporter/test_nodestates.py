import pytest

from isthmus.domain.exporter import nodestates
from isthmus.model.slurm import Node


@pytest.mark.parametrize(
    ("states", "word"),
    [
        (("IDLE",), "idle"),
        (("MIXED",), "mixed"),
        (("ALLOCATED",), "allocated"),
        (("ALLOCATED", "COMPLETING"), "allocated"),
        (("MIXED", "COMPLETING"), "completing"),
        (("IDLE", "COMPLETING"), "completing"),
        (("IDLE", "PLANNED"), "planned"),
        (("IDLE", "RESERVED"), "reserved"),
        (("IDLE", "MAINTENANCE", "RESERVED"), "maintenance"),
        (("MIXED", "RESERVED"), "mixed"),
        (("IDLE", "CLOUD", "POWERED_DOWN"), "powered_down"),
        (("IDLE", "CLOUD", "POWERING_UP"), "powering_up"),
        (("IDLE", "POWERING_DOWN", "DRAIN"), "powering_down"),
        (("MIXED", "DRAIN"), "draining"),
        (("IDLE", "DRAIN", "COMPLETING"), "draining"),
        (("IDLE", "DRAIN"), "drained"),
        (("DOWN", "DRAIN"), "drained"),
        (("DOWN", "NOT_RESPONDING"), "down"),
        (("IDLE", "NOT_RESPONDING"), "not_responding"),
        (("IDLE", "FAIL"), "failing"),
        (("IDLE", "INVALID_REG"), "failing"),
        (("UNKNOWN",), "unknown"),
        (("FUTURE",), "unknown"),
        ((), "unknown"),
        (("SOMETHING_NEW",), "unknown"),
    ],
)
def test_a_node_has_one_state(states: tuple[str, ...], word: str) -> None:
    assert nodestates.state(states) == word


def test_every_rule_gives_a_state_that_has_a_number() -> None:
    assert {word for _, word in nodestates._RULES} | {"unknown"} == set(nodestates.STATES)
    assert [nodestates.NUMBERS[word] for word in nodestates.STATES] == list(range(16))


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        ("", "none"),
        ("none", "none"),
        ("slurm-operator: pod is cordoned", "operator"),
        ("slurm-bridge: Kubernetes node is not ready", "bridge"),
        ("Not responding", "not_responding"),
        ("Node unexpectedly rebooted", "not_responding"),
        ("[node_problem] gpu_health_check: XID 79", "hardware"),
        ("[HARDWARE_PROBLEM] link down", "hardware"),
        ("[user_problem] alloc_gpus_busy", "user"),
        ("kernel maintenance on Friday", "maintenance"),
        ("Kill task failed", "health"),
        ("NHC: check_fs_mount", "health"),
        ("ticket 4711, ask Bob", "human"),
    ],
)
def test_a_reason_has_a_class(reason: str, found: str) -> None:
    assert nodestates.reason_class(reason) == found


@pytest.mark.parametrize(
    ("states", "unavailable", "draining", "failed"),
    [
        (("IDLE",), False, False, False),
        (("IDLE", "DRAIN"), True, False, True),
        (("MIXED", "DRAIN"), False, True, True),
        (("DOWN",), True, False, True),
        (("DOWN", "POWERED_DOWN"), False, False, False),
        (("IDLE", "NOT_RESPONDING"), True, False, False),
        (("UNKNOWN",), True, False, False),
    ],
)
def test_what_soperator_counts_as_an_outage(
    states: tuple[str, ...], *, unavailable: bool, draining: bool, failed: bool
) -> None:
    assert nodestates.is_unavailable(states) is unavailable
    assert nodestates.is_draining(states) is draining
    assert nodestates.is_failed(states) is failed


def test_flags_are_written_as_soperator_writes_them() -> None:
    node = Node("n1", state=("IDLE", "DRAIN", "PLANNED"))
    assert nodestates.state_labels(node) == ("n1", "IDLE", "true", "false", "false")
    flags = nodestates.flag_labels(node.state)
    assert flags == ("", "", "true", *[""] * 9, "true")
