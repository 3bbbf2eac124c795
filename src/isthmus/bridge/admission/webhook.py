"""Answers what the API server asks about pods: gathers what is needed, and has `domain.bridge.podadmission` decide.

    /mutate--v1-pod     pods that are created: with our scheduler's name, or in a managed namespace
    /validate--v1-pod   pods of ours that are created, resized, or whose asks or marks change

Every replica answers, leader or not. Nothing here needs Slurm: pods are admitted also while it is away.
"""

import asyncio
import contextlib
from collections.abc import Collection
from typing import Final, Protocol

import msgspec

from isthmus.bridge.cache.owners import Owners
from isthmus.bridge.cache.world import NAMESPACES
from isthmus.bridge.config import Config
from isthmus.domain.bridge import podadmission, tenancy
from isthmus.domain.bridge.podadmission import Rules, Source
from isthmus.domain.bridge.tenancy import Grant
from isthmus.domain.kube import selectors
from isthmus.errors import IsthmusError, Terminal
from isthmus.kube.client import Client
from isthmus.kube.informer import Informer
from isthmus.kube.store import Store
from isthmus.model.dra import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, ClaimSpec
from isthmus.model.meta import Key, Partial
from isthmus.model.pod import Pod
from isthmus.model.policy import POLICIES, BridgePolicy
from isthmus.runtime import server
from isthmus.runtime.manager import Manager
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.reviews import Admission as Verdict
from isthmus.runtime.reviews import AdmissionRequest

MUTATE: Final = "/mutate--v1-pod"
VALIDATE: Final = "/validate--v1-pod"

_PATIENCE: Final = 1.0
"""Seconds that a request may wait for a look-up: the API server and the pod's creator wait for five."""


class Caches(Protocol):
    """Caches that admission needs: those of `bridge.cache.world.World`, or `OwnCaches` in a process of its own."""

    @property
    def namespaces(self) -> Store[Partial]: ...

    @property
    def policies(self) -> Store[BridgePolicy]: ...


class OwnCaches:
    """Namespaces and policies, for a process without a `World`."""

    def __init__(self, client: Client) -> None:
        self._namespaces = Informer(client, NAMESPACES)
        self._policies = Informer(client, POLICIES)
        self.namespaces, self.policies = self._namespaces.store, self._policies.store

    def register(self, manager: Manager) -> None:
        """Let a manager keep them up to date, and count them as part of its readiness."""
        manager.cache("namespaces", self._namespaces)
        manager.cache("policies", self._policies)


