"""Everything that a NodeSet reports: its status with conditions, Events, and counts for Prometheus.

While things move, the status is written twice a second at most; whatever a failover depends on is written at once.
"""

import time
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Final

import msgspec
import structlog

from isthmus.domain.elastic.ledger import Tally
from isthmus.domain.kube.podtrouble import UNCREATED
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.nodeset import status
from isthmus.domain.operator.nodeset.actions import Drain, ReplacementCause
from isthmus.domain.operator.nodeset.decision import Decision
from isthmus.domain.operator.nodeset.departures import Note
from isthmus.domain.operator.nodeset.view import View
from isthmus.kube.recorder import Recorder
from isthmus.kube.store import Store
from isthmus.model.slinky import NODESETS, NodeSet
from isthmus.operator.nodesets.memory import Memory
from isthmus.operator.statuswriter import Reporter
from isthmus.runtime.metrics import NodeSetMetrics

log = structlog.get_logger()

_INTERVAL_S: Final = 0.5


@dataclass(eq=False)
class Report:
    """Writes the status and the Events of NodeSets, and counts what was done."""

    nodesets: Store[NodeSet]
    _: KW_ONLY
    reporter: Reporter
    recorder: Recorder
    metrics: NodeSetMetrics

    async def write(self, view: View, decided: Decision, memory: Memory, *, at_once: bool = False) -> float | None:
        """Write the status; or, if the last one is too recent and this one can wait, return when to."""
        nodeset = self.nodesets.get(view.nodeset.metadata.key)
        if nodeset is None or nodeset.metadata.uid != view.nodeset.metadata.uid:
            return None
        wait = memory.reported_at + _INTERVAL_S - time.monotonic()
        if wait > 0 and not at_once:
            return wait
        # The report is about the specification that was looked at, though there may be another by now.
        meta = msgspec.structs.replace(nodeset.metadata, generation=view.nodeset.metadata.generation)
        nodeset = msgspec.structs.replace(nodeset, metadata=meta)
        present = {pod.name for pod in view.pods if not pod.leaving}
        victims = tuple(it for it in decided.victims if it in present)
        fields = status.fields(view, selector=worker.selector(nodeset), victims=victims)
        trouble = decided.trouble
        refusals = (f"{UNCREATED}: {view.refusal}",) if view.refusal else ()
        if refusals := (*refusals, *memory.slurm_refusals):
            trouble = msgspec.structs.replace(trouble, wrong=(*trouble.wrong, *refusals))
        held = status.held(view, trouble, also=(decided.condition,))
        if await self.reporter.report(NODESETS, nodeset, fields, held):
            memory.reported_at = time.monotonic()
        return None

    async def write_failure(self, nodeset: NodeSet, wrong: str) -> None:
        """Report why nothing can be done at all; what was reported of pods before stays."""
        before = msgspec.to_builtins(nodeset.status)
        fields = {key: value for key, value in before.items() if key not in {"conditions", "observedGeneration"}}
        fields.setdefault("selector", worker.selector(nodeset))
        fields.setdefault("nodeSetHash", "")
        await self.reporter.report(NODESETS, nodeset, fields, status.hopeless(wrong))
        self.recorder.event(NODESETS, nodeset, "SyncFailed", wrong, warning=True)

    def event(self, nodeset: NodeSet, reason: str, note: str, *, warning: bool = False) -> None:
        """Record as an Event, and in the log, what was done or refused."""
        write = log.warning if warning else log.info
        write("nodeset", nodeset=str(nodeset.metadata.key), reason=reason, note=note)
        self.recorder.event(NODESETS, nodeset, reason, note, warning=warning)

    def count_drains(self, nodeset: NodeSet, drain: Drain) -> None:
        self.metrics.drains.of(*nodeset.metadata.key, drain.cause).inc(len(drain.slurm_names))

    def count_replacement(self, nodeset: NodeSet, cause: ReplacementCause) -> None:
        self.metrics.replaced.of(*nodeset.metadata.key, cause).inc()

    def count_power(self, nodeset: NodeSet, tally: Tally) -> None:
        """Count how nodes of an elastic NodeSet were used."""
        key = nodeset.metadata.key
        for use, seconds in tally.seconds.items():
            self.metrics.node_seconds.of(*key, use).inc(seconds)
        self.metrics.unused_starts.of(*key).inc(tally.unused)
        for it in tally.starts:
            for step, seconds in (("queue", it.queue), ("boot", it.boot), ("register", it.register)):
                self.metrics.start.of(*key, step).observe(seconds)

    def notes(self, nodeset: NodeSet, notes: Iterable[Note]) -> None:
        """Record as Events what was found; it is found again each time, so it is not logged."""
        for it in notes:
            self.recorder.event(NODESETS, nodeset, it.reason, it.note, warning=True)
