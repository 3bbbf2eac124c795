"""The page that Prometheus reads: the texts of all collectors, one after the other."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from aiohttp import web

from isthmus.domain.exporter import catalog
from isthmus.domain.exporter.exposition import CONTENT_TYPE
from isthmus.exporter.metrics import ExporterMetrics

_SMALL: Final = 4096
_HEAD: Final = 100
"""So many characters distinguish families."""


class Collector(Protocol):
    """Something that keeps families ready."""

    def text(self, now: float) -> Iterable[str]:
        """Give whole families, from memory; `now` is in seconds since 1970."""


class Page:
    """Everything that is exposed."""

    def __init__(
        self,
        collectors: Sequence[Collector],
        *,
        folded: Callable[[], Mapping[str, int]],
        metrics: ExporterMetrics,
        scraped: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`scraped` is told who reads the page each time."""
        self._scraped = scraped
        self._collectors = collectors
        self._folded = folded
        self._metrics = metrics
        self._clock = clock
        self._counted: dict[str, tuple[str, int]] = {}

    def render(self) -> bytes:
        now = self._clock()
        texts = [text for collector in self._collectors for text in collector.text(now)]
        folded = [((family,), count) for family, count in sorted(self._folded().items()) if count]
        texts.append(catalog.FOLDED.text(folded))
        self._metrics.exported.set(sum(map(self._series_in, texts)))
        # Each text by itself: one character beyond ASCII would make the whole page four times as large in memory.
        return b"".join([text.encode() for text in texts])

    def _series_in(self, text: str) -> int:
        """Count the series of a text; most texts are those of the scrape before, and large."""
        if len(text) < _SMALL:
            return _count(text)
        key = text[:_HEAD]
        before = self._counted.get(key)
        if before is None or before[0] is not text:
            before = self._counted[key] = text, _count(text)
        return before[1]

    def routes(self) -> list[web.RouteDef]:
        async def scrape(request: web.Request) -> web.Response:
            self._metrics.requests.inc()
            self._scraped(request.remote or "")
            return web.Response(body=self.render(), headers={"Content-Type": CONTENT_TYPE})

        return [web.get("/metrics", scrape)]


def _count(text: str) -> int:
    return text.count("\n") - 2 * text.count("\n# TYPE ")
