"""Fits the repository's Markdown to the documentation site (a hook of mkdocs).

Pages are written to be read in the repository, so they link to files outside docs/, too. On the site, the Markdown
files at the top are pages, other files are copied to files/, and a link to a directory is its name alone.
"""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"  # the site has a first page of its own
TOP = ("CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
# What makes a browser ask for something by itself; a link that people follow does not.
RELATED = r'rel="(?:canonical|next|prev)"'
ASKS = re.compile(rf'<(?:script|img|iframe|source|link(?![^>]*{RELATED}))[^>]*(?:src|href)="(?:https?:)?//')


def on_config(config: Any) -> Any:
    """Make anchors as GitHub does."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what pages link to outside docs/."""
    wanted = {ROOT / it for it in TOP}
    for page in (*wanted, *DOCS.rglob("*.md")):
        targets = ((page.parent / match[3]).resolve() for match in LINK.finditer(page.read_text()))
        wanted.update(it for it in targets if it.is_file() and not it.is_relative_to(DOCS) and it != README)
    for path in sorted(wanted):
        files.append(File.generated(config, place(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links into those of the site."""
    here = Path(page.file.abs_src_path or DOCS / page.file.src_uri).resolve()

    def turned(match: re.Match[str]) -> str:
        bang, text, link, anchor = match.groups()
        target = (here.parent / link).resolve()
        if not target.exists():
            return match[0]  # mkdocs complains of it
        if target.is_dir():
            return text
        to = os.path.relpath(place(target), Path(page.file.src_uri).parent)
        return f"{bang}[{text}]({to}{anchor or ''})"

    return LINK.sub(turned, markdown)


def place(path: Path) -> str:
    """Name a file of the repository as the site does."""
    if path.is_relative_to(DOCS):
        return str(path.relative_to(DOCS))
    if path == README:
        return "README.md"
    name = str(path.relative_to(ROOT))
    return name if name in TOP else f"files/{name}"


def on_post_build(config: Any) -> None:
    """Refuse a site that asks other servers."""
    for page in Path(config.site_dir).rglob("*.html"):
        if found := ASKS.search(page.read_text()):
            raise PluginError(f"{page} asks another server: {found[0]}")