class Admission:
    """The two webhooks, as `routes`. A process serves them like this.

        caches = OwnCaches(client)                       # or its World
        admission = Admission(client, config, caches=caches, metrics=metrics, bridge_users=…)
        keeper = registration.certificates(client, place, metrics=metrics)
        caches.register(manager)
        manager.cache("certificates", keeper)
        manager.serve(server.serve(admission.routes, host="", port=9443, tls=keeper.context))

    `bridge_users` are the names under which the bridge's processes talk to the API server
    (`registration.bridge_users`). The binding, with which job id and node are written, needs none of them.
    """

    def __init__(
        self,
        client: Client,
        config: Config,
        *,
        caches: Caches,
        metrics: Metrics,
        bridge_users: Collection[str] = (),
    ) -> None:
        self._client = client
        self._config = config
        self._caches = caches
        self._owners = Owners(client)
        self._rules = Rules(
            scheduler_name=config.scheduler_name,
            taint_effect=config.taint or "",
            exclusive=config.exclusive,
            bridge_users=frozenset(bridge_users),
        )
        self.routes = [
            server.admission_route(MUTATE, self.mutate, metrics=metrics),
            server.admission_route(VALIDATE, self.validate, metrics=metrics),
        ]

    async def mutate(self, request: AdmissionRequest) -> Verdict:
        """Hand a new pod to Slurm, if it is to be."""
        if request.operation != "CREATE" or request.sub_resource:
            return Verdict()
        pod = _pod(request)
        managed = pod.spec.scheduler_name != self._rules.scheduler_name and await self._manages(request.namespace)
        if not podadmission.captured(pod, self._rules, managed=managed):
            return Verdict()
        owners = await self._gang_of_owners(pod)
        warnings = ["spec.nodeName is dropped: Slurm chooses the node"] if pod.spec.node_name else []
        return Verdict(patch=podadmission.mutate(pod, self._rules, owners=owners), warnings=warnings)

    async def validate(self, request: AdmissionRequest) -> Verdict:
        """Whether Slurm could place a pod as it is, or as an update would change it."""
        if request.operation not in {"CREATE", "UPDATE"}:
            return Verdict()
        pod = _pod(request)
        if pod.spec.scheduler_name != self._rules.scheduler_name:
            return Verdict()
        grant = await self._grant(pod)
        try:
            owners = await self._above(pod)
        except (IsthmusError, TimeoutError):
            owners = []  # The submitter reads them again, and reports.
        if request.operation == "CREATE":
            claims = await self._claims(pod)
            warnings = podadmission.validate_create(pod, self._rules, owners=owners, grant=grant, claims=claims)
        else:
            warnings = podadmission.validate_update(
                request.read_old(Pod),
                pod,
                self._rules,
                user=request.user_info.username,
                resize=request.sub_resource == "resize",
                owners=owners,
                grant=grant,
            )
        return Verdict(warnings=warnings)

    async def _gang_of_owners(self, pod: Pod) -> list[Source]:
        if not podadmission.wants_gang_of_owner(pod):
            return []
        try:
            return await self._above(pod)
        except (IsthmusError, TimeoutError) as error:
            # Admitted without the mark, it would be placed alone for good; its controller tries again.
            why = str(error) or "no answer in time"
            raise Terminal(
                f"cannot read the Job that says whether its pods start together: {why}",
                remedy="this is temporary; controllers retry on their own",
            ) from error

    async def _above(self, pod: Pod) -> list[Source]:
        """Read the owners of a pod, the nearest first."""
        if pod.metadata.controller is None:
            return []
        async with asyncio.timeout(_PATIENCE):
            chain = await self._owners.of(pod)
        return [
            Source(f"{owner.kind} {owner.object.metadata.key}", owner.object.metadata.annotations)
            for owner in reversed(chain)
        ]

    async def _claims(self, pod: Pod) -> dict[str, ClaimSpec]:
        """Read what the claims of a pod ask for. One that cannot be read now is judged by the scheduler."""
        found: dict[str, ClaimSpec] = {}
        with contextlib.suppress(IsthmusError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                for use in pod.spec.resource_claims:
                    name = use.resource_claim_template_name or use.resource_claim_name
                    key = Key(pod.metadata.namespace, name)
                    if use.resource_claim_template_name:
                        found[use.name] = (await self._client.get(RESOURCE_CLAIM_TEMPLATES, key)).spec.spec
                    else:
                        found[use.name] = (await self._client.get(RESOURCE_CLAIMS, key)).spec
        return found

    async def _grant(self, pod: Pod) -> Grant:
        namespace = pod.metadata.namespace
        found = await self._namespace(namespace)
        return tenancy.grant_for(
            self._caches.policies.values(),
            namespace=namespace,
            namespace_labels=found.metadata.labels if found else {},
            service_account=pod.spec.service_account_name,
            tenancy=self._config.without_policy,
        )

    async def _manages(self, namespace: str) -> bool:
        """Whether all pods of a namespace are for Slurm, unless they object."""
        selector = self._config.managed_namespace_selector
        if selector is None:
            return namespace in self._config.managed_namespaces
        found = await self._namespace(namespace)
        # The API server decided by the labels before it asked us, so a namespace that we do not know matches.
        return found is None or selectors.matches(selector, found.metadata.labels)

    async def _namespace(self, name: str) -> Partial | None:
        """Find a namespace, also one that is newer than the cache."""
        found = self._caches.namespaces.get(Key("", name))
        if found is not None:
            return found
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._client.get(NAMESPACES, name)
        except (IsthmusError, TimeoutError):
            return None


def _pod(request: AdmissionRequest) -> Pod:
    """Read the pod of a request. On creation its metadata may lack the namespace."""
    pod = request.read(Pod)
    metadata = msgspec.structs.replace(pod.metadata, namespace=request.namespace)
    return msgspec.structs.replace(pod, metadata=metadata)
