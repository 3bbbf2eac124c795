"""Workers of a SlurmCluster: its own (`slurmNodes.worker`) and those of NodeSets of slurm.nebius.ai."""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from isthmus.domain.languages import slurmconf
from isthmus.domain.languages.slurmconf import ConfigError, Directive
from isthmus.domain.operator.clusterparts import pods, root
from isthmus.domain.operator.clusterparts.notes import Notes
from isthmus.domain.operator.clusterparts.pods import Fields
from isthmus.domain.operator.manifests import jail
from isthmus.model.elastic import Autoscale
from isthmus.model.slinky import Draining
from isthmus.model.soperator import NodeSet, SetVolumeMount, SlurmClusterSpec

SPOOL: Final = "/var/spool/slurmd"
HOME: Final = "/home"
_GPUS: Final = ("nvidia.com/", "amd.com/", "gpu.intel.com/")

_WHOLE_SET: Final = 500
"""The maxUnavailable that soperator gives to a NodeSet that says nothing: no bound at all, so ours is taken."""

_POD_NAME: Final = re.compile(r"\{\{-?\s*\.PodName\s*-?\}\}")
_OURS_TO_SAY: Final = frozenset({"nodename", "feature", "features", "state", "nodeaddr", "nodehostname", "port"})
"""Settings of a node that follow from its NodeSet and its pod."""


def home(jail: Fields) -> tuple[Fields, Fields]:
    """Make the volume of the shared file system, and the place of users' homes on it."""
    return {"name": pods.JAIL, **jail}, pods.place(pods.JAIL, HOME, sub_path="home")


def own_workers(
    spec: SlurmClusterSpec, *, controller: str, replicas: int, jail: Fields, shared: bool, auth: str, notes: Notes
) -> Fields:
    """Make the specification of the NodeSet for `slurmNodes.worker`. `shared`: whether jobs live in the jail."""
    worker = spec.slurm_nodes.worker
    where = "slurmNodes.worker"
    at = f"{where}.volumes"
    volumes, places, claims = pods.mounted(spec, worker.volumes.custom_mounts, at, notes, claims=True)
    inner = pods.mounted(spec, worker.volumes.jail_sub_mounts, at, notes, claims=True, inside=shared)
    claims += inner[2]
    if not shared:
        volume, at_home = home(jail)
        volumes, places = [volume, *volumes, *inner[0]], [at_home, *places, *inner[1]]
    spool = worker.volumes.spool
    if spool.volume_source_name:
        found = pods.source(spec, spool.volume_source_name, f"{where}.volumes.spool", notes)
        volumes += [{"name": pods.volume_name("spool"), **found}] if found else []
        places.append(pods.place(pods.volume_name("spool"), SPOOL))
    elif spool.volume_claim_template_spec:
        claims.append({"metadata": {"name": "spool"}, "spec": spool.volume_claim_template_spec})
        places.append(pods.place("spool", SPOOL))
    _add_shared_memory(worker.volumes.shared_memory_size, volumes, places)
    container = pods.container(worker.slurmd, worker.resources, fixed=True, places=places)
    secrets = (*worker.slurmd.image_pull_secrets, *(worker.munge.image_pull_secrets if auth == "munge" else ()))
    made: Fields = {
        **_common(controller, replicas, worker.drain),
        "slurmd": container,
        "template": {"spec": pods.pod(spec, worker, where, notes, pull_secrets=secrets, volumes=volumes)},
        # Claims that slurmd filled for jobs of its own are of no use once it is gone.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
    }
    if shared:
        made["sharedRoot"] = root.shared_root(jail, root.inside(inner[0], inner[1]), at, notes)
    if claims:
        made["volumeClaimTemplates"] = claims
    if worker.max_unavailable is not None:
        made["updateStrategy"] = _rolling(worker.max_unavailable)
    return made


