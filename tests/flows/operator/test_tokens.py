"""Tokens on a real API server, and against a real slurmrestd."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import jwt
import pytest

from isthmus.kube.client import Client
from isthmus.kube.errors import Invalid
from isthmus.model.meta import Key
from isthmus.model.objects import SECRETS
from isthmus.model.slinky import TOKENS
from isthmus.operator.tokens import TokenSync
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.parts_bed import JWT_KEY, JWT_KEY_REF, Bed, working


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, kube: Client, namespace: str) -> AsyncIterator[Bed]:
    del kube  # which has the kinds installed
    async with working(control_plane, namespace, TokenSync) as bed:
        yield bed


def text(bed: Bed, secret: str, key: str = "SLURM_JWT") -> str:
    found = bed.world.secrets.get(bed.key(secret))
    return found.data.get(key, b"").decode() if found else ""


def claims(token: str, key: bytes = JWT_KEY) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(
        # Its times are compared by tests, by clocks of their own.
        token,
        key,
        algorithms=["HS256"],
        options={"verify_iat": False, "verify_nbf": False, "verify_exp": False},
    )
    return found


async def test_a_token_is_put_into_a_secret_that_goes_with_it(bed: Bed) -> None:
    await bed.keys()
    made = await bed.make(TOKENS, "alice", username="alice", jwtKeyRef=JWT_KEY_REF, lifetime="1h")
    await bed.until(bed.world.tokens, "alice", "Ready", "True", saying="Secret alice-jwt-alice")
    await eventually(lambda: text(bed, "alice-jwt-alice"))
    held = claims(text(bed, "alice-jwt-alice"))
    assert (held["sun"], held["iss"], held["exp"] - held["iat"]) == ("alice", "slurm-operator", 3600)
    assert {"jti", "nbf"} <= held.keys()
    status = (await bed.kube.get(TOKENS, bed.key("alice"))).status
    assert status.issued_at is not None
    assert status.expires_at is not None
    assert (status.expires_at - status.issued_at).total_seconds() == 3600
    secret = await bed.kube.get(SECRETS, bed.key("alice-jwt-alice"))
    assert [it.uid for it in secret.metadata.owner_references] == [made.metadata.uid]
    await bed.kube.delete(TOKENS, bed.key("alice"))
    await bed.gone(SECRETS, "alice-jwt-alice")


async def test_w19_a_new_key_is_followed_at_once(bed: Bed) -> None:
    await bed.keys()
    await bed.make(TOKENS, "t", username="slurm", jwtKeyRef=JWT_KEY_REF)
    await eventually(lambda: text(bed, "t-jwt-slurm"))
    other = b"o" * 32
    await bed.secret("jwt-key", jwt_key=other)

    def follows() -> bool:
        try:
            return bool(claims(text(bed, "t-jwt-slurm"), other)["sun"] == "slurm")
        except jwt.InvalidTokenError:
            return False

    await eventually(follows)
    await bed.until(bed.world.tokens, "t", "Ready", "True")


async def test_w19_names_of_users_become_valid_names_of_secrets(bed: Bed) -> None:
    await bed.keys()
    for token, user in (("a", "Some_One"), ("b", "some-one")):
        await bed.make(TOKENS, token, username=user, jwtKeyRef=JWT_KEY_REF)
        await bed.until(bed.world.tokens, token, "Ready", "True")
    await bed.quiet()
    names = {it.name for it in bed.world.secrets}
    assert "b-jwt-some-one" in names
    assert any(it.startswith("a-jwt-some-one-") for it in names)


async def test_it_says_what_is_missing_and_goes_on_when_it_comes(bed: Bed) -> None:
    await bed.make(TOKENS, "t", username="slurm", jwtKeyRef=JWT_KEY_REF)
    await bed.until(bed.world.tokens, "t", "Degraded", "True", saying="there is no Secret jwt-key")
    await bed.secret("jwt-key", other=b"x")
    await bed.until(bed.world.tokens, "t", "Degraded", "True", saying="has no key 'jwt.key'")
    await bed.keys()
    await bed.until(bed.world.tokens, "t", "Ready", "True")
    assert bed.condition(bed.world.tokens, "t", "Degraded")[0] == "False"


async def test_a_secret_of_somebody_else_is_left_alone(bed: Bed) -> None:
    await bed.keys()
    await bed.secret("mine", SLURM_JWT=b"precious")
    await bed.make(TOKENS, "t", username="slurm", jwtKeyRef=JWT_KEY_REF, secretRef={"name": "mine", "key": "x"})
    await bed.until(bed.world.tokens, "t", "Degraded", "True", saying="belongs to something else")
    assert (await bed.kube.get(SECRETS, bed.key("mine"))).data == {"SLURM.JWT": b"precious"}


async def test_a_deleted_or_spoilt_secret_is_made_anew(bed: Bed) -> None:
    await bed.keys()
    await bed.make(TOKENS, "t", username="slurm", jwtKeyRef=JWT_KEY_REF)
    await eventually(lambda: text(bed, "t-jwt-slurm"))
    first = (await bed.there(bed.world.secrets, "t-jwt-slurm")).metadata.uid
    await bed.kube.delete(SECRETS, bed.key("t-jwt-slurm"))

    def is_another() -> bool:
        found = bed.world.secrets.get(bed.key("t-jwt-slurm"))
        return found is not None and found.metadata.uid != first

    await eventually(is_another)
    spoilt = await bed.kube.merge_patch(SECRETS, bed.key("t-jwt-slurm"), {"data": {"SLURM_JWT": "c3BvaWx0"}})

    def is_mended() -> bool:
        has_heard = bed.world.secrets.version > int(spoilt.metadata.resource_version)
        return has_heard and text(bed, "t-jwt-slurm").count(".") == 2

    await eventually(is_mended)
    assert claims(text(bed, "t-jwt-slurm"))["sun"] == "slurm"


async def test_another_user_gets_another_secret_and_the_old_one_goes(bed: Bed) -> None:
    await bed.keys()
    await bed.make(TOKENS, "t", username="alice", jwtKeyRef=JWT_KEY_REF)
    await eventually(lambda: text(bed, "t-jwt-alice"))
    await bed.kube.merge_patch(TOKENS, bed.key("t"), {"spec": {"username": "bob"}})
    await eventually(lambda: text(bed, "t-jwt-bob"))
    await bed.gone(SECRETS, "t-jwt-alice")
    assert claims(text(bed, "t-jwt-bob"))["sun"] == "bob"


async def test_without_refresh_the_secret_cannot_be_changed_and_its_end_is_told(bed: Bed) -> None:
    await bed.keys()
    await bed.make(TOKENS, "t", username="slurm", jwtKeyRef=JWT_KEY_REF, refresh=False, lifetime="24h")
    await eventually(lambda: text(bed, "t-jwt-slurm"))
    secret = await bed.kube.get(SECRETS, bed.key("t-jwt-slurm"))
    assert secret.immutable
    await bed.secret("jwt-key", jwt_key=b"o" * 32)
    await bed.until(bed.world.tokens, "t", "Degraded", "True", saying="refresh is off")
    await bed.kube.merge_patch(TOKENS, bed.key("t"), {"spec": {"refresh": True}})
    await bed.until(bed.world.tokens, "t", "Ready", "True")
    assert not (await bed.kube.get(SECRETS, bed.key("t-jwt-slurm"))).immutable


async def test_a_bad_lifetime_is_refused(bed: Bed) -> None:
    for lifetime in ("soon", "5s", "200000h"):
        with pytest.raises(Invalid, match="lifetime"):
            await bed.make(TOKENS, "t", username="slurm", jwtKeyRef=JWT_KEY_REF, lifetime=lifetime)


async def test_at_rest_nothing_is_written(bed: Bed) -> None:
    await bed.keys()
    await bed.make(TOKENS, "t", username="slurm", jwtKeyRef=JWT_KEY_REF)
    await bed.until(bed.world.tokens, "t", "Ready", "True")
    await bed.quiet()
    before = len(bed.writes)
    for _ in range(3):
        await bed.sync.reconcile(Key(bed.namespace, "t"))
    assert len(bed.writes) == before


async def test_a_token_is_replaced_when_four_fifths_of_its_life_are_over(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    del kube
    now = begun = time.time()
    async with working(control_plane, namespace, TokenSync, clock=lambda: now) as bed:
        await bed.keys()
        await bed.make(TOKENS, "t", username="slurm", jwtKeyRef=JWT_KEY_REF, lifetime="10m")
        await eventually(lambda: text(bed, "t-jwt-slurm"))
        first = text(bed, "t-jwt-slurm")
        now = begun + 470.0
        await bed.sync.reconcile(bed.key("t"))
        await bed.quiet()
        assert text(bed, "t-jwt-slurm") == first
        now = begun + 490.0
        await bed.sync.reconcile(bed.key("t"))
        await eventually(lambda: text(bed, "t-jwt-slurm") != first)


async def test_the_shortest_lifetime_is_kept_up_by_the_clock_alone(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    del kube
    begun, ahead, runs_since = time.time(), 0.0, float("inf")

    def clock() -> float:
        # It runs on until it is surely time, and not for as long as a slow machine takes.
        return begun + ahead + min(5.0, max(0.0, time.time() - runs_since))

    async with working(control_plane, namespace, TokenSync, clock=clock) as bed:
        await bed.keys()
        await bed.make(TOKENS, "t", username="slurm", jwtKeyRef=JWT_KEY_REF, lifetime="1m")
        await eventually(lambda: text(bed, "t-jwt-slurm"))
        first = text(bed, "t-jwt-slurm")
        ahead = 45.0  # three seconds before it is time
        await bed.sync.reconcile(bed.key("t"))
        await bed.quiet()
        assert text(bed, "t-jwt-slurm") == first
        runs_since = time.time()
        await eventually(lambda: text(bed, "t-jwt-slurm") != first)
        second = text(bed, "t-jwt-slurm")
        assert claims(first)["exp"] > claims(second)["iat"], "it was replaced while it was still good"


async def test_slurm_takes_the_token(
    bed: Bed, slurm_version: str, shared_slurm: Callable[..., SlurmBed], monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = shared_slurm(slurm_version)
    await bed.secret("jwt-key", jwt_key=slurm.jwt_key.read_bytes())
    await bed.make(TOKENS, "t", username="alice", jwtKeyRef=JWT_KEY_REF)
    await eventually(lambda: text(bed, "t-jwt-alice"))
    monkeypatch.setattr(slurm, "token", lambda *_, **__: text(bed, "t-jwt-alice"))
    assert slurm.get("/slurm/v0.0.42/ping/", user="alice")["pings"]
