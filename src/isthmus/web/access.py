"""Who is asking, and what they may see and do: TokenReview and SubjectAccessReview.

Jobs and nodes of Slurm are no objects of Kubernetes, but RBAC takes any name. So rights on them are rules on `jobs`
and `nodes` of the group `web.isthmus.dev`, with the verbs `list`, `cancel`, `hold`, `release`, `requeue`, `drain`
and `resume`. Pods are shown to those who may list them.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from isthmus.domain.web.audience import Audience
from isthmus.domain.web.identity import slurm_user
from isthmus.errors import IsthmusError
from isthmus.kube.client import Client
from isthmus.model.base import Data, Kind
from isthmus.model.meta import Object
from isthmus.tasks import TaskGroup

GROUP: Final = "web.isthmus.dev"
JOB_ACTIONS: Final = ("cancel", "hold", "release", "requeue")
NODE_ACTIONS: Final = ("drain", "resume")

_AT_ONCE: Final = 8
_MAX_NAMESPACES: Final = 200


class UserInfo(Data, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class _TokenStatus(Data, frozen=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()
    error: str = ""


class _TokenReview(Object, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(Data, frozen=True):
    allowed: bool = False


class _AccessReview(Object, frozen=True):
    status: _AccessStatus = _AccessStatus()


_TOKEN_REVIEWS: Final = Kind(
    _TokenReview, "authentication.k8s.io/v1", "tokenreviews", "TokenReview", namespaced=False
)
_ACCESS_REVIEWS: Final = Kind(
    _AccessReview, "authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)


class Right(NamedTuple):
    """A verb on a resource; in all namespaces, if none is given."""

    verb: str
    resource: str
    group: str = GROUP
    namespace: str = ""


class Person(msgspec.Struct, frozen=True):
    """Somebody who is logged in."""

    user: UserInfo
    slurm_user: str
    """Empty for somebody whom Slurm does not know."""
    audience: Audience
    can: frozenset[str] = frozenset()
    """Actions that the page offers; each is checked again when it is done."""


class Access:
    """Asks the API server about people."""

    def __init__(self, client: Client, *, users: Mapping[str, str], prefix: str = "") -> None:
        self._client = client
        self._users = users
        self._prefix = prefix
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def person(self, token: str, *, namespaces: Iterable[str]) -> Person | None:
        """Find out whose token this is and what they see; None if it is nobody's."""
        review = {"metadata": {}, "spec": {"token": token}}
        async with self._gate:
            answer = await self._client.create(_TOKEN_REVIEWS, review)
        if not answer.status.authenticated:
            return None
        user = answer.status.user
        name = slurm_user(user.username, table=self._users, prefix=self._prefix)
        listing = [Right("list", "jobs"), Right("list", "nodes"), Right("list", "pods", "")]
        acting = [Right(verb, "jobs") for verb in JOB_ACTIONS] + [Right(verb, "nodes") for verb in NODE_ACTIONS]
        uncordon = Right("patch", "nodes", "")
        may = await self.allowed(user, [*listing, *acting, uncordon])
        jobs, nodes, pods = (it in may for it in listing)
        mine: frozenset[str] = frozenset()
        if not pods:
            some = [Right("list", "pods", "", it) for it in sorted(namespaces)[:_MAX_NAMESPACES]]
            mine = frozenset(it.namespace for it in await self.allowed(user, some))
        can = {it.verb for it in acting if it in may and name} | ({"uncordon"} if uncordon in may else set())
        audience = Audience(
            all_jobs=jobs, slurm_user="" if jobs else name, all_pods=pods, namespaces=mine, nodes=nodes
        )
        return Person(user, name, audience, frozenset(can))

    async def allowed(self, user: UserInfo, rights: Iterable[Right]) -> set[Right]:
        """Which of these rights a user has."""
        try:
            async with TaskGroup() as group:
                asked = {right: group.create_task(self._allows(user, right)) for right in rights}
        except* IsthmusError as failed:
            raise _first(failed) from None
        return {right for right, answer in asked.items() if answer.result()}

    async def _allows(self, user: UserInfo, right: Right) -> bool:
        attributes = {"verb": right.verb, "resource": right.resource, "group": right.group}
        if right.namespace:
            attributes["namespace"] = right.namespace
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra.items()},
            "resourceAttributes": attributes,
        }
        async with self._gate:
            answer = await self._client.create(_ACCESS_REVIEWS, {"metadata": {}, "spec": spec})
        return answer.status.allowed


def _first(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    error = failed.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
