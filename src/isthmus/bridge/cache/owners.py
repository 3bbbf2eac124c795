"""What stands above a pod: its Job and JobSet, its ReplicaSet and Deployment, its gang.

Owners are asked for once and remembered for a while, by uid, so a Deployment of a thousand pods costs one request
and a pod without an owner none. What we may not read, or do not know, ends the chain: the pod is placed all the
same.
"""

import asyncio
import time
from collections import OrderedDict
from typing import Any, Final

import msgspec

from isthmus.domain.bridge.groups import BUILTIN_POD_GROUP, KINDS, OWNERS, GroupKey
from isthmus.errors import IsthmusError, Retry
from isthmus.kube.client import Client
from isthmus.kube.errors import Forbidden, NotFound
from isthmus.model.base import Kind
from isthmus.model.meta import Key, OwnerReference
from isthmus.model.pod import Pod
from isthmus.model.workload import DEPLOYMENTS, WORKLOADS, BuiltinPodGroup

_KNOWN: Final[dict[tuple[str, str], Kind[Any]]] = {(kind.group, kind.name): kind for kind in (*OWNERS, DEPLOYMENTS)}
_FRESH_SECONDS: Final = 30.0
_MAX_OWNERS: Final = 10_000
_DEEPEST: Final = 8


class Owner(msgspec.Struct, frozen=True):
    """An object above a pod."""

    kind: str
    object: Any
    """The struct that its kind decodes to; all have `metadata`."""


class Owners:
    """Looks up owners; each object is read once in half a minute, however many pods need it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: OrderedDict[tuple[str, Key, str], tuple[float, asyncio.Future[Any]]] = OrderedDict()

    async def of(self, pod: Pod) -> tuple[Owner, ...]:
        """Find the controllers above a pod, the outermost first."""
        chain: list[Owner] = []
        reference = pod.metadata.controller
        while reference and len(chain) < _DEEPEST:
            found = await self._owner(reference, pod.metadata.namespace)
            if found is None:
                break
            chain.append(Owner(reference.kind, found))
            reference = found.metadata.controller
        return tuple(reversed(chain))

    async def group(self, group: GroupKey, *, fresh: bool = False) -> Any | None:
        """Find the object that makes pods a gang; None if it is not there.

        What is remembered under a name may be gone, and another in its place: `fresh` asks for it again.
        """
        kind = KINDS[group.kind]
        if fresh:
            self._known.pop(_name(kind, group.object), None)
        return await self._get(kind, group.object)

    async def above_group(self, group: GroupKey, object_: Any) -> tuple[Owner, ...]:
        """Find the owners of a gang's object, the least significant first."""
        if group.kind == BUILTIN_POD_GROUP and isinstance(object_, BuiltinPodGroup):
            template = object_.spec.pod_group_template_ref
            if template and template.workload and template.workload.workload_name:
                key = Key(group.namespace, template.workload.workload_name)
                workload = await self._get(WORKLOADS, key)
                return (Owner("Workload", workload),) if workload else ()
        return ()

    async def _owner(self, reference: OwnerReference, namespace: str) -> Any | None:
        group = reference.api_version.rpartition("/")[0]
        kind = _KNOWN.get((group, reference.kind))
        return await self._get(kind, Key(namespace, reference.name), uid=reference.uid) if kind else None

    async def _get(self, kind: Kind[Any], key: Key, *, uid: str = "") -> Any | None:
        name = _name(kind, key, uid)
        until, asked = self._known.get(name, (0.0, None))
        if asked is None or until < time.monotonic() or (asked.done() and asked.exception()):
            asked = asyncio.get_running_loop().create_future()
            self._known[name] = time.monotonic() + _FRESH_SECONDS, asked
            self._known.move_to_end(name)
            if len(self._known) > _MAX_OWNERS:
                self._known.popitem(last=False)
            try:
                found = await self._client.get(kind, key)
            except (NotFound, Forbidden):
                found = None
            except BaseException as error:
                self._known.pop(name, None)
                # Others that wait for the same answer are not cancelled with the first, and may ask again.
                given_up = Retry(f"the look-up of {kind.name} {key} was cancelled")
                asked.set_exception(error if isinstance(error, IsthmusError) else given_up)
                asked.exception()  # No other caller may wait: this one gets the raise.
                raise
            if found is None or (uid and found.metadata.uid != uid):
                # What is not there now may come soon.
                self._known[name] = time.monotonic() + 1.0, asked
                found = None
            asked.set_result(found)
        return await asyncio.shield(asked)


def _name(kind: Kind[Any], key: Key, uid: str = "") -> tuple[str, Key, str]:
    return kind.plural + kind.group, key, uid
