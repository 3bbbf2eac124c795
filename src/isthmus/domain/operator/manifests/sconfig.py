"""sconfigcontroller: a Deployment that writes files of JailedConfigs onto a cluster's shared root.

It is root, because the files are to be root's, and has none of root's powers. It may read ConfigMaps and
JailedConfigs of its namespace and tell how the latter are; it has no Secret, and no way to Slurm.
"""

from typing import ClassVar, Final

from isthmus.domain.operator.manifests import common, companion, jail
from isthmus.domain.operator.manifests.common import Manifest, Settings
from isthmus.domain.operator.manifests.companion import Companion
from isthmus.model.soperator import GROUP

APP: Final = "sconfigcontroller"
COMPONENT: Final = "sconfigcontroller"
CONTAINER: Final = "sconfigctrl"

NOT_OURS: Final = (
    "the image has no isthmus: leave out sConfigController.container.image, or build the image from ours"
)

# A root that is being filled is no place to write to.
_INITIALIZE: Final = f"""
trap 'exit 143' TERM
until [ -e {jail.ROOT}/.isthmus/ready ]; do sleep 0.2; done
mkdir -p {jail.ROOT}/etc/slurm
"""
_METRICS: Final = 8080
_HEALTH: Final = 8081


class Writing(Companion, frozen=True, kw_only=True):
    """Whose shared root it is, and what the user sets for the pod."""

    app: ClassVar[str] = APP
    component: ClassVar[str] = COMPONENT
    main: ClassVar[str] = CONTAINER

    root: Manifest
    """The volume, as a pod has it."""
    covered: tuple[str, ...] = ()
    """Places in the shared root that nodes hide behind something of their own."""


def name(prefix: str) -> str:
    """Name of the Deployment, its account, and what that may do."""
    return f"{prefix}{APP}"


def role(writing: Writing) -> Manifest:
    """What it may do in Kubernetes."""
    read = ["get", "list", "watch"]
    return {
        "metadata": writing.metadata,
        "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": read},
            {"apiGroups": [GROUP], "resources": ["jailedconfigs"], "verbs": read},
            {"apiGroups": [GROUP], "resources": ["jailedconfigs/status"], "verbs": ["patch"]},
        ],
    }


def binding(writing: Writing) -> Manifest:
    return {
        "metadata": writing.metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": writing.name},
        "subjects": [{"kind": "ServiceAccount", "name": writing.name, "namespace": writing.namespace}],
    }


def deployment(writing: Writing, *, settings: Settings) -> Manifest:
    return writing.deployment(
        {
            "serviceAccountName": writing.name,
            "automountServiceAccountToken": True,
            "securityContext": {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
            # It has nothing to finish: files are whole at any time.
            "terminationGracePeriodSeconds": 5,
            "initContainers": [_directories(writing, settings)],
            "containers": [_container(writing, settings)],
            "volumes": [{"name": jail.VOLUME, **writing.root}],
        }
    )


def _container(writing: Writing, settings: Settings) -> Manifest:
    covered = [word for path in writing.covered for word in ("--covered", path)]
    return {
        "name": CONTAINER,
        "image": settings.isthmus_image,
        "command": ["isthmus"],
        "args": ["sconfig", "--cluster", writing.cluster, "--root", jail.ROOT, *covered],
        "ports": [{"name": "metrics", "containerPort": _METRICS}, {"name": "health", "containerPort": _HEALTH}],
        **companion.probes("health"),
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "securityContext": dict(common.LOCKED),
        "volumeMounts": common.mounts([(jail.VOLUME, jail.ROOT)], read_only=False),
    }


def _directories(writing: Writing, settings: Settings) -> Manifest:
    """Make the container that waits for the shared root, and for nothing else if the root is filled already."""
    return {
        "name": "init-dir",
        "image": writing.container.get("image") or settings.isthmus_image,
        "command": ["sh", "-euc", _INITIALIZE],
        "securityContext": dict(common.LOCKED),
        "volumeMounts": common.mounts([(jail.VOLUME, jail.ROOT)], read_only=False),
    }
