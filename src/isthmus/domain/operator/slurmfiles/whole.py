"""slurm.conf, cgroup.conf and gres.conf as a whole.

The order is fixed: the identity of the cluster, our defaults, nodes and partitions, and at the end what the user
wrote. A setting that the user makes replaces ours.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from isthmus.domain.languages import hostlist
from isthmus.domain.languages.slurmconf import Config, Directive, Line, Note, Value
from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.nodeset import devices
from isthmus.domain.operator.slurmfiles import nodes, power, topology
from isthmus.domain.operator.slurmfiles.extra import Extra
from isthmus.domain.operator.slurmfiles.files import Scripts
from isthmus.domain.operator.slurmfiles.nodes import Workers
from isthmus.domain.operator.slurmfiles.topology import Place
from isthmus.model.slinky import Accounting, Controller

DIRECTORY: Final = "/etc/slurm"
STATE: Final = "/var/spool/slurmctld"
DEFAULT_PARTITION: Final[Mapping[str, Value]] = MappingProxyType(
    {"PartitionName": "main", "Nodes": "ALL", "Default": True, "MaxTime": "INFINITE"}
)
"""Where nobody says anything about partitions, all nodes are in one."""

TAKEOVER_SECONDS: Final = 6
"""How long a standby waits for slurmctld before it takes over."""

_MIN_NODE_COUNT: Final = 4096
_LITTLE_MEMORY: Final = 100
_SCHEDULER_PARAMETERS: Final = (
    *("sched_min_interval=10000", "batch_sched_delay=0", "bf_interval=5", "bf_continue"),
    # A job whose prolog found a bad node goes back to the queue, and is not held until a human looks at it.
    "nohold_on_prolog_fail",
)
_DEFAULTS: Final[Mapping[str, Value]] = MappingProxyType(
    {
        # Jobs share nodes, by cores and memory.
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        # Try to start jobs 10 ms after something changed, and look for gaps every 5 s.
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": _SCHEDULER_PARAMETERS,
        # A shell from salloc is on the first node of the job, not where one logged in.
        "LaunchParameters": "use_interactive_step",
        "MpiDefault": "pmi2",
        # sstat has something to show.
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=5",
        # A node that was away is used again when it comes back.
        "ReturnToService": 2,
        # slurmctld reaches each node by itself: none has to know how to reach another.
        "TreeWidth": 65533,
        "MaxJobCount": 50000,
        # The limits of a login container say nothing about those of jobs.
        "PropagateResourceLimits": "NONE",
        "MailProg": "/bin/true",
        # scrontab: a daemon on each of several login nodes would run everything as often, and none where jobs do.
        "ScronParameters": "enable",
        "LogTimeFormat": ("iso8601_ms", "format_stderr"),
    }
)
_CGROUPS: Final[Mapping[str, Mapping[str, Value]]] = MappingProxyType(
    {
        "v2": {
            "ProctrackType": "proctrack/cgroup",
            "TaskPlugin": ("task/cgroup", "task/affinity"),
            "PrologFlags": "Contain",
        },
        "none": {"ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none"},
    }
)


_NODE_GRES: Final = devices.NODE_GRES.rpartition("/")[2]
_NODES_WRITE: Final = Note.of("Every worker writes its own. This one is for slurmctld, and nodes that are not up.")

_SCRIPTED: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {"job_submit.lua": ("JobSubmitPlugins", "lua"), "cli_filter.lua": ("CliFilterPlugins", "lua")}
)
"""Files that Slurm reads only where a setting names their plugin."""

_RELEASE: Final = re.compile(r"([0-9]{2})\.([0-9]{2})(?![0-9])")
_FIRST_WITH_METRICS: Final = (25, 11)
_MEMORY_BY_DEFAULT: Final = frozenset({"defmempernode", "defmempergpu"})


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """All that a cluster's configuration follows from."""

    controller: Controller
    settings: Settings
    workers: tuple[Workers, ...] = ()
    accounting: Accounting | None = None
    scripts: Scripts = Scripts()
    version: str = ""
    """Of the Slurm that runs, such as 26.05.1; empty while nobody knows."""
    given: Mapping[str, str] = MappingProxyType({})
    """Files that the user brings, by name."""
    places: tuple[Place, ...] | None = ()
    """Where nodes are, if there is a topology; None while nobody knows which nodes there are."""
    topology_before: Mapping[str, str] = MappingProxyType({})
    """The files of the topology that slurmctld has: they stay while nobody knows."""


