"""Creates what an sshd needs, for login nodes and workers."""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from isthmus.domain.operator import partnames, sshdconfig
from isthmus.domain.operator.manifests import sshd, workerssh
from isthmus.domain.operator.manifests.common import Manifest
from isthmus.domain.operator.nodeset.identity import slurm_name
from isthmus.domain.operator.sshdconfig import BadSshdConfig
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.objects import CONFIGMAPS, SECRETS
from isthmus.names import COMPONENT_LABEL
from isthmus.operator import hostkeys
from isthmus.operator.applier import Applier
from isthmus.operator.world import World


class _Write(Protocol):
    def __call__(self, *, without_extra: bool = False) -> Manifest: ...


class Sshds:
    """Host keys and settings of the sshds of one operator."""

    def __init__(self, world: World, applier: Applier) -> None:
        self._world = world
        self._applier = applier

    async def make_host_keys(self, meta: ObjectMeta, marks: Mapping[str, str]) -> None:
        """Create the host keys once: clients remember them. They stay when their owner is deleted."""
        there = self._world.secrets
        if Key(meta.namespace, partnames.ssh_host_keys(meta.name)) in there:
            return
        keys = await asyncio.to_thread(hostkeys.generate, sshdconfig.KEY_NAMES, comment=meta.name)
        await self._applier.make_once(SECRETS, sshd.host_keys_secret(meta, marks, keys), there=there)

    async def make_config(self, meta: ObjectMeta, write: _Write, *, owners: tuple[Mapping[str, Any], ...]) -> str:
        """Write sshd's settings; return what is wrong with the user's, which then stay as they were."""
        there = self._world.configmaps
        found = there.get(Key(meta.namespace, partnames.ssh_config(meta.name)))
        wrong = ""
        try:
            manifest = write()
        except BadSshdConfig as error:
            wrong = str(error)
            if found:
                return wrong
            manifest = write(without_extra=True)
        component = manifest["metadata"]["labels"][COMPONENT_LABEL]
        if found and (other := found.metadata.labels.get(COMPONENT_LABEL)) != component:
            return f"ConfigMap {found.metadata.name} belongs to the {other} nodes {meta.name}: rename one of them"
        await self._applier.apply(CONFIGMAPS, manifest, there=there, owners=owners)
        return wrong

    def known_hosts(self, controller: Key) -> str:
        """Write by which keys the workers of a cluster are known."""
        lines = []
        for nodeset in sorted(self._world.nodesets_of(controller), key=lambda it: it.metadata.name):
            meta = nodeset.metadata
            keys = self._world.secrets.get(Key(meta.namespace, partnames.ssh_host_keys(meta.name)))
            if nodeset.spec.ssh.enabled and keys:
                pods = (slurm_name(pod) for pod in self._world.pods.by("owner", meta.uid))
                lines.append(sshd.known_hosts(workerssh.hosts(nodeset, pods), keys.data))
        return "".join(lines)
