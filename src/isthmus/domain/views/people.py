"""Users and accounts: what they run, wait for, have used and are entitled to."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from isthmus.domain.bridge import jobstates
from isthmus.domain.bridge.jobstates import Phase
from isthmus.domain.exporter import jobfacts
from isthmus.domain.exporter.tables import limits_of
from isthmus.model.slurm import Job, Share
from isthmus.model.slurmdb import Association

_UNITS: Final = {"cpu": "CPUs", "node": "nodes", "gres/gpu": "GPUs"}


def people(
    jobs: Iterable[Job],
    shares: Iterable[Share] = (),
    associations: Iterable[Association] = (),
    *,
    now: float,
    sees: Callable[[str], bool] = lambda _: True,
) -> list[dict[str, Any]]:
    """A line for each user and account that has jobs, a share or a limit; `sees` says whose may be shown."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}

    def line(user: str, account: str) -> dict[str, Any]:
        empty = {"user": user, "account": account, "running": 0, "waiting": 0, "cpus": 0, "gpus": 0, "wait": 0}
        return lines.setdefault((user, account), empty)

    for job in jobs:
        phase = jobstates.phase(job.job_state)
        if phase not in {Phase.RUNNING, Phase.WAITING} or not sees(job.user_name or ""):
            continue
        found = line(job.user_name or "", job.account or "")
        facts = jobfacts.facts(job)
        if phase is Phase.RUNNING:
            found["running"] += 1
            found["cpus"] += facts.resources.cpus
            found["gpus"] += facts.resources.gpus
        else:
            found["waiting"] += facts.tasks
            if facts.eligible and facts.eligible <= now:
                found["wait"] = max(found["wait"], round(now - facts.eligible))
    for share in shares:
        is_user = "USER" in share.type
        user = share.name if is_user else ""
        if not sees(user):
            continue
        found = line(user, share.parent if is_user else share.name)
        found["share"] = share.shares_normalized.value
        found["usage"] = share.effective_usage.value
        found["fairShare"] = share.fairshare.factor.value
    for association in associations:
        limits = [f"{value:,.0f} {_UNITS.get(name, name)}" for name, value in limits_of(association)]
        if limits and not association.partition and sees(association.user):
            line(association.user, association.account)["limits"] = limits
    return sorted(lines.values(), key=lambda it: (-it["cpus"], -it["waiting"], it["account"], it["user"]))