def files(inputs: Inputs) -> dict[str, str]:
    """Write all files of a cluster; raises ConfigError for what cannot be written."""
    if inputs.controller.spec.external:
        return {"slurm.conf": external_conf(inputs)}
    made = {"slurm.conf": slurm_conf(inputs), "cgroup.conf": cgroup_conf(inputs.settings)}
    if gres := gres_conf(inputs.workers):
        made["gres.conf"] = gres
        made[_NODE_GRES] = Config((_NODES_WRITE, *nodes.cloud_gres_lines(_in_order(inputs.workers)))).render()
    return made | power.files(inputs.workers) | topology_files(inputs) | dict(inputs.given)


def topology_files(inputs: Inputs) -> dict[str, str]:
    """Write where nodes are, as far as it is known. The user's own file takes the place of ours, of either name."""
    wanted = inputs.controller.spec.topology
    if wanted is None or _brings_topology(inputs):
        return {}
    if inputs.places is None:
        return dict(inputs.topology_before)
    return topology.files(wanted, inputs.places, with_yaml=_is_at_least(inputs, topology.FIRST_WITH_YAML))


def located(inputs: Inputs) -> frozenset[str]:
    """Nodes whose place is in these files. What the user's own topology says is the user's to know: all of them."""
    wanted = inputs.controller.spec.topology
    if wanted is None or _brings_topology(inputs):
        return frozenset(name for each in inputs.workers for name in each.nodes)
    return frozenset(it.node for it in inputs.places or () if topology.is_located(wanted, it))


def _brings_topology(inputs: Inputs) -> bool:
    return any(file in inputs.given for file in topology.FILES)


def slurm_conf(inputs: Inputs) -> str:
    extra = Extra.read(inputs.controller.spec.extra_conf)
    required = _required(inputs)
    lines: list[Line] = [Note.of(f"Made by Isthmus from Controller {inputs.controller.metadata.key}.")]
    lines += _settings(_identity(inputs) | _accounting(inputs), extra)
    lines += [Directive.of({"SlurmctldHost": host}) for host in _hosts(inputs.controller)]
    lines += _settings({key: tuple(options) for key, options in required.items()}, extra)
    lines += _settings({key: it for key, it in _choices(inputs, extra).items() if key not in required}, extra)
    lines += _scripts(inputs.scripts)
    meta = inputs.controller.metadata
    workers = _in_order(inputs.workers)
    elastic = [it for it in workers if it.elastic]
    by_node = _is_at_least(inputs, power.FIRST_WITH_TIME_PER_NODE)
    idle = {it.name: power.idle_seconds(it.nodeset) for it in elastic} if by_node else {}
    lines += nodes.node_lines(workers, controller=meta.name, namespace=meta.namespace, idle=idle)
    lines += nodes.nodeset_lines(workers)
    lines += [power.partition(it) for it in elastic if not by_node]
    if not extra.declares("PartitionName") and not any(it.nodeset.spec.partition.enabled for it in workers):
        lines.append(Directive.of(DEFAULT_PARTITION))
    if extra.config.lines:
        lines.append(Note.of("From extraConf:"))
    if elastic:
        required["SchedulerParameters"] = power.WAIT_FOR_NODES
    return Config((*lines, *extra.with_required(required))).render()


