"""Secrets and ConfigMaps that custom resources name: each is followed by itself, so that no other is ever read.

    asker = Asker(self.controller.queue.add, key)
    found = references.secret(Key("slurm", "slurm-key"), asker)     # the Secret, or None if there surely is none

The asker is woken whenever that object changes, and when it has been read for the first time. Before that, asking
raises `NotReadYet`, which ends the reconcile until then.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from isthmus.errors import Wait
from isthmus.kube.client import Client
from isthmus.kube.informer import Contact, Informer
from isthmus.model.base import Kind
from isthmus.model.meta import HasMeta, Key
from isthmus.model.objects import CONFIGMAPS, SECRETS, ConfigMap, Secret

T = TypeVar("T", bound=HasMeta)


class Asker(NamedTuple):
    """The user of a reference: what to call, usually a queue's `add`, with which key."""

    wake: Callable[[Key], object]
    key: Key


_REQUEUE_S: Final = 5.0
"""Seconds until an object that cannot be read is tried again."""


class NotReadYet(Wait):
    """The object has been asked for, and its answer is still to come."""


class _Reference:
    """One object, and who wants to know of it."""

    def __init__(self, informer: Informer[Any]) -> None:
        self.informer = informer
        self.askers: set[Asker] = set()
        self.tasks: list[asyncio.Task[None]] = []
        informer.store.on_change(lambda *_: self.tell())

    def tell(self) -> None:
        for asker in self.askers:
            asker.wake(asker.key)


class References:
    """Follows objects by name while `run` runs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[tuple[Kind[Any], Key], _Reference] = {}
        self._unstarted: list[_Reference] = []
        self._tasks: asyncio.TaskGroup | None = None
        self.synced = asyncio.Event()
        self.synced.set()

    @property
    def contact(self) -> Contact:
        contacts = [it.informer.contact for it in self._known.values() if it.informer.synced.is_set()]
        lost = [it for it in contacts if not it.in_touch]
        return min(lost, key=lambda it: it.since) if lost else Contact(in_touch=True, since=0.0)

    def secret(self, key: Key, asker: Asker) -> Secret | None:
        return self.find(SECRETS, key, asker)

    def configmap(self, key: Key, asker: Asker) -> ConfigMap | None:
        return self.find(CONFIGMAPS, key, asker)

    def find(self, kind: Kind[T], key: Key, asker: Asker) -> T | None:
        known = self._known.get((kind, key))
        if known is None:
            informer = Informer(self._client, kind, namespace=key.namespace, fields=f"metadata.name={key.name}")
            known = self._known[kind, key] = _Reference(informer)
            self._start(known)
        known.askers.add(asker)
        if not known.informer.synced.is_set():
            trouble = known.informer.contact.trouble
            raise NotReadYet(
                f"{kind.name} {key} has not been read yet{f': {trouble}' if trouble else ''}", after=_REQUEUE_S
            )
        found: T | None = known.informer.store.get(key)
        return found

    def release(self, asker: Asker) -> None:
        """Forget somebody who is gone, and follow no longer what nobody else asks for."""
        for name, known in list(self._known.items()):
            known.askers.discard(asker)
            if not known.askers:
                del self._known[name]
                for task in known.tasks:
                    task.cancel()

    async def run(self) -> None:
        """Follow what is asked for until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for reference in self._unstarted:
                if reference.askers:
                    self._start(reference)
            self._unstarted.clear()
            await asyncio.Event().wait()

    def _start(self, reference: _Reference) -> None:
        if self._tasks is None:
            self._unstarted.append(reference)
            return
        reference.tasks.append(self._tasks.create_task(reference.informer.run()))
        reference.tasks.append(self._tasks.create_task(self._tell_when_read(reference)))

    async def _tell_when_read(self, reference: _Reference) -> None:
        await reference.informer.synced.wait()
        reference.tell()
