"""The parts of one SlurmCluster: Controller, Accounting, RestApi, LoginSet, its own NodeSet, and their needs."""

from collections.abc import Collection, Iterable
from typing import Any, Final, Protocol

import msgspec

from isthmus import names
from isthmus.domain.operator import partnames, scaling
from isthmus.domain.operator.clusterparts import certificates, files, pods, root
from isthmus.domain.operator.clusterparts.notes import Notes
from isthmus.domain.operator.clusterparts.pods import Fields
from isthmus.domain.operator.clusterparts.workers import home, own_workers
from isthmus.domain.operator.manifests import common, database, monitors
from isthmus.domain.operator.manifests import controller as manifests
from isthmus.domain.operator.manifests import jail as inside
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.manifests.populate import Filling
from isthmus.model.base import Kind
from isthmus.model.meta import Key
from isthmus.model.objects import CONFIGMAPS, SECRETS, SERVICES
from isthmus.model.slinky import ACCOUNTINGS, CONTROLLERS, LOGINSETS, NODESETS, RESTAPIS
from isthmus.model.slinky import NodeSet as SlinkyNodeSet
from isthmus.model.soperator import (
    ControllerNode,
    NodeSet,
    OpenMetrics,
    OpenMetricsServiceMonitor,
    SlurmCluster,
)
from isthmus.model.storage import CLAIMS

SLURM_KEY: Final = "slurm.key"
JWT_KEY: Final = "jwt.key"


class _Mount(Protocol):
    @property
    def mount_path(self) -> str: ...


class Child(msgspec.Struct, frozen=True):
    """An object that a cluster consists of."""

    kind: Kind[Any]
    manifest: Fields
    kept: bool = False
    """Whether it outlives the cluster: only users delete their files."""
    scaled: bool = False
    """Whether somebody else says how many replicas it has."""

    @property
    def key(self) -> Key:
        metadata = self.manifest["metadata"]
        return Key(metadata["namespace"], metadata["name"])


def resting(cluster: SlurmCluster) -> bool:
    """Whether the cluster is to be scaled down for maintenance."""
    return cluster.spec.maintenance.startswith("downscale")


def worker_count(cluster: SlurmCluster, nodesets: Collection[NodeSet]) -> int:
    """How many workers of its own a cluster is to have.

    One that says nothing has one, so that it can run a job; unless NodeSets bring them, as those of soperator do,
    whose clusters are known by an image that it insists on.
    """
    if resting(cluster):
        return 0
    size = cluster.spec.slurm_nodes.worker.size
    if size is not None:
        return size
    asked = cluster.spec.populate_jail
    return 0 if nodesets or (asked is not None and asked.image) else 1


def jail_source(cluster: SlurmCluster, prefix: str, notes: Notes) -> Fields:
    """Find the shared file system, which is one for all: the volume source `jail`, or a claim of ours."""
    spec = cluster.spec
    nodes = spec.slurm_nodes
    name = nodes.login.volumes.jail.volume_source_name or pods.JAIL
    for where, volumes in (("controller", nodes.controller.volumes), ("worker", nodes.worker.volumes)):
        other = volumes.jail.volume_source_name
        if other not in {None, name}:
            notes.ignored.append(f"slurmNodes.{where}.volumes.jail (it is the one of login, {name})")
    for where, jail in (
        ("controller", nodes.controller.volumes.jail),
        ("worker", nodes.worker.volumes.jail),
        ("login", nodes.login.volumes.jail),
    ):
        if jail.volume_claim_template_spec is not None:
            notes.refuse(f"slurmNodes.{where}.volumes.jail: all nodes share it, so it must be one of volumeSources")
    if name != pods.JAIL or any(it["name"] == pods.JAIL for it in spec.volume_sources):
        return pods.source(spec, name, "slurmNodes.login.volumes.jail", notes) or {}
    return {"persistentVolumeClaim": {"claimName": f"{prefix}jail"}}


def jwt_key(cluster: SlurmCluster) -> dict[str, str]:
    """Say where the key of tokens is."""
    return {"name": f"{cluster.metadata.name}-jwt-key", "key": JWT_KEY}


