"""Counts what happens to nodes: failures, how long they were out of use or draining, and what their GPUs did.

Meanings are Soperator's. A node that power saving has taken is neither failed nor unavailable. What a node did
while Slurm did not answer, or while the exporter was down, is not known: such time counts for no state of its GPUs.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from isthmus.domain.exporter import catalog, nodestates
from isthmus.domain.exporter.folding import Limits
from isthmus.domain.exporter.jobfacts import gpus
from isthmus.domain.exporter.tallies import Histogram, Labels, Tally
from isthmus.model.slurm import Node, States

_MAX_STEP_S: Final = 60.0
"""Seconds that may pass between two looks at the clock; what is beyond is a clock that was set."""


class NodeState(msgspec.Struct, array_like=True):
    """What is known of a node. Times are seconds since 1970, 0 if it is not so."""

    failed: bool
    unavailable: float = 0.0
    draining: float = 0.0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, NodeState]).decode


class NodeLedger:
    def __init__(self, limits: Limits) -> None:
        self.fails = Tally(catalog.NODE_FAILS, limit=limits.series)
        self.gpu_seconds = Tally(catalog.NODE_GPU_SECONDS, limit=limits.series)
        self.unavailable = Histogram(catalog.NODE_UNAVAILABLE_SECONDS, limit=limits.series)
        self.draining = Histogram(catalog.NODE_DRAINING_SECONDS, limit=limits.series)
        self._states: dict[str, NodeState] = {}
        self._gpus: dict[str, tuple[Labels, int]] = {}
        self._advanced: float | None = None

    @property
    def tallies(self) -> tuple[Tally | Histogram, ...]:
        return self.fails, self.gpu_seconds, self.unavailable, self.draining

    def save(self) -> bytes:
        """Write down what is known of nodes; the tallies are saved apart."""
        return _encode(self._states)

    def load(self, text: bytes) -> None:
        """Take over what was saved; raises `msgspec.MsgspecError` if this is something else."""
        self._states = _decode(text)

    def see(self, node: Node, *, now: float) -> None:
        """Count what is new about a node. One that is seen for the first time has not failed now."""
        known = self._states.get(node.name)
        failed = nodestates.is_failed(node.state)
        if known is not None and failed and not known.failed:
            self.fails.add((*nodestates.state_labels(node), node.reason))
        unavailable, draining = (known.unavailable, known.draining) if known else (None, None)
        self._states[node.name] = NodeState(
            failed,
            self._lasts(self.unavailable, node, unavailable, nodestates.is_unavailable, now),
            self._lasts(self.draining, node, draining, nodestates.is_draining, now),
        )
        if count := gpus(node.gres):
            self._gpus[node.name] = nodestates.state_labels(node), count
        else:
            self._gpus.pop(node.name, None)

    def gone(self, name: str) -> None:
        """Forget a node that Slurm no longer has, and its series: names of nodes may be as many as there were."""
        self._states.pop(name, None)
        self._gpus.pop(name, None)
        for tally in self.tallies:
            tally.drop(name)

    def advance(self, now: float, *, in_touch: bool) -> None:
        """Let time pass for the GPUs of all nodes, in the states that they are in."""
        passed = now - self._advanced if self._advanced is not None else 0.0
        self._advanced = now
        if in_touch and passed > 0:
            for labels, count in self._gpus.values():
                self.gpu_seconds.add(labels, count * min(passed, _MAX_STEP_S))

    @staticmethod
    def _lasts(
        histogram: Histogram, node: Node, since: float | None, holds: Callable[[States], bool], now: float
    ) -> float:
        """Since when something holds for a node; observe how long it did when it is over."""
        if not holds(node.state):
            if since:
                histogram.observe((node.name,), max(0.0, now - since))
            return 0.0
        if since is None:
            # It was so before anybody looked: the time of the reason is the best that is known.
            return float(node.reason_changed_at.value or 0) or now
        return since or now
