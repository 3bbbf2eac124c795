"""The calls to slurmdbd: associations, and jobs that have left slurmctld."""

from collections.abc import Collection, Iterable
from urllib.parse import urlencode

from isthmus.model.slurm import ENDED
from isthmus.model.slurmdb import Association, Cluster, PastJob
from isthmus.slurm.calls import Answer, Calls, in_query

_PLUGIN = "slurmdb"
_OVER = (*sorted(ENDED), "REQUEUED")
"""The states of runs that are over in the accounts."""

_LONG_PATIENCE = 120.0
"""The database may have to look through years."""


class _PastJobs(Answer, frozen=True):
    jobs: tuple[PastJob, ...] = ()


class _Associations(Answer, frozen=True):
    associations: tuple[Association, ...] = ()


class _Clusters(Answer, frozen=True):
    clusters: tuple[Cluster, ...] = ()


class Accounting:
    """The calls to slurmdbd."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def jobs(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        names: Iterable[str] = (),
        ended: bool = False,
    ) -> tuple[PastJob, ...]:
        """Read the jobs of a span of time, by default of today, with these names or all; in seconds since 1970.

        With `ended`, only runs that ended within the span, which needs both ends of it.
        """
        query = [
            *([("start_time", in_query(since))] if since is not None else []),
            *([("end_time", in_query(until))] if until is not None else []),
            *([("job_name", ",".join(names))] if names else []),
            *([("state", state) for state in _OVER] if ended else []),
        ]
        path = f"jobs/?{urlencode(query)}" if query else "jobs/"
        answer = await self._calls.call(
            "GET", path, _PastJobs, what="reading the accounted jobs", plugin=_PLUGIN, patience=_LONG_PATIENCE
        )
        return answer.jobs

    async def job(self, job_id: int) -> tuple[PastJob, ...]:
        """Read one job; every task of an array, every run of a requeued job."""
        what = f"reading the account of job {job_id}"
        return (await self._calls.call("GET", f"job/{job_id:d}", _PastJobs, what=what, plugin=_PLUGIN)).jobs

    async def associations(self) -> tuple[Association, ...]:
        """Read who may use which account."""
        what = "reading the associations"
        return (
            await self._calls.call("GET", "associations/", _Associations, what=what, plugin=_PLUGIN)
        ).associations

    async def clusters(self) -> tuple[Cluster, ...]:
        what = "reading the clusters"
        return (await self._calls.call("GET", "clusters/", _Clusters, what=what, plugin=_PLUGIN)).clusters

    async def add_account(self, name: str, *, cluster: str, description: str) -> None:
        """Let a cluster have an account; one that has it already keeps it as it is."""
        body = {
            "association_condition": {"accounts": [name], "clusters": [cluster]},
            "account": {"description": description, "organization": cluster},
        }
        what = f"adding account {name}"
        await self._calls.call_if_changed(
            "POST", "accounts_association/", Answer, what=what, body=body, plugin=_PLUGIN
        )

    async def add_users(self, names: Collection[str], *, account: str, cluster: str) -> None:
        """Let users charge an account of a cluster; for those who have no other it is the one they charge."""
        body = {
            "association_condition": {"accounts": [account], "clusters": [cluster], "users": list(names)},
            "user": {},
        }
        what = f"adding {len(names)} users to account {account}"
        await self._calls.call_if_changed(
            "POST", "users_association/", Answer, what=what, body=body, plugin=_PLUGIN
        )
