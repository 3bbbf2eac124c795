import pytest

from isthmus.domain.health.reasons import REBOOT, REPLACEMENT, Standing, drain_text, owner, read, standing
from tests.unit.domain.health.scene import REASON, drained, finding, slurm


@pytest.mark.parametrize(
    ("reason", "source", "check"),
    [
        ("[node_problem] gpu_health_check: XID 79 [prolog]", "prolog", "gpu_health_check"),
        ("[user_problem] alloc_gpus_busy [epilog]", "epilog", "alloc_gpus_busy"),
        ("[node_problem] boot_disk_full: 97% [hc_program]", "healthcheck", "boot_disk_full"),
        ("[node_problem] gpu-checks: job 12 [slurm_job]", "check", "gpu-checks"),
        ("Kill task failed", "epilog", "kill_task_failed"),
        ("Kill task failed [node_problem] x: y", "epilog", "kill_task_failed"),
        (REPLACEMENT, "maintenance", "node_replacement"),
        (REBOOT, "maintenance", "node_reboot"),
        ("[node_problem] SomeReason: details [user_problem]", "healthcheck", "SomeReason"),
        ("[user_problem] pod_ephemeral_storage is full", "healthcheck", "user_problem"),
        ("[hardware_problem] NVLink: down", "healthcheck", "NVLink"),
        ("Prolog error", "prolog", "prolog_error"),
    ],
)
def test_reasons_of_programs_are_read(reason: str, source: str, check: str) -> None:
    told = read(reason)
    assert told is not None
    assert (told.source, told.check) == (source, check)
    assert owner(reason) == "program"


@pytest.mark.parametrize(
    ("reason", "whose"),
    [
        ("slurm-operator: Pod (a/b) was cordoned", "operator"),
        ("slurm-operator: [node_problem] x: y", "operator"),
        ("Not responding", "slurm"),
        ("Not responding [slurm@2026-01-01T00:00:00]", "slurm"),
        ("Low RealMemory (reported:1 < 100.00% of configured:2)", "slurm"),
        ("bob is looking at the fans", "human"),
        ("reboot it when idle", "human"),
    ],
)
def test_other_reasons_are_not_read(reason: str, whose: str) -> None:
    assert read(reason) is None
    assert owner(reason) == whose


@pytest.mark.parametrize(
    ("state", "stands"),
    [
        (None, "unknown"),
        (slurm("MIXED"), "open"),
        (slurm("IDLE", "DRAIN", "UNDRAIN", reason=REASON), "open"),
        (drained(REASON), "ours"),
        (drained(REASON + " "), "program"),
        (drained("slurm-operator: Pod (a/b) was cordoned"), "operator"),
        (drained("slurm-operator: Pod (a/b) is pending termination for scale-in"), "foreign"),
        (drained("[node_problem] disk: full [hc_program]"), "program"),
        (drained("bob"), "foreign"),
        (drained("Low RealMemory"), "foreign"),
        (slurm("DOWN", "NOT_RESPONDING", reason="Not responding"), "down"),
        (slurm("DOWN", reason="bob"), "foreign"),
    ],
)
def test_how_a_node_stands(state: object, stands: Standing) -> None:
    assert standing(state, REASON) == stands  # type: ignore[arg-type]


def test_our_words_have_the_form_of_soperators_and_are_read_back() -> None:
    text = drain_text(finding("KernelDeadlock", source="condition", evidence="DockerHung: x\n" + "y" * 600))
    assert text.startswith("[node_problem] KernelDeadlock: DockerHung: x")
    assert len(text) <= 256
    told = read(text)
    assert told is not None
    assert told.check == "KernelDeadlock"
    assert drain_text(finding("Notice", source="maintenance")) == REPLACEMENT
