"""Accountings on a real API server, and users in a real slurmdbd."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from isthmus.domain.operator import authkeys, partnames
from isthmus.domain.operator.authkeys import AuthKey, KeySet
from isthmus.kube.client import Client
from isthmus.model.objects import SECRETS, STATEFULSETS
from isthmus.model.slinky import ACCOUNTINGS, CONTROLLERS
from isthmus.operator import accountusers
from isthmus.operator.accountings import AccountingSync
from isthmus.operator.slurms import Address
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.faults import Faults
from tests.bed.slurm import SlurmBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.parts_bed import (
    JWT_KEY_REF,
    LIMIT,
    SLURM_KEY,
    SLURM_KEY_REF,
    Bed,
    a_minute_later,
    until_recorded,
    working,
)

KEYS: dict[str, Any] = {"slurmKeyRef": SLURM_KEY_REF, "jwtKeyRef": JWT_KEY_REF}


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, kube: Client, namespace: str) -> AsyncIterator[Bed]:
    del kube  # which has the kinds installed
    async with working(control_plane, namespace, AccountingSync, now=a_minute_later) as bed:
        yield bed


async def generation(bed: Bed, name: str) -> int:
    return (await bed.kube.get(STATEFULSETS, bed.key(name))).metadata.generation


async def make(bed: Bed) -> None:
    """Make an Accounting with a database of its own, and wait for its slurmdbd."""
    await bed.keys()
    await bed.make(ACCOUNTINGS, "slurm", **KEYS)
    await bed.there(bed.world.statefulsets, "slurm-accounting")


async def test_without_a_database_it_gets_one_with_a_password_made_once(bed: Bed) -> None:
    await make(bed)
    await bed.there(bed.world.statefulsets, "slurm-mariadb")
    password = (await bed.there(bed.world.secrets, "slurm-mariadb")).data["password"]
    assert len(password) >= 32
    conf = (await bed.there(bed.world.secrets, "slurm-accounting")).data["slurmdbd.conf"].decode()
    assert f"StorageHost=slurm-mariadb.{bed.namespace}.svc" in conf
    assert "StoragePass" not in conf
    for name in ("slurm-accounting", "slurm-mariadb"):
        written = json.dumps(await bed.raw(STATEFULSETS, name))
        assert password.decode() not in written
    await bed.until(bed.world.accountings, "slurm", "Ready", "False", saying="MariaDB: pod slurm-mariadb-0")
    await bed.kube.merge_patch(ACCOUNTINGS, bed.key("slurm"), {"spec": {"extraConf": "PurgeJobAfter=12months"}})
    await eventually(
        lambda: (
            b"PurgeJobAfter" in bed.world.secrets.get(bed.key("slurm-accounting")).data["slurmdbd.conf"]  # type: ignore[union-attr]
        )
    )
    assert (await bed.kube.get(SECRETS, bed.key("slurm-mariadb"))).data["password"] == password


async def test_w12_a_changed_password_starts_both_daemons_anew(bed: Bed) -> None:
    await make(bed)
    before = [await generation(bed, name) for name in ("slurm-accounting", "slurm-mariadb")]
    other = b64encode(b"a-new-password").decode()
    await bed.kube.merge_patch(SECRETS, bed.key("slurm-mariadb"), {"data": {"password": other}})

    def rolled() -> bool:
        found = [bed.world.statefulsets.get(bed.key(name)) for name in ("slurm-accounting", "slurm-mariadb")]
        return all(it and it.metadata.generation > old for it, old in zip(found, before, strict=True))

    await eventually(rolled)


async def test_the_password_stays_as_long_as_the_data_that_it_opens(bed: Bed) -> None:
    await bed.keys()
    await bed.make(ACCOUNTINGS, "slurm", **KEYS)
    await bed.there(bed.world.statefulsets, "slurm-mariadb")
    before = await bed.there(bed.world.secrets, "slurm-mariadb")
    await bed.kube.delete(ACCOUNTINGS, bed.key("slurm"))
    # The claim stays, as Kubernetes sees to; so does what opens it, and nothing else.
    for kind, name in (
        (STATEFULSETS, "slurm-mariadb"),
        (STATEFULSETS, "slurm-accounting"),
        (SECRETS, "slurm-accounting"),
    ):
        await bed.gone(kind, name)
    await bed.make(ACCOUNTINGS, "slurm", **KEYS)
    await bed.there(bed.world.statefulsets, "slurm-accounting")
    after = await bed.kube.get(SECRETS, bed.key("slurm-mariadb"))
    assert (after.metadata.uid, after.data) == (before.metadata.uid, before.data)


async def test_a_password_that_is_there_already_is_taken(bed: Bed) -> None:
    await bed.keys()
    await bed.secret("slurm-mariadb", password=b"from-a-backup")
    await bed.make(ACCOUNTINGS, "slurm", **KEYS)
    await bed.there(bed.world.statefulsets, "slurm-mariadb")
    await bed.there(bed.world.statefulsets, "slurm-accounting")
    assert (await bed.kube.get(SECRETS, bed.key("slurm-mariadb"))).data["password"] == b"from-a-backup"
    before = _generation(bed, "slurm-mariadb")
    await bed.secret("slurm-mariadb", password=b"and-another-one")
    await eventually(lambda: _generation(bed, "slurm-mariadb") > before)


async def test_other_changes_leave_the_database_alone(bed: Bed) -> None:
    await make(bed)
    before = await generation(bed, "slurm-mariadb")
    await bed.kube.merge_patch(ACCOUNTINGS, bed.key("slurm"), {"spec": {"extraConf": "PurgeJobAfter=12months"}})
    await eventually(lambda: _generation(bed, "slurm-accounting") > 1)
    assert await generation(bed, "slurm-mariadb") == before


def _generation(bed: Bed, name: str) -> int:
    found = bed.world.statefulsets.get(bed.key(name))
    return found.metadata.generation if found else 0


async def test_a_database_of_somebody_else_is_used_and_its_password_followed(bed: Bed) -> None:
    await bed.keys()
    storage = {"host": "db.example", "port": 3307, "passwordKeyRef": {"name": "db", "key": "pass"}}
    await bed.make(ACCOUNTINGS, "slurm", **KEYS, storageConfig=storage)
    await bed.until(bed.world.accountings, "slurm", "Degraded", "True", saying="there is no Secret db")
    await bed.secret("db", **{"pass": b"not # good"})
    await bed.until(bed.world.accountings, "slurm", "Degraded", "True", saying="contains a space, quote, #")
    await bed.secret("db", **{"pass": b"good"})
    await bed.there(bed.world.statefulsets, "slurm-accounting")
    assert bed.key("slurm-mariadb") not in bed.world.statefulsets
    conf = (await bed.there(bed.world.secrets, "slurm-accounting")).data["slurmdbd.conf"].decode()
    assert "StorageHost=db.example\nStoragePort=3307\nStorageUser=slurm\nStorageLoc=slurm_acct_db\n" in conf
    before = _generation(bed, "slurm-accounting")
    await bed.secret("db", **{"pass": b"better"})
    await eventually(lambda: _generation(bed, "slurm-accounting") > before)


async def test_w10_an_external_slurmdbd_is_only_named(bed: Bed) -> None:
    external = {"host": "dbd.example", "port": 7000}
    made = await bed.make(ACCOUNTINGS, "slurm", external=True, externalConfig=external)
    await bed.until(bed.world.accountings, "slurm", "Ready", "True", saying="dbd.example:7000")
    assert partnames.accounting_address(made) == ("dbd.example", 7000)
    assert not bed.world.statefulsets.values()


async def test_bad_configuration_is_named_and_nothing_is_restarted(bed: Bed) -> None:
    await make(bed)
    before = await generation(bed, "slurm-accounting")
    await bed.kube.merge_patch(ACCOUNTINGS, bed.key("slurm"), {"spec": {"extraConf": "StoragePass=x"}})
    await bed.until(bed.world.accountings, "slurm", "Degraded", "True", saying="passwordKeyRef")
    assert await generation(bed, "slurm-accounting") == before


async def test_slurmdbd_takes_old_and_new_keys_while_a_cluster_changes_its_own(bed: Bed) -> None:
    await bed.controller(accountingRef={"name": "slurm"})
    await bed.make(ACCOUNTINGS, "slurm", **KEYS)
    await bed.there(bed.world.statefulsets, "slurm-accounting")
    old, new = AuthKey.of(SLURM_KEY, where="a test"), AuthKey.of(b"n" * 64, where="a test")
    both = b64encode(KeySet((old, new), old.kid).write()).decode()
    await bed.kube.merge_patch(SECRETS, bed.key("slurm-auth"), {"data": {authkeys.FILE: both}})

    def knows_both() -> bool:
        secret = bed.world.secrets.get(bed.key("slurm-accounting"))
        held = KeySet.read(secret.data[authkeys.FILE]) if secret else None
        return held is not None and held.knows(old.kid) and held.knows(new.kid)

    await eventually(knows_both)


async def test_at_rest_nothing_is_written(bed: Bed) -> None:
    await bed.keys()
    await bed.make(ACCOUNTINGS, "slurm", **KEYS)
    await bed.until(bed.world.accountings, "slurm", "Ready", "False", saying="MariaDB: pod slurm-mariadb-0")
    await bed.quiet()
    before = len(bed.writes)
    for _ in range(3):
        await bed.sync.reconcile(bed.key("slurm"))
    assert len(bed.writes) == before


async def test_users_of_a_cluster_get_an_account_and_keep_what_they_have(
    bed: Bed, slurm_version: str, slurm_bed: Callable[..., SlurmBed]
) -> None:
    slurm = slurm_bed(slurm_version, nodes=0)  # a cluster may have none yet
    slurm.command("sacctmgr", "-i", "add", "account", "physics")
    slurm.command("sacctmgr", "-i", "add", "user", "bob", "account=physics")
    await bed.keys()
    users = [{"name": "alice", "uid": 2001}, {"name": "bob", "uid": 2002}]
    await bed.make(CONTROLLERS, "slurm", **KEYS, clusterName="bed", accountingRef={"name": "slurm"}, users=users)

    async def known(*names: str) -> None:
        """Wait until the controller has seen to these users."""
        done = bed.sync._users._done
        await eventually(lambda: done.get(bed.key("slurm"), ("",))[0] == frozenset(names), within=LIMIT)

    async with connected(bed, slurm):
        await known("alice", "bob")
        assert associations(slurm) == {("root", "root"), ("users", "alice"), ("physics", "bob")}
        carol = {"name": "carol", "uid": 2003}
        await bed.kube.merge_patch(CONTROLLERS, bed.key("slurm"), {"spec": {"users": [*users, carol]}})
        await known("alice", "bob", "carol")
        assert ("users", "carol") in associations(slurm)
        await bed.kube.merge_patch(CONTROLLERS, bed.key("slurm"), {"spec": {"users": [carol]}})
        await known("carol")
        assert ("users", "alice") in associations(slurm)


async def test_users_that_slurmdbd_does_not_take_are_told(
    bed: Bed,
    slurm_bed: Callable[..., SlurmBed],
    faults: Faults,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accountusers, "AGAIN_S", 0.2)
    slurm = slurm_bed("26.05", nodes=0)
    await bed.keys()
    users = [{"name": "alice", "uid": 2001}]
    async with faults.in_front_of(slurm.rest_url) as proxy, connected(bed, slurm, proxy.url):
        denied = b'{"errors": [{"error_number": 2002, "error": "Access/permission denied"}]}'
        refusal = proxy.respond(
            500, headers={"Content-Type": "application/json"}, body=denied, method="POST", path="/slurmdb/*"
        )
        await bed.make(
            CONTROLLERS, "slurm", **KEYS, clusterName="bed", accountingRef={"name": "slurm"}, users=users
        )
        await proxy.until_seen(method="POST", path="/slurmdb/*", times=2)
        await until_recorded(bed.kube, bed.namespace, "does not take the users of this cluster")
        refusal.remove()
        await eventually(lambda: ("users", "alice") in associations(slurm), within=LIMIT)


@asynccontextmanager
async def connected(bed: Bed, slurm: SlurmBed, url: str = "") -> AsyncIterator[None]:
    """Hold a connection of the world to a Slurm, by way of this URL."""
    slurms = bed.world.slurms
    slurms.follow(bed.key("slurm"), Address((url or slurm.rest_url,), slurm.jwt_key.read_bytes()))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(slurms.run())
        await eventually(lambda: slurms.in_touch(bed.key("slurm")))
        yield
        slurms.stop()


def associations(slurm: SlurmBed) -> set[tuple[str, str]]:
    printed = slurm.command("sacctmgr", "-nP", "show", "association", "format=account,user")
    pairs = (line.split("|") for line in printed.split())
    return {(account, user) for account, user in pairs if user}
