"""Workers of a SlurmCluster: its own (`slurmNodes.worker`) and those of NodeSets of slurm.nebius.ai."""

from typing import Any, Final

from isthmus.domain import slurmconf
from isthmus.domain.clusterparts import pods
from isthmus.domain.clusterparts.notes import Notes
from isthmus.domain.clusterparts.pods import Wish
from isthmus.domain.slurmconf import ConfigError, Directive
from isthmus.model.slinky import Draining
from isthmus.model.soperator import NodeSet, SetVolumeMount, SlurmClusterSpec

SPOOL: Final = "/var/spool/slurmd"
HOME: Final = "/home"

_WHOLE_SET: Final = 500
"""The maxUnavailable that soperator gives to a NodeSet that says nothing: no bound at all, so ours is taken."""

_OURS_TO_SAY: Final = frozenset({"nodename", "feature", "features", "state", "nodeaddr", "nodehostname", "port"})
"""Settings of a node that follow from its NodeSet and its pod."""


def home(jail: Wish) -> tuple[Wish, Wish]:
    """Make the volume of the shared file system, and the place of users' homes on it."""
    return {"name": pods.JAIL, **jail}, pods.place(pods.JAIL, HOME, sub_path="home")


def own_workers(
    spec: SlurmClusterSpec, *, controller: str, replicas: int, jail: Wish, auth: str, notes: Notes
) -> Wish:
    """Make the specification of the NodeSet for `slurmNodes.worker`."""
    worker = spec.slurm_nodes.worker
    where = "slurmNodes.worker"
    volumes, places, claims = pods.mounted(
        spec,
        (*worker.volumes.jail_sub_mounts, *worker.volumes.custom_mounts),
        f"{where}.volumes",
        notes,
        claims=True,
    )
    shared, at_home = home(jail)
    volumes, places = [shared, *volumes], [at_home, *places]
    spool = worker.volumes.spool
    if spool.volume_source_name:
        found = pods.source(spec, spool.volume_source_name, f"{where}.volumes.spool", notes)
        volumes += [{"name": pods.volume_name("spool"), **found}] if found else []
        places.append(pods.place(pods.volume_name("spool"), SPOOL))
    elif spool.volume_claim_template_spec:
        claims.append({"metadata": {"name": "spool"}, "spec": spool.volume_claim_template_spec})
        places.append(pods.place("spool", SPOOL))
    _add_shared_memory(worker.volumes.shared_memory_size, volumes, places)
    container = pods.container(worker.slurmd, worker.resources, fixed=True)
    container["volumeMounts"] = places
    secrets = (*worker.slurmd.image_pull_secrets, *(worker.munge.image_pull_secrets if auth == "munge" else ()))
    made: Wish = {
        **_common(controller, replicas, worker.drain),
        "slurmd": container,
        "template": {"spec": pods.pod(spec, worker, where, notes, pull_secrets=secrets, volumes=volumes)},
        # Claims that slurmd filled for jobs of its own are of no use to anybody once it is gone.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
    }
    if claims:
        made["volumeClaimTemplates"] = claims
    if worker.max_unavailable is not None:
        made["updateStrategy"] = _rolling(worker.max_unavailable)
    return made


def nodeset_workers(nodeset: NodeSet, *, controller: str, replicas: int, jail: Wish, notes: Notes) -> Wish:
    """Make the specification of the NodeSet (of slinky.slurm.net) for one of slurm.nebius.ai."""
    spec = nodeset.spec
    slurmd = spec.slurmd
    volumes, places, claims = _set_volumes(nodeset, jail, notes)
    container = pods.set_container(
        image=slurmd.image.reference,
        pull_policy=slurmd.image.pull_policy,
        amounts=slurmd.resources,
        security_=slurmd.security,
        env=list(slurmd.custom_env),
        livenessProbe=slurmd.liveness_probe,
        readinessProbe=slurmd.readiness_probe,
        # An argument of its own: no shell ever reads it.
        args=["--extra", spec.node_config.dynamic] if spec.node_config.dynamic else [],
    )
    container["volumeMounts"] = places
    pod: Wish = {
        **pods.placing(spec.node_selector, spec.affinity, spec.tolerations),
        "volumes": volumes,
    }
    if spec.priority_class:
        pod["priorityClassName"] = spec.priority_class
    if spec.custom_init_containers:
        pod["initContainers"] = list(spec.custom_init_containers)
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": it.name} for it in spec.image_pull_secrets]
    if spec.enable_host_user_namespace:
        pod["hostUsers"] = True
    metadata: Wish = {
        "labels": {"slurm.nebius.ai/nodeset": nodeset.metadata.name, "slurm.nebius.ai/worker": "true"}
    }
    if spec.worker_annotations:
        metadata["annotations"] = dict(spec.worker_annotations)
    retention = slurmd.volumes.persistent_volume_claim_retention_policy
    made: Wish = {
        **_common(controller, replicas, spec.drain),
        "slurmd": container,
        "template": {"metadata": metadata, "spec": pod},
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": retention.when_deleted,
            "whenScaled": retention.when_scaled,
        },
    }
    if claims:
        made["volumeClaimTemplates"] = claims
    if conf := _extra_conf(nodeset, notes):
        made["extraConf"] = conf
    if spec.max_unavailable != _WHOLE_SET:
        made["updateStrategy"] = _rolling(spec.max_unavailable)
    return made


def _common(controller: str, replicas: int, drain: Draining) -> Wish:
    made: Wish = {
        "controllerRef": {"name": controller},
        "replicas": replicas,
        # As many workers on a node as fit: their resources say how many that are.
        "oversubscribeNode": True,
    }
    if drain != Draining():
        made["drain"] = {"onTimeout": drain.on_timeout, **({"timeout": drain.timeout} if drain.timeout else {})}
    return made


def _rolling(max_unavailable: int | str) -> Wish:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max_unavailable}}


def _set_volumes(nodeset: NodeSet, jail: Wish, notes: Notes) -> tuple[list[Wish], list[Wish], list[Wish]]:
    given = nodeset.spec.slurmd.volumes
    shared, at_home = home(given.jail or jail)
    volumes, places, claims = [shared], [at_home], []
    if given.spool:
        volumes.append({"name": pods.volume_name("spool"), **given.spool})
        places.append(pods.place(pods.volume_name("spool"), SPOOL))
    for mount in (*given.jail_sub_mounts, *given.custom_volume_mounts):
        made = _set_mount(mount, nodeset.metadata.name, notes)
        name = pods.volume_name(mount.name)
        if made is None:
            continue
        if "claim" in made:
            claims.append({"metadata": {"name": name}, "spec": made["claim"]})
        else:
            volumes.append({"name": name, **made})
        places.append(pods.place(name, mount.mount_path, sub_path=mount.sub_path, read_only=mount.read_only))
    _add_shared_memory(given.shared_memory_size, volumes, places)
    return volumes, places, claims


def _set_mount(mount: SetVolumeMount, nodeset: str, notes: Notes) -> dict[str, Any] | None:
    if (mount.volume_source is None) == (mount.volume_claim_template_spec is None):
        notes.refuse(
            f"NodeSet {nodeset}, slurmd.volumes[{mount.name}]: give either volumeSource or volumeClaimTemplateSpec"
        )
        return None
    return mount.volume_source or {"claim": mount.volume_claim_template_spec}


def _add_shared_memory(size: int | str | None, volumes: list[Wish], places: list[Wish]) -> None:
    if size is not None:
        volumes.append({"name": "dev-shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}})
        places.append(pods.place("dev-shm", "/dev/shm"))  # noqa: S108 - where shared memory is, on any Linux


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
