"""What the API server answers when it does not do as asked, mapped once to what the caller does next.

Retry     Conflict, Expired, Taken, Unauthorized, Unavailable, Unreachable, Garbled
Wait      TooManyRequests
Terminal  NotFound, AlreadyExists, Forbidden, Invalid, FieldConflict, Rejected
"""

# ruff: noqa: N818 - the names say what the server answered, in its own words

import re
from collections.abc import Mapping

import msgspec

from isthmus.errors import IsthmusError, Retry, Terminal, Wait
from isthmus.model.base import Data

_HTTP_CLIENT_ERROR = 400
_HTTP_SERVER_ERROR = 500


UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises, whatever the bytes: no JSON, not of the type, no UTF-8, or nested without end."""


class Cause(Data, frozen=True):
    """One field, and what is wrong with it."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(Data, frozen=True):
    """The machine-readable part of a refusal."""

    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


class Status(Data, frozen=True):
    """The API server's own account of a failure."""

    status: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        """What is wrong, field by field."""
        return self.details.causes if self.details else ()


class ApiError(IsthmusError):
    """An answer that is not success; `status` holds what the API server said."""

    status: Status = Status()


class NotFound(ApiError, Terminal):
    """There is no such object, or no such kind."""


class AlreadyExists(ApiError, Terminal):
    """An object with this name is there already."""


class Forbidden(ApiError, Terminal):
    """Our identity may not do this, or an admission rule denies it."""


class Invalid(ApiError, Terminal):
    """The object breaks a rule of its kind."""


class FieldConflict(ApiError, Terminal):
    """Another manager owns fields that we tried to apply; only `force` would take them."""


class Rejected(ApiError, Terminal):
    """The request makes no sense to the server."""


class Conflict(ApiError, Retry):
    """The object changed since it was read: read it again, decide again."""


class Expired(ApiError, Retry):
    """The version is too old to continue from: list again."""


class Taken(ApiError, Retry):
    """Another Service has the port or the address; or had it, and the server has yet to notice that it is gone."""


class Unauthorized(ApiError, Retry):
    """The server does not know us; the token may be about to rotate."""


class Unavailable(ApiError, Retry):
    """The server has trouble of its own."""


class TooManyRequests(ApiError, Wait):
    """The server asks us to come back in `after` seconds; also: a disruption budget forbids an eviction now."""


class Unreachable(Retry):
    """No answer: refused, reset, timed out, or not to be trusted (TLS)."""


class Garbled(Retry):
    """An answer that is not what the Kubernetes API sends."""


_BY_REASON: Mapping[str, type[ApiError]] = {
    "NotFound": NotFound,
    "AlreadyExists": AlreadyExists,
    "Forbidden": Forbidden,
    "Invalid": Invalid,
    "Conflict": Conflict,
    "Expired": Expired,
    "Gone": Expired,
    "Unauthorized": Unauthorized,
    "TooManyRequests": TooManyRequests,
    "ServerTimeout": Unavailable,
    "Timeout": Unavailable,
    "ServiceUnavailable": Unavailable,
    "InternalError": Unavailable,
}

_BY_CODE: Mapping[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}

_REMEDIES: Mapping[type[ApiError], str] = {
    Unauthorized: "renew the credentials in the kubeconfig, or the service account token",
    FieldConflict: "leave these fields to their manager, or apply with force",
}

_OBJECTS = re.compile(
    r"(\w+) /(?:api/v1|apis/[^/?]+/[^/?]+)/(?:namespaces/([^/?]+)/)?([a-z]+)(?:/([^/?]+))?(?:/[^?]*)?(?:\?.*)?"
)
_VERBS: Mapping[str, str] = {
    "GET": "read",
    "POST": "create",
    "PUT": "replace",
    "PATCH": "change",
    "DELETE": "delete",
}

_decode_status = msgspec.json.Decoder(Status).decode


def readable(request: str) -> str:
    """Describe a request in words: readers of a status know objects, not paths of an API server."""
    match = _OBJECTS.fullmatch(request)
    if match is None:
        return request
    method, namespace, plural, name = match.groups()
    what = f"{plural}/{name}" if name else plural
    where = f" in namespace {namespace}" if namespace else ""
    return f"cannot {_VERBS.get(method, method)} {what}{where}"


def from_answer(code: int, body: bytes, *, request: str, retry_after: float | None = None) -> ApiError:
    """Make the error of an answer. `request` names the call: a verb and a path."""
    try:
        status = _decode_status(body)
    except UNREADABLE:
        # Proxies, load balancers and the server's own filters answer in plain text.
        status = Status(message=body[:500].decode("utf-8", "replace").strip())
    return from_status(status, code=code, request=request, retry_after=retry_after)


def from_status(
    status: Status, *, request: str, code: int | None = None, retry_after: float | None = None
) -> ApiError:
    """Make the error of a Status, whether it came as an answer or in the middle of a watch."""
    code = code or status.code
    type_ = _BY_REASON.get(status.reason) or _BY_CODE.get(code) or _fallback(code)
    if type_ is Conflict and any(cause.reason == "FieldManagerConflict" for cause in status.causes):
        type_ = FieldConflict
    if type_ is Invalid and any(cause.message.endswith("is already allocated") for cause in status.causes):
        type_ = Taken
    said = status.message or status.reason or "no reason given"
    what = f"{readable(request)}: {said} (HTTP {code})"
    remedy = _REMEDIES.get(type_, "")
    error: ApiError
    if issubclass(type_, Wait):
        after = retry_after or (status.details.retry_after_seconds if status.details else 0) or 1
        error = type_(what, after=float(after), remedy=remedy)
    else:
        error = type_(what, remedy=remedy)
    error.status = status
    return error


def _fallback(code: int) -> type[ApiError]:
    return Rejected if _HTTP_CLIENT_ERROR <= code < _HTTP_SERVER_ERROR else Unavailable
