"""The kinds of the Prometheus operator, from the module that defines them: PodMonitor, ServiceMonitor and so on.

Nothing of that operator runs. That the API server takes our monitors by the real definitions is what tests need.
"""

from pathlib import Path

from isthmus.local import crds
from isthmus.local.crds import Definition
from isthmus.local.progress import PlainProgress, Progress

NAMES = ("podmonitors", "servicemonitors", "prometheusrules")

_GROUP = "monitoring.coreos.com"
_MODULE = "github.com/prometheus-operator/prometheus-operator"
_FILES = "example/prometheus-operator-crd"


class _Pinned(Definition):
    """One that only tests need, and that is pinned beside them."""

    @property
    def sources(self) -> Path:
        return Path(__file__).parent / "modules" / self.pinned_by


def files(*names: str, progress: Progress | None = None) -> dict[str, Path]:
    """Return the file of each definition; Go keeps the module, and checks it against go.sum."""
    pinned = _Pinned("prometheus-operator", _MODULE, _file(NAMES[0]))
    directory = crds._unpacked(pinned, progress or PlainProgress())
    return {f"{it}.{_GROUP}": directory / _file(it) for it in names or NAMES}


def _file(name: str) -> str:
    return f"{_FILES}/{_GROUP}_{name}.yaml"