def external_conf(inputs: Inputs) -> str:
    """Write what slurmrestd needs to know of a slurmctld that we do not run."""
    settings = {key: value for key, value in _identity(inputs).items() if key != "StateSaveLocation"}
    lines = _settings(settings | _accounting(inputs), Extra())
    hosts = [Directive.of({"SlurmctldHost": host}) for host in _hosts(inputs.controller)]
    return Config((*lines, *hosts)).render()


def cgroup_conf(settings: Settings) -> str:
    """Write cgroup.conf for the kind of control groups that nodes have."""
    if settings.cgroup == "none":
        return Config((Directive.of({"CgroupPlugin": "disabled"}),)).render()
    chosen: dict[str, Value] = {
        "CgroupPlugin": "cgroup/v2",
        "IgnoreSystemd": True,
        "EnableControllers": True,
        "ConstrainCores": True,
        "ConstrainDevices": True,
        "ConstrainRAMSpace": True,
    }
    return Config(tuple(Directive.of({key: value}) for key, value in chosen.items())).render()


def gres_conf(workers: Iterable[Workers]) -> str:
    """Write gres.conf; empty if no node has a GRES."""
    return Config(tuple(nodes.gres_lines(_in_order(workers)))).render()


def _in_order(workers: Iterable[Workers]) -> list[Workers]:
    return sorted(workers, key=lambda it: hostlist.natural_key(it.nodeset.metadata.name))


def _identity(inputs: Inputs) -> dict[str, Value]:
    """Which cluster it is, and how its daemons know each other."""
    controller = inputs.controller
    auth = controller.spec.auth_type
    return {
        "ClusterName": partnames.cluster_name(controller),
        "SlurmUser": "slurm",
        "SlurmctldPort": partnames.controller_port(controller),
        "StateSaveLocation": STATE,
        "AuthType": f"auth/{auth}",
        "CredType": f"cred/{auth}",
    }


def _hosts(controller: Controller) -> Iterator[str]:
    """Name slurmctld and its standbys, each as its own host calls it and as others find it."""
    if controller.spec.external:
        yield from partnames.controller_hosts(controller)
        return
    addresses = partnames.controller_hosts(controller)
    for pod, address in zip(partnames.controller_pods(controller), addresses, strict=True):
        yield f"{pod}({address})"


def _required(inputs: Inputs) -> dict[str, tuple[str, ...]]:
    """The entries that lists must hold, whatever else the user puts there."""
    spec = inputs.controller.spec
    keys = [f"jwt_key={DIRECTORY}/jwt.key"]
    if spec.jwks_key_ref:
        keys.append(f"jwks={DIRECTORY}/jwks.json")
    elastic = any(it.elastic for it in inputs.workers)
    needed: dict[str, tuple[str, ...]] = {
        "SlurmctldParameters": (
            *("enable_configless", "reconfig_on_restart"),
            *(power.PARAMETERS if elastic else ()),
        ),
        "AuthAltTypes": ("auth/jwt",),
        "AuthAltParameters": tuple(keys),
    }
    if any(it.nodeset.spec.ssh.enabled for it in inputs.workers):
        # Every job has a step on each of its nodes, which SSH sessions join.
        needed["PrologFlags"] = ("Contain",)
    if spec.auth_type == "slurm":
        # Users that only login nodes know of can submit jobs.
        needed["AuthInfo"] = ("use_client_ids",)
    elif any(it.nodeset.spec.shared_root for it in inputs.workers):
        # The same with munge: each worker looks up by itself who is in the shared root, as slurmctld cannot.
        needed["LaunchParameters"] = (str(_DEFAULTS["LaunchParameters"]), "disable_send_gids")
    return needed


def _accounting(inputs: Inputs) -> dict[str, Value]:
    if inputs.accounting is None:
        return {}
    host, port = partnames.accounting_address(inputs.accounting)
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": host,
        "AccountingStoragePort": port,
        "AccountingStoreFlags": ("job_comment", "job_env", "job_extra", "job_script"),
    }


