"""Reviews that the API server sends to webhooks, as typed functions: admission and conversion.

Both run in front of every write to the objects that they are registered for. An unexpected error is left
to the server, which answers 500; what happens then is the registration's `failurePolicy`.
"""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from isthmus.errors import IsthmusError, Terminal
from isthmus.model.base import Data

T = TypeVar("T")

_DENIED = 403
_NOTHING = msgspec.Raw(b"null")


class GroupVersionKind(Data, frozen=True):
    group: str
    version: str
    kind: str


class GroupVersionResource(Data, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(Data, frozen=True):
    username: str = ""
    groups: tuple[str, ...] = ()


class AdmissionRequest(Data, frozen=True):
    """A write to be admitted. `object` is the new state, `old_object` the current one."""

    uid: str
    operation: str
    kind: GroupVersionKind
    resource: GroupVersionResource = GroupVersionResource()
    """What is written to: of a subresource, the resource that it is of, where `kind` is another one."""
    name: str = ""
    namespace: str = ""
    sub_resource: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = _NOTHING
    old_object: msgspec.Raw = _NOTHING
    dry_run: bool = False

    def read(self, type_: type[T]) -> T:
        """Read the object, or on deletion the one to be deleted."""
        return msgspec.json.decode(self.object if self.operation != "DELETE" else self.old_object, type=type_)

    def read_old(self, type_: type[T]) -> T:
        """Read the object as it is before an update or deletion."""
        return msgspec.json.decode(self.old_object, type=type_)


class Admission(msgspec.Struct, frozen=True):
    """The response: allowed, perhaps with a JSON patch, perhaps with warnings that kubectl prints."""

    patch: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()


Admit = Callable[[AdmissionRequest], Awaitable[Admission]]
"""Decides about one write. A `Terminal` error denies it; its sentence is what the user reads."""

Convert = Callable[[dict[str, Any], str], dict[str, Any]]
"""Writes one object in another version of its kind (`group/version`). A `Terminal` error fails the request."""


class NotAReviewError(ValueError):
    """The body is not what the API server sends to a webhook."""


class _AdmissionReview(Data, frozen=True):
    request: AdmissionRequest


class _ConversionRequest(Data, frozen=True):
    uid: str
    desired_api_version: str = msgspec.field(name="desiredAPIVersion")
    objects: tuple[dict[str, Any], ...]


class _ConversionReview(Data, frozen=True):
    request: _ConversionRequest


_decode_admission = msgspec.json.Decoder(_AdmissionReview).decode
_decode_conversion = msgspec.json.Decoder(_ConversionReview).decode


async def review_admission(body: bytes, admit: Admit) -> bytes:
    """Answer an AdmissionReview; raises `NotAReviewError` if it is none."""
    request = _read(_decode_admission, body).request
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    try:
        admission = await admit(request)
    except Terminal as error:
        response |= {"allowed": False, "status": {"code": _DENIED, "message": str(error)}}
    else:
        if admission.warnings:
            response["warnings"] = list(admission.warnings)
        if admission.patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = b64encode(msgspec.json.encode(admission.patch)).decode()
    return _answer("admission.k8s.io/v1", "AdmissionReview", response)


async def review_conversion(body: bytes, convert: Convert) -> bytes:
    """Answer a ConversionReview; raises `NotAReviewError` if it is none."""
    request = _read(_decode_conversion, body).request
    response: dict[str, Any] = {"uid": request.uid}
    try:
        response["convertedObjects"] = [convert(one, request.desired_api_version) for one in request.objects]
        response["result"] = {"status": "Success"}
    except IsthmusError as error:
        response["result"] = {"status": "Failure", "message": str(error)}
    return _answer("apiextensions.k8s.io/v1", "ConversionReview", response)


def _read(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotAReviewError(str(error)) from error


def _answer(api_version: str, kind: str, response: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": api_version, "kind": kind, "response": response})
