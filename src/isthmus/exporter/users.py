"""Names of users that slurmrestd does not know.

slurmrestd looks up names where it runs, and in a pod there are no users: its records have an id and no name.
slurmdbd has the name with which a user submitted, so one look at one job of each such user is enough.
"""

from itertools import islice
from typing import Final

import msgspec

from isthmus.model.slurm import Job
from isthmus.slurm.accounting import Accounting
from isthmus.slurm.poller import Poller

_AT_ONCE: Final = 20
"""So many unknown users are looked up per interval."""


class UserNames:
    """Learns names by user id. Who is not known yet, or without accounting never, goes by the id."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._unknown: dict[int, int] = {}
        """A job of each user without a name."""

    def named(self, job: Job) -> Job:
        if job.user_id is None:
            return job
        by_id = str(job.user_id)
        if job.user_name and job.user_name != by_id:
            self._names[job.user_id] = job.user_name
            return job
        if job.user_id not in self._names:
            self._unknown.setdefault(job.user_id, job.job_id)
        return msgspec.structs.replace(job, user_name=self._names.get(job.user_id, by_id))

    async def read(self, poller: Poller, accounting: Accounting) -> str:
        """Look up who is unknown; there are no families to show for it."""
        learned = False
        for user_id, job_id in list(islice(self._unknown.items(), _AT_ONCE)):
            accounted = await accounting.job(job_id)
            # A job that slurmdbd has not heard of yet is replaced by the next one of this user.
            del self._unknown[user_id]
            if name := next((it.user for it in accounted if it.user), None):
                self._names[user_id] = name
                learned = True
        if learned:
            poller.slim_again()
        return ""
