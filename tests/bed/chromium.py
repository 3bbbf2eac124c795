"""Debian's Chromium, in which the page is tested."""

from pathlib import Path
from typing import Final

PROGRAM: Final = Path("/usr/bin/chromium")
PACKAGES: Final = {
    str(PROGRAM): "chromium",
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf": "fonts-dejavu-core",
}
"""Files that the tests in a browser need, and the Debian packages that bring them."""
