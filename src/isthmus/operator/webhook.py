"""Answers what the API server asks about our kinds: may this be, and how is it written in the other version.

    /validate   custom resources that are created, or whose specification changes
    /convert    NodeSets and LoginSets between v1alpha1 and v1beta1

Every replica answers, leader or not; neither Slurm nor a cache is needed. Whatever is on its way out passes.
"""

from typing import Any, Final

import msgspec

from isthmus.domain import validation
from isthmus.errors import Terminal
from isthmus.model import slinky, soperator
from isthmus.model.base import Kind
from isthmus.operator.conversion import convert
from isthmus.runtime import server
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.reviews import Admission, AdmissionRequest

VALIDATE: Final = "/validate"
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
_BY_NAME: Final = {(kind.group, kind.version, kind.name): kind for kind in KINDS}


class Webhook:
    """Both webhooks, as `routes`. A process puts them up like this.

        webhook = Webhook(metrics)
        keeper = registration.certificates(client, place, metrics=metrics)
        manager.cache("certificates", keeper)
        manager.serve(server.serve(webhook.routes, host="", port=9443, tls=keeper.context))

    Who runs without the chart tells the API server of them by `registration.register`.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.routes = [
            server.admission_route(VALIDATE, self.validate, metrics=metrics),
            server.conversion_route(CONVERT, convert, metrics=metrics),
        ]

    async def validate(self, request: AdmissionRequest) -> Admission:
        """Say whether an object could be made to work; refuses with everything that is wrong with it."""
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
        if found.problems:
            raise Terminal("\n".join(found.problems))
        return Admission(warnings=found.warnings)


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
