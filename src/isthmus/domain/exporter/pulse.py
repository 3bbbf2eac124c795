"""Whether anything may have changed in Slurm, from what slurmctld counts: a small question instead of long lists.

slurmctld counts jobs that are submitted, begin and end, and requests by type. Whatever else happens to jobs and
nodes is asked for by somebody, and then another request than a question was counted. What it does by itself (a job
ends at its limit, or with its node) shows in the numbers of jobs that run and wait, which it finds out every 30
seconds. A node that no longer responds, and a reservation that begins, cannot be told from this.
"""

from typing import Final

from isthmus.model.slurm import Statistics

_QUESTIONS: Final = ("_INFO", "_PING", "_STATE", "_CONFIG", "_LICENSE")
"""What the types of requests have in their names that only read."""


def pulse(told: Statistics) -> tuple[int, ...]:
    """Give numbers of which one is another than before if something may have happened since."""
    others = (it.count for it in told.rpcs_by_message_type if not is_question(it.message_type))
    return (
        told.jobs_submitted,
        told.jobs_started,
        told.jobs_completed,
        told.jobs_canceled,
        told.jobs_failed,
        told.jobs_pending,
        told.jobs_running,
        sum(others),
    )


def is_question(message_type: str) -> bool:
    return any(word in message_type for word in _QUESTIONS)
