"""Ends jobs as COMPLETED or FAILED, through `isthmus-complete`, which runs beside slurmrestd or beside us.

slurmrestd can only cancel. What it lacks is a call of libslurm; `images/spank/complete.c` makes it, with our token,
and answers as slurmrestd does.
"""

import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from isthmus.slurm.auth import TokenSource
from isthmus.slurm.calls import Answer
from isthmus.slurm.errors import AnswerLost, CompleterAway, Unreachable, failure
from isthmus.slurm.transport import Observe, Transport

_CONNECTIONS: Final = 4
_LONGEST_REST: Final = 300.0
"""Each connection is a process of the helper, which takes longer to start than slurmctld takes for fifty jobs."""

_decode = msgspec.json.Decoder(Answer).decode


class Completer:
    """The helper, as far as one Kubernetes cluster is concerned: it refuses the jobs of others."""

    def __init__(self, transport: Transport, *, cluster: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._transport = transport
        self._cluster = cluster
        self._clock = clock
        self._away_since: float | None = None

    @property
    def away_for(self) -> float:
        """Seconds since the helper first failed to answer; 0 if it answered the last time."""
        return 0.0 if self._away_since is None else self._clock() - self._away_since

    async def complete(self, job_id: int, status: int) -> None:
        """End a running job of ours with this status of wait(2)."""
        what = f"completing job {job_id}"
        try:
            reply = await self._transport.request(
                "POST", f"/jobs/{job_id:d}/complete?cluster={self._cluster}&status={status:d}"
            )
            answer = _decode(reply.body)
        except (Unreachable, AnswerLost, msgspec.DecodeError) as error:
            self._away_since = self._clock() if self._away_since is None else self._away_since
            raise CompleterAway(
                f"{what} failed: isthmus-complete does not answer ({error})",
                remedy="check slurmCompleter, and that isthmus-complete runs at that address",
            ) from error
        self._away_since = None
        if refusal := failure(what, status=reply.status, problems=answer.errors):
            raise refusal


def to_helper(
    endpoints: Sequence[str],
    tokens: TokenSource,
    *,
    tls: ssl.SSLContext | None = None,
    observe: Observe | None = None,
) -> Transport:
    """Make the transport to the helper at these addresses, few connections that are kept for long."""
    return Transport(endpoints, tokens, tls=tls, observe=observe, parallel=_CONNECTIONS, longest_rest=_LONGEST_REST)
