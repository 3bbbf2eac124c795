"""What becomes of objects that somebody deletes before we have looked again, on a real API server."""

from isthmus.domain.operator.manifests.common import configmap, labels
from isthmus.kube.client import Client
from isthmus.kube.informer import Informer
from isthmus.model.meta import Key
from isthmus.model.objects import CONFIGMAPS
from isthmus.operator.applier import Applier
from tests.flows.kube.waiting import eventually, running

WANTED = {"slurm.conf": "ClusterName=a\n"}


async def test_what_is_deleted_right_after_it_was_made_is_made_again(kube: Client, namespace: str) -> None:
    applier = Applier(kube)
    wanted = configmap("x-config", namespace, labels("slurmctld", "slurm", "controller"), WANTED)
    key = Key(namespace, "x-config")
    async with running(Informer(kube, CONFIGMAPS, namespace=namespace)) as there:
        assert await applier.apply(CONFIGMAPS, wanted, there=there.store)
        await kube.delete(CONFIGMAPS, key)
        await kube.create(CONFIGMAPS, {"metadata": {"namespace": namespace, "name": "later"}})
        await eventually(lambda: Key(namespace, "later") in there.store)
        assert key not in there.store
        # As before it was made. But the cache has heard of that.
        assert await applier.apply(CONFIGMAPS, wanted, there=there.store)
        assert (await kube.get(CONFIGMAPS, key)).data == WANTED
