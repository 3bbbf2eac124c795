"""What all parts of the operator stand on: applying, reporting, references, on a real API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from isthmus.domain.kube.conditions import no, yes
from isthmus.domain.operator.manifests.common import configmap, labels
from isthmus.kube.client import Client
from isthmus.kube.informer import Informer
from isthmus.model.meta import Key
from isthmus.model.objects import CONFIGMAPS, SECRETS, ConfigMap
from isthmus.model.slinky import TOKENS, Token
from isthmus.operator.applier import Applier, owner_reference
from isthmus.operator.statuswriter import Reporter
from isthmus.operator.tokens import TokenSync
from isthmus.runtime.references import Asker, NotReadYet, References
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.waiting import eventually, running
from tests.flows.operator import parts_bed
from tests.flows.operator.nodesets_bed import FOR_OTHERS

MARKS = labels("slurmctld", "slurm", "controller")


@asynccontextmanager
async def following(kube: Client, namespace: str) -> AsyncIterator[Informer[ConfigMap]]:
    async with running(Informer(kube, CONFIGMAPS, namespace=namespace)) as informer:
        yield informer


async def test_an_object_is_applied_once_and_again_when_somebody_changed_it(kube: Client, namespace: str) -> None:
    applier = Applier(kube)
    wanted = configmap("x-config", namespace, MARKS, {"slurm.conf": "ClusterName=a\n"})
    key = Key(namespace, "x-config")
    async with following(kube, namespace) as there:
        assert await applier.apply(CONFIGMAPS, wanted, there=there.store)
        assert not await applier.apply(CONFIGMAPS, wanted, there=there.store)  # before the cache has seen it
        await eventually(lambda: key in there.store)
        assert not await applier.apply(CONFIGMAPS, wanted, there=there.store)
        await kube.merge_patch(CONFIGMAPS, key, {"data": {"slurm.conf": "ClusterName=stolen\n"}})
        await eventually(lambda: there.store.get(key).data["slurm.conf"].endswith("stolen\n"))  # type: ignore[union-attr]
        assert await applier.apply(CONFIGMAPS, wanted, there=there.store)
        assert (await kube.get(CONFIGMAPS, key)).data == {"slurm.conf": "ClusterName=a\n"}


async def test_what_is_no_longer_wanted_is_taken_away_but_not_what_others_added(
    kube: Client, namespace: str
) -> None:
    applier = Applier(kube)
    key = Key(namespace, "x-config")
    async with following(kube, namespace) as there:
        first = configmap("x-config", namespace, MARKS, {"a": "1", "b": "1"})
        await applier.apply(CONFIGMAPS, first, there=there.store)
        await kube.merge_patch(CONFIGMAPS, key, {"metadata": {"annotations": {"of": "others"}}})
        second = configmap("x-config", namespace, MARKS, {"a": "1"})
        await applier.apply(CONFIGMAPS, second, there=there.store)
        found = await kube.get(CONFIGMAPS, key)
    assert found.data == {"a": "1"}
    assert found.metadata.annotations == {"of": "others"}


async def test_an_object_that_is_made_once_is_never_changed(kube: Client, namespace: str) -> None:
    applier, owner = Applier(kube), await token(kube, namespace, "t")
    stranger = await token(kube, namespace, "u")
    key = Key(namespace, "password")
    async with following(kube, namespace) as there:
        assert await applier.make_once(
            CONFIGMAPS,
            configmap("password", namespace, MARKS, {"a": "1"}),
            there=there.store,
            owners=(owner_reference(TOKENS, owner),),
        )
        again = configmap("password", namespace, MARKS, {"a": "2"})
        assert not await applier.make_once(CONFIGMAPS, again, there=there.store)  # the cache may not know it yet
        await eventually(lambda: key in there.store)
        assert not await applier.make_once(CONFIGMAPS, again, there=there.store)
        assert (await kube.get(CONFIGMAPS, key)).data == {"a": "1"}
        assert not await applier.remove(CONFIGMAPS, key, there=there.store, owner=stranger), "it is not its own"
        assert await applier.remove(CONFIGMAPS, key, there=there.store, owner=owner)
        await eventually(lambda: key not in there.store)
        assert not await applier.remove(CONFIGMAPS, key, there=there.store, owner=owner)


async def token(kube: Client, namespace: str, name: str = "t") -> Token:
    spec = {"username": "slurm", "jwtKeyRef": {"name": "keys", "key": "jwt.key"}}
    return await kube.create(TOKENS, {"metadata": {"namespace": namespace, "name": name}, "spec": spec})


async def test_a_status_is_written_when_it_says_something_new(kube: Client, namespace: str) -> None:
    reporter = Reporter(kube)
    made = await token(kube, namespace)
    issued = {"issuedAt": "2026-01-01T00:00:00Z"}
    await reporter.report(TOKENS, made, issued, [yes("Ready", "Signed", "valid for 15 minutes")])
    told = await kube.get(TOKENS, made.metadata.key)
    assert told.status.observed_generation == 1
    assert [(it.type, it.status) for it in told.status.conditions] == [("Ready", "True")]
    await reporter.report(TOKENS, told, issued, [yes("Ready", "Signed", "valid for 15 minutes")])
    assert (await kube.get(TOKENS, made.metadata.key)).metadata.resource_version == told.metadata.resource_version
    await reporter.report(TOKENS, told, {}, [no("Ready", "NoKey", "there is no key")])
    last = await kube.get(TOKENS, made.metadata.key)
    assert last.status.issued_at is None
    assert last.status.conditions[0].status == "False"


async def test_an_owner_takes_its_objects_along(kube: Client, namespace: str) -> None:
    owner = await token(kube, namespace)
    applier = Applier(kube)
    async with following(kube, namespace) as there:
        wanted = configmap("owned", namespace, MARKS, {"a": "1"})
        await applier.apply(CONFIGMAPS, wanted, there=there.store, owners=(owner_reference(TOKENS, owner),))
        await eventually(lambda: Key(namespace, "owned") in there.store)
        await kube.delete(TOKENS, owner.metadata.key)
        await eventually(lambda: Key(namespace, "owned") not in there.store, within=FOR_OTHERS)


@asynccontextmanager
async def referring(kube: Client) -> AsyncIterator[References]:
    references = References(kube)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(references.run())
        try:
            yield references
        finally:
            task.cancel()


async def test_a_named_object_is_followed_and_no_other_is_read(kube: Client, namespace: str) -> None:
    woken: list[Key] = []
    asker = Asker(woken.append, Key(namespace, "cluster"))
    key = Key(namespace, "slurm-key")

    def secret(data: str) -> dict[str, Any]:
        return {"metadata": {"namespace": namespace, "name": "slurm-key"}, "stringData": {"slurm.key": data}}

    async with referring(kube) as references:
        with pytest.raises(NotReadYet):
            references.secret(key, asker)
        await eventually(lambda: woken)
        assert references.secret(key, asker) is None
        await kube.create(SECRETS, secret("one"))
        await eventually(lambda: references.secret(key, asker))
        before = len(woken)
        await kube.merge_patch(SECRETS, key, {"stringData": {"slurm.key": "two"}})
        await eventually(lambda: len(woken) > before)
        found = references.secret(key, asker)
        assert found is not None
        assert found.data == {"slurm.key": b"two"}
        assert "two" not in repr(found)
        for _ in range(100):
            references.secret(key, Asker(woken.append, Key(namespace, "cluster")))
        before = len(woken)
        await kube.delete(SECRETS, key)
        await eventually(lambda: references.secret(key, asker) is None)
        assert len(woken) == before + 1  # asking often is asking once


async def test_what_nobody_asks_for_any_more_is_not_followed(kube: Client, namespace: str) -> None:
    """Else each cluster that goes leaves a watch behind for each of its Secrets."""
    one, other = (Asker(lambda _: None, Key(namespace, it)) for it in ("one", "other"))
    key = Key(namespace, "slurm-key")
    async with referring(kube) as references:
        for asker in (one, other):
            with pytest.raises(NotReadYet):
                references.secret(key, asker)
        (known,) = references._known.values()
        references.release(one)
        await known.informer.synced.wait()
        assert references.secret(key, other) is None, "somebody else asks for it"
        references.release(other)
        await eventually(lambda: all(it.done() for it in known.tasks))
        with pytest.raises(NotReadYet):
            references.secret(key, other)  # it is read anew


async def test_a_part_that_goes_lets_go_of_what_it_named(
    control_plane: ControlPlaneBed, kube: Client, namespace: str
) -> None:
    async with parts_bed.working(control_plane, namespace, TokenSync) as bed:
        made = await token(kube, namespace)
        await eventually(lambda: bed.world.references._known)
        await kube.delete(TOKENS, made.metadata.key)
        await eventually(lambda: not bed.world.references._known)
