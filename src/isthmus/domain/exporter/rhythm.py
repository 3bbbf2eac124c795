"""When to look at Slurm: shortly before somebody looks at us.

Prometheus scrapes at regular times, and what it is shown must be fresh then. In between nobody sees it. So
slurmctld is asked `LEAD` seconds before the next scrape is expected, which is a few times a minute and not sixty:

    scrapes            │                │                │
    looks    ▲ ▲ ▲ ▲ ▲ │              ▲ │              ▲ │
             the rhythm is not known yet

Who scrapes often is served often, once a second at most; who scrapes without a rhythm sees what is at most `MOST`
seconds old. Where so much changes that it is not read in time, looks come earlier.
"""

from typing import Final, NamedTuple

LEAD: Final = 1.8
"""Seconds before a scrape: enough to list ten thousand jobs."""
MAX_LEAD: Final = 10.0
LEAST: Final = 1.0
MOST: Final = 30.0
"""Seconds between two looks. slurmctld keeps jobs for minutes after their end (MinJobAge), so none is missed."""

_UNKNOWN_FOR: Final = 150.0
"""For so long, somebody who has scraped once may scrape again at any moment."""
_EARLIER, _LATER = 1.5, 0.95
"""What becomes of the lead at a scrape that came too early, and at another one."""
_SERVED: Final = 0.2
"""A look so much longer than the lead before a scrape serves it still."""
_MISSED: Final = 3
"""Somebody who has missed so many scrapes has gone."""
_MAX_SCRAPERS: Final = 16


class _Scraper(NamedTuple):
    last: float
    gaps: tuple[float, ...] = ()
    """Seconds between the last scrapes. One that fails makes a gap longer, so the shortest of two counts."""

    @property
    def gap(self) -> float | None:
        return min(self.gaps, default=None)

    def is_gone(self, now: float) -> bool:
        return now - self.last > (_UNKNOWN_FOR if self.gap is None else max(_MISSED * self.gap, MOST))

    def next_look(self, looked: float, lead: float) -> float:
        """When to look for the first scrape that a look so long ago does not serve."""
        if self.gap is None:
            return looked + LEAST
        gap = max(self.gap, LEAST)
        served = max(0.0, looked + lead + _SERVED - self.last) // gap
        return max(looked + LEAST, self.last + (served + 1) * gap - lead)


class Rhythm:
    """Learns when scrapes come; times are of a clock that never goes back."""

    def __init__(self, now: float) -> None:
        # Stands for whoever scrapes first, until somebody has a rhythm.
        self._scrapers = {"": _Scraper(now)}
        self._lead = LEAD

    def scraped(self, who: str, now: float, *, too_early: bool = False) -> None:
        """Take note of a scrape; `who` tells scrapers apart.

        It came `too_early` if not everything had been read that the last look found to have changed.
        """
        self._lead = min(self._lead * _EARLIER, MAX_LEAD) if too_early else max(self._lead * _LATER, LEAD)
        known = self._scrapers.pop(who, None)
        if known:
            self._scrapers.pop("", None)
        self._scrapers[who] = _Scraper(now, (*known.gaps[-1:], now - known.last) if known else ())
        while len(self._scrapers) > _MAX_SCRAPERS:
            del self._scrapers[next(iter(self._scrapers))]

    def next_look(self, looked: float) -> float:
        """When to look again after a look that began at this time."""
        self._scrapers = {who: it for who, it in self._scrapers.items() if not it.is_gone(looked)}
        return min([looked + MOST, *(it.next_look(looked, self._lead) for it in self._scrapers.values())])
