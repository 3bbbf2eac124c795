"""Detects restarts of slurmctld by its counters."""

from isthmus.model.slurm import Statistics


class Restarts:
    """Remembers what slurmctld said the last time."""

    def __init__(self) -> None:
        self._requests = 0
        self._since = 0.0

    def noticed(self, told: Statistics) -> bool:
        """Whether slurmctld was started or reconfigured since. At midnight it counts again, which does no harm.

        It answers for some seconds before it says since when it counts: then only the number shows that it is new.
        Later, the number may be greater than that of a slurmctld which had not run for long.
        """
        requests = sum(it.count for it in told.rpcs_by_message_type)
        since = told.since.value or 0.0
        anew = requests < self._requests or (since > 0 and self._since > 0 and since != self._since)
        self._requests = requests
        if since or anew:
            self._since = since
        return anew
