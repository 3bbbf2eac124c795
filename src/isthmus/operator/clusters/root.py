"""The Jobs of a cluster's shared root: created beside everything else, and shown in its status."""

from contextlib import suppress

import structlog

from isthmus import names
from isthmus.clock import utc_now
from isthmus.domain.kube.podtrouble import Trouble, is_new, of_pods
from isthmus.domain.operator.clusterparts import rootjobs, rootstatus
from isthmus.domain.operator.clusterparts.rootjobs import Hashes, SeenRoot
from isthmus.domain.operator.clusterparts.rootstatus import POPULATED, RootView
from isthmus.domain.operator.clusterparts.status import ClusterView, at_rest
from isthmus.domain.operator.manifests import populate
from isthmus.domain.operator.manifests.populate import Filling
from isthmus.errors import Terminal
from isthmus.kube.errors import NotFound
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Key, condition
from isthmus.model.soperator import SLURM_CLUSTERS, SlurmCluster
from isthmus.model.workload import OWN_JOBS, OwnJob
from isthmus.operator.applier import Applier, owner_reference
from isthmus.operator.world import World

log = structlog.get_logger()


class RootKeeper:
    """Creates and deletes these Jobs, and reports their progress."""

    def __init__(self, world: World, applier: Applier, recorder: Recorder) -> None:
        self._world = world
        self._applier = applier
        self._recorder = recorder

    async def keep(self, cluster: SlurmCluster, filling: Filling, family: ClusterView) -> Terminal | None:
        """Make the Jobs that should be there, and remove those that should not. Nobody waits for them.

        Return why Kubernetes refuses one as it is written.
        """
        manifests = {
            action: populate.job(filling, action, settings=self._world.settings)
            for action in ("populate", "refresh")
        }
        hashes = Hashes(
            **{
                action: made["metadata"]["annotations"][names.JAIL_HASH_ANNOTATION]
                for action, made in manifests.items()
            }
        )
        for step in rootjobs.steps(cluster, self._seen(filling), hashes, at_rest=at_rest(cluster, family)):
            if step.does == "remove":
                await self._remove(Key(filling.namespace, populate.job_name(filling.prefix, step.action)))
                continue
            owners = (owner_reference(SLURM_CLUSTERS, cluster),)
            try:
                await self._applier.make_once(
                    OWN_JOBS, manifests[step.action], there=self._world.jobs, owners=owners
                )
            except Terminal as error:
                return error
        return None

    async def drop(self, cluster: SlurmCluster) -> None:
        """Remove the Jobs of a cluster that has no shared root any more. The volume stays."""
        for job in self._world.jobs.by("owner", cluster.metadata.uid):
            if job.metadata.deletion_timestamp is None:
                await self._remove(job.metadata.key)

    def view(self, cluster: SlurmCluster, filling: Filling, *, refused: str = "") -> RootView:
        if refused:
            text = f"cannot create the Job of the shared root: {refused}"
            told = cluster.status
            return RootView(
                filled=bool(told.jail_image),
                image=told.jail_image,
                since=told.jail_filled_at,
                wanted=filling.image,
                reason="Refused",
                text=text,
                wrong=text,
            )
        seen = self._seen(filling)
        running = next((it for it in (seen.refresh, seen.populate) if it and not it.complete), None)
        trouble = self._trouble(running) if running and not running.failure else Trouble()
        return rootstatus.view(cluster, filling, seen, trouble)

    def tell(self, cluster: SlurmCluster, view: RootView) -> None:
        """Write Events about the root: that it is filled, or what prevents it."""
        before = condition(cluster.status.conditions, POPULATED)
        trouble = view.wrong or view.reason == "RefreshFailed"
        if trouble and (before is None or before.message != view.text):
            self._recorder.event(SLURM_CLUSTERS, cluster, f"Jail{view.reason}", view.text, warning=True)
        elif view.reason in {"Filled", "Refreshed"} and (before is None or before.reason != view.reason):
            self._recorder.event(SLURM_CLUSTERS, cluster, f"Jail{view.reason}", view.text)

    def _seen(self, filling: Filling) -> SeenRoot:
        found = {
            action: self._world.jobs.get(Key(filling.namespace, populate.job_name(filling.prefix, action)))
            for action in ("populate", "refresh")
        }
        pods = [pod for job in found.values() if job for pod in self._world.pods.by("owner", job.metadata.uid)]
        return SeenRoot(populate=found["populate"], refresh=found["refresh"], pods=tuple(pods))

    def _trouble(self, job: OwnJob) -> Trouble:
        """What keeps a Job's pods from doing their work."""
        pods = self._world.pods.by("owner", job.metadata.uid)
        if pods:
            return of_pods(pods, now=utc_now())
        name = f"{job.metadata.name} -n {job.metadata.namespace}"
        none = f"Kubernetes has not created the pod of its Job yet; see kubectl describe job {name}"
        return Trouble(missing=none) if is_new(job, utc_now()) else Trouble(wrong=none)

    async def _remove(self, key: Key) -> None:
        """Delete a Job, which is gone when its pods are: two never write at the same time."""
        found = self._world.jobs.get(key)
        if found is not None:
            log.info("cluster", did="RemoveJob", job=key.name)
            with suppress(NotFound):
                await self._world.kube.delete(OWN_JOBS, key, uid=found.metadata.uid, propagation="Foreground")
