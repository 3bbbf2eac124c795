"""Makes volumes for claims: a directory of the host for each, and removes it when its volume is released.

Two classes. `shared` takes every access mode, because all nodes see the directory; `local` takes ReadWriteOnce and
ties the volume to the node that the scheduler chose. Runs on the control-plane node:
python -m isthmus.local.provisioner KUBECONFIG DIRECTORY
"""

import asyncio
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from isthmus.errors import Terminal
from isthmus.kube import config
from isthmus.kube.client import Client
from isthmus.kube.errors import AlreadyExists, NotFound
from isthmus.kube.informer import Informer
from isthmus.model.meta import Key
from isthmus.model.storage import CLAIMS, VOLUMES, Claim, PersistentVolume
from isthmus.runtime import logs
from isthmus.runtime.controller import Controller
from isthmus.runtime.metrics import Metrics

SHARED = "isthmus.local/shared"
LOCAL = "isthmus.local/local"
_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_HOSTNAME = "kubernetes.io/hostname"
_MADE_BY = "pv.kubernetes.io/provisioned-by"
_UID = re.compile(r"[0-9a-f-]{36}")


def wants_volume(claim: Claim) -> bool:
    """Whether this claim waits for us: Kubernetes writes on it which provisioner it gave the work to."""
    return (
        claim.status.phase == "Pending"
        and not claim.spec.volume_name
        and claim.metadata.deletion_timestamp is None
        and claim.metadata.annotations.get(_PROVISIONER) in (SHARED, LOCAL)
    )


def volume_for(claim: Claim, directory: Path) -> dict[str, Any]:
    """The volume that a claim gets. Its name comes from the claim's, so that it is never made twice."""
    provisioner = claim.metadata.annotations[_PROVISIONER]
    if claim.spec.volume_mode != "Filesystem":
        raise Terminal(
            f"claim {claim.metadata.key}: only file system volumes can be provisioned, not raw block devices"
        )
    if not _UID.fullmatch(claim.metadata.uid):
        raise Terminal(f"claim {claim.metadata.key}: {claim.metadata.uid!r} is not a valid UID")
    spec: dict[str, Any] = {
        "capacity": {"storage": claim.spec.resources.requests["storage"]},
        "accessModes": list(claim.spec.access_modes),
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": claim.spec.storage_class_name,
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
        },
        # Kubelet measures volumes of this kind (kubelet_volume_stats_*), and not those of the kind hostPath.
        "local": {"path": str(directory / f"pvc-{claim.metadata.uid}")},
    }
    where: dict[str, Any] = {"key": _HOSTNAME, "operator": "Exists"}
    if provisioner == LOCAL:
        if set(claim.spec.access_modes) - {"ReadWriteOnce", "ReadWriteOncePod"}:
            raise Terminal(
                f"claim {claim.metadata.key}: a local volume is on one node, not {claim.spec.access_modes}",
                remedy="use the storage class `shared`",
            )
        node = claim.metadata.annotations.get(_SELECTED_NODE)
        if not node:
            raise Terminal(
                f"claim {claim.metadata.key}: no node was chosen for its local volume",
                remedy="its storage class needs volumeBindingMode: WaitForFirstConsumer",
            )
        where = {"key": _HOSTNAME, "operator": "In", "values": [node]}
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}
    return {
        "metadata": {"name": f"pvc-{claim.metadata.uid}", "annotations": {_MADE_BY: provisioner}},
        "spec": spec,
    }


def is_to_be_removed(volume: PersistentVolume) -> bool:
    """Whether nobody needs this volume of ours any more."""
    return (
        volume.metadata.annotations.get(_MADE_BY) in (SHARED, LOCAL)
        and volume.status.phase == "Released"
        and volume.spec.reclaim_policy == "Delete"
    )


class Provisioner:
    """Two controllers, one for claims and one for volumes, on the same two caches."""

    def __init__(self, client: Client, directory: Path) -> None:
        metrics = Metrics()
        self._client = client
        self._directory = directory
        self._claims = Informer(client, CLAIMS)
        self._volumes = Informer(client, VOLUMES)
        self._provide = Controller("provide", self._reconcile_claim, metrics=metrics, workers=2)
        self._remove = Controller("remove", self._reconcile_volume, metrics=metrics, workers=2)
        self._claims.store.on_change(lambda key, _old, _new: self._provide.queue.add(key))
        self._volumes.store.on_change(lambda key, _old, _new: self._remove.queue.add(key))

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self._claims, self._volumes, self._provide, self._remove):
                tasks.create_task(work.run())

    async def _reconcile_claim(self, key: Key) -> None:
        claim = self._claims.store.get(key)
        if claim is None or not wants_volume(claim):
            return
        volume = volume_for(claim, self._directory)
        await asyncio.to_thread(_make_directory, Path(volume["spec"]["local"]["path"]))
        try:
            await self._client.create(VOLUMES, volume)
        except AlreadyExists:
            return

    async def _reconcile_volume(self, key: Key) -> None:
        volume = self._volumes.store.get(key)
        if volume is None or not is_to_be_removed(volume):
            return
        source = volume.spec.local or volume.spec.host_path  # what Isthmus 0.2 made
        if source is None:
            return
        path = Path(source.path)
        if path.parent == self._directory and path.name == volume.metadata.name:
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
        try:
            await self._client.delete(VOLUMES, key, uid=volume.metadata.uid)
        except NotFound:
            return


def _make_directory(path: Path) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(0o777)  # pods run as any user


async def _main(kubeconfig: Path, directory: Path) -> None:
    async with Client(config.from_files([kubeconfig])) as client:
        await Provisioner(client, directory).run()


if __name__ == "__main__":
    logs.configure()
    asyncio.run(_main(Path(sys.argv[1]), Path(sys.argv[2])))
