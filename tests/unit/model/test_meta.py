"""Keys, conditions and times."""

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from isthmus.errors import Terminal
from isthmus.model.base import EMPTY
from isthmus.model.meta import Condition, Key, ObjectMeta, OwnerReference, condition, micro_time
from isthmus.model.pod import PODS


@pytest.mark.parametrize("text", ["name", "namespace/name"])
def test_a_key_reads_what_it_writes(text: str) -> None:
    assert str(Key.parse(text)) == text


@pytest.mark.parametrize("text", ["", "/", "a/", "/a", "a/b/c"])
def test_what_names_no_object_is_refused(text: str) -> None:
    with pytest.raises(Terminal):
        Key.parse(text)


def test_a_micro_time_has_six_digits_in_utc() -> None:
    moment = datetime(2026, 11, 15, 12, 0, 0, tzinfo=timezone(timedelta(hours=2)))
    assert micro_time(moment) == "2026-11-15T10:00:00.000000Z"
    assert micro_time(datetime(1, 1, 1, microsecond=5, tzinfo=UTC)) == "0001-01-01T00:00:00.000005Z"


def test_the_controller_is_the_owner_that_manages() -> None:
    owner = OwnerReference("v1", "Node", "n", "u1")
    manager = OwnerReference("apps/v1", "ReplicaSet", "r", "u2", controller=True)
    assert ObjectMeta(owner_references=(owner, manager)).controller is manager
    assert ObjectMeta(owner_references=(owner,)).controller is None


def test_a_condition_is_found_by_its_type() -> None:
    ready = Condition("Ready", "True")
    assert condition((Condition("Other", "False"), ready), "Ready") is ready
    assert condition((), "Ready") is None


def test_objects_without_labels_share_one_empty_mapping() -> None:
    pod = PODS.decoder.decode(b'{"metadata":{"name":"a"}}')
    assert pod.metadata.labels is pod.metadata.annotations is EMPTY
    assert msgspec.json.encode(pod) == b'{"metadata":{"name":"a"}}'


def test_kinds_know_their_place() -> None:
    assert (PODS.group, PODS.version, PODS.root) == ("", "v1", "/api/v1")
    assert repr(PODS) == "Kind(pods.v1)"
