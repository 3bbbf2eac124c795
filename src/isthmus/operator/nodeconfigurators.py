"""NodeConfigurators: each becomes a DaemonSet, with a rebooter or a container of the user's on every machine."""

from typing import Final, Unpack

from isthmus.domain.kube import conditions
from isthmus.domain.kube.podtrouble import PATIENCE, Trouble, of_pods
from isthmus.domain.operator.manifests import nodeconfigurator as manifests
from isthmus.domain.operator.manifests.companion import LACKS_PROGRAM
from isthmus.model.meta import Key
from isthmus.model.nodeconfigurator import NODE_CONFIGURATORS, NodeConfigurator
from isthmus.model.objects import DAEMONSETS, Workload
from isthmus.model.pod import PODS
from isthmus.operator import parts, refusals
from isthmus.operator.applier import owner_reference
from isthmus.operator.kindsync import KindSync, Tools
from isthmus.operator.world import World

_NO_ACCOUNT: Final = (
    "rebooter.serviceAccountName is empty: name an account that may patch nodes; the chart nodeconfigurator has one"
)
_NOTHING: Final = "neither rebooter nor customContainer is enabled"


class NodeConfiguratorSync(KindSync[NodeConfigurator]):
    """The controller of NodeConfigurators; `workers` are for the leader."""

    def __init__(self, world: World, **tools: Unpack[Tools]) -> None:
        super().__init__(world, NODE_CONFIGURATORS, world.node_configurators, **tools)
        wake = self.controller.queue.add
        world.node_configurators.on_change(lambda key, *_: wake(key))
        world.daemonsets.on_change(parts.wakes_owner(NODE_CONFIGURATORS, wake))

    async def reconcile(self, key: Key) -> None:
        found = self._there.get(key)
        if found is None or found.metadata.deletion_timestamp is not None:
            return
        trouble, failure = await refusals.attempt(self._make(found))
        await self._report(found, trouble)
        if failure:
            raise failure
        if trouble.missing:
            self.controller.queue.add(key, after=PATIENCE)

    async def _make(self, found: NodeConfigurator) -> Trouble:
        """Apply the DaemonSet; return what is wrong or missing."""
        world, meta = self._world, found.metadata
        manifest = manifests.daemonset(found, settings=world.settings)
        if manifest is None:
            await self._applier.remove(DAEMONSETS, self._key(found), there=world.daemonsets, owner=found)
            return Trouble()
        owners = (owner_reference(NODE_CONFIGURATORS, found),)
        await self._applier.apply(DAEMONSETS, manifest, there=world.daemonsets, owners=owners)
        if found.spec.rebooter.enabled and not found.spec.rebooter.service_account_name:
            return Trouble(wrong=_NO_ACCOUNT)
        daemonset = world.daemonsets.get(self._key(found))
        if daemonset is None:
            return Trouble(missing="the DaemonSet is being created")
        return Trouble() if _is_settled(daemonset) else await self._unsettled(meta.key, daemonset)

    async def _unsettled(self, key: Key, daemonset: Workload) -> Trouble:
        """Say why pods are not ready. They are one for each machine, so they are not kept, but looked up."""
        selector = ",".join(f"{name}={value}" for name, value in manifests.labels(key.name).items())
        pods = await self._world.kube.list(PODS, namespace=key.namespace, labels=selector)
        told = of_pods(pods.items, now=self._now())
        status = daemonset.status
        still = f"{status.number_ready} of {status.desired_number_scheduled} pods are ready"
        wrong = f"{told.wrong} ({manifests.NOT_OURS})" if LACKS_PROGRAM in told.wrong else told.wrong
        return Trouble(wrong=wrong, missing=told.missing or still)

    async def _report(self, found: NodeConfigurator, trouble: Trouble) -> None:
        daemonset = self._world.daemonsets.get(self._key(found))
        desired = daemonset.status.desired_number_scheduled if daemonset else 0
        ready = daemonset.status.number_ready if daemonset else 0
        enabled = found.spec.rebooter.enabled or found.spec.custom_container.enabled
        settled = f"{ready} of {desired} pods are ready" if enabled else _NOTHING
        held = conditions.summary(wrong=trouble.wrong, missing=trouble.missing, settled=settled)
        parts.tell(self._recorder, self._kind, found, held)
        await self._reporter.report(self._kind, found, {"desired": desired, "ready": ready}, held)

    def _key(self, found: NodeConfigurator) -> Key:
        return Key(found.metadata.namespace, manifests.name(found.metadata.name))


def _is_settled(daemonset: Workload) -> bool:
    told = daemonset.status
    return (
        told.observed_generation >= daemonset.metadata.generation
        and told.number_ready == told.updated_number_scheduled == told.desired_number_scheduled
    )
