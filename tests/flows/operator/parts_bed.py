"""The controllers of a cluster's smaller parts at work on a real API server; kubelets and Slurm are elsewhere."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from isthmus.domain.operator import partnames
from isthmus.domain.operator.authkeys import AuthKey, KeySet
from isthmus.domain.operator.manifests import common
from isthmus.kube.client import Client, path
from isthmus.kube.errors import NotFound
from isthmus.kube.recorder import EVENTS
from isthmus.kube.store import Store
from isthmus.model.base import Kind
from isthmus.model.meta import HasMeta, Key, condition
from isthmus.model.objects import CONFIGMAPS, SECRETS
from isthmus.model.slinky import CONTROLLERS
from isthmus.operator.applier import Applier
from isthmus.operator.statuswriter import Reporter
from isthmus.operator.world import World
from isthmus.runtime.metrics import Metrics
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.kube.waiting import eventually
from tests.flows.working import at_work, seated

T = TypeVar("T", bound=HasMeta)

LIMIT = 90.0

SLURM_KEY = b"s" * 1024
JWT_KEY = b"j" * 32
SLURM_KEY_REF = {"name": "slurm-key", "key": "slurm.key"}
JWT_KEY_REF = {"name": "jwt-key", "key": "jwt.key"}


def a_minute_later() -> datetime:
    """Be a clock for controllers that are to have lost patience already."""
    return datetime.now(UTC) + timedelta(minutes=1)


async def caught_up(world: World) -> bool:
    """Whether every cache shows what the API server has."""
    informers = (*world._informers.values(), *(it.informer for it in world.references._known.values()))
    for informer in informers:
        there = {}
        if informer.is_served:
            listing = await world.kube.list(informer.kind, **informer._selected)
            there = {it.metadata.key: it.metadata.resource_version for it in listing.items}
        if there != {it.metadata.key: it.metadata.resource_version for it in informer.store.values()}:
            return False
    return True


async def until_quiet(world: World, rests: Callable[[], bool], writes: list[str]) -> None:
    """Wait until controllers have nothing to do, though they have heard of everything."""
    async with asyncio.timeout(LIMIT):
        while True:
            before = len(writes)
            if rests() and await caught_up(world) and rests() and len(writes) == before:
                return
            await asyncio.sleep(0.02)


async def until_recorded(kube: Client, namespace: str, text: str) -> None:
    """Wait for an Event that says this; they are sent beside everything else."""
    where = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    async with asyncio.timeout(60):
        while text not in (await kube.raw(where)).decode():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


def a_minute_before() -> datetime:
    """Be a clock for controllers that are not to lose patience, however slow the machine is."""
    return datetime.now(UTC) - timedelta(minutes=1)


class Bed:
    """One controller, in one namespace."""

    def __init__(self, world: World, sync: Any, writes: list[str]) -> None:
        self.world = world
        self.sync = sync
        self.kube = world.kube
        self.namespace = world.namespace
        self.writes = writes
        """The methods of all requests that change something but Events."""

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    def meta(self, name: str, **more: Any) -> dict[str, Any]:
        return {"namespace": self.namespace, "name": name, **more}

    async def make(self, kind: Kind[T], name: str, **spec: Any) -> T:
        return await self.kube.create(kind, {"metadata": self.meta(name), "spec": spec})

    async def secret(self, name: str, **data: bytes) -> None:
        """Make a Secret of a user, or change it."""
        encoded = {key.replace("_", "."): b64encode(value).decode() for key, value in data.items()}
        manifest = {"metadata": self.meta(name), "data": encoded}
        await self.kube.apply(SECRETS, manifest, manager="a-user", force=True)

    async def keys(self) -> None:
        """Make the keys that custom resources name."""
        await self.secret("slurm-key", slurm_key=SLURM_KEY)
        await self.secret("jwt-key", jwt_key=JWT_KEY)

    async def controller(self, name: str = "slurm", **spec: Any) -> None:
        """Make a Controller, with what its own controller makes of it."""
        await self.keys()
        await self.make(CONTROLLERS, name, slurmKeyRef=SLURM_KEY_REF, jwtKeyRef=JWT_KEY_REF, **spec)
        marks = common.labels("slurmctld", name, "controller", cluster=name)
        key_set = KeySet.only(AuthKey.of(SLURM_KEY, where="a test")).write()
        auth = {
            "metadata": common.metadata(partnames.auth(name), self.namespace, marks),
            "data": {"slurm.jwks": b64encode(key_set).decode(), "jwt.key": b64encode(JWT_KEY).decode()},
        }
        await self.kube.create(SECRETS, auth)
        config = {"slurm.conf": "ClusterName=x\n", "cgroup.conf": "CgroupPlugin=disabled\n"}
        await self.kube.create(CONFIGMAPS, common.configmap(partnames.config(name), self.namespace, marks, config))

    async def there(self, store: Store[T], name: str) -> T:
        """Wait until an object is there."""
        await eventually(lambda: self.key(name) in store)
        found = store.get(self.key(name))
        assert found is not None
        return found

    async def raw(self, kind: Kind[Any], name: str) -> dict[str, Any]:
        """Read an object as it is, with all fields."""
        found: dict[str, Any] = json.loads(await self.kube.send("GET", path(kind, self.key(name))))
        return found

    def condition(self, store: Store[Any], name: str, type_: str) -> tuple[str, str]:
        found = store.get(self.key(name))
        held = condition(found.status.conditions, type_) if found else None
        return (held.status, held.message) if held else ("", "")

    async def until(self, store: Store[Any], name: str, type_: str, status: str, *, saying: str = "") -> None:
        """Wait until a condition has this status, with a message that holds this text."""

        def holds() -> bool:
            now, message = self.condition(store, name, type_)
            return now == status and saying in message

        try:
            await eventually(holds, within=LIMIT)
        except AssertionError:
            raise AssertionError(f"{type_} is {self.condition(store, name, type_)}") from None

    async def becomes_when_its_controller_comes(
        self, kind: Kind[Any], parts: Store[Any], name: str, made: Store[Any], made_name: str
    ) -> None:
        """Make a part without its Controller, which it says, then the Controller, with which it becomes `made`."""
        await self.make(kind, name, controllerRef={"name": "slurm"})
        await self.until(parts, name, "Degraded", "True", saying="there is no Controller slurm")
        await self.controller()
        await self.there(made, made_name)
        await self.until(parts, name, "Degraded", "False")

    @contextmanager
    def behind(self, kind: Kind[Any]) -> Iterator[None]:
        """Let the cache of a kind hear of nothing, as while its watch is slow; then of everything at once."""
        informer = next(it for it in self.world._informers.values() if it.kind == kind)
        held: list[Any] = []
        informer._apply = held.append  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            del informer._apply
            for batch in held:
                informer._apply(batch)

    async def quiet(self) -> None:
        """Wait until the controller has nothing to do but to look again later."""
        queue = self.sync.controller.queue

        def rests() -> bool:
            now = queue._clock()
            due = queue._backlog.next_due()
            return not queue.taken and not queue._backlog.ready_count(now) and (due is None or due > now + 1)

        await until_quiet(self.world, rests, self.writes)

    async def told_of(self, name: str) -> None:
        """Wait for an Event about an object; they are sent beside everything else."""
        async with asyncio.timeout(LIMIT):
            while True:
                listing = await self.kube.list(EVENTS, namespace=self.namespace)
                if any(it.metadata.name.startswith(name) for it in listing.items):
                    return
                await asyncio.sleep(0.02)

    async def gone(self, kind: Kind[Any], name: str) -> None:
        """Wait until an object is gone, and the cache knows: the garbage collector may take half a minute."""
        store: Store[Any] = next(it.store for it in self.world._informers.values() if it.kind == kind)
        async with asyncio.timeout(LIMIT):
            while True:
                try:
                    await self.kube.get(kind, self.key(name))
                except NotFound:
                    break
                await asyncio.sleep(0.02)
        await eventually(lambda: self.key(name) not in store)


@asynccontextmanager
async def working(control_plane: ControlPlaneBed, namespace: str, sync: Any, **more: Any) -> AsyncIterator[Bed]:
    """Run a controller of this class."""
    async with seated(control_plane.kubeconfig, namespace) as (world, recorder, writes):
        kube = world.kube
        made = sync(
            world, applier=Applier(kube), reporter=Reporter(kube), recorder=recorder, metrics=Metrics(), **more
        )
        async with at_work(world, recorder, made.workers):
            yield Bed(world, made, writes)
