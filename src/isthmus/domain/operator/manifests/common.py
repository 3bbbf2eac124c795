"""What the objects of all parts have in common: marks, owners, hashes, and how pods are put together."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

import isthmus
from isthmus import names
from isthmus.domain.operator import authkeys, partnames, podmerge
from isthmus.model.meta import Key
from isthmus.model.slinky import Controller, PodTemplate, ServiceTemplate

Manifest = dict[str, Any]

MANAGER: Final = "isthmus"
SLURM_UID: Final = 64030
"""The user and group `slurm` in Debian's packages, and so in our images."""

CONTROL_PLANE_LABEL: Final = "node-role.kubernetes.io/control-plane"


LOCKED: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""The security context of a container that needs no right and writes to volumes alone."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator takes where a custom resource says nothing."""

    slurm_image: str = "isthmus.local/slurm:26.05"
    login_image: str = "isthmus.local/login:26.05"
    mariadb_image: str = "isthmus.local/mariadb:11.8"
    isthmus_image: str = f"isthmus.local/isthmus:{isthmus.__version__}"
    """Of what runs our own commands in a cluster: filling the shared root, and writing files into it."""
    domain: str = "cluster.local"
    cgroup: Literal["v2", "none"] = "v2"
    """Whether nodes have control groups that Slurm can use."""
    propagated_node_conditions: tuple[str, ...] = ()
    """Conditions of Kubernetes nodes that become part of the reason when a cordoned node is drained."""


def labels(app: str, instance: str, component: str, *, cluster: str = "") -> dict[str, str]:
    """Make the marks of an object: which daemon, of which custom resource, in which role, of which cluster."""
    marks = {
        names.NAME_LABEL: app,
        names.INSTANCE_LABEL: instance,
        names.COMPONENT_LABEL: component,
        names.MANAGED_BY_LABEL: MANAGER,
    }
    return marks | ({names.CLUSTER_LABEL: cluster} if cluster else {})


def selector(marks: Mapping[str, str]) -> dict[str, str]:
    """Take the marks by which pods are selected: they can never change."""
    return {key: marks[key] for key in (names.NAME_LABEL, names.INSTANCE_LABEL)}


def metadata(
    name: str,
    namespace: str,
    marks: Mapping[str, str],
    *,
    own: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """Make the metadata of an object; `own` are the user's labels, over which ours go."""
    made: Manifest = {"name": name, "namespace": namespace, "labels": {**(own or {}), **marks}}
    if annotations:
        made["annotations"] = dict(annotations)
    return made


def hash_of(*contents: object) -> str:
    """Make a short hash of anything that JSON can hold; equal contents have equal hashes, always."""
    text = msgspec.json.encode(contents, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]


def configmap(name: str, namespace: str, marks: Mapping[str, str], data: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(name, namespace, marks),
        "data": dict(data),
    }


def service(
    name: str,
    namespace: str,
    marks: Mapping[str, str],
    *,
    port: int,
    port_name: str,
    template: ServiceTemplate | None = None,
    headless: bool = False,
    before_ready: bool = False,
    select: Mapping[str, str] | None = None,
) -> Manifest:
    """Make a Service over pods with these marks. The user's fields count, but for the selector and external IPs."""
    asked = template or ServiceTemplate()
    main: Manifest = {"name": port_name, "port": asked.port or port, "targetPort": port, "protocol": "TCP"}
    if asked.node_port:
        main["nodePort"] = asked.node_port
    spec: Manifest = {**asked.spec, "selector": dict(select or selector(marks))}
    # CVE-2020-8554: a user who may set these can take over traffic of others.
    spec.pop("externalIPs", None)
    others = [it for it in spec.get("ports", ()) if it.get("name") != port_name]
    spec["ports"] = [main, *others]
    if headless:
        spec["clusterIP"] = "None"
    if before_ready:
        spec["publishNotReadyAddresses"] = True
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(
            name, namespace, marks, own=asked.metadata.labels, annotations=asked.metadata.annotations
        ),
        "spec": spec,
    }


def dated(made: Manifest, *, revision: str, changed_at: str) -> Manifest:
    """Write on an object which revision of its content it holds, and since when."""
    marks = {names.CONFIG_HASH_ANNOTATION: revision, names.CHANGED_AT_ANNOTATION: changed_at}
    return {**made, "metadata": {**made["metadata"], "annotations": marks}}


def pod_template(
    spec: Mapping[str, Any],
    marks: Mapping[str, str],
    *,
    main: str,
    template: PodTemplate,
    containers: Mapping[str, Mapping[str, Any]],
    hashes: Mapping[str, str] | None = None,
) -> Manifest:
    """Make a pod template: ours, the user's over it, and then the fields for single containers by name.

    `hashes` are annotations with hashes of what the pods must be restarted for.
    """
    annotations = {
        **template.metadata.annotations,
        "kubectl.kubernetes.io/default-container": main,
        **(hashes or {}),
    }
    made = podmerge.pod_spec({**base_pod(), **spec}, template.spec, containers)
    return {
        "metadata": {"labels": {**template.metadata.labels, **marks}, "annotations": annotations},
        "spec": away_from_control_plane(made),
    }


def base_pod() -> Manifest:
    """Make what holds for every pod of ours: no token of Kubernetes, no variables for each Service."""
    return {"automountServiceAccountToken": False, "enableServiceLinks": False}


def ping_for_all(pod: Manifest, template: Mapping[str, Any]) -> Manifest:
    """Let every user of a pod send echo requests, as on any machine: `ping` needs no rights then.

    Only where the pod has a network and users of its own: the setting is the network's, and counts group ids.
    """
    if template.get("hostNetwork") or template.get("hostUsers") is False:
        return pod
    context = dict(pod.get("securityContext") or {})
    context["sysctls"] = [{"name": "net.ipv4.ping_group_range", "value": "0 2147483647"}]
    return {**pod, "securityContext": context}


def dns(controller: Key, settings: Settings) -> Manifest:
    """Let a pod find workers and slurmctld by their short names."""
    return {"searches": list(partnames.search_domains(controller, domain=settings.domain))}


def away_from_control_plane(spec: Manifest) -> Manifest:
    """Keep a pod off the control plane, unless it asks for it by a toleration, selector or affinity."""
    if (
        CONTROL_PLANE_LABEL
        in msgspec.json.encode([spec.get("tolerations"), spec.get("nodeSelector"), spec.get("affinity")]).decode()
    ):
        return spec
    wanted = {"key": CONTROL_PLANE_LABEL, "operator": "DoesNotExist"}
    affinity = dict(spec.get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    required = dict(node.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*term.get("matchExpressions", ()), wanted]} for term in terms
    ]
    node["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return {**spec, "affinity": {**affinity, "nodeAffinity": node}}


def key_volume(controller: Controller) -> Manifest:
    """Make the volume of the key by which daemons know each other.

    Without the key of tokens: its holder can be any user of slurmrestd.
    """
    # A Slurm outside has a key or a set of keys, and which it is can change.
    files = [authkeys.FILE, *([authkeys.PLAIN_FILE] if controller.spec.external else [])]
    secret: Manifest = {
        "secretName": partnames.auth(controller.metadata.name),
        "items": [{"key": name, "path": name} for name in files],
        "defaultMode": 0o600,
    }
    if controller.spec.external:
        secret["optional"] = True
    return {"name": "slurm-keys", "secret": secret}


def mounts(pairs: Iterable[tuple[str, str]], *, read_only: bool = True) -> list[Manifest]:
    """Make volume mounts from names and paths."""
    return [{"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})} for name, path in pairs]
