"""A Prometheus that scrapes processes every second, and what a board of the chart and some alerts say of them.

with scraping(directory, "bridge", targets, alerts) as board:
    await board.shows("isthmus_bridge_slurm_in_touch == 1")
    await board.fires("IsthmusOrphanAllocation")
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.bed.promtool import Prometheus, prometheus
from tests.bed.waiting import eventually
from tests.unit.monitoring import expressions

T = TypeVar("T")


class Board:
    """A board of the chart, with data of a real Prometheus."""

    def __init__(self, name: str, server: Prometheus) -> None:
        self._name = name
        self._server = server

    async def shows(self, expr: str) -> None:
        """Wait until an expression has a series."""
        await _until(lambda: self._server.query(expr), expr)

    async def fires(self, alert: str) -> None:
        """Wait until this alert fires, and no other."""
        await _until(self._firing, f"{alert} to fire", lambda it: it == {alert})

    async def is_well(self) -> None:
        await _until(self._firing, "all alerts to end", lambda it: not it)

    async def lacks(self, panels: set[str]) -> None:
        """Wait until these panels alone lack data for an expression."""
        asked = [
            (where, expr) for where, expr in expressions.of_dashboards() if where.startswith(f"{self._name}: ")
        ]
        assert len(asked) > len(panels)

        def look() -> set[str]:
            empty = {where for where, expr in asked if not self._server.query(expr)}
            return {where.removeprefix(f"{self._name}: ") for where in empty}

        await _until(look, f"no data for {sorted(panels)}", lambda it: it == panels)

    def _firing(self) -> set[str]:
        return {it["metric"]["alertname"] for it in self._server.query('ALERTS{alertstate="firing"}')}


@contextmanager
def scraping(directory: Path, name: str, targets: Sequence[str], alerts: set[str]) -> Iterator[Board]:
    """Scrape these addresses; the alerts fire at once, since `test_rules` has how long each has to hold."""
    rules = [{"alert": it["alert"], "expr": it["expr"]} for it in expressions.alerts() if it["alert"] in alerts]
    assert {it["alert"] for it in rules} == alerts
    (directory / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "soon", "rules": rules}]}))
    config: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": name, "static_configs": [{"targets": list(targets)}]}],
    }
    with prometheus(directory, config) as server:
        yield Board(name, server)


async def _until(look: Callable[[], T], what: str, holds: Callable[[T], object] = bool) -> T:
    """Wait in a thread: what is scraped runs here."""
    return await asyncio.to_thread(eventually, look, what, holds=holds)
