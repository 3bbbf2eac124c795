"""The objects of a Controller: slurmctld, its Services, files and keys.

    StatefulSet ── pods ─┬─ reconfigure (side-car)   follows the mounted files
                         ├─ munge (side-car)         where daemons know each other by munge
                         └─ slurmctld                state on a claim; standbys share it
    ConfigMap X-config ──┐
    Secret X-auth ───────┴─ mounted as one volume, copied to /etc/slurm

Nothing in the pod template follows from configuration or keys: both change while slurmctld runs (W41).
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

from isthmus import names
from isthmus.domain.operator import authkeys, partnames
from isthmus.domain.operator.manifests import common, controller_scripts, munge, users
from isthmus.domain.operator.manifests.common import Manifest, Settings
from isthmus.domain.operator.manifests.waitscripts import startup_probe
from isthmus.model.slinky import Controller, Persistence

APP: Final = "slurmctld"
COMPONENT: Final = "controller"
_POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
PLACEHOLDER: Final = "slurmctld-placeholder"
SIDE_CAR: Final = "reconfigure"
REVISION_FILE: Final = controller_scripts.REVISION

_CLOSED_PORT: Final = 1
"""A port on which nothing listens in a pod of slurmctld."""
STATE_VOLUME: Final = "statesave"
_STATE_SIZE: Final = "1Gi"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TINY: Final = {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}}


def labels(controller: Controller, *, app: str = APP) -> dict[str, str]:
    """Make the marks of everything that belongs to a Controller."""
    name = controller.metadata.name
    return common.labels(app, name, COMPONENT, cluster=name)


def monitor(controller: Controller) -> str:
    """Name of the ServiceMonitor."""
    return partnames.controller_service(controller.metadata.name)


def scraped(controller: Controller) -> dict[str, str]:
    """By which labels the ServiceMonitor finds the one Service that it scrapes: all have the same pods."""
    return {**common.selector(labels(controller)), names.SCRAPED_LABEL: "true"}


def services(controller: Controller) -> tuple[Manifest, ...]:
    """Make the headless Service that names each slurmctld, the one that finds any of them, and one of each standby.

    All have pods before they are ready: slurmctld asks itself by these names whether it is, and a Service must not
    lose its slurmctld because the operator is away (W2). Clients know how to continue from a standby.
    """
    meta = controller.metadata
    port, marks = partnames.SLURMCTLD_PORT, labels(controller)
    internal = common.service(
        partnames.controller_internal(meta.name),
        meta.namespace,
        marks,
        port=port,
        port_name=APP,
        headless=True,
        before_ready=True,
    )
    is_scraped = controller.spec.metrics.service_monitor.enabled
    any_of_them = common.service(
        partnames.controller_service(meta.name),
        meta.namespace,
        {**marks, **(scraped(controller) if is_scraped else {})},
        port=port,
        port_name=APP,
        template=controller.spec.service,
        before_ready=True,
    )
    pods = partnames.controller_pods(controller)
    each = [
        common.service(
            pod,
            meta.namespace,
            marks,
            port=port,
            port_name=APP,
            before_ready=True,
            select={**common.selector(marks), _POD_NAME_LABEL: pod},
        )
        for pod in (pods if len(pods) > 1 else ())
    ]
    return internal, any_of_them, *each


def refusing(controller: Controller, addresses: Mapping[str, str]) -> tuple[Manifest, ...]:
    """Make what refuses connections to a slurmctld whose pod is away; `addresses` are those of pods that are there.

    A Service without a pod refuses them, too, but by ICMP, of which Linux sends one a second: whoever is not told
    tries again a second later, in every request. An endpoint that "terminates" is taken where there is no other.
    This one is a closed port of another slurmctld, whose kernel refuses each connection at once.
    """
    meta, pods = controller.metadata, partnames.controller_pods(controller)
    made = []
    for away in pods if len(pods) > 1 else ():
        there = next((addresses[it] for it in pods if it != away and addresses.get(it)), "")
        if not there:
            continue
        marks = {names.SERVICE_NAME_LABEL: away, names.SLICE_MANAGED_BY_LABEL: names.FIELD_MANAGER}
        conditions = {"ready": False, "serving": True, "terminating": True}
        made.append(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": common.metadata(f"{away}-away", meta.namespace, {**labels(controller), **marks}),
                "addressType": "IPv6" if ":" in there else "IPv4",
                "endpoints": [{"addresses": [there], "conditions": conditions}],
                "ports": [{"name": APP, "port": _CLOSED_PORT, "protocol": "TCP"}],
            }
        )
    return tuple(made)


def config(controller: Controller, files: Mapping[str, str], *, revision: str, changed_at: str) -> Manifest:
    """Make the ConfigMap with all files, and with their revision."""
    meta = controller.metadata
    data = {**files, controller_scripts.REVISION: f"{revision}\n"}
    made = common.configmap(partnames.config(meta.name), meta.namespace, labels(controller), data)
    return common.dated(made, revision=revision, changed_at=changed_at)


def auth(controller: Controller, files: Mapping[str, bytes], *, revision: str, changed_at: str) -> Manifest:
    """Make the Secret with the keys that daemons mount."""
    meta = controller.metadata
    data = {**files, controller_scripts.KEYS_REVISION: f"{revision}\n".encode()}
    made: Manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": common.metadata(partnames.auth(meta.name), meta.namespace, labels(controller)),
        "data": {name: b64encode(content).decode() for name, content in data.items()},
    }
    return common.dated(made, revision=revision, changed_at=changed_at)


def statefulset(controller: Controller, settings: Settings) -> Manifest:
    """Make the StatefulSet of slurmctld and its standbys."""
    meta, spec = controller.metadata, controller.spec
    marks = labels(controller)
    template = common.pod_template(
        _pod(controller, settings),
        marks,
        main=APP,
        template=spec.template,
        containers={APP: spec.slurmctld, SIDE_CAR: spec.reconfigure},
    )
    template["spec"] = _probed_by_any_version(template["spec"])
    if spec.replicas > 1:
        template["spec"] = _apart(template["spec"], common.selector(marks))
    made: Manifest = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": common.metadata(partnames.controller_workload(controller), meta.namespace, marks),
        "spec": {
            "serviceName": partnames.controller_internal(meta.name),
            "replicas": spec.replicas,
            # A standby is there for when the first is not.
            "podManagementPolicy": "Parallel",
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": common.selector(marks)},
            "template": template,
        },
    }
    if spec.persistence.enabled and not spec.persistence.existing_claim:
        made["spec"]["volumeClaimTemplates"] = [_claim(spec.persistence, marks)]
    return made


def _probed_by_any_version(pod: Manifest) -> Manifest:
    """Replace HTTP probes of slurmctld's port by TCP ones.

    Soperator's chart asks for /livez there, which slurmctld serves since 25.11: an older one would be killed again
    and again. Which version it is, nobody knows before it runs, and a probe cannot change without a new pod.
    """
    return {**pod, "containers": [_probed_by_tcp(it) if it["name"] == APP else it for it in pod["containers"]]}


def _probed_by_tcp(container: Manifest) -> Manifest:
    made = dict(container)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        asked = (made.get(name) or {}).get("httpGet") or {}
        if asked.get("port") in {partnames.SLURMCTLD_PORT, APP}:
            others = {key: value for key, value in made[name].items() if key != "httpGet"}
            made[name] = {**others, "tcpSocket": {"port": asked["port"]}}
    return made


def inputs(controller: Controller, settings: Settings) -> object:
    """Everything that the pods of slurmctld depend on except our own code: a change recreates them."""
    spec = controller.spec
    return [
        spec.template,
        spec.slurmctld,
        spec.reconfigure,
        spec.auth_type,
        spec.persistence,
        spec.replicas > 1,
        settings.slurm_image,
        settings.domain,
    ]


def placeholder(controller: Controller, settings: Settings) -> Manifest:
    """Make the DaemonSet of warm stand-ins: the image is on every node that slurmctld may move to."""
    meta, spec = controller.metadata, controller.spec
    marks = labels(controller, app=PLACEHOLDER)
    image = spec.slurmctld.get("image") or settings.slurm_image
    idle: Manifest = {"image": image, "command": ["sh", "-c", controller_scripts.STAND_IN], "resources": _TINY}
    pod: Manifest = {
        "terminationGracePeriodSeconds": 1,
        "initContainers": [{"name": "munge", "restartPolicy": "Always", **idle}],
        "containers": [{"name": APP, **idle}],
    }
    # Where slurmctld may run counts here, too; what it is made of does not.
    asked: Manifest = {key: spec.template.spec[key] for key in _WHERE if key in spec.template.spec}
    pod = common.away_from_control_plane({**common.base_pod(), **pod, **asked})
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": common.metadata(partnames.placeholder(controller), meta.namespace, marks),
        "spec": {
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": common.selector(marks)},
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {
                "metadata": {"labels": marks, "annotations": {names.DESCRIPTION_ANNOTATION: _STANDS_IN}},
                "spec": pod,
            },
        },
    }


_STANDS_IN: Final = (
    "Keeps the image of slurmctld on this node, so that slurmctld is back within seconds when it has to move here."
    " It does nothing else."
    f" The annotation {names.PLACEHOLDER_ANNOTATION}: 'false' of the SlurmCluster switches it off."
)
_WHERE: Final = ("nodeSelector", "tolerations", "affinity", "imagePullSecrets", "priorityClassName")


def _pod(controller: Controller, settings: Settings) -> Manifest:
    spec = controller.spec
    image = spec.slurmctld.get("image") or settings.slurm_image
    munged = spec.auth_type == "munge"
    side_cars = [_reconfigure(image, munged=munged)]
    if munged:
        side_cars.insert(0, munge.sidecar(image))
    return {
        "dnsConfig": common.dns(controller.metadata.key, settings),
        "terminationGracePeriodSeconds": 30,
        "initContainers": side_cars,
        "containers": [_slurmctld(image, munged=munged)],
        "volumes": _volumes(controller, munged=munged),
    }


def _slurmctld(image: str, *, munged: bool) -> Manifest:
    port = {"port": APP}
    return {
        "name": APP,
        "image": image,
        "command": ["bash", "-c", controller_scripts.START, controller_scripts.SUPERVISE],
        "ports": [{"name": APP, "containerPort": partnames.SLURMCTLD_PORT, "protocol": "TCP"}],
        # Asked by a command, which both old and new versions answer. Reading the state of many jobs takes time.
        "startupProbe": startup_probe(_ANSWERS, within=1800),
        "readinessProbe": {"tcpSocket": port, "periodSeconds": 5, "failureThreshold": 2},
        "livenessProbe": {"tcpSocket": port, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
        "securityContext": _FEW_RIGHTS,
        "volumeMounts": [*_mounts(munged=munged), users.mount()],
    }


def _reconfigure(image: str, *, munged: bool) -> Manifest:
    return {
        "name": SIDE_CAR,
        "image": image,
        "restartPolicy": "Always",
        "command": ["bash", "-c", controller_scripts.FOLLOW],
        "securityContext": _FEW_RIGHTS,
        "volumeMounts": _mounts(munged=munged),
    }


_ANSWERS: Final = r"""
started() { timeout 5 scontrol ping > /dev/null; }
"""

_FEW_RIGHTS: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    # To give files to the user slurm, to become that user, and, for an administrator in the pod, to end slurmctld.
    "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"]},
}


def _mounts(*, munged: bool) -> list[Manifest]:
    writable = [
        ("slurm-etc", "/etc/slurm"),
        ("run", controller_scripts.RUN),
        (STATE_VOLUME, controller_scripts.STATE),
    ]
    return [
        *common.mounts([("slurm-config", controller_scripts.PLACE)]),
        *common.mounts(writable, read_only=False),
        *([munge.socket_mount()] if munged else []),
    ]


def _volumes(controller: Controller, *, munged: bool) -> list[Manifest]:
    name, spec = controller.metadata.name, controller.spec
    keys = [authkeys.JWT_FILE, controller_scripts.KEYS_REVISION, *([] if munged else [authkeys.FILE])]
    secret = {"name": partnames.auth(name), "items": [{"key": key, "path": key} for key in keys]}
    volumes: list[Manifest] = [
        {
            "name": "slurm-config",
            "projected": {
                "defaultMode": 0o440,
                "sources": [{"configMap": {"name": partnames.config(name)}}, {"secret": secret}],
            },
        },
        {"name": "slurm-etc", "emptyDir": {"medium": "Memory"}},
        {"name": "run", "emptyDir": {"medium": "Memory"}},
        users.volume(name),
    ]
    if munged:
        volumes += munge.volumes(partnames.auth(name))
    if spec.persistence.existing_claim:
        claim = {"claimName": spec.persistence.existing_claim}
        volumes.append({"name": STATE_VOLUME, "persistentVolumeClaim": claim})
    elif not spec.persistence.enabled:
        volumes.append({"name": STATE_VOLUME, "emptyDir": {}})
    return volumes


def _claim(asked: Persistence, marks: Mapping[str, str]) -> Manifest:
    spec: Manifest = {
        "accessModes": list(asked.access_modes) or ["ReadWriteOnce"],
        "resources": asked.resources or {"requests": {"storage": _STATE_SIZE}},
    }
    optional = {
        "storageClassName": asked.storage_class_name,
        "selector": asked.selector,
        "volumeName": asked.volume_name or None,
        "volumeMode": asked.volume_mode or None,
        "dataSource": asked.data_source,
        "dataSourceRef": asked.data_source_ref,
        "volumeAttributesClassName": asked.volume_attributes_class_name or None,
    }
    spec |= {key: value for key, value in optional.items() if value is not None}
    return {"metadata": {"name": STATE_VOLUME, "labels": dict(marks)}, "spec": spec}


def _apart(spec: Manifest, select: Mapping[str, str]) -> Manifest:
    """Put slurmctld and its standbys on different nodes, beside what the user asked for."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(select)}}
    affinity = dict(spec.get("affinity") or {})
    apart = dict(affinity.get("podAntiAffinity") or {})
    apart[_REQUIRED] = [*(apart.get(_REQUIRED) or ()), term]
    return {**spec, "affinity": {**affinity, "podAntiAffinity": apart}}
