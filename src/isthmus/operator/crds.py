"""The kinds of Slurm clusters, as the API server is to serve and enforce them.

NodeSet and LoginSet have a short form, v1alpha1, that a webhook converts (`operator.conversion`). Where there is no
webhook, as in most tests, they are served as v1beta1 alone.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from isthmus import names
from isthmus.kube import crd
from isthmus.kube.client import Client
from isthmus.kube.crd import Column, Conversion, ScalePaths, Version
from isthmus.model import (
    activecheck,
    health,
    jailedconfig,
    nodeconfigurator,
    powerstate,
    slinky,
    slinkyalpha,
    soperator,
)
from isthmus.model.base import Kind
from isthmus.model.schema import Rule

CATEGORIES: Final = ("slurm",)
"""So that `kubectl get slurm` shows a cluster with all its parts."""

_AGE: Final = Column("Age", ".metadata.creationTimestamp", type="date")


def _condition(title: str, type_: str, description: str, *, priority: int = 0) -> Column:
    path = f'.status.conditions[?(@.type=="{type_}")].status'
    return Column(title, path, description=description, priority=priority)


_READY: Final = _condition("Ready", "Ready", "Whether it is ready")
_WHY: Final = Column(
    "Status", '.status.conditions[?(@.type=="Ready")].message', description="What it waits for", priority=1
)


def _named(length: int) -> Rule:
    """Limit names: Services, hosts and labels are called after the object, with something behind."""
    return Rule(
        f"size(self.metadata.name) <= {length} && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
        f"the name has at most {length} characters of a-z, 0-9 and -, and starts with a letter: hosts and "
        "Services are named after it",
    )


_CONTROLLER = (
    Column("Ready", ".status.ready", description="Ready and desired slurmctld"),
    Column("Version", ".status.slurmVersion", description="The version of Slurm"),
    _condition("Config", "ConfigApplied", "Whether every daemon has the configuration"),
    _AGE,
    Column("Active", ".status.active", description="The pod of the active slurmctld", priority=1),
    _WHY,
)
_ACCOUNTING = (_READY, _AGE, _WHY)
_RESTAPI = (
    Column("Desired", ".spec.replicas", type="integer", description="Desired number"),
    Column("Ready", ".status.readyReplicas", type="integer", description="Replicas that answer"),
    _AGE,
    _WHY,
)
_LOGINSET = (
    Column("Desired", ".spec.replicas", type="integer", description="Desired number"),
    Column("Replicas", ".status.replicas", type="integer", description="Current number"),
    Column("Ready", ".status.readyReplicas", type="integer", description="Login nodes that accept logins"),
    _AGE,
    _WHY,
)
_NODESET = (
    Column("Desired", ".status.desired", type="integer", description="Desired number"),
    Column("Replicas", ".status.replicas", type="integer", description="Current number"),
    Column("Updated", ".status.updatedReplicas", type="integer", description="Nodes that match the specification"),
    Column("Ready", ".status.readyReplicas", type="integer", description="Number registered in Slurm"),
    Column("Idle", ".status.slurmIdle", type="integer", description="Number without jobs"),
    Column("Allocated", ".status.slurmAllocated", type="integer", description="Number with jobs"),
    Column("Drain", ".status.slurmDrain", type="integer", description="Nodes that accept no new jobs"),
    Column("Down", ".status.slurmDown", type="integer", description="Nodes that are down in Slurm", priority=1),
    _AGE,
    _WHY,
)
_TOKEN = (
    Column("User", ".spec.username", description="User of the token"),
    Column("IAT", ".status.issuedAt", type="date", description="Time since it was created"),
    Column("Expires", ".status.expiresAt", description="When it expires"),
    _AGE,
    _WHY,
)
_CLUSTER = (
    Column("Status", ".status.phase", description="Whether the cluster is ready"),
    _condition("Controllers", "ControllersAvailable", "Whether slurmctld is ready"),
    Column("Workers", ".status.workers", description="Ready and desired workers"),
    Column("Login", ".status.readyLogin", type="integer", description="Number of nodes that accept logins"),
    _condition("Accounting", "AccountingAvailable", "Whether slurmdbd is ready"),
    Column("Version", ".status.slurmVersion", description="The version of Slurm"),
    _AGE,
    _condition("SConfigCtrl", "SConfigControllerAvailable", "Whether configuration is written", priority=1),
    _WHY,
)
_NEBIUS_NODESET = (
    Column("Status", ".status.phase", description="Phase"),
    Column("Desired", ".spec.replicas", type="integer", description="Desired number"),
    Column("Ready", ".status.replicas", type="integer", description="Number registered in Slurm"),
    Column("Ephemeral", ".spec.ephemeralNodes", type="boolean", description="Whether Slurm starts and stops them"),
    _AGE,
    _WHY,
)
_POWER_STATE = (
    Column("Active", ".status.activeCount", type="integer", description="Nodes that are on and ready"),
    _condition("Scaling", "ScalingInProgress", "Whether nodes are starting or stopping"),
    Column("Held until", ".status.hold.until", type="date", description="No node is started before", priority=1),
    _AGE,
    _WHY,
)
_JAILED_CONFIG = (
    Column("ConfigMap", ".spec.configMap.name", description="ConfigMap of the files"),
    _condition("Written", "FilesWritten", "Whether the files are on the shared root"),
    _condition("Applied", "UpdateActionsCompleted", "Whether Slurm has read them, if requested"),
    _AGE,
    Column(
        "Status",
        '.status.conditions[?(@.type=="UpdateActionsCompleted")].message',
        description="What it waits for",
        priority=1,
    ),
)

_NODE_HEALTH = (
    Column("Node", ".spec.node", description="Name in Slurm"),
    Column("Cluster", ".spec.cluster", description="SlurmCluster or Controller"),
    Column("Phase", ".status.phase", description="What is done about it"),
    Column("Finding", ".status.findings[0].check", description="What was found first"),
    Column("Since", ".status.since", type="date", description="Time in this phase"),
    _AGE,
    Column("Machine", ".status.machine", description="Kubernetes node", priority=1),
    Column("Message", ".status.message", description="Reason, and next step", priority=1),
)
_HEALTH_POLICY = (
    Column("Cluster", ".spec.slurmClusterRefName", description="The cluster that it is for; all if empty"),
    Column("Mode", ".spec.mode", description="Whether it acts, or only shows what it would do"),
    Column("Paused", ".spec.paused", type="boolean", description="Whether nothing new is begun"),
    Column("Held", ".status.held", type="integer", description="Number of nodes out of use"),
    _AGE,
    _WHY,
)
_ACTIVE_CHECK = tuple(
    Column(it.title, it.path, type=it.type, description=it.description) for it in activecheck.COLUMNS
)
_NODE_CONFIGURATOR = (
    Column("Desired", ".status.desired", type="integer", description="Machines that it is for"),
    Column("Ready", ".status.ready", type="integer", description="Machines on which its pod is ready"),
    _AGE,
    _WHY,
)


def definitions(*, conversion: Conversion | None = None) -> list[dict[str, Any]]:
    """Make the definition of every kind, for `install` and for the chart."""
    scale = ScalePaths()
    return [
        _definition(slinky.CONTROLLERS, _CONTROLLER, short=("slurmctld",), name=_named(40)),
        _definition(slinky.ACCOUNTINGS, _ACCOUNTING, short=("slurmdbd",), name=_named(40)),
        _definition(slinky.RESTAPIS, _RESTAPI, short=("slurmrestd",), name=_named(40), scale=scale),
        _definition(
            slinky.LOGINSETS,
            _LOGINSET,
            short=("lss", "sackd"),
            name=_named(50),
            scale=scale,
            alpha=slinkyalpha.ShortLoginSet,
            conversion=conversion,
        ),
        _definition(
            slinky.NODESETS,
            _NODESET,
            short=("nss", "slurmd"),
            name=_named(50),
            scale=scale,
            alpha=slinkyalpha.ShortNodeSet,
            conversion=conversion,
        ),
        _definition(slinky.TOKENS, _TOKEN, short=("jwt",)),
        _definition(soperator.SLURM_CLUSTERS, _CLUSTER, short=("slc",), name=_named(40)),
        _definition(
            soperator.NEBIUS_NODESETS,
            _NEBIUS_NODESET,
            name=_named(50),
            scale=ScalePaths(selector=".status.labelSelector"),
        ),
        _definition(powerstate.POWER_STATES, _POWER_STATE, short=("nsps",)),
        _definition(jailedconfig.JAILED_CONFIGS, _JAILED_CONFIG),
        _definition(activecheck.ACTIVE_CHECKS, _ACTIVE_CHECK),
        _definition(nodeconfigurator.NODE_CONFIGURATORS, _NODE_CONFIGURATOR),
        _definition(health.NODE_HEALTHS, _NODE_HEALTH, short=("nh",)),
        _definition(health.HEALTH_POLICIES, _HEALTH_POLICY, short=("hp",)),
    ]


def converted() -> list[str]:
    """The definitions whose objects a webhook converts."""
    return [f"{kind.plural}.{kind.group}" for kind in (slinky.LOGINSETS, slinky.NODESETS)]


async def install(client: Client) -> None:
    """Have the API server serve all kinds, and wait until it does."""
    async with asyncio.TaskGroup() as together:
        for manifest in definitions():
            together.create_task(crd.install(client, manifest, manager=names.FIELD_MANAGER))


def _definition(
    kind: Kind[Any],
    columns: Sequence[Column],
    *,
    short: Sequence[str] = (),
    name: Rule | None = None,
    scale: ScalePaths | None = None,
    alpha: type[Any] | None = None,
    conversion: Conversion | None = None,
) -> dict[str, Any]:
    versions = [Version(kind.version, kind.type, columns=tuple(columns), scale=scale)]
    if alpha and conversion:
        versions.append(Version(slinkyalpha.VERSION, alpha, columns=tuple(columns), scale=scale))
    made = crd.definition(
        kind.group,
        kind.name,
        plural=kind.plural,
        versions=versions,
        short_names=short,
        categories=CATEGORIES,
        conversion=conversion if alpha else None,
    )
    if name:
        for version in made["spec"]["versions"]:
            root = version["schema"]["openAPIV3Schema"]
            root["x-kubernetes-validations"] = [{"rule": name.rule, "message": name.message}]
    return made
