"""A real browser: Debian's Chromium, driven by Playwright, and axe-core, which finds what people with a screen
reader, without a mouse or with weak eyes would trip over.

    with running() as browser:
        page = browser.new_page()
        page.goto(url)
        expect(page.get_by_role("heading")).to_have_text("Log in")
        assert findings(page) == []
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Error, Page, Request, expect, sync_playwright

from tests.bed import chromium

PATIENCE: Final = 60_000.0
_RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

expect.set_options(timeout=PATIENCE)


@contextmanager
def running(*flags: str) -> Iterator[Browser]:
    if not chromium.PROGRAM.exists():
        pytest.fail(f"{chromium.PROGRAM} is missing: run make prepare, or apt-get install chromium", pytrace=False)
    with sync_playwright() as playwright:
        # As root there is no sandbox; what is looked at is our own page.
        args = ["--no-sandbox", *flags]
        started = playwright.chromium.launch(executable_path=chromium.PROGRAM, args=args)
        yield started
        started.close()


class Watched:
    """A page, what went wrong in it, and whom it asked."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", self._failed)
        page.on("console", lambda it: self.errors.append(it.text) if "Content Security Policy" in it.text else None)
        page.on("request", self._asks)

    def _failed(self, error: Error) -> None:
        self.errors.append(str(error))

    def _asks(self, request: Request) -> None:
        self.asked.append(request.url)


def findings(page: Page) -> list[str]:
    """What axe-core finds: each rule, and where it is broken."""
    axe = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
    page.evaluate(axe)
    found: dict[str, Any] = page.evaluate(
        "rules => axe.run(document, {runOnly: {type: 'tag', values: rules}, resultTypes: ['violations']})", _RULES
    )
    return [
        f"{it['id']}: {it['help']}: {node['target']} {node['failureSummary']}"
        for it in found["violations"]
        for node in it["nodes"][:3]
    ]
