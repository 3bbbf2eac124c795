"""Registration of our webhooks at the API server: which writes they get, and which certificate it trusts.

The chart registers the webhooks for as few writes as can be. With every replica of ours dead, new pods of ours are
refused, and no others are affected: the API server decides itself that it need not ask. Neither is it asked when a
pod of ours loses a finalizer, so what runs can end.
"""

import json
from collections.abc import Sequence
from typing import Final

from isthmus import names
from isthmus.domain.bridge.groups import GROUP_ANNOTATIONS, GROUP_LABELS
from isthmus.kube.client import Client
from isthmus.runtime.certkeeper import CertificateKeeper, Place
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.trust import MUTATING, VALIDATING, Target

_LABELS = json.dumps([names.JOB_ID_LABEL, *GROUP_LABELS])
_ANNOTATIONS = json.dumps(
    [
        names.POD_JOB_ANNOTATION,
        names.POD_SLURM_NODE_ANNOTATION,
        *(key for key in GROUP_ANNOTATIONS if not key.startswith(names.JOB_ANNOTATIONS)),
    ]
)
_OURS = (
    f'(key.startsWith("{names.JOB_ANNOTATIONS}")'
    f' || key.startsWith("{names.JOB_ANNOTATIONS_OLD}")'
    f" || key in {_ANNOTATIONS})"
)
CHANGES: Final = (
    'request.operation == "CREATE" || request.?subResource.orValue("") == "resize"'
    f" || {_LABELS}.exists(key, object.metadata.?labels[?key] != oldObject.metadata.?labels[?key])"
    f" || object.metadata.?annotations.orValue({{}}).exists(key, {_OURS}"
    " && oldObject.metadata.?annotations[?key] != optional.of(object.metadata.annotations[key]))"
    f" || oldObject.metadata.?annotations.orValue({{}}).exists(key, {_OURS}"
    " && !(key in object.metadata.?annotations.orValue({})))"
)
"""In CEL: whether a write touches what we judge. Finalizers, images and the like are none of our business."""


def certificates(client: Client, place: Place, *, metrics: Metrics, hosts: Sequence[str] = ()) -> CertificateKeeper:
    """Make the keeper of the webhook's certificates: for the Service, and for other `hosts` that lead to it."""
    targets = [Target(MUTATING, place.name), Target(VALIDATING, place.name)]
    return CertificateKeeper.of_service(client, place, targets=targets, metrics=metrics, hosts=hosts)


def bridge_users(namespace: str, *, prefix: str = "slurm-bridge") -> tuple[str, ...]:
    """The service accounts of the bridge's processes, as the API server knows them."""
    return tuple(
        f"system:serviceaccount:{namespace}:{prefix}-{part}" for part in ("scheduler", "controllers", "all")
    )
