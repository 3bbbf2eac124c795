"""The exporter of a SlurmCluster, from its field `slurmNodes.exporter`."""

from typing import Final

from isthmus.domain.operator.clusterparts import files, pods
from isthmus.domain.operator.clusterparts.daemons import Child, jwt_key, resting
from isthmus.domain.operator.clusterparts.notes import Notes
from isthmus.domain.operator.clusterparts.pods import Fields
from isthmus.domain.operator.manifests import exporter as manifests
from isthmus.domain.operator.manifests import monitors
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.manifests.exporter import Exporting
from isthmus.model.objects import DEPLOYMENTS, POD_MONITORS, SERVICE_ACCOUNTS, SERVICES
from isthmus.model.slinky import TOKENS
from isthmus.model.soperator import ExporterNode, NodeContainer, PodMonitorConfig, SlurmCluster
from isthmus.model.storage import CLAIMS

_WHERE: Final = "slurmNodes.exporter"
_USER: Final = "nobody"
"""Reads what everybody may read, and can change nothing."""
_PRIVILEGED: Final = "slurm"
"""Where users may not see jobs of others, only SlurmUser sees all."""


def exporters(
    cluster: SlurmCluster, *, prefix: str, settings: Settings, monitored: bool, notes: Notes
) -> list[Child]:
    """Make the Deployment and what it needs; nothing where it is not enabled. `monitored`: by a PodMonitor."""
    asked = cluster.spec.slurm_nodes.exporter
    if not asked.enabled:
        return []
    container = asked.exporter_container or NodeContainer()
    monitor = asked.pod_monitor_config or PodMonitorConfig()
    _check(asked, container, monitored=monitored, notes=notes)
    exporting = Exporting(
        cluster=cluster.metadata.name,
        namespace=cluster.metadata.namespace,
        prefix=prefix,
        user=_user(cluster),
        jwt_key=jwt_key(cluster),
        flags=_flags(cluster, asked, notes),
        port=container.port or manifests.METRICS_PORT,
        annotated=not monitored,
        data=_data(cluster, asked, prefix, notes),
        service_account=asked.service_account_name,
        replicas=0 if resting(cluster) or asked.size == 0 else 1,
        pod=pods.pod(cluster.spec, asked, _WHERE, notes, pull_secrets=container.image_pull_secrets),
        container=pods.container(container, asked.resources),
    )
    made = [
        Child(TOKENS, manifests.token(exporting)),
        Child(SERVICES, manifests.service(exporting)),
        Child(DEPLOYMENTS, manifests.deployment(exporting, settings=settings)),
    ]
    if not asked.service_account_name:
        made.append(Child(SERVICE_ACCOUNTS, exporting.account()))
    if monitored:
        made.append(Child(POD_MONITORS, manifests.pod_monitor(exporting, monitor)))
    if claim := asked.data_volume.volume_claim_template_spec:
        made.append(Child(CLAIMS, manifests.claim(exporting, claim), kept=True))
    return made


def _check(asked: ExporterNode, container: NodeContainer, *, monitored: bool, notes: Notes) -> None:
    if (asked.size or 0) > 1:
        notes.ignored.append(f"{_WHERE}.size (one is enough)")
    if container.port == manifests.MONITORING_PORT:
        notes.refuse(f"{_WHERE}.exporterContainer.port: {container.port} is the port of its own /healthz")
    if asked.pod_monitor_config is not None:
        if monitors.is_too_long(asked.pod_monitor_config):
            notes.refuse(f"{_WHERE}.podMonitorConfig.scrapeTimeout: it is longer than interval")
        if not monitored:
            notes.ignored.append(f"{_WHERE}.podMonitorConfig ({monitors.NOT_INSTALLED})")


def _user(cluster: SlurmCluster) -> str:
    spec = cluster.spec
    accounting = spec.slurm_nodes.accounting
    private = files.custom_config(spec, Notes()).get("PrivateData") or (
        accounting.enabled and accounting.slurmdbd_config.private_data
    )
    return _PRIVILEGED if private else _USER


def _flags(cluster: SlurmCluster, asked: ExporterNode, notes: Notes) -> tuple[str, ...]:
    source = asked.job_source
    if source == "accounting" and not cluster.spec.slurm_nodes.accounting.enabled:
        notes.ignored.append(f"{_WHERE}.jobSource (there is no accounting)")
        source = None
    given = {
        "collection-interval": asked.collection_interval,
        "max-collector-inflight": asked.max_collector_inflight,
        "job-source": source,
        "accounting-jobs-lookback": asked.accounting_jobs_lookback,
    }
    return tuple(f"--{name}={value}" for name, value in given.items() if value)


def _data(cluster: SlurmCluster, asked: ExporterNode, prefix: str, notes: Notes) -> Fields:
    """Find the volume on which it keeps counters."""
    where, volume = f"{_WHERE}.dataVolume", asked.data_volume
    if volume.volume_source_name is not None and volume.volume_claim_template_spec is not None:
        notes.refuse(f"{where}: set either volumeSourceName or volumeClaimTemplateSpec")
    if volume.volume_source_name is not None:
        return pods.source(cluster.spec, volume.volume_source_name, where, notes) or {}
    if volume.volume_claim_template_spec:
        return {"persistentVolumeClaim": {"claimName": manifests.name(prefix)}}
    return {"emptyDir": {}}
