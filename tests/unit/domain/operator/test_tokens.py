from typing import Any

import jwt
import msgspec
import pytest

from isthmus.domain.operator import tokens
from isthmus.domain.operator.tokens import Issued
from isthmus.model.slinky import Token

KEY = b"k" * 32
HOUR = 3600


def token(**spec: Any) -> Token:
    manifest = {
        "metadata": {"name": "t", "namespace": "hpc", "uid": "u"},
        "spec": {"username": "alice", "jwtKeyRef": {"name": "k", "key": "jwt.key"}, **spec},
    }
    return msgspec.convert(manifest, Token)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 900),
        ("", 900),
        ("15m", 900),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("90m0.5s", 5400),
        ("0s", 60),
        ("1ms", 60),
        ("99999999h", 10 * 365 * 86400),
    ],
)
def test_lifetimes_are_durations_within_bounds(text: str | None, seconds: int) -> None:
    assert tokens.lifetime_of(token(lifetime=text)) == seconds


def test_claims_are_those_that_slurm_and_people_look_for() -> None:
    text = tokens.mint(KEY, user="alice", now=1000.7, lifetime=HOUR, unique="id")
    claims = jwt.decode(text, KEY, algorithms=["HS256"], options={"verify_exp": False})
    assert claims == {
        "sun": "alice",
        "iss": "slurm-operator",
        "jti": "id",
        "iat": 1000,
        "nbf": 1000,
        "exp": 4600,
    }


def test_a_token_is_read_only_with_its_key_and_for_its_user() -> None:
    text = tokens.mint(KEY, user="alice", now=1000, lifetime=HOUR, unique="id").encode()
    assert tokens.read(text, key=KEY, user="alice") == Issued(1000, 4600)
    assert tokens.read(text, key=b"o" * 32, user="alice") is None
    assert tokens.read(text, key=KEY, user="bob") is None
    assert tokens.read(b"nonsense", key=KEY, user="alice") is None


def test_a_token_is_good_for_four_fifths_of_its_life() -> None:
    held = Issued(1000, 4600)
    assert held.renew_at == 3880
    assert tokens.is_good(held, lifetime=HOUR, now=3879)
    assert not tokens.is_good(held, lifetime=HOUR, now=3880)
    assert not tokens.is_good(held, lifetime=2 * HOUR, now=1001)
    assert not tokens.is_good(None, lifetime=HOUR, now=1001)


def test_a_token_from_the_future_is_replaced() -> None:
    assert not tokens.is_good(Issued(1000, 4600), lifetime=HOUR, now=900)
    assert tokens.is_good(Issued(1000, 4600), lifetime=HOUR, now=998)


def test_w19_secrets_have_valid_names_that_differ() -> None:
    assert tokens.secret_name(token()) == "t-jwt-alice"
    names = {tokens.secret_name(token(username=user)) for user in ("Alice", "ALICE", "_alice", "alice_", "alice")}
    assert len(names) == 5
    for name in names:
        assert name == name.lower()
        assert "_" not in name
    assert len(tokens.secret_name(token(username="x" * 64, secretRef=None))) <= 253
    assert tokens.secret_name(token(secretRef={"name": "mine", "key": "jwt"})) == "mine"
    assert tokens.secret_key(token(secretRef={"name": "mine", "key": "jwt"})) == "jwt"
    assert tokens.secret_key(token()) == "SLURM_JWT"
