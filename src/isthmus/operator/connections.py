"""Finds each Controller's Slurm: its slurmrestd and the key of its tokens, as both change."""

from typing import Final

from isthmus import names
from isthmus.domain.operator import partnames
from isthmus.model.meta import HasMeta, Key
from isthmus.model.objects import Service
from isthmus.model.slinky import Controller as ControllerPart
from isthmus.model.slinky import RestApi
from isthmus.operator.slurms import Address, urls, why_unreachable
from isthmus.operator.world import ClusterCaches, cluster_ip
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.references import Asker

_WORKERS: Final = 4


class SlurmReach:
    """Updates `world.slurms`. Runs in every replica, so that a new leader is connected at once."""

    def __init__(self, world: ClusterCaches, metrics: Metrics) -> None:
        self._world = world
        self.controller: Controller[Key] = Controller(
            "slurm-reach", self.reconcile, metrics=metrics, workers=_WORKERS
        )
        world.controllers.on_change(self._controller_changed)
        world.restapis.on_change(self._restapi_changed)
        world.services.on_change(self._service_changed)

    @property
    def workers(self) -> tuple[Worker, ...]:
        """What every replica runs."""
        return (self.controller, _Connections(self._world))

    async def reconcile(self, key: Key) -> None:
        controller = self._world.controllers.get(key)
        if controller is None:
            self._world.slurms.follow(key, None, why_not="its Controller does not exist")
            self._world.references.release(Asker(self.controller.queue.add, key))
            return
        restapis = {it.metadata.key: it for it in self._restapis(key)}
        addresses = {name: address for name in restapis if (address := self._address(name))}
        found = urls(restapis, addresses)
        if not found:
            self._world.slurms.follow(key, None, why_not=why_unreachable(controller, len(restapis)))
            return
        secret = self._key_of_tokens(controller)
        if not secret:
            self._world.slurms.follow(key, None, why_not="the Secret of jwtKeyRef does not exist, or lacks its key")
            return
        self._world.slurms.follow(key, Address(found, secret))

    def _restapis(self, key: Key) -> tuple[RestApi, ...]:
        unnamed = self._world.restapis.by("controller", Key(key.namespace, ""))
        return (
            *self._world.restapis.by("controller", key),
            *(it for it in unnamed if self._world.controller_key(it) == key),
        )

    def _address(self, restapi: Key) -> str | None:
        service = self._world.services.get(Key(restapi.namespace, partnames.restapi(restapi.name)))
        return cluster_ip(service) if service else None

    def _key_of_tokens(self, controller: ControllerPart) -> bytes:
        reference = controller.spec.jwt_key
        if reference is None:
            return b""
        meta = controller.metadata
        asker = Asker(self.controller.queue.add, meta.key)
        secret = self._world.references.secret(Key(meta.namespace, reference.name), asker)
        return secret.data.get(reference.key, b"") if secret else b""

    # What wakes a Controller

    def _controller_changed(self, key: Key, *_: ControllerPart | None) -> None:
        self.controller.queue.add(key)

    def _restapi_changed(self, _: Key, old: RestApi | None, new: RestApi | None) -> None:
        for restapi in (old, new):
            owner = self._world.controller_key(restapi) if restapi else None
            if owner:
                self.controller.queue.add(owner)

    def _service_changed(self, key: Key, old: Service | None, new: Service | None) -> None:
        found: HasMeta | None = new or old
        if found and found.metadata.labels.get(names.COMPONENT_LABEL) == "restapi":
            name = found.metadata.labels.get(names.INSTANCE_LABEL, "")
            restapi = self._world.restapis.get(Key(key.namespace, name))
            owner = self._world.controller_key(restapi) if restapi else None
            if owner:
                self.controller.queue.add(owner)


class _Connections:
    """Holds the connections to every Slurm for as long as the process works."""

    def __init__(self, world: ClusterCaches) -> None:
        self._world = world

    async def run(self) -> None:
        await self._world.slurms.run()

    def drain(self) -> None:
        self._world.slurms.stop()
