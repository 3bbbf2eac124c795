"""Files that Isthmus brings along beside its code: charts, the plugin's source, the locked Python packages.

In a clone they lie where people look for them, at the top. A wheel holds only the package, so the build copies them
into it (see pyproject.toml). Everyone who needs one asks here, and need not know which of the two it is.
"""

from pathlib import Path

import isthmus
from isthmus.errors import Terminal

PACKAGE = Path(isthmus.__file__).parent
IN_WHEEL = "data"
"""The directory of the package in which a wheel has them; there is none in a clone."""


def find(name: str) -> Path:
    """Return a file or directory by its path in the repository: `charts/slurm-bridge`, `requirements.lock`."""
    for home in (PACKAGE / IN_WHEEL, PACKAGE.parents[1]):
        if (home / name).exists():
            return home / name
    raise Terminal(
        f"the installation of Isthmus in {PACKAGE} lacks {name}",
        remedy="install the wheel with pip or pipx, or run `pip install --editable .` in a clone",
    )


def charts() -> dict[str, Path]:
    """Return the directories of the Helm charts by their names."""
    return {chart.parent.name: chart.parent for chart in sorted(find("charts").glob("*/Chart.yaml"))}


def chart(name: str) -> Path:
    there = charts()
    if name not in there:
        raise Terminal(f"there is no chart {name!r}", remedy=f"choose from: {', '.join(there)}")
    return there[name]
