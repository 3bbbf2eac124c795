"""Links in README and docs lead somewhere: to files that are there, and to headings that they have."""

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r'(?:\]\(|(?:href|src|srcset)=")(?!https?:|mailto:)([^)"\s]+)[)"]')


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Name the headings of a page as GitHub does, and as scripts/site.py has the site do it."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), flags=re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", it).replace("`", "") for it in headings)
    return frozenset(re.sub(r"[^\w\- ]", "", it.strip().lower()).replace(" ", "-") for it in plain)


def broken(page: Path) -> list[str]:
    found = []
    for link in LINK.findall(CODE.sub("", FENCED.sub("", page.read_text()))):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            found.append(f"{link}: there is no such file")
        elif anchor and anchor not in anchors(target.resolve()):
            found.append(f"{link}: there is no such heading")
    return found


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_every_page_is_in_the_navigation_of_the_site_or_listed_by_its_index() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())

    def pages(nav: object) -> set[str]:
        if isinstance(nav, str):
            return {nav}
        parts = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ()
        return {page for part in parts for page in pages(part)}

    shown = pages(config["nav"])
    indexes = [DOCS / it / "README.md" for it in ("runbooks", "decisions")]
    indexed = {f"{it.parent.name}/{link}" for it in indexes for link in LINK.findall(it.read_text())}
    assert {str(it.relative_to(DOCS)) for it in DOCS.rglob("*.md")} - shown - indexed == set()
    assert not [it for it in shown if not (DOCS / it).exists() and not (ROOT / it).exists()]
