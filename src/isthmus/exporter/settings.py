"""How an exporter works, apart from where it listens."""

from typing import Literal

import msgspec

from isthmus.domain.exporter.folding import Limits

JobSource = Literal["controller", "accounting"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    interval: float = 30.0
    """Seconds between two readings of what changes slowly."""
    inflight: int = 1
    """How many readings of one kind may be under way at a time."""
    job_source: JobSource = "controller"
    """Where Soperator's series for each job come from."""
    lookback: float = 3600.0
    """How many seconds back jobs are read from accounting."""
    per_job: bool = True
    """Whether there are series for each job."""
    limits: Limits = Limits()
