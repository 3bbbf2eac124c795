"""Slurm's files for a SlurmCluster: the lines that its fields stand for, in front of what its users wrote.

Lines of ours are checked value by value. Where customSlurmConfig sets the same key, ours is left out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from isthmus.domain.languages import slurmconf
from isthmus.domain.languages.slurmconf import Config, ConfigError, Directive, SpankPlugin, Value
from isthmus.domain.operator.clusterparts import certificates
from isthmus.domain.operator.clusterparts.notes import Notes
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.slurmfiles import Extra, cgroup_conf
from isthmus.model.soperator import (
    AccountingNode,
    HealthCheckConfig,
    Partition,
    SlurmClusterSpec,
    SlurmConfig,
)

_SLURM_KEYS: Final[Mapping[str, str]] = {
    "def_mem_per_node": "DefMemPerNode",
    "def_cpu_per_gpu": "DefCpuPerGPU",
    "complete_wait": "CompleteWait",
    "epilog": "Epilog",
    "prolog": "Prolog",
    "task_prolog": "TaskProlog",
    "task_plugin_param": "TaskPluginParam",
    "max_job_count": "MaxJobCount",
    "min_job_age": "MinJobAge",
    "message_timeout": "MessageTimeout",
    "resume_timeout": "ResumeTimeout",
    "topology_param": "TopologyParam",
}
_SCRIPTS: Final[Mapping[str, str]] = {"epilog": "epilog", "prolog": "prolog", "task_prolog": "taskProlog"}

_DECIDED_ELSEWHERE: Final[Mapping[str, str]] = {
    "clustername": "use metadata.name",
    "slurmctldhost": "use slurmNodes.controller.size",
    "statesavelocation": "use slurmNodes.controller.volumes.spool",
    "accountingstoragehost": "use slurmNodes.accounting",
    "accountingstorageport": "use slurmNodes.accounting",
}
"""Which fields of a SlurmCluster decide what customSlurmConfig must not."""

_INSIDE: Final = frozenset({"TaskProlog"})
"""Scripts that Slurm runs where jobs are, and not beside slurmd."""

_ACCOUNTING_KEYS: Final[Mapping[str, str]] = {
    "accounting_storage_tres": "AccountingStorageTRES",
    "accounting_store_flags": "AccountingStoreFlags",
    "acct_gather_interconnect_type": "AcctGatherInterconnectType",
    "acct_gather_filesystem_type": "AcctGatherFilesystemType",
    "acct_gather_profile_type": "AcctGatherProfileType",
    "job_acct_gather_type": "JobAcctGatherType",
    "job_acct_gather_frequency": "JobAcctGatherFrequency",
    "job_acct_gather_params": "JobAcctGatherParams",
    "priority_weight_age": "PriorityWeightAge",
    "priority_weight_fairshare": "PriorityWeightFairshare",
    "priority_weight_qos": "PriorityWeightQOS",
    "priority_weight_tres": "PriorityWeightTRES",
}
_DBD_KEYS: Final[Mapping[str, str]] = {
    "archive_events": "ArchiveEvents",
    "archive_jobs": "ArchiveJobs",
    "archive_resvs": "ArchiveResvs",
    "archive_steps": "ArchiveSteps",
    "archive_suspend": "ArchiveSuspend",
    "archive_txn": "ArchiveTXN",
    "archive_usage": "ArchiveUsage",
    "debug_level": "DebugLevel",
    "tcp_timeout": "TCPTimeout",
    "purge_event_after": "PurgeEventAfter",
    "purge_job_after": "PurgeJobAfter",
    "purge_resv_after": "PurgeResvAfter",
    "purge_step_after": "PurgeStepAfter",
    "purge_suspend_after": "PurgeSuspendAfter",
    "purge_txn_after": "PurgeTXNAfter",
    "purge_usage_after": "PurgeUsageAfter",
    "private_data": "PrivateData",
    "debug_flags": "DebugFlags",
}

_IN_IMAGE: Final = ("/usr/", "/bin/", "/sbin/", "/etc/", "/lib/")
"""Where programs are that come with an image."""

_DEFAULT: Final[Mapping[str, Value]] = {
    "MaxTime": "INFINITE",
    "State": "UP",
    "PriorityTier": 10,
    "OverSubscribe": "YES",
}


class Places(NamedTuple):
    """Where volumes of a worker are mounted: as slurmd sees it, which runs most scripts, and as jobs do."""

    outside: tuple[str, ...]
    inside: tuple[str, ...]
    shared: bool = False
    """Whether there is a shared root, on which JailedConfigs can put scripts."""


def custom_config(spec: SlurmClusterSpec, notes: Notes) -> Config:
    """Read what users wrote into customSlurmConfig."""
    try:
        return slurmconf.parse(spec.custom_slurm_config, name="customSlurmConfig")
    except ConfigError as error:
        notes.refuse(error)
        return Config()


def slurm_lines(
    spec: SlurmClusterSpec,
    *,
    nodesets: Mapping[str, str],
    mounts: Sequence[Places],
    later: Sequence[Places] = (),
    notes: Notes,
) -> str:
    """Make the text behind our own slurm.conf.

    `nodesets` are the cluster's, by the names under which partitions refer to them; `mounts` are the mount paths of
    each, since a script that is on no worker must not be called by Slurm. `later` are those once all JailedConfigs
    are written: what comes by them is waited for, and no field without effect.
    """
    custom = custom_config(spec, notes)
    set_by_users = {line.key.lower() for line in custom.directives()}
    lines: list[str] = []
    for key, value, field in (
        *_settings(spec.slurm_config, _SLURM_KEYS, "slurmConfig"),
        *_health_check(spec.health_check_config),
        *_accounting(spec.slurm_nodes.accounting),
    ):
        if key.lower() in set_by_users:
            continue
        places, to_come = (
            [it.inside if key in _INSIDE else it.outside for it in given] for given in (mounts, later)
        )
        if field and not _on_every_worker(str(value), places):
            if _on_every_worker(str(value), to_come):
                continue
            others = [it.outside if key in _INSIDE else it.inside for it in mounts]
            elsewhere = _on_every_worker(str(value), others)
            why = "only inside the shared root" if elsewhere else "not on a volume of the workers"
            where = "jailSubMounts" if key in _INSIDE else "customMounts"
            hint = f": add the volume to {where} as well" if elsewhere and key not in _INSIDE else ""
            if not elsewhere and all(it.shared for it in mounts):
                hint = ": let a JailedConfig put it there"
            notes.ignored.append(f"{field} ({value} is {why}, and jobs would fail without it{hint})")
            continue
        lines += _line({key: value}, notes)
    theirs = {line.value for line in custom.directives("PartitionName")}
    lines += [line for line in _partitions(spec, nodesets, notes) if slurmconf.parse_line(line).value not in theirs]
    # Which keys daemons know each other by is a field of the Controller.
    kept = Config(tuple(line for line in custom.lines if not (isinstance(line, Directive) and _is_auth(line))))
    text = "".join(f"{line}\n" for line in lines) + kept.render()
    try:
        Extra.read(text, name="customSlurmConfig", instead=_DECIDED_ELSEWHERE)
    except ConfigError as error:
        notes.refuse(error)
    return text


def topology(spec: SlurmClusterSpec, notes: Notes) -> dict[str, Any]:
    """Make the Controller's field from which Slurm's topology follows; empty where nodes are all alike."""
    plugin = spec.slurm_config.topology_plugin.strip().removeprefix("topology/")
    size = spec.topology.block_size if spec.topology else None
    if size and plugin != "block":
        notes.ignored.append("topology.blockSize (slurmConfig.topologyPlugin is not topology/block)")
    if plugin in {"", "flat", "default"}:
        return {}
    if plugin not in {"tree", "block"}:
        notes.refuse(
            f"slurmConfig.topologyPlugin {spec.slurm_config.topology_plugin[:40]!r}: write topology/tree or"
            " topology/block"
        )
        return {}
    return {"plugin": plugin, **({"blockSize": size} if size and plugin == "block" else {})}


def auth_type(spec: SlurmClusterSpec) -> Literal["slurm", "munge"]:
    """By which keys daemons know each other: munge where customSlurmConfig says so."""
    told = custom_config(spec, Notes()).get("AuthType") or ""
    return "munge" if told.lower() == "auth/munge" else "slurm"


def _is_auth(line: Directive) -> bool:
    return line.key.lower() in {"authtype", "credtype"}


def slurmdbd_lines(accounting: AccountingNode, notes: Notes) -> str:
    """Make the text behind our own slurmdbd.conf."""
    lines = [
        line
        for key, value, _ in _settings(accounting.slurmdbd_config, _DBD_KEYS, "")
        for line in _line({key: value}, notes)
    ]
    database = accounting.external_db
    parameters = {**database.storage_parameters, **certificates.parameters(database)}
    if database.enabled and parameters:
        text = ",".join(f"{key}={value}" for key, value in sorted(parameters.items()))
        lines += _line({"StorageParameters": text}, notes)
    return "".join(f"{line}\n" for line in lines)


def other_files(
    spec: SlurmClusterSpec,
    *,
    plugins: Iterable[str] = (),
    settings: Settings,
    notes: Notes,
) -> dict[str, str]:
    """Make the files beside slurm.conf that the cluster's fields ask for; `plugins` are lines of ours."""
    files: dict[str, str] = {}
    if plugstack := "".join((*(f"{line}\n" for line in plugins), _plugstack(spec, notes))):
        files["plugstack.conf"] = plugstack
    if (custom_config(spec, Notes()).get("MpiDefault") or "").startswith("pmix"):
        files["mpi.conf"] = "".join(f"{line}\n" for line in _line({"PMIxEnv": spec.mpi_config.pmix_env}, notes))
    elif spec.mpi_config.pmix_env != type(spec.mpi_config)().pmix_env:
        notes.ignored.append("mpiConfig.pmixEnv (customSlurmConfig does not say MpiDefault=pmix)")
    if spec.custom_cgroup_config or (spec.cgroup_version == "v1" and settings.cgroup != "none"):
        files["cgroup.conf"] = _cgroup(spec, settings, notes)
    return files


