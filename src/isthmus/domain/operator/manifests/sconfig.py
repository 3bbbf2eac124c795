"""sconfigcontroller: a Deployment that writes files of JailedConfigs onto a cluster's shared root.

It is root, because the files are to be root's, and has none of root's powers. It may read ConfigMaps and
JailedConfigs of its namespace and tell how the latter are; it has no Secret, and no way to Slurm.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from isthmus.domain.operator.manifests import common, jail
from isthmus.domain.operator.manifests.common import Manifest, Settings
from isthmus.model.slinky import PodTemplate
from isthmus.model.soperator import GROUP

APP: Final = "sconfigcontroller"
COMPONENT: Final = "sconfigcontroller"
CONTAINER: Final = "sconfigcontroller"

LACKS_PROGRAM: Final = "executable file not found"
"""What container runtimes say of an image that lacks the program to run."""
NOT_OURS: Final = (
    "the image has no isthmus: leave out sConfigController.container.image, or build the image from ours"
)

_METRICS: Final = 8080
_HEALTH: Final = 8081


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """Whose shared root it is, and what the user sets for the pod."""

    cluster: str
    namespace: str
    prefix: str
    """What the names of the cluster's objects begin with."""
    root: Manifest
    """The volume, as a pod has it."""
    covered: tuple[str, ...] = ()
    """Places in the shared root that nodes hide behind something of their own."""
    replicas: int = 1
    pod: Mapping[str, Any] = {}
    container: Mapping[str, Any] = {}


def name(prefix: str) -> str:
    """Name of the Deployment, its account, and what that may do."""
    return f"{prefix}{APP}"


def labels(cluster: str) -> dict[str, str]:
    """Make the marks of everything that belongs to it."""
    return common.labels(APP, cluster, COMPONENT, cluster=cluster)


def account(writing: Writing) -> Manifest:
    return {"metadata": _metadata(writing), "automountServiceAccountToken": False}


def role(writing: Writing) -> Manifest:
    """What it may do in Kubernetes."""
    read = ["get", "list", "watch"]
    return {
        "metadata": _metadata(writing),
        "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": read},
            {"apiGroups": [GROUP], "resources": ["jailedconfigs"], "verbs": read},
            {"apiGroups": [GROUP], "resources": ["jailedconfigs/status"], "verbs": ["patch"]},
        ],
    }


def binding(writing: Writing) -> Manifest:
    called = name(writing.prefix)
    return {
        "metadata": _metadata(writing),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": called},
        "subjects": [{"kind": "ServiceAccount", "name": called, "namespace": writing.namespace}],
    }


def deployment(writing: Writing, *, settings: Settings) -> Manifest:
    marks = labels(writing.cluster)
    template = common.pod_template(
        {
            "serviceAccountName": name(writing.prefix),
            "automountServiceAccountToken": True,
            "securityContext": {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
            # It has nothing to finish: files are whole at any time.
            "terminationGracePeriodSeconds": 5,
            "containers": [_container(writing, settings)],
            "volumes": [{"name": jail.VOLUME, **writing.root}],
        },
        marks,
        main=CONTAINER,
        template=PodTemplate(spec=dict(writing.pod)),
        containers={CONTAINER: writing.container},
    )
    return {
        "metadata": _metadata(writing),
        "spec": {
            "replicas": writing.replicas,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": common.selector(marks)},
            "template": template,
        },
    }


def _metadata(writing: Writing) -> Manifest:
    return common.metadata(name(writing.prefix), writing.namespace, labels(writing.cluster))


def _container(writing: Writing, settings: Settings) -> Manifest:
    covered = [word for path in writing.covered for word in ("--covered", path)]
    return {
        "name": CONTAINER,
        "image": settings.isthmus_image,
        "command": ["isthmus"],
        "args": ["sconfig", "--cluster", writing.cluster, "--root", jail.ROOT, *covered],
        "ports": [{"name": "metrics", "containerPort": _METRICS}, {"name": "health", "containerPort": _HEALTH}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 2},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, "failureThreshold": 6},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": common.mounts([(jail.VOLUME, jail.ROOT)], read_only=False),
    }
