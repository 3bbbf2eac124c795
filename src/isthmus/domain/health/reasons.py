"""Reasons of drains in Slurm: what ours say, and whose others are.

Slurm holds one reason for each node. Ours have the form of Soperator's, `[node_problem] name: details`, and the
very text is in the node's record: only a reason equal to it is lifted. The kinds of others:

    operator   slurm-operator: …                               the operator's, for cordons and pods that go
    program    [prolog], [epilog], [hc_program], [slurm_job]   a check's
               [compute_maintenance], [node_problem] and so on Soperator's
               Kill task failed, Prolog error, Epilog error    slurmd's, for something that can be repaired
    slurm      Not responding and others                       slurmctld's own
    human      anything else
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from isthmus.domain.health.findings import sanitised
from isthmus.domain.operator.nodeset.drains import is_ours as is_operators
from isthmus.domain.operator.nodeset.drains import is_shut, says_leaving
from isthmus.model.health import Finding, Source
from isthmus.model.slurm import Node as SlurmNode

Owner = Literal["operator", "program", "slurm", "human"]

REPLACEMENT: Final = "[compute_maintenance] node replacement process"
REBOOT: Final = "[compute_maintenance] node reboot process"
USER_PROBLEM: Final = "[user_problem]"

_NODE_PROBLEM: Final = "[node_problem]"
MAX_CHARS: Final = 256

SLURM_JOB: Final = "[slurm_job]"
K8S_JOB: Final = "[k8s_job]"
"""What reasons end with that an ActiveCheck asks for, by its type."""

_RUNNERS: Final[Mapping[str, Source]] = {"[prolog]": "prolog", "[epilog]": "epilog", "[hc_program]": "healthcheck"}
"""What the check runner's reasons end with, by where it ran."""

_KNOWN: Final[tuple[tuple[str, Source, str], ...]] = (
    ("Kill task failed", "epilog", "kill_task_failed"),
    (REPLACEMENT, "maintenance", "node_replacement"),
    (REBOOT, "maintenance", "node_reboot"),
    (_NODE_PROBLEM, "healthcheck", ""),
    (USER_PROBLEM, "healthcheck", ""),
    ("[hardware_problem]", "healthcheck", ""),
)
"""Soperator's reasons, a part of which is looked for in this order: the first that is there counts."""

_SLURMD: Final[Mapping[str, tuple[Source, str]]] = {
    "Prolog error": ("prolog", "prolog_error"),
    "Epilog error": ("epilog", "epilog_error"),
}

_SLURMCTLD: Final = (
    "Not responding",
    "Node unexpectedly rebooted",
    "Low RealMemory",
    "Low CPUs",
    "Low TmpDisk",
    "Low socket*core",
    "gres/",
    "Reboot ASAP",
    "reboot issued",
    "reboot complete",
    "ResumeTimeout reached",
    "ResumeProgram failed",
    "batch job complete failure",
)
"""How reasons begin that slurmctld writes by itself."""


class Read(msgspec.Struct, frozen=True):
    """What a program's reason says."""

    source: Source
    check: str
    unrepaired: bool = False
    """Whether only another machine shows that it is over, unless its check can be run again."""
    by_runner: bool = False
    """Whether the check runner wrote it, which can run the check again."""


def owner(reason: str) -> Owner:
    """Whose a reason is that is not the one that we recorded."""
    if is_operators(reason):
        return "operator"
    if read(reason):
        return "program"
    return "slurm" if reason.startswith(_SLURMCTLD) else "human"


def read(reason: str) -> Read | None:
    """Read a program's reason; None for those of people, of the operator, and of slurmctld."""
    if is_operators(reason):
        return None
    text, suffix = _split(reason)
    if suffix in (SLURM_JOB, K8S_JOB):
        return Read("check", _check(text) or "unknown", unrepaired=True)
    if suffix:
        return Read(_RUNNERS[suffix], _check(text) or text[:64], unrepaired=True, by_runner=True)
    for part, source, check in _KNOWN:
        if part in reason:
            after = reason[reason.index(part) :]
            return Read(source, check or _check(after) or part.strip("[]"), unrepaired=not check)
    found = _SLURMD.get(reason)
    return Read(*found) if found else None


def drain_text(finding: Finding) -> str:
    """Why we drain a node, for sources that do not say it themselves."""
    if finding.source == "maintenance":
        return REPLACEMENT
    details = f": {finding.evidence}" if finding.evidence else ""
    return sanitised(f"{_NODE_PROBLEM} {finding.check}{details}", MAX_CHARS)


Standing = Literal["unknown", "open", "ours", "operator", "program", "down", "foreign"]
"""How a node stands in Slurm: not listed; takes jobs; drained by us, by the operator, or by a check; down by
itself; held by somebody else."""


def standing(node: SlurmNode | None, recorded: str) -> Standing:
    """How a node stands, beside the reason that we recorded."""
    if node is None:
        return "unknown"
    if not is_shut(node):
        return "open"
    drained = is_drained(node)
    if drained and recorded and node.reason == recorded:
        return "ours"
    whose = owner(node.reason)
    if not drained:
        return "foreign" if whose == "human" and node.reason else "down"
    if whose == "operator":
        return "foreign" if says_leaving(node.reason) else "operator"
    return "program" if whose == "program" else "foreign"


def is_drained(node: SlurmNode) -> bool:
    return "DRAIN" in node.state and "UNDRAIN" not in node.state


def _split(reason: str) -> tuple[str, str]:
    """Take the suffix off that says which program wrote it."""
    for suffix in (SLURM_JOB, K8S_JOB, *_RUNNERS):
        if reason.endswith(suffix):
            return reason.removesuffix(suffix).rstrip(), suffix
    return reason, ""


def _check(text: str) -> str:
    """Find the name in `[prefix] name: details`."""
    rest = text.partition("]")[2] if text.startswith("[") else text
    name = rest.partition(":")[0].strip()
    return name if " " not in name else ""
