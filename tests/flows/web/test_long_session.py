"""A page that is left open: thousands of changes later it holds no more than at first, nor does its server."""

from pathlib import Path

import pytest
from playwright.sync_api import Page

from bench.process import Process
from bench.web import feeding
from tests.bed.browser import Watched, running

CHANGES = 1500
COUNTED = """
const Real = window.EventSource;
window.deltas = 0;
window.EventSource = class extends Real {
  constructor(url) { super(url); this.addEventListener("delta", () => (window.deltas += 1)); }
};
"""
HEAP = "() => { gc(); gc(); return performance.memory.usedJSHeapSize; }"
ELEMENTS = "document.querySelectorAll('*').length"
MB = 1_000_000


def follow(page: Page, deltas: int) -> None:
    """Wait until so many more deltas came; each has some 150 rows."""
    page.wait_for_function("wanted => window.deltas >= wanted", arg=page.evaluate("window.deltas") + deltas)


def resident(process: Process) -> int:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("view", ["now", "queue"])
def test_nothing_grows_while_a_page_is_open(view: str) -> None:
    with (
        feeding(jobs=600, nodes=200, changes=CHANGES) as (address, process),
        running("--js-flags=--expose-gc") as browser,
    ):
        watched = Watched(browser.new_page())
        page = watched.page
        page.add_init_script(COUNTED)
        page.goto(f"http://{address}/#/{view}")
        follow(page, 15)
        heap, elements, memory = page.evaluate(HEAP), page.evaluate(ELEMENTS), resident(process)
        follow(page, 40)
        assert page.evaluate(HEAP) - heap < 2 * MB
        assert page.evaluate(ELEMENTS) - elements < 20
        assert resident(process) - memory < 10 * MB
        assert watched.errors == []
