"""The files of the page: read once, compressed once, and served with a policy that lets nothing else in.

The page needs no build step. Modules of others are named by an import map, which is a script in the page itself; so
the policy names the hash of that one script.
"""

import base64
import gzip
import hashlib
import re
from importlib import resources
from typing import Final, NamedTuple

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INLINE: Final = re.compile(rb"<script type=\"importmap\">(.*?)</script>", re.DOTALL)

HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Asset(NamedTuple):
    content: bytes
    packed: bytes
    content_type: str
    etag: str


def load() -> dict[str, Asset]:
    """Read all files, by their paths below `static`."""
    found: dict[str, Asset] = {}
    pending = [("", resources.files("isthmus.web") / "static")]
    while pending:
        prefix, directory = pending.pop()
        for entry in directory.iterdir():
            name = f"{prefix}{entry.name}"
            if entry.is_dir():
                pending.append((f"{name}/", entry))
            elif content_type := _TYPES.get(f".{name.rpartition('.')[2]}"):
                content = entry.read_bytes()
                etag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
                found[name] = Asset(content, gzip.compress(content, 9, mtime=0), content_type, etag)
    return found


def policy(page: bytes) -> str:
    """Write the content security policy of the page."""
    hashes = (
        f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" for script in _INLINE.findall(page)
    )
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' {' '.join(hashes)}".rstrip(),
            "style-src 'self'",
            "connect-src 'self'",
            "img-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
