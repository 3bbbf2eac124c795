"""Whether Slurm answers, and how old what is exposed is. While Slurm is away, only this changes."""

import time
from collections.abc import Callable, Iterator, Sequence

from isthmus.domain.exporter import catalog as c
from isthmus.exporter.periodic import Periodic
from isthmus.runtime.health import Check
from isthmus.slurm.poller import Poller

Clock = Callable[[], float]


class ContactFamilies:
    """What the poller and the other readers know of the contact with Slurm."""

    def __init__(
        self,
        poller: Poller,
        readers: Sequence[Periodic],
        *,
        diag: Periodic,
        accounting: Periodic,
    ) -> None:
        self._poller = poller
        self._diag = diag
        self._readers = readers
        self._accounting = accounting

    @property
    def is_up(self) -> bool:
        return self._poller.contact.in_touch and not self._diag.trouble

    def check(self) -> Check:
        """Say whether the first contact has been made: from then on there is something to show."""
        if not self._poller.has_read:
            trouble = self._diag.trouble or self._poller.contact.trouble
            return Check(ok=False, sentence=f"Slurm has not been read yet: {trouble or 'reading'}")
        if not self.is_up:
            trouble = self._diag.trouble or self._poller.contact.trouble
            return Check(ok=True, sentence=f"Slurm does not answer, the last values are shown: {trouble}")
        return Check(ok=True, sentence="in touch")

    def text(self, now: float) -> Iterator[str]:
        yield c.UP.text([((), float(self.is_up))])
        ages = {"jobs": self._age("states"), "nodes": self._age("nodes")}
        ages |= {it.name: it.age for it in self._readers}
        known = {name: age for name, age in ages.items() if age is not None}
        if heard := [it for it in (self._heard(), known.get("diag")) if it is not None]:
            yield c.LAST_CONTACT.text([((), round(now - min(heard), 3))])
        yield c.DATA_AGE.text([((name,), round(age, 3)) for name, age in known.items()])
        if self._accounting.age is not None:
            yield c.ACCOUNTING_UP.text([((), float(not self._accounting.trouble))])

    def _age(self, loop: str) -> float | None:
        began = self._poller.as_of("states" if loop == "states" else "nodes")
        return None if began is None else time.monotonic() - began

    def _heard(self) -> float | None:
        return None if self._poller.heard_at is None else time.monotonic() - self._poller.heard_at
