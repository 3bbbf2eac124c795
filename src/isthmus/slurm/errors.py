"""Slurm's error numbers and HTTP's, mapped once to what the caller does next.

Slurm answers with a number, a sentence of its own and often a second one; both are kept, because people search the
web for them. What we add is the class (try again, wait, stop) and, where there is one, the remedy.
"""

from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from isthmus.errors import IsthmusError, Retry, Terminal, Wait


class Problem(msgspec.Struct, frozen=True):
    """One entry of the `errors` of an answer."""

    error_number: int = 0
    error: str | None = None
    description: str | None = None

    def __str__(self) -> str:
        sentences = [text.strip().rstrip(".") for text in (self.error, self.description) if text and text.strip()]
        unique = dict.fromkeys(sentences)
        number = f" (Slurm error {self.error_number})" if self.error_number else ""
        return f"{': '.join(unique) or 'no reason given'}{number}"


class Unreachable(Retry):
    """No slurmrestd took the request; it was certainly not applied."""


class AnswerLost(Retry):
    """The request was sent but its answer never came: it may or may not have been applied."""


class ControllerAway(Retry):
    """slurmrestd is there, slurmctld is not."""


class ControllerUnreached(ControllerAway):
    """slurmrestd found no connection to slurmctld, which has therefore certainly not seen the request."""


class CompleterAway(Retry):
    """`isthmus-complete` did not answer; the job may or may not have ended."""


class DatabaseAway(Retry):
    """slurmrestd is there, slurmdbd is not."""


class Overloaded(Retry):
    """Slurm asks for patience."""


class Garbled(Retry):
    """The answer is not what Slurm says; the connection is not to be trusted."""


class NotNow(Wait):
    """Slurm refuses for as long as something else lasts: a limit, a reservation, a node in transition."""


class Declined(Terminal):
    """Slurm has answered, and does not do as asked."""


class Unauthorized(Declined):
    """The token is wrong, expired or of an unknown user."""


class Denied(Declined):
    """The user of the token may not do this."""


class NotFound(Declined):
    """There is no such job, node, partition or reservation."""


class AlreadyExists(Declined):
    """The name is taken."""


class AlreadyDone(Declined):
    """The job or step has ended already."""


class Refused(Declined):
    """Slurm will not do this as it was asked."""


class Deferred(Refused):
    """slurmctld starts no job at the moment of its submission, whatever is free (SchedulerParameters=defer)."""


class Unsupported(Declined):
    """This Slurm is too old for the call."""


class UnknownVersion(Declined):
    """The server speaks no API version that we know."""


class _Meaning(NamedTuple):
    kind: type[Retry | Terminal | NotNow]
    remedy: str = ""


_WAIT_SECONDS = 5.0
"""Seconds to wait after a temporary refusal of Slurm."""

_HOW_TO_BE_KNOWN = (
    "check that the token is signed with the cluster's jwt.key, is not expired and names a user it knows"
)
_HOW_TO_BE_ALLOWED = "make the token's user an operator or administrator in Slurm"
_HOW_TO_REACH = "check that slurmctld runs and that slurmrestd's host can reach it (scontrol ping)"
_HOW_TO_FIND_PRIMARY = "point slurmrestd's slurm.conf at every SlurmctldHost"