def nodeset_workers(
    nodeset: NodeSet,
    *,
    controller: str,
    replicas: int,
    jail: Fields,
    shared: bool,
    notes: Notes,
    suspend_time: int | None = None,
) -> Fields:
    """Make the specification of the NodeSet (of slinky.slurm.net) for one of slurm.nebius.ai."""
    spec = nodeset.spec
    slurmd = spec.slurmd
    volumes, places, claims, shared_root = _set_volumes(nodeset, jail, notes, shared=shared)
    container = pods.set_container(
        image=slurmd.image.reference,
        pull_policy=slurmd.image.pull_policy,
        amounts=slurmd.resources,
        security_=slurmd.security,
        env=[*slurmd.custom_env, *_gpu(nodeset, notes, shared=shared)],
        livenessProbe=slurmd.liveness_probe,
        readinessProbe=slurmd.readiness_probe,
        args=_extra(nodeset, notes),
        volumeMounts=places,
    )
    pod: Fields = {
        **pods.placing(spec.node_selector, spec.affinity, spec.tolerations),
        **({"volumes": volumes} if volumes else {}),
    }
    if spec.priority_class:
        pod["priorityClassName"] = spec.priority_class
    if spec.custom_init_containers:
        pod["initContainers"] = list(spec.custom_init_containers)
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": it.name} for it in spec.image_pull_secrets]
    if spec.enable_host_user_namespace:
        pod["hostUsers"] = True
    metadata: Fields = {
        "labels": {"slurm.nebius.ai/nodeset": nodeset.metadata.name, "slurm.nebius.ai/worker": "true"}
    }
    if spec.worker_annotations:
        metadata["annotations"] = dict(spec.worker_annotations)
    retention = slurmd.volumes.persistent_volume_claim_retention_policy
    made: Fields = {
        **_common(controller, replicas, spec.drain),
        **(_elastic(nodeset, suspend_time) if spec.ephemeral_nodes else {}),
        "slurmd": container,
        "template": {"metadata": metadata, "spec": pod},
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": retention.when_deleted,
            "whenScaled": retention.when_scaled,
        },
    }
    if shared_root:
        made["sharedRoot"] = shared_root
    if claims:
        made["volumeClaimTemplates"] = claims
    made |= _node_fields(nodeset, notes)
    if spec.max_unavailable != _WHOLE_SET:
        made["updateStrategy"] = _rolling(spec.max_unavailable)
    return made


def _common(controller: str, replicas: int, drain: Draining) -> Fields:
    made: Fields = {
        "controllerRef": {"name": controller},
        "replicas": replicas,
        # As many workers on a node as fit: their resources say how many that are.
        "oversubscribeNode": True,
        "ssh": {"enabled": True},
    }
    if drain != Draining():
        made["drain"] = {"onTimeout": drain.on_timeout, **({"timeout": drain.timeout} if drain.timeout else {})}
    return made


def _elastic(nodeset: NodeSet, suspend_time: int | None) -> Fields:
    """Make the fields of a NodeSet whose nodes Slurm starts and stops."""
    spec = nodeset.spec
    return {
        "autoscale": msgspec.to_builtins(spec.autoscale or Autoscale()),
        "initialNumberEphemeralNodes": min(spec.initial_number_ephemeral_nodes, spec.replicas),
        **({"suspendTime": suspend_time} if suspend_time else {}),
        # Soperator does not let others wait: their place is of no use to jobs.
        **({"ephemeralTopologyWaitTimeout": spec.ephemeral_topology_wait_timeout} if spec.gpu.enabled else {}),
    }


def _rolling(max_unavailable: int | str) -> Fields:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max_unavailable}}


def _set_volumes(
    nodeset: NodeSet, jail: Fields, notes: Notes, *, shared: bool
) -> tuple[list[Fields], list[Fields], list[Fields], Fields]:
    """Make volumes, mounts and claim templates, and the field `sharedRoot`, which is empty if it is not shared."""
    given = nodeset.spec.slurmd.volumes
    volumes, places, claims = _mounts(nodeset, given.custom_volume_mounts, notes)
    inner, inner_places, inner_claims = _mounts(nodeset, given.jail_sub_mounts, notes, inside=shared)
    made: Fields = {}
    if shared:
        within = root.inside(inner, inner_places)
        at = f"NodeSet {nodeset.metadata.name}, slurmd.volumes"
        made = root.shared_root(given.jail or jail, within, at, notes)
    else:
        volume, at_home = home(given.jail or jail)
        volumes, places = [volume, *volumes, *inner], [at_home, *places, *inner_places]
    if given.spool:
        spool = dict(given.spool)
        # A volume source by its type. Charts of soperator write a claim template there, as for other volumes.
        if claim := spool.pop("volumeClaimTemplateSpec", None):
            claims.append({"metadata": {"name": pods.volume_name("spool")}, "spec": claim})
        if claim and spool:
            notes.refuse(
                f"NodeSet {nodeset.metadata.name}, slurmd.volumes.spool: set either a volume source "
                f"({', '.join(sorted(spool))}) or volumeClaimTemplateSpec"
            )
        if not claim:
            volumes.append({"name": pods.volume_name("spool"), **spool})
        places.append(pods.place(pods.volume_name("spool"), SPOOL))
    _add_shared_memory(given.shared_memory_size, volumes, places)
    return volumes, places, [*claims, *inner_claims], made


def _mounts(
    nodeset: NodeSet, mounts: Iterable[SetVolumeMount], notes: Notes, *, inside: bool = False
) -> tuple[list[Fields], list[Fields], list[Fields]]:
    """Make volumes, mounts and claim templates; `inside`: for the shared root."""
    volumes: list[Fields] = []
    places: list[Fields] = []
    claims: list[Fields] = []
    for mount in mounts:
        made = _set_mount(mount, nodeset.metadata.name, notes)
        name = pods.volume_name(mount.name, inside=inside)
        if made is None:
            continue
        if "claim" in made:
            claims.append({"metadata": {"name": name}, "spec": made["claim"]})
        else:
            volumes.append({"name": name, **made})
        places.append(pods.place(name, mount.mount_path, sub_path=mount.sub_path, read_only=mount.read_only))
    return volumes, places, claims


