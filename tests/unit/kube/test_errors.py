"""Every answer of the API server becomes one class, which says what the caller does next."""

import pytest

from isthmus.errors import IsthmusError, Retry, Terminal, Wait
from isthmus.kube import errors
from isthmus.kube.errors import from_answer


@pytest.mark.parametrize(
    ("code", "reason", "type_", "next_step"),
    [
        (404, "NotFound", errors.NotFound, Terminal),
        (409, "AlreadyExists", errors.AlreadyExists, Terminal),
        (409, "Conflict", errors.Conflict, Retry),
        (403, "Forbidden", errors.Forbidden, Terminal),
        (422, "Invalid", errors.Invalid, Terminal),
        (410, "Expired", errors.Expired, Retry),
        (410, "Gone", errors.Expired, Retry),
        (401, "Unauthorized", errors.Unauthorized, Retry),
        (429, "TooManyRequests", errors.TooManyRequests, Wait),
        (400, "BadRequest", errors.Rejected, Terminal),
        (405, "MethodNotAllowed", errors.Rejected, Terminal),
        (413, "RequestEntityTooLarge", errors.Rejected, Terminal),
        (415, "UnsupportedMediaType", errors.Rejected, Terminal),
        (500, "InternalError", errors.Unavailable, Retry),
        (500, "ServerTimeout", errors.Unavailable, Retry),
        (504, "Timeout", errors.Unavailable, Retry),
        (503, "ServiceUnavailable", errors.Unavailable, Retry),
        (502, "", errors.Unavailable, Retry),
        (302, "", errors.Unavailable, Retry),
        (418, "", errors.Rejected, Terminal),
        (404, "", errors.NotFound, Terminal),
        (429, "", errors.TooManyRequests, Wait),
    ],
)
def test_each_answer_has_a_class(
    code: int, reason: str, type_: type[IsthmusError], next_step: type[IsthmusError]
) -> None:
    body = b'{"kind":"Status","code":%d,"reason":"%s","message":"said so"}' % (code, reason.encode())
    error = from_answer(code, body, request="GET /x")
    assert type(error) is type_
    assert isinstance(error, next_step)
    assert error.what == f"GET /x: said so (HTTP {code})"


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b"\xff\xfe", b"[]", b'{"code":"x"}', b"[" * 100_000])
def test_an_answer_that_is_no_status_is_quoted(body: bytes) -> None:
    error = from_answer(404, body, request="GET /x")
    assert isinstance(error, errors.NotFound)
    assert len(error.what) < 600


def test_how_long_to_wait_comes_from_the_header_or_the_status() -> None:
    body = b'{"reason":"TooManyRequests","details":{"retryAfterSeconds":7}}'
    for header, after in [(3.0, 3.0), (None, 7.0)]:
        error = from_answer(429, body, request="GET /x", retry_after=header)
        assert isinstance(error, errors.TooManyRequests)
        assert error.after == after


def caused(code: int, reason: bytes, cause: bytes) -> Exception:
    body = b'{"reason":"%s","code":%d,"details":{"causes":[%s]}}' % (reason, code, cause)
    return from_answer(code, body, request="PATCH /x")


def test_a_port_that_another_has_may_be_free_later() -> None:
    cause = b'{"reason":"FieldValueInvalid","message":"Invalid value: 30022: provided port is already allocated"}'
    error = caused(422, b"Invalid", cause)
    assert isinstance(error, errors.Taken)
    assert isinstance(error, Retry)


def test_a_conflict_of_managers_is_not_worth_a_retry() -> None:
    cause = b'{"reason":"FieldManagerConflict","message":"conflict with \\"them\\"","field":".spec.size"}'
    error = caused(409, b"Conflict", cause)
    assert isinstance(error, errors.FieldConflict)
    assert isinstance(error, Terminal)
    assert [cause.field for cause in error.status.causes] == [".spec.size"]
    assert "force" in str(error)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            "PATCH /apis/slinky.slurm.net/v1beta1/namespaces/d/nodesets/worker?fieldManager=isthmus&force=true",
            "cannot change nodesets/worker in namespace d",
        ),
        ("POST /api/v1/namespaces/d/pods?fieldValidation=Strict", "cannot create pods in namespace d"),
        ("GET /api/v1/namespaces/d", "cannot read namespaces/d"),
        ("DELETE /api/v1/nodes/n", "cannot delete nodes/n"),
        ("PATCH /api/v1/namespaces/d/pods/p/status", "cannot change pods/p in namespace d"),
        ("watch /api/v1/pods", "cannot watch pods"),
        ("GET /version", "GET /version"),
    ],
)
def test_an_error_names_objects_and_no_paths(request_: str, words: str) -> None:
    assert from_answer(403, b'{"message":"no"}', request=request_).what == f"{words}: no (HTTP 403)"