def _settings(source: Any, keys: Mapping[str, str], where: str) -> Iterator[tuple[str, Value, str]]:
    """Go through the fields that are set: the key, the value, and the field's name if it is that of a script."""
    for name, key in keys.items():
        value = getattr(source, name)
        if value not in (None, ""):
            script = f"{where}.{_SCRIPTS[name]}" if isinstance(source, SlurmConfig) and name in _SCRIPTS else ""
            yield key, value, script


def _health_check(config: HealthCheckConfig | None) -> Iterator[tuple[str, Value, str]]:
    if config is None:
        return
    yield "HealthCheckInterval", config.health_check_interval, ""
    yield "HealthCheckNodeState", tuple(it.state for it in config.health_check_node_state), ""
    yield "HealthCheckProgram", config.health_check_program, "healthCheckConfig.healthCheckProgram"


def _accounting(accounting: AccountingNode) -> Iterator[tuple[str, Value, str]]:
    if accounting.enabled:
        yield from _settings(accounting.slurm_config, _ACCOUNTING_KEYS, "")


def _on_every_worker(path: str, mounts: Sequence[Sequence[str]]) -> bool:
    """Whether a program is on all workers, as far as known without looking into images."""
    if not path.startswith("/") or path.startswith(_IN_IMAGE):
        return True
    return bool(mounts) and all(
        any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in places) for places in mounts
    )