def _choices(inputs: Inputs, extra: Extra) -> dict[str, Value]:
    """Choose what makes a pleasant cluster; the user can choose otherwise."""
    chosen: dict[str, Value] = {
        "SlurmdPort": partnames.SLURMD_PORT,
        "SlurmdSpoolDir": "/var/spool/slurmd",
        "SlurmctldPidFile": "/run/slurmctld/slurmctld.pid",
        **_DEFAULTS,
        **_CGROUPS[inputs.settings.cgroup],
        "MaxNodeCount": max(_MIN_NODE_COUNT, nodes.room_for(sum(len(it.nodes) for it in inputs.workers))),
    }
    if saving := power.settings(_in_order(inputs.workers), directory=DIRECTORY):
        chosen |= saving
        chosen["SchedulerParameters"] = (*_SCHEDULER_PARAMETERS, *power.WAIT_FOR_NODES)
    if inputs.controller.spec.replicas > 1:
        chosen["SlurmctldTimeout"] = TAKEOVER_SECONDS
    # Slurm takes one of these settings; with two, every command complains.
    if (memory := _memory_per_cpu(inputs)) and not _MEMORY_BY_DEFAULT & extra.keys:
        chosen["DefMemPerCPU"] = memory
    if gres := nodes.gres_types(inputs.workers):
        chosen["GresTypes"] = gres
        if inputs.accounting is not None:
            chosen["AccountingStorageTRES"] = tuple(f"gres/{name}" for name in gres)
    wanted = inputs.controller.spec.topology
    # Without any node, the plugin would not start.
    if wanted and (topology_files(inputs) or _brings_topology(inputs)):
        chosen["TopologyPlugin"] = f"topology/{wanted.plugin}"
    chosen |= {key: plugin for file, (key, plugin) in _SCRIPTED.items() if file in inputs.given}
    if any(it.static for it in inputs.workers):
        # The name of a node in slurm.conf stays; the address behind it changes with its pod.
        chosen["CommunicationParameters"] = "NoAddrCache"
    if inputs.controller.spec.metrics.enabled and _is_at_least(inputs, _FIRST_WITH_METRICS):
        chosen["MetricsType"] = "metrics/openmetrics"
    return chosen


def _is_at_least(inputs: Inputs, release: tuple[int, int]) -> bool:
    """Whether slurmctld is of a release or newer; one that does not know a key would not start with it.

    Before it has told its version, the tag of its image does; with another tag, the key comes a little later.
    """
    image = str(inputs.controller.spec.slurmctld.get("image") or inputs.settings.slurm_image)
    told = _RELEASE.match(inputs.version or image.rpartition(":")[2])
    return told is not None and (int(told[1]), int(told[2])) >= release


def _memory_per_cpu(inputs: Inputs) -> int:
    """Give a job that asks for no memory its share by CPUs: all of a node's would keep others from that node.

    Where nobody knows how much nodes have, it is little, unless control groups would hold jobs to it.
    """
    shares = [
        it.shape.memory // it.shape.cpus if it.shape.cpus and it.shape.memory else 0
        for it in inputs.workers
        if it.nodes or it.nodeset.spec.replicas
    ]
    return min(shares, default=0) or (_LITTLE_MEMORY if inputs.settings.cgroup == "none" else 0)


def _scripts(scripts: Scripts) -> Iterator[Directive]:
    """Name scripts. Those of nodes are sent to them by slurmctld, and so have no directory."""
    for key, given, directory in (
        ("PrologSlurmctld", scripts.prolog_slurmctld, f"{DIRECTORY}/"),
        ("EpilogSlurmctld", scripts.epilog_slurmctld, f"{DIRECTORY}/"),
        ("Prolog", scripts.prolog, ""),
        ("Epilog", scripts.epilog, ""),
    ):
        for file in sorted(given):
            yield Directive.of({key: f"{directory}{file}"})


def _settings(settings: Mapping[str, Value], extra: Extra) -> list[Line]:
    """Write settings, a line each, but for those that the user makes."""
    return [Directive.of({key: value}) for key, value in settings.items() if key.lower() not in extra.keys]
