"""The outcome of applying the parts of a cluster: what to report, and when to retry."""

import msgspec

from isthmus.domain.kube.podtrouble import Trouble
from isthmus.errors import IsthmusError, Retry, Terminal, Wait
from isthmus.kube.errors import Conflict, Unavailable, Unreachable
from isthmus.operator import refusals


class Outcome(msgspec.Struct, frozen=True):
    """The result of applying all parts once."""

    stale: frozenset[str] = frozenset()
    """Kinds of parts that the caches do not show yet as they are wanted."""
    errors: tuple[IsthmusError, ...] = ()
    root_refused: Terminal | None = None
    """Why the Job of the shared root cannot be made."""

    def trouble(self, *, is_new: bool) -> Trouble:
        """What is not there and why. What another object's absence explains may pass, in a young cluster."""
        passing = (Retry, Wait) if is_new else (Unavailable, Unreachable, Conflict, Wait)
        wrong = [it.line for it in self.errors if not isinstance(it, passing)]
        missing = [it.line for it in self.errors if isinstance(it, passing)]
        return Trouble("; ".join(sorted(wrong)), "; ".join(sorted(missing)))

    def raise_what_failed(self) -> None:
        """Have it tried again: soon what may pass, later what was refused."""
        if passing := [it for it in self.errors if not isinstance(it, Terminal)]:
            raise ExceptionGroup("some objects could not be applied", passing)
        for error in (*self.errors, self.root_refused):
            if error and (failure := refusals.again(error)):
                raise failure from error
