"""RestApis: each becomes slurmrestd, through which everybody, the operator too, asks Slurm."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from isthmus.domain.kube import conditions
from isthmus.domain.kube.podtrouble import PATIENCE, Trouble
from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests import restapi as manifests
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Key
from isthmus.model.objects import DEPLOYMENTS, SERVICES, ConfigMap
from isthmus.model.slinky import RESTAPIS, RestApi
from isthmus.model.slinky import Controller as ControllerPart
from isthmus.operator import parts, refusals
from isthmus.operator.applying import Applier, owner_reference
from isthmus.operator.reporting import Reporter
from isthmus.operator.workloads import Workloads
from isthmus.operator.world import World
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.metrics import Metrics

_WORKERS: Final = 4


class RestApiSync:
    """The controller of RestApis; `workers` are for the leader."""

    def __init__(
        self,
        world: World,
        *,
        applier: Applier,
        reporter: Reporter,
        recorder: Recorder,
        metrics: Metrics,
        now: Callable[[], datetime] = parts.utc_now,
    ) -> None:
        self._world = world
        self._applier = applier
        self._reporter = reporter
        self._recorder = recorder
        self._now = now
        self._workloads = Workloads(world, applier)
        guarded = refusals.told(RESTAPIS, world.restapis, self.reconcile, reporter=reporter, recorder=recorder)
        self.controller: Controller[Key] = Controller("restapis", guarded, metrics=metrics, workers=_WORKERS)
        wake = self.controller.queue.add
        world.restapis.on_change(lambda key, *_: wake(key))
        for store in (world.deployments, world.services):
            store.on_change(parts.wakes_owner(RESTAPIS, wake))
        world.pods.on_change(parts.wakes_instance(["restapi"], wake))
        world.controllers.on_change(lambda key, *_: self._wake_all(key))
        world.configmaps.on_change(self._config_changed)

    @property
    def workers(self) -> tuple[Worker, ...]:
        """What the leader runs."""
        return (self.controller,)

    async def reconcile(self, key: Key) -> None:
        """Make one RestApi so."""
        restapi = self._world.restapis.get(key)
        if restapi is None or restapi.metadata.deletion_timestamp is not None:
            return
        controller = self._world.controller_of(restapi)
        if controller is None:
            found = parts.no_controller(restapi.spec.controller_ref.name, restapi, now=self._now())
            failure = None
        else:
            found, failure = await refusals.attempt(self._make(restapi, controller))
        await self._report(restapi, found)
        if failure:
            raise failure
        if found.missing:
            self.controller.queue.add(key, after=PATIENCE)

    async def _make(self, restapi: RestApi, controller: ControllerPart) -> Trouble:
        world, meta, name = self._world, restapi.metadata, controller.metadata.name
        owners = (owner_reference(RESTAPIS, restapi),)
        for service in (manifests.service(restapi, name), manifests.completer_service(restapi, name)):
            await self._applier.apply(SERVICES, service, there=world.services, owners=owners)
        config = world.configmaps.get(Key(meta.namespace, partnames.config(name)))
        if config is None:
            return Trouble(missing=f"the configuration of Controller {name} does not exist yet")
        manifest = manifests.deployment(restapi, controller, settings=world.settings, files=config.data)
        wishes = manifests.wishes(restapi, controller, settings=world.settings, files=config.data)
        await self._workloads.apply(DEPLOYMENTS, manifest, wishes=wishes, owners=owners)
        workload = world.deployments.get(Key(meta.namespace, partnames.restapi(meta.name)))
        pods = world.pods.by("part", ("restapi", meta.key))
        found = parts.trouble("slurmrestd", workload, pods, now=self._now())
        await parts.try_again(world.kube, DEPLOYMENTS, workload, found, now=self._now())
        return found

    async def _report(self, restapi: RestApi, found: Trouble) -> None:
        meta = restapi.metadata
        workload = self._world.deployments.get(Key(meta.namespace, partnames.restapi(meta.name)))
        replicas = workload.status.replicas if workload else 0
        ready = workload.status.ready_replicas if workload else 0
        fields = {"replicas": replicas, "readyReplicas": ready, "selector": manifests.selector(restapi)}
        held = conditions.summary(
            wrong=found.wrong, missing=found.missing, settled=f"{ready} of {restapi.spec.replicas} pods are ready"
        )
        parts.tell(self._recorder, RESTAPIS, restapi, held)
        await self._reporter.report(RESTAPIS, restapi, fields, held)

    # What wakes a RestApi

    def _wake_all(self, controller: Key) -> None:
        """Wake the RestApis of a Controller, and those that name none."""
        for name in (controller.name, ""):
            for restapi in self._world.restapis.by("controller", Key(controller.namespace, name)):
                self.controller.queue.add(restapi.metadata.key)

    def _config_changed(self, key: Key, old: ConfigMap | None, new: ConfigMap | None) -> None:
        suffix = partnames.config("")
        if key.name.endswith(suffix) and (old and old.data) != (new and new.data):
            self._wake_all(Key(key.namespace, key.name.removesuffix(suffix)))
