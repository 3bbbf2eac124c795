"""Whether a check may run now: its cluster is in use, and what it depends on has been done."""

from collections.abc import Callable
from typing import Final

from isthmus.domain.kube.conditions import READY, holds
from isthmus.model.activecheck import ActiveCheck
from isthmus.model.slinky import Controller
from isthmus.model.soperator import SlurmCluster

_AVAILABLE: Final = "Available"
_IN_USE: Final = frozenset({"none", "skipPopulateJail"})
"""Values of `maintenance` that take nothing out of use."""


def closed(
    check: ActiveCheck,
    *,
    cluster: SlurmCluster | None,
    controller: Controller | None,
    find: Callable[[str], ActiveCheck | None],
) -> str:
    """Why a check may not run; empty if it may. `find` gives another check of its namespace."""
    return _cluster_closed(check, cluster, controller) or _dependency_closed(check, find)


def _cluster_closed(check: ActiveCheck, cluster: SlurmCluster | None, controller: Controller | None) -> str:
    name = check.spec.slurm_cluster_ref_name
    if cluster is not None:
        if cluster.spec.maintenance not in _IN_USE:
            return f"SlurmCluster {name} is in maintenance ({cluster.spec.maintenance})"
        if cluster.status.phase != _AVAILABLE:
            return f"SlurmCluster {name} is {cluster.status.phase or 'Pending'}"
        return ""
    if controller is None:
        return f"there is no SlurmCluster and no Controller {name or 'without a name'} in this namespace"
    if not controller.spec.external and not holds(controller.status.conditions, READY):
        return f"Controller {name} is not ready"
    return ""


def _dependency_closed(check: ActiveCheck, find: Callable[[str], ActiveCheck | None]) -> str:
    for name in check.spec.depends_on:
        other = find(name)
        if other is None:
            return f"it depends on the check {name}, which does not exist"
        stands = state(other)
        if stands == "" and not other.spec.run_after_creation:
            continue  # as in Soperator: what nobody runs holds nothing up
        if stands not in {"Complete", "Skipped"}:
            return f"it depends on the check {name}, which is {stands or 'still to run'}"
    return ""


def state(check: ActiveCheck) -> str:
    """How the last run of a check ended; empty if there was none."""
    if check.spec.check_type == "slurmJob":
        return check.status.slurm_jobs_status.last_run_status or ""
    return check.status.k8s_jobs_status.last_job_status or ""
