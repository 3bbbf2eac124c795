"""Pods of a SlurmCluster in terms of its parts: containers, where they may run, and their volumes.

Everything made here is merged over the pod that the part itself makes (`domain.operator.podmerge`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from isthmus.domain.operator.clusterparts.notes import Notes
from isthmus.model.slinky import LocalReference
from isthmus.model.soperator import (
    AccountingNode,
    ContainerSecurity,
    ControllerNode,
    ExporterNode,
    LoginNode,
    NodeContainer,
    NodeVolumeMount,
    Resources,
    RestNode,
    SlurmClusterSpec,
    WorkerNode,
)

Fields = dict[str, Any]
Placed = AccountingNode | ControllerNode | ExporterNode | LoginNode | RestNode | WorkerNode

JAIL: Final = "jail"
"""The volume source of the shared root file system."""

_EPHEMERAL: Final = {"ephemeralStorage": "ephemeral-storage"}


def resources(amounts: Resources, *, fixed: bool = False) -> Fields:
    """Ask for amounts, and cap what must not grow: memory always, CPU only where the amounts are `fixed`.

    Slurm counts the CPUs of a worker by its limits. Other daemons may use what is idle.
    """
    if not amounts:
        return {}
    asked = {_EPHEMERAL.get(name, name): amount for name, amount in amounts.items()}
    limits = asked if fixed else {name: amount for name, amount in asked.items() if name != "cpu"}
    return {"requests": asked} | ({"limits": limits} if limits else {})


def security(app_armor: str, proc_mount: str | None) -> Fields:
    """Which AppArmor profile a container runs under, and what it sees of /proc."""
    made: Fields = {}
    kind, _, profile = app_armor.partition("/")
    if app_armor == "unconfined":
        made["appArmorProfile"] = {"type": "Unconfined"}
    elif kind == "localhost" and profile:
        made["appArmorProfile"] = {"type": "Localhost", "localhostProfile": profile}
    elif app_armor:
        made["appArmorProfile"] = {"type": "RuntimeDefault"}
    if proc_mount:
        made["procMount"] = proc_mount
    return made


def container(
    asked: NodeContainer, fallback: Resources, *, fixed: bool = False, places: Sequence[Fields] = ()
) -> Fields:
    """Fields that the user sets for one of our containers, with the places of its volumes."""
    return _filled(
        {
            "image": asked.image,
            "imagePullPolicy": asked.image_pull_policy,
            "command": list(asked.command),
            "args": list(asked.args),
            "env": list(asked.custom_env),
            "resources": resources(asked.resources or fallback, fixed=fixed),
            "livenessProbe": asked.liveness_probe,
            "readinessProbe": asked.readiness_probe,
            "securityContext": security(asked.app_armor_profile, asked.proc_mount),
            "volumeMounts": list(places),
        }
    )


def set_container(
    *, image: str, pull_policy: str | None, amounts: Resources, security_: ContainerSecurity | None, **more: Any
) -> Fields:
    """Make the same from the fields of a NodeSet."""
    given = security_ or ContainerSecurity()
    return _filled(
        {
            "image": image,
            "imagePullPolicy": pull_policy,
            "resources": resources(amounts, fixed=True),
            "securityContext": security(given.app_armor_profile, given.proc_mount),
            **more,
        }
    )


def placing(node_selector: Mapping[str, str], affinity: Fields | None, tolerations: Sequence[Fields]) -> Fields:
    """Which Kubernetes nodes a pod may run on."""
    return _filled({"nodeSelector": dict(node_selector), "affinity": affinity, "tolerations": list(tolerations)})


def filter_of(spec: SlurmClusterSpec, name: str, where: str, notes: Notes) -> Fields:
    if not name:
        return {}
    found = next((it for it in spec.k8s_node_filters if it.name == name), None)
    if found is None:
        known = ", ".join(it.name for it in spec.k8s_node_filters) or "none"
        notes.refuse(
            f"{where}.k8sNodeFilterName: there is no node filter {name!r} in k8sNodeFilters (there: {known})"
        )
        return {}
    return placing(found.node_selector, found.affinity, found.tolerations)


def pod(
    spec: SlurmClusterSpec,
    node: Placed,
    where: str,
    notes: Notes,
    *,
    pull_secrets: Sequence[LocalReference] = (),
    volumes: Sequence[Fields] = (),
) -> Fields:
    """Fields that the user sets for a pod as a whole."""
    return _filled(
        {
            **filter_of(spec, node.k8s_node_filter_name, where, notes),
            "priorityClassName": node.priority_class,
            "hostUsers": node.host_users,
            "imagePullSecrets": [{"name": it.name} for it in pull_secrets],
            "initContainers": list(node.custom_init_containers),
            "volumes": list(volumes),
        },
        keep_false=True,
    )


def source(spec: SlurmClusterSpec, name: str, where: str, notes: Notes) -> Fields | None:
    """Find a volume source by its name, as a volume of a pod has it."""
    found = next((it for it in spec.volume_sources if it["name"] == name), None)
    if found is None:
        known = ", ".join(it["name"] for it in spec.volume_sources) or "none"
        notes.refuse(
            f"{where}.volumeSourceName: there is no volume source {name!r} in volumeSources (there: {known})"
        )
        return None
    return {key: value for key, value in found.items() if key != "name"}


def mounted(
    spec: SlurmClusterSpec,
    mounts: Iterable[NodeVolumeMount],
    where: str,
    notes: Notes,
    *,
    claims: bool,
    inside: bool = False,
) -> tuple[list[Fields], list[Fields], list[Fields]]:
    """Make volumes, mounts and claim templates.

    `claims`: whether each pod can have claims of its own. `inside`: whether they are for the shared root.
    """
    volumes: list[Fields] = []
    places: list[Fields] = []
    templates: list[Fields] = []
    for mount in mounts:
        at = f"{where}[{mount.name}]"
        name = volume_name(mount.name, inside=inside)
        if (mount.volume_source_name is None) == (mount.volume_claim_template_spec is None):
            notes.refuse(f"{at}: set either volumeSourceName or volumeClaimTemplateSpec")
            continue
        if mount.volume_source_name is not None:
            if found := source(spec, mount.volume_source_name, at, notes):
                volumes.append({"name": name, **found})
        elif claims:
            templates.append({"metadata": {"name": name}, "spec": mount.volume_claim_template_spec})
        else:
            notes.refuse(
                f"{at}.volumeClaimTemplateSpec: only workers have claims of their own; create a claim and name "
                "it in volumeSources"
            )
        places.append(place(name, mount.mount_path, sub_path=mount.sub_path, read_only=mount.read_only))
    return volumes, places, templates


def place(name: str, path: str, *, sub_path: str = "", read_only: bool = False) -> Fields:
    """Mount a volume."""
    return _filled({"name": name, "mountPath": path, "subPath": sub_path, "readOnly": read_only})


def volume_name(name: str, *, inside: bool = False) -> str:
    """The name of a user's volume, which never is that of one of ours, nor of another of the same name."""
    return f"{'inside' if inside else 'mount'}-{name}"[:63].rstrip("-")


def _filled(asked: Fields, *, keep_false: bool = False) -> Fields:
    """Leave out what says nothing, so that nothing of ours is overwritten by it."""
    return {
        key: value
        for key, value in asked.items()
        if value not in (None, "", [], {}) and (keep_false or value is not False)
    }
