"""Reviews of any bytes whatsoever; what good ones get is in test_server.py."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.runtime.reviews import (
    Admission,
    AdmissionRequest,
    NotAReviewError,
    review_admission,
    review_conversion,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
objects = st.dictionaries(st.text(max_size=8), json_values, max_size=3)
kinds = st.fixed_dictionaries({"group": st.text(), "version": st.text(), "kind": st.text()})
# Right in most places, so that what is wrong in one is not hidden behind what is wrong in another.
requests = st.fixed_dictionaries(
    {
        "uid": st.text(),
        "operation": st.sampled_from(["CREATE", "DELETE", "CONNECT"]),
        "kind": kinds | json_values,
        "object": json_values,
        "desiredAPIVersion": st.text(),
        "objects": st.lists(objects) | json_values,
    },
    optional={"oldObject": json_values, "userInfo": json_values, "dryRun": st.booleans() | json_values},
)
reviews = st.fixed_dictionaries({"request": requests | json_values}).map(msgspec.json.encode)


async def admit(request: AdmissionRequest) -> Admission:
    request.read(object)
    return Admission()


def keep(one: dict[str, Any], _version: str) -> dict[str, Any]:
    return one


@given(body=st.binary(max_size=64) | reviews)
async def test_any_bytes_get_an_answer_or_are_refused(body: bytes) -> None:
    for review in (review_admission(body, admit), review_conversion(body, keep)):
        try:
            answer = msgspec.json.decode(await review)
        except NotAReviewError:
            continue
        request = msgspec.json.decode(body)["request"]
        assert answer["response"]["uid"] == request["uid"]
        assert answer["response"].get("convertedObjects", request["objects"]) == request["objects"]


async def test_an_object_without_bottom_is_refused() -> None:
    deep = b"[" * 100_000
    body = b'{"request": {"uid": "1", "desiredAPIVersion": "v1", "objects": [{"a": ' + deep
    with pytest.raises(NotAReviewError):
        await review_conversion(body, keep)
    body = b'{"request": {"uid": "1", "operation": "CREATE", "object": ' + deep
    with pytest.raises(NotAReviewError):
        await review_admission(body, admit)
