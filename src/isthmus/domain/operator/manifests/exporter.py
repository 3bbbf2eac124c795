"""The exporter: a Deployment that reads Slurm through slurmrestd and serves its metrics.

It has a token of its own in a file, and no right in Kubernetes: neither Secrets nor anything else can be read with
its account. `metrics` is what it says of Slurm, `monitoring` what it says of itself, with its health.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests import common, companion, monitors
from isthmus.domain.operator.manifests.common import Manifest, Settings
from isthmus.domain.operator.manifests.companion import Companion
from isthmus.model.slinky import ServiceTemplate
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


class Exporting(Companion, frozen=True, kw_only=True):
    """Whose Slurm it reads, and what is asked of the pod."""

    app: ClassVar[str] = APP
    component: ClassVar[str] = COMPONENT
    main: ClassVar[str] = CONTAINER

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
    service_account: str = ""
    """The service account of the user; empty for one of its own."""


def name(prefix: str) -> str:
    """Name the Deployment, its account, Service, Token and claim."""
    return f"{prefix}{APP}"


def secret(prefix: str) -> str:
    """Name the Secret of its token."""
    return f"{name(prefix)}-token"


def token(exporting: Exporting) -> Manifest:
    return {
        "metadata": exporting.metadata,
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
        exporting.name,
        exporting.namespace,
        exporting.labels,
        port=exporting.port,
        port_name="metrics",
        template=ServiceTemplate(spec={"ports": [monitoring]}),
    )


def claim(exporting: Exporting, spec: Mapping[str, Any]) -> Manifest:
    """Make the claim that it keeps counters on."""
    usual = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": exporting.metadata, "spec": {**usual, **spec}}


def pod_monitor(exporting: Exporting, config: PodMonitorConfig) -> Manifest:
    return monitors.pod_monitor(exporting.metadata, common.selector(exporting.labels), config)


def deployment(exporting: Exporting, *, settings: Settings) -> Manifest:
    scraped = monitors.annotations(exporting.port) if exporting.annotated else {}
    return exporting.deployment(
        {
            "serviceAccountName": exporting.service_account or exporting.name,
            # Only an account of the user can have rights, such as to read labels of nodes.
            "automountServiceAccountToken": bool(exporting.service_account),
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
        annotations=scraped,
    )


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
        **companion.probes("monitoring"),
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}},
        "securityContext": dict(common.LOCKED),
        "volumeMounts": [
            *common.mounts([("data", DATA), ("tmp", "/tmp")], read_only=False),  # noqa: S108 - of this pod alone
            *common.mounts([(_TOKEN, _SECRETS)]),
        ],
    }
