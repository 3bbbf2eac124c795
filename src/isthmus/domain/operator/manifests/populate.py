"""The Job that fills the shared root of a cluster from an image, or brings it up to a newer one.

    image        the image itself, asleep, beside the other: its files are seen as /proc/PID/root, and the link
                 /run/isthmus/source leads there. No volume of images is needed, which not every Kubernetes has.
    populate     our own command, which copies them to the volume, and says in the end how it went

It may what copying owners, modes and devices takes, and nothing else; it has no account of Kubernetes.
"""

from typing import Final, Literal

import msgspec

from isthmus import names
from isthmus.domain.operator.manifests import common, jail
from isthmus.domain.operator.manifests.common import Manifest, Settings

Action = Literal["populate", "refresh", "plan"]

COMPONENT: Final = "jail"
CONTAINER: Final = "populate"
REFUSED: Final = 3
"""The exit code that says that trying again is of no use."""

_IMAGE: Final = "image"
_SOURCE: Final = "/run/isthmus/source"
_SOURCE_VOLUME: Final = "source"
# Kubernetes makes one dollar of two, before the shell sees them.
_ASLEEP: Final = f"ln -sfn /proc/$$$$/root {_SOURCE} && exec sleep infinity"
_RIGHTS: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP")
_TRIES: Final = 100
"""Kubernetes waits longer each time, up to six minutes: storage may be away for a night."""

_LOCKED: Final[Manifest] = {
    "runAsUser": 0,
    "runAsGroup": 0,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
}


class Filling(msgspec.Struct, frozen=True, kw_only=True):
    """What a shared root is filled from, and by a pod of which kind."""

    cluster: str
    namespace: str
    prefix: str
    """What the names of the cluster's objects begin with."""
    root: Manifest
    """The volume, as a pod has it."""
    image: str
    """What the files are of; with `snapshot`, what that is called."""
    snapshot: Manifest | None = None
    """A volume with the files, instead of an image."""
    pull_policy: str | None = None
    pod: Manifest = {}
    """More fields of the pod: where it may run, its priority, its pull secrets."""
    security: Manifest = {}
    """More of the security context of its containers."""


def job_name(prefix: str, action: Action) -> str:
    """Name of the Job. There is one for each action at a time: Kubernetes itself sees to that."""
    return f"{prefix}{action}-jail"


def job(filling: Filling, action: Action, *, settings: Settings) -> Manifest:
    name = job_name(filling.prefix, action)
    marks = common.labels(f"{action}-jail", filling.cluster, COMPONENT, cluster=filling.cluster)
    template = {
        "metadata": {
            "labels": marks,
            "annotations": {"kubectl.kubernetes.io/default-container": CONTAINER},
        },
        "spec": _pod(filling, action, settings),
    }
    annotations = {
        names.JAIL_IMAGE_ANNOTATION: filling.image,
        names.JAIL_HASH_ANNOTATION: common.hash_of(template),
    }
    return {
        "metadata": common.metadata(name, filling.namespace, marks, annotations=annotations),
        "spec": {
            "backoffLimit": 0 if action == "plan" else _TRIES,
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [REFUSED]},
                    },
                    # A node that is drained or lost does not count as a failure.
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": template,
        },
    }


def _pod(filling: Filling, action: Action, settings: Settings) -> Manifest:
    volumes: list[Manifest] = [{"name": jail.VOLUME, **filling.root}]
    made: Manifest = {
        **common.base_pod(),
        **filling.pod,
        "restartPolicy": "Never",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_ours(filling, action, settings)],
        "volumes": volumes,
    }
    if filling.snapshot is not None:
        volumes.append({"name": _SOURCE_VOLUME, **filling.snapshot})
    else:
        volumes.append({"name": _SOURCE_VOLUME, "emptyDir": {"sizeLimit": "1Mi"}})
        made["shareProcessNamespace"] = True
        made["initContainers"] = [_asleep(filling)]
    return common.away_from_control_plane(made)


def _ours(filling: Filling, action: Action, settings: Settings) -> Manifest:
    places = [
        {"name": jail.VOLUME, "mountPath": jail.ROOT, **({"readOnly": True} if action == "plan" else {})},
        _from_snapshot() if filling.snapshot is not None else _link(read_only=True),
    ]
    named = [] if action == "plan" else [f"--image={filling.image}"]
    return {
        "name": CONTAINER,
        "image": settings.isthmus_image,
        "command": ["isthmus"],
        "args": ["jail", action, f"--source={_SOURCE}", f"--root={jail.ROOT}", *named],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {
            **_LOCKED,
            **filling.security,
            "capabilities": {"drop": ["ALL"], "add": list(_RIGHTS)},
        },
        # The last lines that it writes are what people see in conditions and Events.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": places,
    }


def _asleep(filling: Filling) -> Manifest:
    made: Manifest = {
        "name": _IMAGE,
        "image": filling.image,
        "restartPolicy": "Always",
        "command": ["sh", "-c", _ASLEEP],
        "startupProbe": {
            "exec": {"command": ["test", "-L", _SOURCE]},
            "periodSeconds": 1,
            "failureThreshold": 60,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "securityContext": {**_LOCKED, **filling.security, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [_link(read_only=False)],
    }
    if filling.pull_policy:
        made["imagePullPolicy"] = filling.pull_policy
    return made


def _link(*, read_only: bool) -> Manifest:
    (made,) = common.mounts([(_SOURCE_VOLUME, _SOURCE.rpartition("/")[0])], read_only=read_only)
    return made


def _from_snapshot() -> Manifest:
    (made,) = common.mounts([(_SOURCE_VOLUME, _SOURCE)])
    return made
