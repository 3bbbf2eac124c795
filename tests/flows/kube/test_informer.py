"""Caches of a real API server, through all that happens to connections."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
import pytest

from isthmus.kube.client import Client
from isthmus.kube.config import Config, load
from isthmus.kube.crd import DEFINITIONS, Version, definition, install
from isthmus.kube.informer import Informer
from isthmus.model.base import Data, Kind
from isthmus.model.meta import Key, ObjectMeta, Partial
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.faults import Faults
from tests.flows.kube.conftest import CONFIG_MAPS, Through, config_map, make_namespace
from tests.flows.kube.waiting import eventually, running

WATCH = "*/configmaps?watch=1*"


class ConfigMap(Data, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] = msgspec.field(default_factory=dict)


MAPS: Kind[ConfigMap] = Kind(ConfigMap, "v1", "configmaps", "ConfigMap")

Seen = list[tuple[str, str | None, str | None]]


def by_colour(found: ConfigMap) -> Iterable[str]:
    colour = found.data.get("colour")
    return [colour] if colour else []


def colours(informer: Informer[ConfigMap]) -> Seen:
    """Collect what the hooks are told from now on: name, colour before, colour after."""
    seen: Seen = []

    def hook(key: Key, old: ConfigMap | None, new: ConfigMap | None) -> None:
        seen.append((key.name, old.data["colour"] if old else None, new.data["colour"] if new else None))

    informer.store.on_change(hook)
    return seen


def names(informer: Informer[ConfigMap]) -> set[str]:
    return {key.name for key in informer.store} - {"kube-root-ca.crt"}


async def test_a_store_follows_the_server(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "before", colour="red"))
    informer = Informer(
        client,
        MAPS,
        indexes={"colour": by_colour},
        namespace=namespace,
        fields="metadata.name!=kube-root-ca.crt",
    )
    async with running(informer):
        assert informer.contact.in_touch
        seen = colours(informer)
        assert seen == [("before", None, "red")]
        await client.create(CONFIG_MAPS, config_map(namespace, "after", colour="red"))
        await eventually(lambda: informer.store.count("colour", "red") == 2)
        await client.merge_patch(CONFIG_MAPS, Key(namespace, "after"), {"data": {"colour": "blue"}})
        await eventually(lambda: informer.store.count("colour", "blue") == 1)
        await client.delete(CONFIG_MAPS, Key(namespace, "before"))
        await eventually(lambda: informer.store.count("colour", "red") == 0)
        assert [found.metadata.name for found in informer.store.by("colour", "blue")] == ["after"]
        assert seen[1:] == [("after", None, "red"), ("after", "red", "blue"), ("before", "red", None)]


async def test_a_kind_that_is_optional_may_come_and_go(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.kube.informer.LONGEST_PAUSE", 0.1)
    kind: Kind[Partial] = Kind(Partial, "optional.isthmus.test/v1", "things", "Thing")
    informer = Informer(client, kind, optional=True)
    made = definition("optional.isthmus.test", "Thing", plural="things", versions=[Version("v1", Partial)])
    async with running(informer):
        assert informer.contact.in_touch
        assert not informer.is_served
        await install(client, made, manager="test")
        await client.create(kind, {"metadata": {"namespace": "default", "name": "it"}})
        await eventually(lambda: Key("default", "it") in informer.store)
        await eventually(lambda: informer.is_served)
        await client.delete(DEFINITIONS, made["metadata"]["name"])
        await eventually(lambda: not len(informer.store))
        await eventually(lambda: informer.contact.in_touch and not informer.is_served)


async def test_an_object_that_stops_matching_leaves_the_store(client: Client, namespace: str) -> None:
    manifest = config_map(namespace, "m", colour="red")
    manifest["metadata"]["labels"] = {"ours": "yes"}
    await client.create(CONFIG_MAPS, manifest)
    async with running(Informer(client, MAPS, namespace=namespace, labels="ours=yes")) as informer:
        assert names(informer) == {"m"}
        await client.merge_patch(CONFIG_MAPS, Key(namespace, "m"), {"metadata": {"labels": {"ours": "no"}}})
        await eventually(lambda: not names(informer))


async def test_a_next_line_character_does_not_end_a_line(client: Client, namespace: str) -> None:
    text = "one\u0085two\u2028three\u2029four\nfive\r\nsix\x1c"
    async with running(Informer(client, MAPS, namespace=namespace)) as informer:
        await client.create(CONFIG_MAPS, config_map(namespace, "lines", text=text))
        await eventually(lambda: "lines" in names(informer))
        found = informer.store.get(Key(namespace, "lines"))
        assert found is not None
        assert found.data == {"text": text}


@pytest.mark.parametrize("after", [300, 700, 1100, 1500])
async def test_a_connection_that_ends_within_a_line_is_resumed(
    client: Client, namespace: str, through: Through, after: int
) -> None:
    async with through() as (proxy, config), Client(config) as behind:
        proxy.cut(after_bytes=after, path=WATCH, times=2)
        async with running(Informer(behind, MAPS, namespace=namespace)) as informer:
            seen = colours_of_new(informer)
            for number in range(4):
                await client.create(CONFIG_MAPS, config_map(namespace, f"m{number}", colour="x" * 200))
            await eventually(lambda: len(names(informer)) == 4)
            await proxy.until_seen(path=WATCH, times=2)
            assert seen == [f"m{number}" for number in range(4)]


def colours_of_new(informer: Informer[ConfigMap]) -> list[str]:
    seen: list[str] = []
    informer.store.on_change(
        lambda key, old, _new: seen.append(key.name) if old is None and key.name != "kube-root-ca.crt" else None
    )
    return seen


GONE = b'{"kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}'


@pytest.mark.parametrize(
    "how",
    [
        (410, GONE),
        (200, b'{"type":"ERROR","object":' + GONE + b"}\n"),
    ],
    ids=["as a status", "in the middle of a watch"],
)
async def test_a_version_that_is_too_old_means_a_new_list(
    client: Client, namespace: str, through: Through, how: tuple[int, bytes]
) -> None:
    """What was deleted and made unseen is told to the hooks as if it had been seen."""
    for name in ("stays", "goes"):
        await client.create(CONFIG_MAPS, config_map(namespace, name, colour="red"))
    async with through() as (proxy, config), Client(config) as behind:
        informer = Informer(behind, MAPS, namespace=namespace, fields="metadata.name!=kube-root-ca.crt")
        async with running(informer):
            seen = colours(informer)
            seen.clear()
            proxy.refuse()
            await eventually(lambda: not informer.contact.in_touch)
            await client.delete(CONFIG_MAPS, Key(namespace, "goes"))
            await client.create(CONFIG_MAPS, config_map(namespace, "comes", colour="blue"))
            assert names(informer) == {"stays", "goes"}  # out of touch: the last known state
            proxy.heal()
            proxy.respond(how[0], body=how[1], path="*resourceVersion=*", times=1)
            await eventually(lambda: names(informer) == {"stays", "comes"})
            assert informer.contact.in_touch
            assert seen == [("goes", "red", None), ("comes", None, "blue")]


async def test_an_api_server_restart_and_a_compaction_lose_nothing(own_control_plane: ControlPlaneBed) -> None:
    bed = own_control_plane
    async with Client(load(bed.kubeconfig)) as client:
        namespace = await make_namespace(client)
        await client.create(CONFIG_MAPS, config_map(namespace, "goes", colour="red"))
        await client.create(CONFIG_MAPS, config_map(namespace, "stays", colour="red"))
        async with running(Informer(client, MAPS, namespace=namespace)) as informer:
            bed.restart("kube-apiserver")
            await client.create(CONFIG_MAPS, config_map(namespace, "comes", colour="blue"))
            await eventually(lambda: names(informer) == {"goes", "stays", "comes"})

            # Now with nothing left of the version that the informer stands at.
            since = informer.contact.since
            bed.kill("kube-apiserver")
            await eventually(lambda: not informer.contact.in_touch)
            bed.start("kube-apiserver")
            bed.kubectl("delete", "configmap", "--namespace", namespace, "goes")
            bed.compact()
            await eventually(lambda: names(informer) == {"stays", "comes"} and informer.contact.in_touch)
            assert informer.contact.since > since


async def test_a_connection_that_falls_silent_is_given_up(
    control_plane: ControlPlaneBed, config: Config, client: Client, namespace: str, faults: Faults
) -> None:
    address = control_plane.url.removeprefix("https://").rpartition(":")[0]
    async with faults.in_front_of(control_plane.url) as proxy:
        half_open = msgspec.structs.replace(config, server=proxy.url, tls_server_name=address)
        async with (
            Client(half_open) as behind,
            # A server that is busy must get to answer within this time, too.
            running(Informer(behind, MAPS, namespace=namespace, silence=2)) as informer,
        ):
            proxy.freeze()
            await eventually(lambda: not informer.contact.in_touch)
            await client.create(CONFIG_MAPS, config_map(namespace, "meanwhile"))
            proxy.heal()
            await eventually(lambda: "meanwhile" in names(informer))
            assert informer.contact.in_touch


async def test_a_refused_reconnect_is_tried_again(client: Client, namespace: str, through: Through) -> None:
    async with (
        through() as (proxy, config),
        Client(config) as behind,
        running(Informer(behind, MAPS, namespace=namespace)) as informer,
    ):
        proxy.refuse()
        await eventually(lambda: not informer.contact.in_touch)
        assert "no response" in informer.contact.trouble
        await client.create(CONFIG_MAPS, config_map(namespace, "meanwhile"))
        proxy.heal()
        await eventually(lambda: "meanwhile" in names(informer) and informer.contact.in_touch)


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered(namespace: str, through: Through) -> None:
    async with through() as (proxy, config), Client(config) as behind:
        proxy.respond(200, path=WATCH)
        async with running(Informer(behind, MAPS, namespace=namespace)):
            clock = asyncio.get_running_loop().time
            await proxy.until_seen(path=WATCH)
            started = clock()
            await proxy.until_seen(path=WATCH, times=5)
            assert clock() - started > 0.7  # four pauses of at least 0.05, 0.1, 0.2 and 0.4 s


class OnlyRed(Data, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, Literal["red"]] = msgspec.field(default_factory=dict)


ONLY_RED: Kind[OnlyRed] = Kind(OnlyRed, "v1", "configmaps", "ConfigMap")


async def test_an_unreadable_object_keeps_its_last_known_state(client: Client, namespace: str) -> None:
    """One object that does not fit its struct must not blind the cache to all others."""

    async def put(name: str, colour: str) -> None:
        manifest = config_map(namespace, name, colour=colour)
        manifest["metadata"]["labels"] = {"test": "yes"}
        await client.apply(CONFIG_MAPS, manifest, manager="test")

    await put("never", "green")
    await put("once", "red")
    async with running(Informer(client, ONLY_RED, labels="test=yes", namespace=namespace)) as informer:
        assert set(informer.store) == {Key(namespace, "once")}
        await put("once", "green")
        await put("other", "red")
        await eventually(lambda: Key(namespace, "other") in informer.store)
        known = informer.store.get(Key(namespace, "once"))
        assert known is not None
        assert known.data == {"colour": "red"}
