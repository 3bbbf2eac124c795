import json
from itertools import pairwise
from typing import Any

import pytest

from isthmus.domain.operator.authkeys import (
    AuthKey,
    BadKey,
    KeySet,
    after,
    back,
    credential_seconds,
    next_step,
    union,
    until_expired,
)

OLD = AuthKey.of(b"o" * 64, where="a test")
NEW = AuthKey.of(b"n" * 64, where="a test")
THIRD = AuthKey.of(b"t" * 64, where="a test")


def test_the_document_is_what_slurm_reads() -> None:
    document = json.loads(KeySet((OLD, NEW), NEW.kid).write())
    first, second = document["keys"]
    assert first == {"alg": "HS256", "kty": "oct", "kid": OLD.kid, "k": first["k"]}
    assert second["use"] == "default"
    assert OLD.kid != NEW.kid


def test_what_was_written_is_read_again() -> None:
    keys = KeySet((OLD, NEW), OLD.kid)
    assert KeySet.read(keys.write()) == keys


@pytest.mark.parametrize("text", [b"", b"[]", b'{"keys": []}', b'{"keys": [{"kid": "a", "k": "%"}]}', b"\x00"])
def test_what_somebody_else_put_there_is_no_set(text: bytes) -> None:
    assert KeySet.read(text) is None


def test_a_key_is_called_alike_by_everybody_who_has_it() -> None:
    assert AuthKey.of(b"o" * 64, where="elsewhere").kid == OLD.kid


def test_a_key_that_slurm_would_not_take_is_refused_with_its_place() -> None:
    with pytest.raises(BadKey, match="Secret a/b has 3 bytes"):
        AuthKey.of(b"abc", where="Secret a/b")


def test_no_key_is_shown() -> None:
    assert "n" * 8 not in repr(NEW)
    assert "n" * 8 not in repr(KeySet.only(NEW))


def test_a_new_key_comes_in_three_steps_and_one_key_is_always_known_to_two_neighbours() -> None:
    held = KeySet.only(OLD)
    seen = [held]
    while step := next_step(held, NEW):
        held = after(held, NEW, step=step)
        seen.append(held)
    assert [it.fingerprint for it in seen] == [
        f"{OLD.kid}*",
        f"{OLD.kid}*,{NEW.kid}",
        f"{OLD.kid},{NEW.kid}*",
        f"{NEW.kid}*",
    ]
    for one, other in pairwise(seen):
        # Who is still at one step accepts what somebody at the next one signs, and the other way round.
        assert one.knows(other.signing)
        assert other.knows(one.signing)


def test_a_third_key_in_the_middle_of_a_change_leaves_all_known_until_it_is_in_use() -> None:
    held = KeySet((OLD, NEW), OLD.kid)
    held = after(held, THIRD, step="announce")
    assert held.fingerprint == f"{OLD.kid}*,{NEW.kid},{THIRD.kid}"
    assert next_step(held, THIRD) == "switch"


def test_a_change_of_mind_goes_back_to_the_old_key() -> None:
    held = KeySet((OLD, NEW), NEW.kid)
    assert next_step(held, OLD) == "switch"
    assert next_step(after(held, OLD, step="switch"), OLD) == "retire"


def test_going_back_signs_with_a_key_that_all_know() -> None:
    assert back(KeySet((OLD, NEW), NEW.kid), NEW).fingerprint == f"{OLD.kid}*,{NEW.kid}"


def test_slurmdbd_accepts_what_any_of_its_clusters_signs_with() -> None:
    served = union([KeySet.only(OLD), KeySet((OLD, NEW), NEW.kid)], NEW)
    assert served.knows(OLD.kid)
    assert served.knows(NEW.kid)
    assert served.signing == OLD.kid


@pytest.mark.parametrize(
    ("auth_info", "seconds"),
    [
        ("", 120),
        ("use_client_ids", 120),
        ("use_client_ids,cred_expire=600", 600),
        ("cred_expire=5,ttl=900", 5),
        # As Slurm does, which says so in its log.
        ("cred_expire=4", 120),
        ("cred_expire=-7", 120),
        ("cred_expire=soon", 120),
    ],
)
def test_credentials_live_as_long_as_auth_info_says(auth_info: str, seconds: int) -> None:
    assert credential_seconds(auth_info) == seconds


def test_the_old_key_goes_when_what_slurmctld_signed_with_it_has_expired() -> None:
    times: dict[str, Any] = {"changed_at": 1000.0, "taken_at": 1002.0, "all_since": 1008.0}
    assert until_expired(10, **times, now=1009.0) == 1002 + 10 + 5 - 1009
    # Who does not know when slurmctld took the new one into use goes by what is known of all daemons.
    assert until_expired(10, **{**times, "taken_at": None}, now=1009.0) == 1008 + 10 + 5 - 1009
    assert until_expired(10, changed_at=1000.0, taken_at=None, all_since=None, now=1009.0) == 1000 + 10 + 5 - 1009
    # A condition may be older than the change: the daemons had taken the step before.
    assert until_expired(10, **{**times, "taken_at": None, "all_since": 900.0}, now=1009.0) == 6