def _partitions(spec: SlurmClusterSpec, nodesets: Mapping[str, str], notes: Notes) -> list[str]:
    config = spec.partition_configuration
    if config.config_type == "custom":
        return _raw_partitions(config.raw_config, notes)
    if config.config_type == "structured":
        return [line for it in config.partitions for line in _structured(it, nodesets, notes)]
    return [
        *_line({"PartitionName": "main", "Nodes": "ALL", "Default": True, **_DEFAULT}, notes),
        *_line(
            {
                "PartitionName": "hidden",
                "Nodes": "ALL",
                "Default": False,
                **_DEFAULT,
                "PreemptMode": "OFF",
                "Hidden": True,
            },
            notes,
        ),
    ]


def _raw_partitions(lines: Sequence[str], notes: Notes) -> list[str]:
    kept: list[str] = []
    for number, text in enumerate(lines, start=1):
        try:
            line = slurmconf.parse_line(text)
        except ConfigError as error:
            notes.refuse(f"partitionConfiguration.rawConfig, line {number}: {error.what}")
            continue
        if line.key.lower() in {"partitionname", "nodeset"}:
            kept.append(text)
        else:
            notes.refuse(
                f"partitionConfiguration.rawConfig, line {number}: it starts with {line.key}, not PartitionName "
                "(other settings belong in customSlurmConfig)"
            )
    if not lines:
        notes.refuse("partitionConfiguration: configType custom needs rawConfig with at least one partition")
    return kept


