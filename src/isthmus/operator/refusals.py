"""What Kubernetes or Slurm refuses stands in the status of the object that it was done for, and is tried again.

A refusal that no repetition helps against (`Terminal`) needs a user: the object is Degraded, with the reason and
an Event. What was in the way may go without a word to us, such as a quota or another's Service, so it is
tried again every few seconds.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
import structlog

from isthmus.domain.kube import conditions
from isthmus.domain.kube.podtrouble import Trouble
from isthmus.errors import IsthmusError, Retry, Terminal, Wait
from isthmus.kube.errors import AlreadyExists, ApiError, NotFound, Taken, Unavailable
from isthmus.kube.recorder import Recorder
from isthmus.kube.store import Store
from isthmus.model.base import Kind
from isthmus.model.meta import Key, Reported
from isthmus.operator import parts
from isthmus.operator.applier import Foreign, ReferenceMissing
from isthmus.operator.statuswriter import Reporter
from isthmus.runtime.controller import leaves, most_urgent
from isthmus.slurm.errors import Declined

log = structlog.get_logger()

T = TypeVar("T", bound=Reported)

Reconcile = Callable[[Key], Awaitable[None]]

AGAIN_S: Final = 10.0
"""So many seconds later it is seen whether what was refused is taken now."""


def again(error: IsthmusError) -> Wait | None:
    """What to raise once a refusal has been reported; None if a change of its cause wakes us."""
    return Wait(error.what, after=AGAIN_S) if isinstance(error, ApiError | Foreign | Declined) else None


async def attempt(making: Awaitable[Trouble]) -> tuple[Trouble, Exception | None]:
    """Apply something; return what is wrong with it, and what to raise after reporting that.

    The API server answers some mistakes in pod templates as if the fault were its own: those are told, too, and
    tried again; and so are a port that is in use, and an object that is referred to and is missing.
    """
    try:
        return await making, None
    except Terminal as error:
        return Trouble(wrong=error.line), again(error)
    except (Unavailable, Taken, ReferenceMissing) as error:
        return Trouble(wrong=error.line), error


def told(
    kind: Kind[T], there: Store[T], reconcile: Reconcile, *, reporter: Reporter, recorder: Recorder
) -> Reconcile:
    """Wrap a reconcile function so that refusals are written into the status of its object."""
    races: set[Key] = set()

    async def reconcile_and_tell(key: Key) -> None:
        try:
            await reconcile(key)
        except Exception as error:
            refused = [it for it in leaves(error) if isinstance(it, Terminal)]
            if not refused:
                raise
            if key not in races and all(isinstance(it, NotFound | AlreadyExists) for it in refused):
                # Another writer was faster. What the second attempt meets, too, is more than that.
                races.add(key)
                raise Retry(str(refused[0])) from error
            races.discard(key)
            wrong = "; ".join(it.line for it in refused)
            log.warning("refused, will retry", error=wrong, after=AGAIN_S)
            if (about := there.get(key)) is not None:
                await _tell(kind, about, wrong, reporter=reporter, recorder=recorder)
            if isinstance(most_urgent(error), Terminal):
                raise Wait(refused[0].what, after=AGAIN_S) from error
            raise
        races.discard(key)

    return reconcile_and_tell


async def _tell(kind: Kind[T], about: T, wrong: str, *, reporter: Reporter, recorder: Recorder) -> None:
    """Report that something is wrong; other conditions stay."""
    before: dict[str, Any] = msgspec.to_builtins(about.status)
    fields = {name: value for name, value in before.items() if name not in {"conditions", "observedGeneration"}}
    summary = conditions.summary(wrong=wrong, settled="")
    types = {it.type for it in summary}
    held = [*(it for it in about.status.conditions if it.type not in types), *summary]
    parts.tell(recorder, kind, about, held)
    await reporter.report(kind, about, fields, held)
