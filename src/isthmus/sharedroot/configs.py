"""The controller of JailedConfigs on the side of the shared root: ConfigMaps become files.

It needs nothing but to read JailedConfigs and ConfigMaps of its namespace, and to tell how they are. What Slurm has
to read then is the operator's to decide, which does not see the volume.
"""

import asyncio
from typing import Final, NamedTuple

import structlog

from isthmus import names
from isthmus.domain.kube import conditions
from isthmus.domain.languages.prose import some
from isthmus.domain.operator.jailedconfigs import files
from isthmus.domain.operator.jailedconfigs.files import File
from isthmus.domain.operator.jailedconfigs.updates import WRITTEN
from isthmus.errors import IsthmusError, Retry, Terminal, Wait
from isthmus.kube.client import Client
from isthmus.kube.informer import Informer
from isthmus.model.jailedconfig import JAILED_CONFIGS, JailedConfig
from isthmus.model.meta import Condition, Key
from isthmus.model.objects import ConfigMap
from isthmus.runtime.controller import Controller
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.references import Asker, References
from isthmus.runtime.statusparts import StatusPart
from isthmus.sharedroot.files import Root

log = structlog.get_logger()

_UNFILLED: Final = 0.5
_AGAIN: Final = 60.0
"""Seconds after which files are compared again: users may have changed or removed them on the volume."""

_SHOWN: Final = 5


class Group(NamedTuple):
    """JailedConfigs that are written together: those of one aggregation, or a single one."""

    cluster: str
    name: str


class ConfigWriter:
    """Writes the files of one cluster's JailedConfigs, and of no other's."""

    def __init__(self, client: Client, root: Root, *, namespace: str, cluster: str, metrics: Metrics) -> None:
        self._root = root
        # By the label alone: an aggregation key that another cluster uses, too, means nothing here.
        self.informer: Informer[JailedConfig] = Informer(
            client, JAILED_CONFIGS, namespace=namespace, labels=f"{names.INSTANCE_LABEL}={cluster}"
        )
        self.references = References(client)
        self._status = StatusPart(client, JAILED_CONFIGS, manager=names.WRITER_FIELD_MANAGER)
        # One worker: the older JailedConfig may write a file, not the faster one.
        self.controller: Controller[Group] = Controller("jailedconfigs", self.reconcile, metrics=metrics, workers=1)
        self.informer.store.on_change(self._changed)

    async def reconcile(self, group: Group) -> None:
        """Write the files of one group, and report the result."""
        members = [self._status.newest(it) for it in files.members(self.informer.store.values(), group)]
        if not members:
            return
        if not await asyncio.to_thread(self._root.is_filled):
            for config in members:
                await self._tell(config, _unfilled(config))
            raise Wait("the shared root is not filled", after=_UNFILLED)
        asked = [(config, self._configmap(config, group)) for config in members]
        trouble: Retry | None = None
        for config, found in asked:
            try:
                made = self._files(config, found)
                changed = await asyncio.to_thread(self._root.write, made)
            except _NotThere as error:
                await self._tell(config, conditions.no(WRITTEN, "NotFound", _one_line(error)))
            except (Terminal, Retry) as error:
                await self._tell(config, conditions.no(WRITTEN, "NotWritten", _one_line(error)))
                trouble = error if isinstance(error, Retry) else trouble
            else:
                if changed:
                    log.info("files written", jailedconfig=config.metadata.name, paths=changed)
                await self._tell(config, _written(made), made)
        if trouble:
            raise trouble
        self.controller.queue.add(group, after=_AGAIN)

    def _configmap(self, config: JailedConfig, group: Group) -> ConfigMap | None:
        """Find the ConfigMap; the group is woken whenever it changes."""
        key = Key(config.metadata.namespace, config.spec.config_map.name)
        return self.references.configmap(key, Asker(self._wake, Key(*group)))

    def _files(self, config: JailedConfig, found: ConfigMap | None) -> tuple[File, ...]:
        if found is None:
            name = config.spec.config_map.name
            raise _NotThere(f"there is no ConfigMap {name}", remedy="create it; files stay as they are until then")
        if both := files.taken(config, self.informer.store.values()):
            raise Terminal(both, remedy="remove it from one of them")
        return files.files_of(config, found)

    async def _tell(self, config: JailedConfig, held: Condition, made: tuple[File, ...] = ()) -> None:
        """Write the status; without new files, the previous ones are still there."""
        there = {"filesHash": config.status.files_hash, "files": config.status.files}
        if made:
            there = {"filesHash": files.hash_of(made), "files": [it.path for it in made]}
        await self._status.tell(config, there, [held])

    def _wake(self, group: Key) -> None:
        self.controller.queue.add(Group(*group))

    def _changed(self, _: Key, old: JailedConfig | None, new: JailedConfig | None) -> None:
        if old and new and _asked(old) == _asked(new):
            return  # a status
        for config in (old, new):
            if config:
                self.controller.queue.add(Group(*files.group(config)))
        if new is None:
            # A path of it may be another one's now.
            for other in self.informer.store.values():
                self.controller.queue.add(Group(*files.group(other)))


class _NotThere(Terminal):
    """The ConfigMap does not exist; its coming wakes us."""


def _asked(config: JailedConfig) -> tuple[object, ...]:
    meta = config.metadata
    return meta.uid, meta.generation, meta.deletion_timestamp, files.group(config)


def _unfilled(config: JailedConfig) -> Condition:
    if config.status.files_hash:
        return conditions.no(WRITTEN, "Refresh", "the shared root is being refilled; files are checked afterwards")
    return conditions.no(WRITTEN, "Init", "the shared root is not filled yet; files are written afterwards")


def _written(made: tuple[File, ...]) -> Condition:
    shown = some((it.path for it in made), _SHOWN)
    return conditions.yes(WRITTEN, "Success", f"these are on the shared root: {shown}")


def _one_line(error: IsthmusError) -> str:
    return f"{error.what}; {error.remedy}" if error.remedy else error.what