def _set_mount(mount: SetVolumeMount, nodeset: str, notes: Notes) -> dict[str, Any] | None:
    if (mount.volume_source is None) == (mount.volume_claim_template_spec is None):
        notes.refuse(
            f"NodeSet {nodeset}, slurmd.volumes[{mount.name}]: set either volumeSource or volumeClaimTemplateSpec"
        )
        return None
    return mount.volume_source or {"claim": mount.volume_claim_template_spec}


def _add_shared_memory(size: int | str | None, volumes: list[Fields], places: list[Fields]) -> None:
    if size is not None:
        volumes.append({"name": "dev-shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}})
        places.append(pods.place("dev-shm", "/dev/shm"))  # noqa: S108 - where shared memory is, on any Linux


def _extra(nodeset: NodeSet, notes: Notes) -> list[str]:
    """Make slurmd's option for `nodeConfig.dynamic`, in which `{{ .PodName }}` stands for the name of the pod."""
    given = nodeset.spec.node_config.dynamic
    if not given:
        return []
    # An argument of its own: no shell ever reads it. But kubelet does, and fills in variables of the container.
    filled = _POD_NAME.sub("$(ISTHMUS_NODE)", given.replace("$(", "$$("))
    if "{{" in filled:
        name = nodeset.metadata.name
        notes.refuse(f"NodeSet {name}, nodeConfig.dynamic: the only template supported is {{{{ .PodName }}}}")
    return ["--extra", filled]


def _gpu(nodeset: NodeSet, notes: Notes, *, shared: bool) -> list[Fields]:
    """Make the variables by which a worker shows the GPUs' driver to jobs, and NVIDIA's runtime gives GDRCopy."""
    gpu = nodeset.spec.gpu
    gdr_copy = gpu.nvidia is not None and gpu.nvidia.gdr_copy_enabled
    if not gpu.enabled:
        notes.ignored += ["gpu.nvidia.gdrCopyEnabled (gpu.enabled is false)"] if gdr_copy else []
        return []
    has_one = any(it.startswith(_GPUS) for it in nodeset.spec.slurmd.resources)
    if not has_one and not nodeset.spec.node_config.gres_config and not nodeset.spec.devices:
        notes.ignored.append("gpu.enabled (slurmd.resources has no GPU, such as nvidia.com/gpu)")
    made: list[Fields] = [{"name": jail.DRIVER_VARIABLE, "value": "yes"}] if shared else []
    return made + ([{"name": "NVIDIA_GDRCOPY", "value": "enabled"}] if gdr_copy else [])


def _node_fields(nodeset: NodeSet, notes: Notes) -> Fields:
    """Make the fields that define the nodes in Slurm."""
    made: Fields = {
        "extraConf": _extra_conf(nodeset, notes),
        "gresConfig": _gres(nodeset, notes),
        "devices": msgspec.to_builtins(nodeset.spec.devices),
        "fabric": nodeset.spec.topology.fabric if nodeset.spec.topology else "",
    }
    return {key: value for key, value in made.items() if value}


def _gres(nodeset: NodeSet, notes: Notes) -> list[str]:
    """Take the lines of gres.conf that the author wrote."""
    kept = []
    for text in nodeset.spec.node_config.gres_config:
        try:
            slurmconf.parse_line(f"NodeName=x {text}")
        except ConfigError as error:
            notes.refuse(f"NodeSet {nodeset.metadata.name}, nodeConfig.gresConfig: {error.what}")
        else:
            kept.append(text)
    return kept


def _extra_conf(nodeset: NodeSet, notes: Notes) -> str:
    """Make the settings of nodes that slurmd is given when it registers."""
    config = nodeset.spec.node_config
    features = list(config.features)
    kept: dict[str, str] = {}
    if config.static:
        try:
            given = slurmconf.parse_line(config.static)
        except ConfigError as error:
            notes.refuse(f"NodeSet {nodeset.metadata.name}, nodeConfig.static: {error.what}")
            return ""
        for key, value in given.settings:
            if key.lower() in {"feature", "features"}:
                features += [it for it in value.split(",") if it]
            elif key.lower() not in _OURS_TO_SAY:
                kept[key] = value
    if features:
        kept["Feature"] = ",".join(dict.fromkeys(features))
    if not kept:
        return ""
    try:
        return Directive.of(kept).render()
    except ConfigError as error:
        notes.refuse(f"NodeSet {nodeset.metadata.name}, nodeConfig: {error.what}")
        return ""