class Maker:
    def __init__(
        self,
        cluster: SlurmCluster,
        nodesets: list[NodeSet],
        prefix: str,
        settings: Settings,
        notes: Notes,
        *,
        written: Collection[str] = (),
        promised: Collection[str] = (),
        monitored: bool = True,
        workers: SlinkyNodeSet | None = None,
    ) -> None:
        self._cluster = cluster
        self._spec = cluster.spec
        self._name = cluster.metadata.name
        self._namespace = cluster.metadata.namespace
        self._nodesets = nodesets
        self._prefix = prefix
        self._settings = settings
        self._notes = notes
        self._auth = files.auth_type(cluster.spec)
        self._jail = jail_source(cluster, prefix, notes)
        self._shared = root.shares(cluster)
        self._written = tuple(sorted(written))
        self._promised = tuple(sorted({*written, *promised}))
        self._monitored = monitored
        self._size = worker_count(cluster, nodesets)
        self._scaled = None if resting(cluster) else scaling.left_alone(self._size, workers)
        self.worker_count = self._size if self._scaled is None else self._scaled

    # What others need

    def secrets(self) -> Iterable[Child]:
        """Make the Secrets of keys, without the keys."""
        for name in (self._slurm_key["name"], jwt_key(self._cluster)["name"]):
            yield Child(SECRETS, {"metadata": self._metadata(name, "slurmctld", "controller")})

    def storage(self) -> Iterable[Child]:
        """Make the claims that are there whether the cluster works or rests."""
        if self._jail == {"persistentVolumeClaim": {"claimName": f"{self._prefix}jail"}}:
            yield self._claim(f"{self._prefix}jail", "jail", "10Gi")
        if self._standby and not self._spec.slurm_nodes.controller.volumes.spool.volume_source_name:
            yield self._claim(f"{self._prefix}controller-spool", "controller", "1Gi")

    def _claim(self, name: str, component: str, size: str) -> Child:
        manifest = {
            "metadata": self._metadata(name, component, component),
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}},
        }
        return Child(CLAIMS, manifest, kept=True)

    def filling(self) -> Filling | None:
        """Make what the shared root is filled from."""
        return root.filling(
            self._cluster, self._jail, prefix=self._prefix, settings=self._settings, notes=self._notes
        )

    # The parts

    def controller(self) -> Iterable[Child]:
        """Make the Controller, its files, and the Service under its well-known name."""
        node = self._spec.slurm_nodes.controller
        where = "slurmNodes.controller"
        volumes, places, _ = pods.mounted(
            self._spec, node.volumes.custom_mounts, f"{where}.volumes", self._notes, claims=False
        )
        persistence, state = self._state(node)
        container = pods.container(node.slurmctld, node.resources, places=places)
        spec: Fields = {
            "clusterName": self._name,
            "slurmKeyRef": self._slurm_key,
            "jwtKeyRef": jwt_key(self._cluster),
            "authType": self._auth,
            "slurmctld": container,
            "template": {"spec": self._pod(node, where, (node.slurmctld, node.munge), [*volumes, *state])},
            "persistence": persistence,
            "extraConf": self._slurm_lines(),
        }
        if self._spec.users:
            spec["users"] = [msgspec.to_builtins(it) for it in self._spec.users]
        if node.service_account_name:
            spec["template"]["spec"]["serviceAccountName"] = node.service_account_name
        if self._standby:
            spec["ha"] = {"enabled": True, "backups": self._standby}
        if self._spec.slurm_nodes.accounting.enabled:
            spec["accountingRef"] = {"name": self._name}
        if node.open_metrics and node.open_metrics.enabled:
            spec["metrics"] = self._metrics(node.open_metrics)
        if topology := files.topology(self._spec, self._notes):
            spec["topology"] = topology
        plugins = [inside.plugstack_line(self._auth)] if self._shared else []
        others = files.other_files(self._spec, plugins=plugins, settings=self._settings, notes=self._notes)
        theirs = [{"name": it.name} for it in self._spec.config_file_refs]
        if theirs:
            spec["configFileRefs"] = theirs
        if others:
            name = f"{self._name}-files"
            spec["configFileRefs"] = [{"name": name}, *theirs]
            yield Child(CONFIGMAPS, {"metadata": self._metadata(name, "slurmctld", "controller"), "data": others})
        placeholder = self._cluster.metadata.annotations.get(names.PLACEHOLDER_ANNOTATION, "true")
        annotations = {
            names.WORKLOAD_NAME_ANNOTATION: f"{self._prefix}controller",
            names.PLACEHOLDER_ANNOTATION: placeholder,
        }
        yield self._part(
            CONTROLLERS, self._name, spec, app="slurmctld", component="controller", annotations=annotations
        )
        yield self._alias()

    def _metrics(self, asked: OpenMetrics) -> Fields:
        where = "slurmNodes.controller.openMetrics"
        if monitors.is_too_long(asked.service_monitor):
            self._notes.refuse(f"{where}.serviceMonitor.scrapeTimeout: it is longer than interval")
        if not self._monitored and asked.service_monitor != OpenMetricsServiceMonitor():
            self._notes.ignored.append(f"{where}.serviceMonitor ({monitors.NOT_INSTALLED})")
        if files.custom_config(self._spec, Notes()).get("PrivateData"):
            self._notes.ignored.append(f"{where} (slurmctld serves no metrics while PrivateData is set)")
        return {"enabled": True, "serviceMonitor": monitors.of_cluster(asked.service_monitor)}

    def _alias(self) -> Child:
        """Make the Service `slurmctld`, its usual name."""
        manifest = common.service(
            f"{self._prefix}slurmctld",
            self._namespace,
            common.labels("slurmctld", self._name, "controller", cluster=self._name),
            port=partnames.SLURMCTLD_PORT,
            port_name="slurmctld",
            before_ready=True,
        )
        return Child(SERVICES, manifest)

    def accounting(self) -> Iterable[Child]:
        node = self._spec.slurm_nodes.accounting
        if not node.enabled:
            return
        external = node.external_db
        volumes, places = certificates.mounted(external)
        container = pods.container(node.slurmdbd, node.resources, places=places)
        spec: Fields = {
            "slurmKeyRef": self._slurm_key,
            "jwtKeyRef": jwt_key(self._cluster),
            "authType": self._auth,
            "slurmdbd": container,
            "template": {"spec": self._pod(node, "slurmNodes.accounting", (node.slurmdbd, node.munge), volumes)},
            "extraConf": files.slurmdbd_lines(node, self._notes),
        }
        if external.enabled:
            if not external.host or not external.password_secret_key_ref.name:
                self._notes.refuse("slurmNodes.accounting.externalDB: set host and passwordSecretKeyRef")
            password = external.password_secret_key_ref
            spec["storageConfig"] = {
                "host": external.host or "unknown",
                "port": external.port,
                "passwordKeyRef": {"name": password.name, "key": password.key or "password"},
                **({"username": external.user} if external.user else {}),
            }
        else:
            spec["database"] = self._database()
        yield self._part(ACCOUNTINGS, self._name, spec, app="slurmdbd", component="accounting")

    def _database(self) -> Fields:
        node = self._spec.slurm_nodes.accounting
        asked = node.mariadb_operator
        pod = pods.filter_of(self._spec, node.k8s_node_filter_name, "slurmNodes.accounting", self._notes)
        if asked.priority_class_name:
            pod["priorityClassName"] = asked.priority_class_name
        if asked.pod_security_context:
            pod["securityContext"] = asked.pod_security_context
        if asked.image_pull_secrets:
            pod["imagePullSecrets"] = [{"name": it.name} for it in asked.image_pull_secrets]
        container = pods.container(asked, {})
        for elsewhere in ("image", "resources"):
            container.pop(elsewhere, None)
        if asked.security_context:
            container["securityContext"] = {**container.get("securityContext", {}), **asked.security_context}
        if container:
            pod["containers"] = [{"name": database.CONTAINER, **container}]
        made: Fields = {"template": {"spec": pod}} if pod else {}
        if asked.image:
            made["image"] = asked.image
        if asked.resources:
            made["resources"] = pods.resources(asked.resources)
        if storage := _claim_fields(asked.storage):
            made["persistence"] = storage
        return made

    def restapi(self) -> Child:
        """Make the RestApi, without which the operator could not ask Slurm."""
        node = self._spec.slurm_nodes.rest
        container = pods.container(node.rest, node.resources)
        flags = [
            *(["-t", str(node.thread_count)] if node.thread_count else []),
            *(["--max-connections", str(node.max_connections)] if node.max_connections else []),
        ]
        if flags:
            container["args"] = [*flags, *container.get("args", ())]
        spec: Fields = {
            "controllerRef": {"name": self._name},
            "replicas": 1 if node.size is None else max(1, node.size),
            "slurmrestd": container,
            "template": {"spec": self._pod(node, "slurmNodes.rest", (node.rest,))},
        }
        return self._part(RESTAPIS, self._name, spec, app="slurmrestd", component="restapi")

    def login(self) -> Child:
        node = self._spec.slurm_nodes.login
        where = "slurmNodes.login"
        at = f"{where}.volumes"
        volumes, places, _ = pods.mounted(self._spec, node.volumes.custom_mounts, at, self._notes, claims=False)
        inner, inner_places, _ = pods.mounted(
            self._spec, node.volumes.jail_sub_mounts, at, self._notes, claims=False, inside=self._shared
        )
        if not self._shared:
            volume, at_home = home(self._jail)
            volumes, places = [volume, *volumes, *inner], [at_home, *places, *inner_places]
        container = pods.container(node.sshd, node.resources, places=places)
        spec: Fields = {
            "controllerRef": {"name": self._name},
            "replicas": 0 if resting(self._cluster) else 1 if node.size is None else node.size,
            "login": container,
            "template": {"spec": self._pod(node, where, (node.sshd, node.munge), volumes)},
            "service": self._login_service(),
        }
        if self._shared:
            within = root.inside(inner, inner_places)
            spec["sharedRoot"] = root.shared_root(self._jail, within, at, self._notes)
        if given := self._spec.secrets.sshd_keys_name:
            # By its name it takes the place of the Secret that the LoginSet makes.
            keys = {"name": "ssh-host-keys", "secret": {"secretName": given}}
            spec["template"]["spec"].setdefault("volumes", []).append(keys)
        if node.ssh_root_public_keys:
            spec["rootSshAuthorizedKeys"] = "".join(f"{key.strip()}\n" for key in node.ssh_root_public_keys)
        if node.sssd_conf_secret_ref_name:
            spec["sssdConfRef"] = {"name": node.sssd_conf_secret_ref_name, "key": "sssd.conf"}
        return self._part(LOGINSETS, f"{self._prefix}login", spec, app="login", component="login")

    def _login_service(self) -> Fields:
        node = self._spec.slurm_nodes.login
        asked = node.sshd_service_type or "ClusterIP"
        spec: Fields = {"type": "NodePort" if asked == "ClusterIP" and node.sshd_service_node_port else asked}
        if node.sshd_service_load_balancer_ip:
            spec["loadBalancerIP"] = node.sshd_service_load_balancer_ip
        if node.sshd_service_load_balancer_source_ranges:
            spec["loadBalancerSourceRanges"] = list(node.sshd_service_load_balancer_source_ranges)
        made: Fields = {"spec": spec, "port": node.sshd.port or partnames.SSH_PORT}
        if node.sshd_service_node_port and spec["type"] != "ClusterIP":
            made["nodePort"] = node.sshd_service_node_port
        if node.sshd_service_annotations:
            made["metadata"] = {"annotations": dict(node.sshd_service_annotations)}
        return made

    def own_workers(self) -> Iterable[Child]:
        """Make the NodeSet of `slurmNodes.worker`; none if none are requested.

        One of none is there to be scaled, unless somebody has a NodeSet of that name.
        """
        own, size = f"{self._prefix}worker", self._spec.slurm_nodes.worker.size
        if size is None and not self._size and not resting(self._cluster):
            return
        if size == 0 and any(it.metadata.name == own for it in self._nodesets):
            return
        spec = own_workers(
            self._spec,
            controller=self._name,
            replicas=self.worker_count,
            jail=self._jail,
            shared=self._shared,
            auth=self._auth,
            notes=self._notes,
        )
        marks = {names.SIZE_ANNOTATION: str(self._size)}
        made = self._part(NODESETS, own, spec, app="slurmd", component="worker", annotations=marks)
        yield msgspec.structs.replace(made, scaled=self._scaled is not None)

    # Common to them

    @property
    def _slurm_key(self) -> dict[str, str]:
        return {"name": f"{self._name}-slurm-key", "key": SLURM_KEY}

    @property
    def _standby(self) -> int:
        """How many slurmctld stand by."""
        return max(0, (self._spec.slurm_nodes.controller.size or 1) - 1)

    def _metadata(self, name: str, app: str, component: str) -> Fields:
        return common.metadata(name, self._namespace, common.labels(app, self._name, component, cluster=self._name))

    def _part(
        self,
        kind: Kind[Any],
        name: str,
        spec: Fields,
        *,
        app: str,
        component: str,
        annotations: Fields | None = None,
    ) -> Child:
        metadata = self._metadata(name, app, component)
        if annotations:
            metadata["annotations"] = annotations
        return Child(kind, {"metadata": metadata, "spec": spec})

    def _pod(
        self, node: pods.Placed, where: str, containers: Iterable[Any], volumes: Iterable[Fields] = ()
    ) -> Fields:
        secrets = {it.name: it for container in containers for it in container.image_pull_secrets}
        return pods.pod(
            self._spec, node, where, self._notes, pull_secrets=list(secrets.values()), volumes=list(volumes)
        )

    def _state(self, node: ControllerNode) -> tuple[Fields, list[Fields]]:
        """Where slurmctld keeps its state, and the volume for it, where that is no claim."""
        where = "slurmNodes.controller.volumes.spool"
        spool = node.volumes.spool
        if spool.volume_source_name:
            found = pods.source(self._spec, spool.volume_source_name, where, self._notes) or {}
            if "emptyDir" in found:
                return {"enabled": False}, [{"name": manifests.STATE_VOLUME, **found}] if found["emptyDir"] else []
            claim = found.get("persistentVolumeClaim", {}).get("claimName")
            if found and not claim:
                self._notes.refuse(f"{where}: slurmctld keeps its state on a persistentVolumeClaim (or emptyDir)")
            return {"enabled": True, "existingClaim": claim or ""}, []
        if self._standby:
            if spool.volume_claim_template_spec:
                self._notes.refuse(
                    f"{where}: several slurmctld need one claim that all of them can mount; name it in "
                    "volumeSources, or omit it to get one"
                )
            return {"enabled": True, "existingClaim": f"{self._prefix}controller-spool"}, []
        own = _claim_fields({"volumeClaimTemplate": spool.volume_claim_template_spec or {}})
        return {"enabled": True, **own}, []

    def _slurm_lines(self) -> str:
        """Make the cluster's part of slurm.conf."""
        worker = self._spec.slurm_nodes.worker
        own = f"{self._prefix}worker"
        known = {it.metadata.name: it.metadata.name for it in self._nodesets if it.spec.replicas}
        volumes: list[tuple[Iterable[_Mount], Iterable[_Mount]]] = [
            (given.custom_volume_mounts, given.jail_sub_mounts)
            for given in (it.spec.slurmd.volumes for it in self._nodesets)
        ]
        if self._size or worker.size is not None:
            known |= {own: own, "worker": own}
            volumes.append((worker.volumes.custom_mounts, worker.volumes.jail_sub_mounts))
        return files.slurm_lines(
            self._spec,
            nodesets=known,
            mounts=[self._places(*it, written=self._written) for it in volumes],
            later=[self._places(*it, written=self._promised) for it in volumes],
            notes=self._notes,
        )

    def _places(
        self, custom: Iterable[_Mount], sub_mounts: Iterable[_Mount], *, written: Iterable[str]
    ) -> files.Places:
        """Where volumes are mounted, as Slurm sees it on a worker, and as jobs do."""
        outer, inner = [it.mount_path for it in custom], [it.mount_path for it in sub_mounts]
        if self._shared:
            scripts = (it for it in written if it.startswith(f"{inside.SCRIPTS}/"))
            return files.Places((*outer, inside.ROOT, *scripts), (*inner, *written), shared=True)
        return files.Places((*outer, *inner), (*outer, *inner))


def _claim_fields(storage: Fields) -> Fields:
    """Make the fields of a claim from those of the MariaDB operator, or of a claim template."""
    template = dict(storage.get("volumeClaimTemplate") or {})
    if storage.get("ephemeral"):
        return {"enabled": False}
    if storage.get("size"):
        template.setdefault("resources", {"requests": {"storage": storage["size"]}})
    if storage.get("storageClassName"):
        template.setdefault("storageClassName", storage["storageClassName"])
    if not template:
        return {}
    template.setdefault("accessModes", ["ReadWriteOnce"])
    template.pop("metadata", None)
    return template
