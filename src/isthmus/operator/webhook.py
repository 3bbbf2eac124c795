"""The operator's webhooks: validation of our kinds, and conversion between their versions.

    /complete   new SlurmClusters: a shared root and an SSH port, where nothing else is said
    /validate   custom resources that are created, or whose specification changes
    /scale      the scale subresource of NodeSets, which some other scaler may own
    /drain      deletion in the foreground of those that are drained first
    /convert    NodeSets and LoginSets between v1alpha1 and v1beta1

Every replica answers, leader or not; neither Slurm nor a cache is needed. Whatever is on its way out passes, and
the scale subresource does not wait for us while we are away.
"""

from contextlib import suppress
from typing import Any, Final

import msgspec

from isthmus.domain.operator import defaults, scaling, validation
from isthmus.errors import Terminal
from isthmus.kube.client import Client
from isthmus.kube.errors import Forbidden, NotFound
from isthmus.model import slinky, soperator
from isthmus.model.autoscaler import AUTOSCALERS
from isthmus.model.base import Kind
from isthmus.model.meta import Key, Partial
from isthmus.operator.conversion import convert
from isthmus.runtime import server
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.reviews import Admission, AdmissionRequest

COMPLETE: Final = "/complete"
VALIDATE: Final = "/validate"
SCALE: Final = "/scale"
DRAIN: Final = "/drain"
CONVERT: Final = "/convert"

KINDS: Final[tuple[Kind[Any], ...]] = (
    slinky.CONTROLLERS,
    slinky.NODESETS,
    slinky.LOGINSETS,
    slinky.ACCOUNTINGS,
    slinky.RESTAPIS,
    slinky.TOKENS,
    soperator.SLURM_CLUSTERS,
    soperator.NEBIUS_NODESETS,
)
DRAINED_FIRST: Final[tuple[Kind[Any], ...]] = (
    slinky.CONTROLLERS,
    slinky.NODESETS,
    soperator.SLURM_CLUSTERS,
)
SCALED: Final[tuple[Kind[Any], ...]] = (slinky.NODESETS, soperator.NEBIUS_NODESETS)
_BY_NAME: Final = {(kind.group, kind.version, kind.name): kind for kind in KINDS}


class Webhook:
    """All webhooks, as `routes`. A process serves them like this.

        webhook = Webhook(client, metrics)
        keeper = registration.certificates(client, place, metrics=metrics)
        manager.cache("certificates", keeper)
        manager.serve(server.serve(webhook.routes, host="", port=9443, tls=keeper.context))

    The chart registers them in the API server.
    """

    def __init__(self, client: Client, metrics: Metrics) -> None:
        self._client = client
        self.routes = [
            server.admission_route(COMPLETE, self.complete, metrics=metrics),
            server.admission_route(VALIDATE, self.validate, metrics=metrics),
            server.admission_route(SCALE, self.scale, metrics=metrics),
            server.admission_route(DRAIN, self.drain, metrics=metrics),
            server.conversion_route(CONVERT, convert, metrics=metrics),
        ]

    async def complete(self, request: AdmissionRequest) -> Admission:
        """Write into a new SlurmCluster what it gets where its manifest says nothing."""
        if request.kind.kind != soperator.SLURM_CLUSTERS.name or request.operation != "CREATE":
            return Admission()
        return Admission(patch=list(defaults.of_new_cluster(request.read(dict[str, Any]))))

    async def validate(self, request: AdmissionRequest) -> Admission:
        """Whether an object could be made to work; refuses with everything that is wrong with it."""
        kind = _BY_NAME.get((request.kind.group, request.kind.version, request.kind.kind))
        if kind is None or request.operation not in {"CREATE", "UPDATE"} or request.sub_resource:
            return Admission()
        new = request.read(dict[str, Any])
        old = request.read_old(dict[str, Any]) if request.operation == "UPDATE" else None
        if old is not None:
            leaving = new.get("metadata", {}).get("deletionTimestamp")
            if leaving or new.get("spec") == old.get("spec"):
                return Admission()
        found = judge(kind, new, old)
        if not found.problems and kind in SCALED:
            found.problems += await self._rivals(kind, request.namespace, new, old)
        if found.problems:
            raise Terminal("\n".join(found.problems))
        return Admission(warnings=found.warnings)

    async def _rivals(
        self, kind: Kind[Any], namespace: str, new: dict[str, Any], old: dict[str, Any] | None
    ) -> list[str]:
        """What scales a NodeSet already that is to become elastic."""
        subject = msgspec.convert(new, kind.type)
        if not scaling.is_elastic(subject) or (old and scaling.is_elastic(msgspec.convert(old, kind.type))):
            return []
        try:
            there = await self._client.list(AUTOSCALERS, namespace=namespace)
        except Forbidden:
            return []  # the operator reports it when both exist
        rival = scaling.rival(kind, subject.metadata.key, there.items)
        return [f"spec.{scaling.first(subject)}: {rival}"] if rival else []

    async def scale(self, request: AdmissionRequest) -> Admission:
        """Refuse to scale a NodeSet that something else scales already."""
        asked = (request.resource.group, request.resource.resource)
        kind = next((it for it in SCALED if (it.group, it.plural) == asked), None)
        if kind is None or request.operation != "UPDATE" or request.sub_resource != "scale":
            return Admission()
        try:
            found = await self._client.get(kind, Key(request.namespace, request.name))
        except NotFound:
            return Admission()
        if wrong := scaling.refusal(found):
            raise Terminal(wrong)
        return Admission()

    async def drain(self, request: AdmissionRequest) -> Admission:
        """Start our own deletion of an object that a user deletes in the foreground, and refuse the request.

        Foreground deletion begins with dependents: Kubernetes would delete the pods at once, with their jobs and
        what is needed to drain them, and no finalizer of ours prevents that.
        """
        kind = _BY_NAME.get((request.kind.group, request.kind.version, request.kind.kind))
        if kind not in DRAINED_FIRST or request.operation != "DELETE":
            return Admission()
        meta = request.read(Partial).metadata
        if not request.dry_run:
            with suppress(NotFound):
                await self._client.delete(kind, meta.key, uid=meta.uid, propagation="Background")
        raise Terminal(
            f"{kind.name} {meta.key} is being deleted: its nodes are drained first, then it is removed. "
            "Foreground deletion would have ended their jobs, so it was not used"
        )


def judge(kind: Kind[Any], manifest: dict[str, Any], old: dict[str, Any] | None = None) -> validation.Findings:
    """Look at an object as it came, and at how it was."""
    found = validation.characters(manifest.get("spec", {}))
    if found.problems:
        return found
    try:
        # The schema was enforced already, but not for what came in another version.
        subject = msgspec.convert(manifest, kind.type)
    except msgspec.ValidationError as error:
        found.refuse("", str(error).replace("`$.", "`"))
        return found
    found = validation.check(kind, subject)
    try:
        before = msgspec.convert(old, kind.type) if old else None
    except msgspec.ValidationError:
        before = None  # it was never as it should be: any change may put it right
    if before is not None and not found.problems:
        found.problems += validation.check_change(kind, before, subject).problems
    return found