_MEANINGS: dict[int, _Meaning] = {
    **dict.fromkeys((1001, 1002, 1003, 1004), _Meaning(ControllerAway, _HOW_TO_REACH)),
    **dict.fromkeys((1019, 1020, 1021, 1022, 1023), _Meaning(ControllerAway, _HOW_TO_REACH)),
    **dict.fromkeys((1801, 1802, 1803), _Meaning(ControllerAway, _HOW_TO_REACH)),
    1800: _Meaning(ControllerUnreached, _HOW_TO_REACH),
    **dict.fromkeys((5003, 5004, 5005), _Meaning(ControllerAway, _HOW_TO_REACH)),
    # What some calls of slurmrestd report when slurmctld did not answer in time; a true lack of rights is 2002.
    **dict.fromkeys((-1, 1), _Meaning(ControllerAway, _HOW_TO_REACH)),
    1005: _Meaning(Declined, "run slurmrestd and slurmctld of versions at most two apart"),
    1007: _Meaning(Unauthorized, _HOW_TO_BE_KNOWN),
    1804: _Meaning(Overloaded),
    1805: _Meaning(Overloaded),
    2000: _Meaning(NotFound, "see scontrol show partitions for their names"),
    2002: _Meaning(Denied, _HOW_TO_BE_ALLOWED),
    2007: _Meaning(NotNow, "raise MaxJobCount, or wait until jobs have left the queue"),
    2010: _Meaning(Denied, _HOW_TO_BE_ALLOWED),
    2016: _Meaning(NotNow),
    2017: _Meaning(NotFound),
    2018: _Meaning(NotFound, "see scontrol show nodes for their names"),
    2020: _Meaning(NotNow),
    2021: _Meaning(AlreadyDone),
    2024: _Meaning(NotNow),
    2027: _Meaning(ControllerAway, _HOW_TO_FIND_PRIMARY),
    2036: _Meaning(Unsupported),
    2045: _Meaning(Refused, "see sacctmgr show associations for the accounts of the user"),
    2050: _Meaning(NotNow, "a limit of the account, user or QOS is reached: see sacctmgr show associations, qos"),
    2053: _Meaning(NotFound, "see scontrol show reservations for their names"),
    2055: _Meaning(NotNow),
    2066: _Meaning(Refused, "see sacctmgr show qos, and which the account may use"),
    2082: _Meaning(AlreadyExists),
    2084: _Meaning(AlreadyDone),
    2105: _Meaning(NotNow, "an administrator has closed the queue in the partition or cluster"),
    2120: _Meaning(NotNow),
    2125: _Meaning(Deferred),
    2131: _Meaning(ControllerAway, _HOW_TO_FIND_PRIMARY),
    2168: _Meaning(AlreadyExists),
    2169: _Meaning(Refused, "raise MaxNodeCount in slurm.conf and restart slurmctld"),
    4034: _Meaning(Overloaded),
    **dict.fromkeys((6000, 6001, 6004, 6007, 6009, 6010), _Meaning(Unauthorized, _HOW_TO_BE_KNOWN)),
    **dict.fromkeys((7000, 7008), _Meaning(DatabaseAway, "check that slurmdbd runs and reaches its database")),
    9003: _Meaning(NotFound),
    9008: _Meaning(Unauthorized, _HOW_TO_BE_KNOWN),
}

_BY_STATUS: dict[int, _Meaning] = {
    HTTPStatus.UNAUTHORIZED: _Meaning(Unauthorized, _HOW_TO_BE_KNOWN),
    HTTPStatus.FORBIDDEN: _Meaning(Denied, _HOW_TO_BE_ALLOWED),
    HTTPStatus.NOT_FOUND: _Meaning(NotFound),
    HTTPStatus.METHOD_NOT_ALLOWED: _Meaning(Unsupported, "a newer slurmrestd has this call"),
    HTTPStatus.TOO_MANY_REQUESTS: _Meaning(Overloaded),
    # A gateway in between may have passed the request on before it gave up.
    HTTPStatus.BAD_GATEWAY: _Meaning(AnswerLost),
    HTTPStatus.SERVICE_UNAVAILABLE: _Meaning(AnswerLost),
    HTTPStatus.GATEWAY_TIMEOUT: _Meaning(AnswerLost),
}


def failure(what: str, *, status: int, problems: Iterable[Problem]) -> IsthmusError | None:
    """Make the error of a response, or None if it succeeded.

    `what` says what was asked for, such as "cancelling job 7". The first problem with a known number decides; the
    HTTP status only when Slurm itself gave no reason that we know.
    """
    told = [problem for problem in problems if problem.error_number or problem.error]
    if not told and status < HTTPStatus.BAD_REQUEST:
        return None
    decisive = next((problem for problem in told if problem.error_number in _MEANINGS), None)
    if decisive:
        meaning = _MEANINGS[decisive.error_number]
    elif told and status not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        meaning = _Meaning(Refused)
    elif status in _BY_STATUS:
        meaning = _BY_STATUS[status]
    else:
        meaning = _Meaning(Garbled if status >= HTTPStatus.INTERNAL_SERVER_ERROR else Refused)
    reasons = "; ".join(str(problem) for problem in ([decisive] if decisive else told)) or f"HTTP status {status}"
    sentence = f"{what} failed: {reasons}"
    if issubclass(meaning.kind, NotNow):
        return NotNow(sentence, after=_WAIT_SECONDS, remedy=meaning.remedy)
    return meaning.kind(sentence, remedy=meaning.remedy)
