"""A NodeConfigurator's DaemonSet: the rebooter, or a container of the user's, on every machine.

Only the rebooter is privileged: it enters the machine's namespaces to reboot it. What it may do in Kubernetes is
not ours to give, since rights on nodes are for the whole cluster; the chart `nodeconfigurator` has them.
"""

from typing import Any, Final

from isthmus import names
from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.manifests.common import Manifest, Settings
from isthmus.model.nodeconfigurator import CustomContainer, NodeConfigurator, Rebooter
from isthmus.model.slinky import PodTemplate

APP: Final = "node-configurator"
COMPONENT: Final = "node-configurator"
REBOOTER: Final = "rebooter"
CUSTOM: Final = "custom"

HEALTH_PORT: Final = 8081

NOT_OURS: Final = "the image has no isthmus: leave out rebooter.image, or build the image from ours"

_NOBODY: Final = 65534
_TOLERATION: Final = {"key": names.EVICTION_TAINT, "operator": "Exists"}
"""The rebooter's own taint must not take the rebooter away."""


def name(configurator: str) -> str:
    return f"{configurator}-ds"


def labels(configurator: str) -> dict[str, str]:
    """Make the marks of its DaemonSet and pods."""
    return common.labels(APP, configurator, COMPONENT)


def daemonset(configurator: NodeConfigurator, *, settings: Settings) -> Manifest | None:
    """Make the DaemonSet; None if neither the rebooter nor a container of the user's is enabled."""
    spec, meta = configurator.spec, configurator.metadata
    made: CustomContainer | Rebooter
    if spec.rebooter.enabled:
        made, container = spec.rebooter, _rebooter(spec.rebooter, settings)
    elif spec.custom_container.enabled:
        made, container = spec.custom_container, _custom(spec.custom_container)
    else:
        return None
    marks = labels(meta.name)
    pod: Manifest = {
        "hostNetwork": spec.host_network,
        "hostIPC": spec.host_ipc,
        # The API server takes one of these two alone.
        **({"hostPID": True} if spec.rebooter.enabled else {"shareProcessNamespace": spec.share_process_namespace}),
        "automountServiceAccountToken": spec.rebooter.enabled or bool(made.service_account_name),
        # It has nothing to finish: all that it does can be done again by the next one.
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        **_placed(made),
    }
    if spec.init_containers:
        pod["initContainers"] = list(spec.init_containers)
    template = common.pod_template(pod, marks, main=container["name"], template=PodTemplate(), containers={})
    return {
        "metadata": common.metadata(name(meta.name), meta.namespace, marks),
        "spec": {
            "revisionHistoryLimit": 2,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%"}},
            "selector": {"matchLabels": common.selector(marks)},
            "template": template,
        },
    }


def _placed(made: CustomContainer | Rebooter) -> Manifest:
    """Say where its pods run, and as whom."""
    tolerations = list(made.tolerations)
    if isinstance(made, Rebooter) and _TOLERATION not in tolerations:
        tolerations.append(_TOLERATION)
    asked: dict[str, Any] = {
        "tolerations": tolerations,
        "nodeSelector": made.node_selector,
        "affinity": made.affinity,
        "priorityClassName": made.priority_class_name,
        "serviceAccountName": made.service_account_name,
    }
    users = {} if made.host_users is None else {"hostUsers": made.host_users}
    return {key: value for key, value in asked.items() if value} | users


def _rebooter(rebooter: Rebooter, settings: Settings) -> Manifest:
    format_ = [f"--log-format={rebooter.log_format}"] if rebooter.log_format else []
    ours: dict[str, Manifest] = {
        "REBOOTER_EVICTION_METHOD": {"value": rebooter.eviction_method},
        "REBOOTER_NODE_NAME": {"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
    }
    return {
        "name": REBOOTER,
        "image": rebooter.image.reference or settings.isthmus_image,
        **_pulled(rebooter),
        "command": ["isthmus"],
        "args": ["rebooter", f"--log-level={rebooter.log_level}", *format_],
        "env": [
            *(it for it in rebooter.env if it.get("name") not in ours),
            *({"name": key, **value} for key, value in ours.items()),
        ],
        "readinessProbe": rebooter.readiness_probe or {"httpGet": {"path": "/readyz", "port": HEALTH_PORT}},
        "livenessProbe": rebooter.liveness_probe
        or {"httpGet": {"path": "/healthz", "port": HEALTH_PORT}, "failureThreshold": 6},
        "resources": rebooter.resources or {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "securityContext": {
            "privileged": True,
            "runAsUser": 0,
            "runAsGroup": 0,
            "readOnlyRootFilesystem": True,
        },
    }


def _custom(custom: CustomContainer) -> Manifest:
    made: Manifest = {
        "name": custom.name or CUSTOM,
        "image": custom.image.reference,
        **_pulled(custom),
        "env": list(custom.env),
        "resources": custom.resources,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    asked = {
        "command": list(custom.command),
        "readinessProbe": custom.readiness_probe,
        "livenessProbe": custom.liveness_probe,
    }
    return made | {key: value for key, value in asked.items() if value}


def _pulled(made: CustomContainer | Rebooter) -> Manifest:
    """Always say when it is pulled: what the API server fills in for one image, it keeps for the next one."""
    name, _, digest = made.image.reference.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    moves = bool(name) and not digest and tag in {"", "latest"}
    return {"imagePullPolicy": made.image.pull_policy or ("Always" if moves else "IfNotPresent")}
