"""The exporter: a Deployment that reads Slurm through slurmrestd and serves its metrics.

It has a token of its own in a file, and no right in Kubernetes: neither Secrets nor anything else can be read with
its account. `metrics` is what it says of Slurm, `monitoring` what it says of itself, with its health.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests import common, monitors
from isthmus.domain.operator.manifests.common import Manifest, Settings
from isthmus.model.slinky import PodTemplate, ServiceTemplate, TemplateMeta
from isthmus.model.soperator import PodMonitorConfig

APP: Final = "slurm-exporter"
COMPONENT: Final = "exporter"
CONTAINER: Final = "exporter"
METRICS_PORT: Final = 8080
MONITORING_PORT: Final = 8081
UID: Final = 64032
"""A user for itself, who owns what it keeps."""

NOT_OURS: Final = (
    "the image has no isthmus: leave out slurmNodes.exporter.exporterContainer.image, or name one that is made "
    "from ours"
)

DATA: Final = "/var/lib/isthmus-exporter"
_TOKEN: Final = "token"  # noqa: S105 - the name of a file and of a volume, not what is in it
_SECRETS: Final = "/var/run/secrets/slurm"
_LIFETIME: Final = "24h"
"""Of the token: it is renewed when a fifth is left, so an operator may be away for hours."""


class Exporting(msgspec.Struct, frozen=True, kw_only=True):
    """Whose Slurm it reads, and what is asked of the pod."""

    cluster: str
    namespace: str
    prefix: str
    """What the names of the cluster's objects begin with."""
    user: str
    """Whom the token is for."""
    jwt_key: Mapping[str, str]
    """The key of tokens, as a reference."""
    data: Manifest
    """The volume that it keeps counters on, as a pod has it."""
    flags: tuple[str, ...] = ()
    """What follows from fields of the custom resource."""
    port: int = METRICS_PORT
    annotated: bool = False
    """Whether annotations say that it is to be scraped: where there is no PodMonitor."""
    account: str = ""
    """The service account of the user; empty for one of its own."""
    replicas: int = 1
    pod: Mapping[str, Any] = {}
    container: Mapping[str, Any] = {}


def name(prefix: str) -> str:
    """Name the Deployment, its account, Service, Token and claim."""
    return f"{prefix}{APP}"


def secret(prefix: str) -> str:
    """Name the Secret of its token."""
    return f"{name(prefix)}-token"


def labels(cluster: str) -> dict[str, str]:
    """Make the marks of everything that belongs to it."""
    return common.labels(APP, cluster, COMPONENT, cluster=cluster)


def account(exporting: Exporting) -> Manifest:
    return {"metadata": _metadata(exporting), "automountServiceAccountToken": False}


def token(exporting: Exporting) -> Manifest:
    return {
        "metadata": _metadata(exporting),
        "spec": {
            "username": exporting.user,
            "jwtKeyRef": dict(exporting.jwt_key),
            "lifetime": _LIFETIME,
            "secretRef": {"name": secret(exporting.prefix), "key": _TOKEN},
        },
    }


def service(exporting: Exporting) -> Manifest:
    monitoring = {"name": "monitoring", "port": MONITORING_PORT, "targetPort": "monitoring", "protocol": "TCP"}
    return common.service(
        name(exporting.prefix),
        exporting.namespace,
        labels(exporting.cluster),
        port=exporting.port,
        port_name="metrics",
        template=ServiceTemplate(spec={"ports": [monitoring]}),
    )


def claim(exporting: Exporting, spec: Mapping[str, Any]) -> Manifest:
    """Make the claim that it keeps counters on."""
    usual = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": _metadata(exporting), "spec": {**usual, **spec}}


def pod_monitor(exporting: Exporting, config: PodMonitorConfig) -> Manifest:
    return monitors.pod_monitor(_metadata(exporting), common.selector(labels(exporting.cluster)), config)


def deployment(exporting: Exporting, *, settings: Settings) -> Manifest:
    marks = labels(exporting.cluster)
    scraped = monitors.annotations(exporting.port) if exporting.annotated else {}
    template = common.pod_template(
        {
            "serviceAccountName": exporting.account or name(exporting.prefix),
            # Only an account of the user can have rights, such as to read labels of nodes.
            "automountServiceAccountToken": bool(exporting.account),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": UID,
                "runAsGroup": UID,
                "fsGroup": UID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(exporting, settings)],
            "volumes": [
                {"name": "data", **exporting.data},
                {"name": _TOKEN, "secret": {"secretName": secret(exporting.prefix), "defaultMode": 0o440}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
            ],
        },
        marks,
        main=CONTAINER,
        template=PodTemplate(metadata=TemplateMeta(annotations=scraped), spec=dict(exporting.pod)),
        containers={CONTAINER: exporting.container},
    )
    return {
        "metadata": _metadata(exporting),
        "spec": {
            "replicas": exporting.replicas,
            "revisionHistoryLimit": 0,
            # Two at a time would write the same counters.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": common.selector(marks)},
            "template": template,
        },
    }


def _metadata(exporting: Exporting) -> Manifest:
    return common.metadata(name(exporting.prefix), exporting.namespace, labels(exporting.cluster))


def _container(exporting: Exporting, settings: Settings) -> Manifest:
    rest = f"{partnames.restapi(exporting.cluster)}.{exporting.namespace}.svc:{partnames.SLURMRESTD_PORT}"
    return {
        "name": CONTAINER,
        "image": settings.isthmus_image,
        "command": ["isthmus"],
        "args": [
            "exporter",
            f"--cluster-namespace={exporting.namespace}",
            f"--cluster-name={exporting.cluster}",
            f"--slurm-api-server=http://{rest}",
            f"--token-file={_SECRETS}/{_TOKEN}",
            f"--data-dir={DATA}",
            f"--metrics-bind-address=:{exporting.port}",
            f"--monitoring-bind-address=:{MONITORING_PORT}",
            *exporting.flags,
        ],
        "ports": [
            {"name": "metrics", "containerPort": exporting.port, "protocol": "TCP"},
            {"name": "monitoring", "containerPort": MONITORING_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "monitoring"}, "periodSeconds": 2},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "monitoring"}, "failureThreshold": 6},
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            *common.mounts([("data", DATA), ("tmp", "/tmp")], read_only=False),  # noqa: S108 - of this pod alone
            *common.mounts([(_TOKEN, _SECRETS)]),
        ],
    }
