"""Both sides of JailedConfigs on a real API server: who writes files, and who lets a real Slurm read them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from isthmus.domain.operator.manifests import sconfig
from isthmus.domain.operator.manifests.sconfig import Writing
from isthmus.kube.client import Client
from isthmus.kube.config import load
from isthmus.model.jailedconfig import JAILED_CONFIGS, JailedConfig
from isthmus.model.meta import Key, condition
from isthmus.model.objects import CONFIGMAPS, ROLE_BINDINGS, ROLES
from isthmus.model.slinky import CONTROLLERS
from isthmus.operator.jailedconfigs import JailedConfigSync
from isthmus.operator.slurms import Address
from isthmus.runtime.manager import Manager
from isthmus.runtime.metrics import Metrics
from isthmus.sharedroot.configs import ConfigWriter
from isthmus.sharedroot.files import Root
from tests.bed.control_plane import ControlPlaneBed
from tests.bed.slurm import SlurmBed
from tests.flows.kube.waiting import eventually
from tests.flows.operator.parts_bed import JWT_KEY_REF, LIMIT, SLURM_KEY_REF, Bed, working

CLUSTER = "slurm"
WRITTEN = "FilesWritten"
COMPLETED = "UpdateActionsCompleted"
RECONFIGURE: dict[str, Any] = {"updateActions": ["Reconfigure"]}


class JailedBed:
    """A namespace with JailedConfigs of the cluster `slurm`, and a directory as its shared root."""

    def __init__(self, control_plane: ControlPlaneBed, kube: Client, namespace: str, root: Path) -> None:
        self._control_plane = control_plane
        self.kube = kube
        self.namespace = namespace
        self.root = root

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    def fill(self) -> None:
        """Say that the shared root is filled."""
        (self.root / ".isthmus").mkdir(exist_ok=True)
        (self.root / ".isthmus" / "ready").write_text("{}")

    def read(self, path: str) -> str | None:
        found = self.root / path[1:]
        return found.read_text() if found.exists() else None

    async def configmap(self, name: str, **data: str) -> None:
        """Make a ConfigMap of a user, or change it."""
        manifest = {"metadata": {"namespace": self.namespace, "name": name}, "data": data}
        await self.kube.apply(CONFIGMAPS, manifest, manager="a-user", force=True)

    async def config(
        self, name: str, *paths: str, cluster: str = CLUSTER, key: str = "", **spec: Any
    ) -> JailedConfig:
        """Make a JailedConfig, from a ConfigMap of its name whose key `file` goes to all paths."""
        labels = {"app.kubernetes.io/instance": cluster}
        if key:
            labels["slurm.nebius.ai/jailed-aggregation"] = key
        items = [{"key": "file", "path": path} for path in paths]
        return await self.kube.create(
            JAILED_CONFIGS,
            {
                "metadata": {"namespace": self.namespace, "name": name, "labels": labels},
                "spec": {"configMap": {"name": name}, "items": items, **spec},
            },
        )

    async def until(
        self, name: str, type_: str, status: str, *, saying: str = "", reason: str = ""
    ) -> JailedConfig:
        """Wait until a condition has this status, with a message that holds this text."""
        said = None
        try:
            async with asyncio.timeout(LIMIT):
                while True:
                    found = await self.kube.get(JAILED_CONFIGS, self.key(name))
                    said = condition(found.status.conditions, type_)
                    if said and said.status == status and saying in said.message and reason in {"", said.reason}:
                        return found
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{type_} of {name} is {said}") from None

    async def next_second(self) -> None:
        """Wait for a time that Slurm, whose times have whole seconds, can tell from what was before.

        A slurmd that is started twice in one second seems not to have read anything the second time.
        """
        begun = int(time.time())
        await eventually(lambda: int(time.time()) > begun)

    @asynccontextmanager
    async def writer(self, *, covered: tuple[str, ...] = ()) -> AsyncIterator[ConfigWriter]:
        """Run what writes files, with no more rights than its Role gives."""
        writing = Writing(cluster=CLUSTER, namespace=self.namespace, prefix="", root={})
        binding = sconfig.binding(writing)
        user = f"sconfig-{self.namespace}"
        binding["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
        await self.kube.apply(ROLES, sconfig.role(writing), manager="test")
        await self.kube.apply(ROLE_BINDINGS, binding, manager="test")
        config = self._control_plane.plane.user(user, user)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(load(config)))
            made = ConfigWriter(
                client,
                Root(self.root, covered=covered),
                namespace=self.namespace,
                cluster=CLUSTER,
                metrics=Metrics(),
            )
            manager = Manager(grace=1.0)
            manager.cache("jailedconfigs", made.informer)
            manager.cache("configmaps", made.references)
            manager.work(made.controller)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            tasks.create_task(manager.run())
            try:
                await eventually(lambda: made.informer.contact.in_touch)
                yield made
            finally:
                manager.stop()

    @asynccontextmanager
    async def operator(self, slurm: SlurmBed, url: str = "", **more: Any) -> AsyncIterator[Bed]:
        """Run what lets Slurm read them, by way of this URL."""
        spec = {"slurmKeyRef": SLURM_KEY_REF, "jwtKeyRef": JWT_KEY_REF}
        made = {"metadata": {"namespace": self.namespace, "name": CLUSTER}, "spec": spec}
        await self.kube.apply(CONTROLLERS, made, manager="test")
        async with working(self._control_plane, self.namespace, JailedConfigSync, **more) as bed:
            address = Address((url or slurm.rest_url,), slurm.jwt_key.read_bytes())
            bed.world.slurms.follow(self.key(CLUSTER), address)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(bed.world.slurms.run())
                try:
                    await eventually(lambda: bed.world.slurms.in_touch(self.key(CLUSTER)))
                    await self.next_second()
                    yield bed
                finally:
                    bed.world.slurms.stop()
