"""The current time, for code that acts. Decisions get it as a parameter and import no clock."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)
