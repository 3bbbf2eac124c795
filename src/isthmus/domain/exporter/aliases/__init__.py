"""The names of other exporters, for dashboards that people have. One set at most takes the place of Soperator's."""

from collections.abc import Mapping
from typing import Final

from isthmus.domain.exporter.aliases import native, slinky, vpenso
from isthmus.domain.exporter.sets import MetricSet

SETS: Final[Mapping[str, MetricSet]] = {"native": native.SET, "vpenso": vpenso.SET, "slinky": slinky.SET}
