"""What elastic nodes cost and how long they take, summed up from one look to the next.

    queue      Slurm starts a node            ─►  its pod has a machine      (capacity, quota)
    boot       its pod has a machine          ─►  slurmd runs                (image, init containers)
    register   slurmd runs                    ─►  Slurm has the node

    node-seconds   by what the node does: busy, idle, starting, stopping; all but the first are waste
    unused starts  nodes that were started and stopped without a job in between: thrash

It is memory of one process. What was on when it began counts as used, and its start is not timed.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from isthmus.domain.elastic.decision import Slot

Use = Literal["busy", "idle", "starting", "stopping"]


class Start(msgspec.Struct, frozen=True):
    """How long a node took, in seconds."""

    queue: float
    boot: float
    register: float


class Tally(msgspec.Struct, frozen=True):
    """What happened since the last look."""

    seconds: dict[Use, float]
    starts: tuple[Start, ...] = ()
    unused: int = 0


class _Life(msgspec.Struct):
    """A node from its start to its stop."""

    asked: float | None = None
    placed: float | None = None
    running: float | None = None
    up: bool = False
    used: bool = False


class PowerLedger:
    """The nodes of one NodeSet."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._counts: Counter[Use] = Counter()
        self._lives: dict[int, _Life] = {}

    def look(self, slots: Iterable[Slot], *, now: float) -> Tally:
        """Sum up until `now`, in seconds by a clock that never goes back."""
        passed = 0.0 if self._at is None else max(0.0, now - self._at)
        seconds = {use: count * passed for use, count in self._counts.items()}
        starts: list[Start] = []
        unused, first = 0, self._at is None
        counts: Counter[Use] = Counter()
        for slot in slots:
            match slot.phase:
                case "starting":
                    counts["starting"] += 1
                    self._starting(slot, now, first=first)
                case "on":
                    counts["busy" if slot.busy else "idle"] += 1
                    starts += self._on(slot, now)
                case "unknown":
                    pass  # Slurm has it anew, or not yet: it tells nothing.
                case phase:
                    counts.update(["stopping"] if phase == "stopping" else [])
                    life = self._lives.pop(slot.ordinal, None)
                    unused += life is not None and not life.used
        self._at, self._counts = now, counts
        return Tally(seconds, tuple(starts), unused)

    @property
    def counts_on(self) -> bool:
        """Whether time adds up: some node is not off."""
        return self._counts.total() > 0

    def _starting(self, slot: Slot, now: float, *, first: bool) -> None:
        life = self._lives.get(slot.ordinal)
        if life is None or life.up:
            # What had begun before the first look has no beginning that we know.
            life = self._lives[slot.ordinal] = _Life(asked=None if first else now, used=first)
        if life.placed is None and slot.placed:
            life.placed = now
        if life.running is None and slot.pod in {"running", "ready"}:
            life.running = now

    def _on(self, slot: Slot, now: float) -> Iterable[Start]:
        life = self._lives.setdefault(slot.ordinal, _Life(up=True, used=True))
        life.used |= slot.busy
        if life.up:
            return
        life.up = True
        if life.asked is not None:
            # Several steps may lie between two looks.
            running = now if life.running is None else life.running
            placed = running if life.placed is None else life.placed
            yield Start(placed - life.asked, running - placed, now - running)