def _structured(partition: Partition, nodesets: Mapping[str, str], notes: Notes) -> list[str]:
    if partition.is_all:
        nodes = "ALL"
    else:
        known = [nodesets[ref] for ref in partition.node_set_refs if ref in nodesets]
        notes.unresolved += [
            f"{ref} (of partition {partition.name})" for ref in partition.node_set_refs if ref not in nodesets
        ]
        nodes = ",".join(dict.fromkeys(known)) or '""'
    text = f"PartitionName={partition.name} Nodes={nodes} {partition.config}".rstrip()
    try:
        line = slurmconf.parse_line(text)
    except ConfigError as error:
        notes.refuse(f"partitionConfiguration.partitions[{partition.name}].config: {error.what}")
        return []
    if [key.lower() for key, _ in line.settings].count("nodes") > 1:
        notes.refuse(
            f"partitionConfiguration.partitions[{partition.name}].config: it sets Nodes; use nodeSetRefs or isAll"
        )
        return []
    return [text]


def _plugstack(spec: SlurmClusterSpec, notes: Notes) -> str:
    lines = []
    for number, plugin in enumerate(spec.plug_stack_config.custom_plugins if spec.plug_stack_config else ()):
        arguments = plugin.get("arguments") or {}
        try:
            line = SpankPlugin.of(
                str(plugin.get("path", "")),
                required=bool(plugin.get("required")),
                # In the order of their names: a map has none, and an order that changes would reconfigure for ever.
                arguments=(f"{key}={value}" for key, value in sorted(arguments.items())),
            )
        except ConfigError as error:
            notes.refuse(f"plugStackConfig.customPlugins[{number}]: {error.what}")
            continue
        lines.append(f"{line.render()}\n")
    return "".join(lines)


def _cgroup(spec: SlurmClusterSpec, settings: Settings, notes: Notes) -> str:
    try:
        theirs = slurmconf.parse(spec.custom_cgroup_config, name="customCgroupConfig")
    except ConfigError as error:
        notes.refuse(error)
        return ""
    taken = {line.key.lower() for line in theirs.directives()}
    ours = slurmconf.parse(cgroup_conf(settings), name="cgroup.conf")
    if spec.cgroup_version == "v1" and settings.cgroup != "none":
        # What only version 2 knows is left out.
        taken |= {"cgroupplugin", "ignoresystemd", "enablecontrollers"}
        ours = Config((Directive.of({"CgroupPlugin": "cgroup/v1"}), *_except(ours, taken)))
        taken.discard("cgroupplugin")
    return Config((*_except(ours, taken), *theirs.lines)).render()


def _except(config: Config, keys: set[str]) -> tuple[Directive, ...]:
    return tuple(line for line in config.directives() if line.key.lower() not in keys)


def _line(settings: Mapping[str, Value], notes: Notes) -> list[str]:
    try:
        return [Directive.of(settings).render()]
    except ConfigError as error:
        notes.refuse(error)
        return []


def is_set(tree: Mapping[str, Any], path: str) -> bool:
    """Whether a field is set in a specification that was written with its defaults left out."""
    found: Any = tree
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return False
        found = found[name]
    return True


def fields_set(spec: msgspec.Struct, among: Iterable[str]) -> list[str]:
    """List which of these fields are set to something else than their defaults."""
    tree = msgspec.to_builtins(spec)
    return [path for path in sorted(among) if is_set(tree, path)]
