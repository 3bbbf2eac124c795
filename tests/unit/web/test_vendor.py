"""What we ship of others is what they published, and small."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import isthmus.web
from isthmus.web import assets

STATIC = Path(isthmus.web.__file__).parent / "static"
VENDOR = STATIC / "vendor"
MANIFEST = json.loads((VENDOR / "manifest.json").read_text())


def test_every_file_of_others_is_named_with_its_version_licence_and_hash() -> None:
    named = {it["file"] for it in MANIFEST}
    assert {it.name for it in VENDOR.iterdir()} == named | {"manifest.json", "LICENSES.txt"}
    licences = (VENDOR / "LICENSES.txt").read_text()
    for it in MANIFEST:
        assert hashlib.sha256((VENDOR / it["file"]).read_bytes()).hexdigest() == it["sha256"], it["file"]
        assert f"{it['package']} {it['version']}\n" in licences
        assert it["licence"] in {"MIT", "Apache-2.0"}


def test_the_code_of_the_page_is_at_most_80_kilobytes_on_the_wire() -> None:
    sizes = {name: len(asset.packed) for name, asset in assets.load().items()}
    assert {"index.html", "app.js", "app.css", "vendor/preact.mjs"} <= set(sizes)
    assert sum(sizes.values()) <= 80_000, sizes


def test_the_page_asks_nobody_else_for_anything() -> None:
    for path in STATIC.rglob("*"):
        if path.suffix in {".js", ".css", ".html"} and path.parent != VENDOR:
            found = re.findall(r"https?://[^\s\"'`)]+|//[a-z0-9-]+\.[a-z]{2,}/", path.read_text())
            assert not found, f"{path.name}: {found}"


def test_the_policy_lets_only_our_own_files_and_the_import_map_in() -> None:
    page = (STATIC / "index.html").read_bytes()
    rules = dict(rule.split(" ", 1) for rule in assets.policy(page).split("; "))
    assert rules["default-src"] == "'none'"
    assert re.fullmatch(r"'self' 'sha256-[A-Za-z0-9+/=]{44}'", rules["script-src"])
    assert "unsafe" not in assets.policy(page)
    assert rules["frame-ancestors"] == "'none'"
    changed = assets.policy(page.replace(b"preact.mjs", b"evil.mjs"))
    assert changed != assets.policy(page)


def test_assets_are_compressed_without_a_time() -> None:
    asset = assets.load()["app.js"]
    assert gzip.decompress(asset.packed) == asset.content
    assert asset.packed[4:8] == b"\0\0\0\0"


def test_every_module_that_the_page_imports_is_there() -> None:
    known = assets.load()
    for name, asset in known.items():
        if not name.endswith(".js") or name.startswith("vendor/"):
            continue
        folder = name.rpartition("/")[0]
        for path in re.findall(r'from "(\.{1,2}/[^"]+)"', asset.content.decode()):
            assert str((Path("/") / folder / path).resolve()).lstrip("/") in known, f"{name} imports {path}"
