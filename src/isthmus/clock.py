"""The time, for those who act. Decisions are given it: they import no clock."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)
