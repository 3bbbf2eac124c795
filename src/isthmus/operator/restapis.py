"""RestApis: each becomes slurmrestd, through which all clients, the operator included, reach Slurm."""

from typing import Unpack

from isthmus.domain.kube.podtrouble import Trouble
from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests import restapi as manifests
from isthmus.model.meta import Key
from isthmus.model.objects import DEPLOYMENTS, SERVICES, ConfigMap, Workload
from isthmus.model.slinky import RESTAPIS, RestApi
from isthmus.model.slinky import Controller as ControllerPart
from isthmus.operator import parts
from isthmus.operator.applier import owner_reference
from isthmus.operator.kindsync import PodsSync, Tools
from isthmus.operator.world import World


class RestApiSync(PodsSync[RestApi]):
    """The controller of RestApis; `workers` are for the leader."""

    def __init__(self, world: World, **tools: Unpack[Tools]) -> None:
        super().__init__(world, RESTAPIS, world.restapis, **tools)
        wake = self.controller.queue.add
        for store in (world.deployments, world.services):
            store.on_change(parts.wakes_owner(RESTAPIS, wake))
        world.pods.on_change(parts.wakes_instance(["restapi"], wake))
        world.configmaps.on_change(self._config_changed)

    async def _make(self, part: RestApi, controller: ControllerPart) -> Trouble:
        restapi, world, meta, name = part, self._world, part.metadata, controller.metadata.name
        owners = (owner_reference(RESTAPIS, restapi),)
        for service in (manifests.service(restapi, name), manifests.completer_service(restapi, name)):
            await self._applier.apply(SERVICES, service, there=world.services, owners=owners)
        config = world.configmaps.get(Key(meta.namespace, partnames.config(name)))
        if config is None:
            return Trouble(missing=f"the configuration of Controller {name} does not exist yet")
        manifest = manifests.deployment(restapi, controller, settings=world.settings, files=config.data)
        inputs = manifests.inputs(restapi, controller, settings=world.settings, files=config.data)
        await self._workloads.apply(DEPLOYMENTS, manifest, inputs=inputs, owners=owners)
        pods = world.pods.by("part", ("restapi", meta.key))
        workload = self._workload(restapi)
        found = parts.trouble("slurmrestd", workload, pods, now=self._now())
        await parts.try_again(world.kube, DEPLOYMENTS, workload, found, now=self._now())
        return found

    def _workload(self, part: RestApi) -> Workload | None:
        return self._world.deployments.get(Key(part.metadata.namespace, partnames.restapi(part.metadata.name)))

    def _selector(self, part: RestApi) -> str:
        return manifests.selector(part)

    def _config_changed(self, key: Key, old: ConfigMap | None, new: ConfigMap | None) -> None:
        suffix = partnames.config("")
        if key.name.endswith(suffix) and (old and old.data) != (new and new.data):
            self._wake_all(Key(key.namespace, key.name.removesuffix(suffix)))
