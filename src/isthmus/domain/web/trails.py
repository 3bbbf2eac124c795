"""What became of a job or a node, step by step: kept while it lives, and for a while after Slurm has forgotten it.

Slurm tells the present only. A job that waited for a limit, then for priority, then for nodes shows the last of
these, and nothing at all some minutes after its end. Here each change is a step with its time.
"""

from collections import OrderedDict
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K", int, str)

_MAX_STEPS: Final = 24
_MAX_KEYS: Final = 50_000


class Step(NamedTuple):
    at: float
    """Seconds since 1970."""
    state: str
    why: str = ""


class Trails(Generic[K]):
    """Steps by key. The longest unchanged keys are forgotten first."""

    def __init__(self, *, max_keys: int = _MAX_KEYS, max_steps: int = _MAX_STEPS) -> None:
        self._steps: OrderedDict[K, list[Step]] = OrderedDict()
        self._max_keys, self._max_steps = max_keys, max_steps

    def __len__(self) -> int:
        return len(self._steps)

    def note(self, key: K, step: Step) -> bool:
        """Add a step, unless the last one says the same; say whether it was news."""
        steps = self._steps.setdefault(key, [])
        if steps and (steps[-1].state, steps[-1].why) == (step.state, step.why):
            return False
        steps.append(step)
        if len(steps) > self._max_steps:
            del steps[1]  # the beginning and the latest matter most
        self._steps.move_to_end(key)
        if len(self._steps) > self._max_keys:
            self._steps.popitem(last=False)
        return True

    def forget(self, key: K) -> None:
        self._steps.pop(key, None)

    def of(self, key: K) -> tuple[Step, ...]:
        return tuple(self._steps.get(key, ()))
