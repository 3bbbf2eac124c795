"""Slurm's reasons in words."""

import re
from datetime import UTC, datetime

import pytest

from isthmus.domain.bridge.reasons import _REASONS, Outlook, expected_start, sentence, waiting, waits_for_nodes
from isthmus.model.slurm import Job, Number

# As libslurmfull of 26.05 has them: limits, whose names are made of parts.
LIMITS = """
QOSJobLimit QOSResourceLimit QOSTimeLimit AssociationJobLimit AssociationResourceLimit AssociationTimeLimit
QOSGrpCpuLimit QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit QOSGrpJobsLimit QOSGrpMemLimit QOSGrpNodeLimit
QOSGrpSubmitJobsLimit QOSGrpWallLimit QOSMaxCpuPerJobLimit QOSMaxCpuMinutesPerJobLimit QOSMaxNodePerJobLimit
QOSMaxWallDurationPerJobLimit QOSMaxCpuPerUserLimit QOSMaxJobsPerUserLimit QOSMaxNodePerUserLimit
QOSMaxSubmitJobPerUserLimit QOSMinCpuNotSatisfied AssocGrpCpuLimit AssocGrpCPUMinutesLimit
AssocGrpCPURunMinutesLimit AssocGrpJobsLimit AssocGrpMemLimit AssocGrpNodeLimit AssocGrpSubmitJobsLimit
AssocGrpWallLimit AssocMaxJobsLimit AssocMaxCpuPerJobLimit AssocMaxCpuMinutesPerJobLimit AssocMaxNodePerJobLimit
AssocMaxSubmitJobLimit AssocGrpUnknown AssocGrpUnknownRunMinutes AssocMaxUnknownPerJob AssocMaxCpuPerNode
AssocGrpMemMinutes AssocMaxMemPerNode AssocMaxMemMinutesPerJob AssocGrpEnergy AssocGrpGRES AssocMaxGRESPerNode
AssocGrpLicenseRunMinutes AssocGrpBB AssocMaxBillingMinutesPerJob QOSMaxUnknownPerUser QOSMinUnknown
QOSGrpMemoryMinutes QOSMaxMemoryPerUser QOSMinMemory QOSMaxGRESPerUser QOSMinGRES QOSMinLicense QOSGrpBilling
MaxBBPerAccount MaxCpuPerAccount MaxGRESPerAccount MaxJobsPerAccount MaxSubmitJobsPerAccount MaxMemoryPerAccount
MaxBBRunMinsPerAccount MaxCpuRunMinsPerUser MaxUnknownRunMinsPerUser MaxGRESRunMinsPerUser
""".split()  # noqa: SIM905 - sixty names are read more easily so


@pytest.mark.parametrize("code", LIMITS)
def test_every_limit_is_understood_from_its_parts(code: str) -> None:
    reason = sentence(code)
    assert code not in reason.text
    assert "sacctmgr show" in reason.remedy


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("QOSMaxCpuPerUserLimit", "its QOS allows no more CPUs for one user"),
        (
            "AssocGrpGRES",
            "all jobs of its account and user together have reached the limit on GPUs and other devices",
        ),
        (
            "AssocGrpCPURunMinutesLimit",
            "all jobs of its account and user together have reached the limit on CPUs over time",
        ),
        ("MaxJobsPerAccount", "its QOS allows no more running jobs for one account"),
        ("QOSMinGRES", "its QOS requires more GPUs and other devices than the job requests"),
    ],
)
def test_a_limit_says_whose_it_is_and_of_what(code: str, text: str) -> None:
    assert sentence(code).text == text


@pytest.mark.parametrize(
    ("code", "outlook"),
    [
        ("Priority", Outlook.PASSES),
        ("Resources", Outlook.PASSES),
        ("JobHeldUser", Outlook.HELD),
        ("JobHeldAdmin", Outlook.HELD),
        ("BadConstraints", Outlook.STUCK),
        ("DependencyNeverSatisfied", Outlook.STUCK),
        ("QOSMaxCpuPerUserLimit", Outlook.PASSES),
        ("QOSMaxCpuPerJobLimit", Outlook.STUCK),
    ],
)
def test_a_reason_says_whether_waiting_helps(code: str, outlook: Outlook) -> None:
    assert sentence(code).outlook is outlook


def test_what_slurm_adds_to_a_code_is_kept() -> None:
    said = sentence("(ReqNodeNotAvail, UnavailableNodes:n[1-3])")
    assert said.text == "nodes that it needs are down, drained or reserved (UnavailableNodes:n[1-3])"


@pytest.mark.parametrize("text", ["", "None", "(null)", "  "])
def test_without_a_reason_slurm_has_not_looked_yet(text: str) -> None:
    assert "null" not in sentence(text).text


def test_a_code_that_nobody_knows_yet_is_shown_as_it_is() -> None:
    assert sentence("FluxCapacitorEmpty").text == "Slurm gives the reason FluxCapacitorEmpty"


def test_whoever_must_act_is_told_how() -> None:
    silent = [code for code, reason in _REASONS.items() if reason.outlook is Outlook.HELD and not reason.remedy]
    assert silent == []


def test_texts_go_on_from_because() -> None:
    for code, reason in _REASONS.items():
        assert re.match(r"[a-zI]|Slurm", reason.text), code
        assert not reason.text.endswith("."), code


def test_remedies_can_be_used_as_they_stand() -> None:
    assert sentence("JobHeldUser", job_id=17).remedy == "release it: scontrol release 17"


def test_when_a_job_is_expected_to_start_is_told_if_slurm_knows() -> None:
    noon = datetime(2026, 11, 16, 12, tzinfo=UTC)
    now = noon.timestamp() - 60
    assert expected_start(Job(1, start_time=Number.of(noon.timestamp())), now=now) == noon
    assert expected_start(Job(1), now=now) is None
    assert expected_start(Job(1, start_time=Number.of(now - 5)), now=now) is None
    assert expected_start(Job(1, start_time=Number.of(now + 10 * 365 * 86400)), now=now) is None


def test_a_pod_is_told_why_its_job_waits_until_when_and_what_to_do() -> None:
    start = datetime(2026, 11, 17, 12, tzinfo=UTC).timestamp()
    job = Job(7, state_reason="Resources", start_time=Number.of(start))
    message, held = waiting(job, now=start - 60)
    assert message.startswith("Slurm job 7 waits because ")
    assert message.endswith(" (Resources), and is expected to start at 2026-11-17 12:00 UTC")
    assert not held
    message, held = waiting(Job(7, state_reason="JobHeldAdmin"), now=0)
    assert "scontrol release 7" in message
    assert held


@pytest.mark.parametrize(
    ("reason", "wants"),
    [
        ("Resources", True),
        ("Priority", True),
        ("ReqNodeNotAvail, UnavailableNodes:n1", True),
        ("Dependency", False),
        ("QOSMaxCpuPerUserLimit", False),
        ("JobHeldUser", False),
        ("PartitionTimeLimit", False),
        ("", False),
    ],
)
def test_more_nodes_help_a_job_that_waits_for_nodes(reason: str, *, wants: bool) -> None:
    assert waits_for_nodes(Job(1, state_reason=reason), nodes=lambda: 0) is wants


@pytest.mark.parametrize(("nodes", "wants"), [(3, True), (4, False)])
def test_more_nodes_help_a_job_that_is_larger_than_its_partition_is(nodes: int, *, wants: bool) -> None:
    """But not one that is larger than its partition allows, which has the same reason."""
    job = Job(1, state_reason="PartitionNodeLimit", node_count=Number.of(4))
    assert waits_for_nodes(job, nodes=lambda: nodes) is wants
