"""Why a group of pods cannot go on, as errors that say whether that passes."""

from typing import Final

from isthmus.errors import Terminal, Wait
from isthmus.model.pod import Pod

_LOOK_AGAIN: Final = 2.0
"""Most of what is waited for wakes its group by itself; this is for the rest."""


class Hold(Wait):
    """Not yet. `reason` is the word for the pod's condition."""

    def __init__(self, what: str, *, reason: str, after: float = _LOOK_AGAIN, remedy: str = "") -> None:
        super().__init__(what, after=after, remedy=remedy)
        self.reason = reason


class GiveBack(Terminal):
    """Slurm gave a node that Kubernetes cannot use for this pod."""

    def __init__(self, what: str, *, pod: Pod, job_id: int, slurm_node: str) -> None:
        super().__init__(what)
        self.pod = pod
        self.job_id = job_id
        self.slurm_node = slurm_node
