"""The configuration files of a Slurm in a test bed, as texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CLUSTER = "bed"
PARTITION = "main"
CONTROLLER = "ctl"
DATABASE = "dbd"
LOGIN = "login"

# Slurm's usual ports and ten thousand: a Slurm of the machine's own may hold the usual ones on every address.
SLURMD_PORT = 16818
SLURMDBD_PORT = 16819
SLURMRESTD_PORT = 16820
COMPLETER_PORT = 16821


@dataclass(frozen=True)
class Node:
    """A node of the bed. An external one has no slurmd: somebody else (Kubernetes, say) runs what lands there."""

    name: str
    address: str
    external: bool = False

    @property
    def binding_name(self) -> str:
        """The host name that a slurmd sees while it opens its port."""
        return f"{self.name}-slurmd"


def hosts(address: str, nodes: Sequence[Node]) -> str:
    """/etc/hosts, which also decides where daemons and commands listen.

    With NoInAddrAny each of them listens on the address of its host's name alone, so that beds do not meet. But all
    connections come from 127.0.0.1, and who is called back at the address it came from must listen there: srun,
    called by slurmstepd, and slurmctld, called by slurmdbd. So theirs are names of 127.0.0.1; slurmctld has a port
    that no other bed has, and a slurmd opens its port while its host bears another name than its jobs will see.
    """
    names = " ".join(["localhost", LOGIN, CONTROLLER, *(node.name for node in nodes)])
    lines = [f"127.0.0.1 {names}", f"{address} {DATABASE}"]
    return "\n".join([*lines, *(f"{node.address} {node.binding_name}" for node in nodes), ""])


_ACCOUNTING = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageHost": DATABASE,
    "AccountingStoragePort": str(SLURMDBD_PORT),
}


def slurm_conf(
    nodes: Sequence[Node], *, controller_port: int, accounting: bool, settings: Mapping[str, str] | None = None
) -> str:
    """slurm.conf, in which `settings` take the place of lines of ours or are added."""
    lines = {
        "ClusterName": CLUSTER,
        "SlurmctldHost": f"{CONTROLLER}(127.0.0.1)",
        "SlurmctldPort": str(controller_port),
        "SlurmdPort": str(SLURMD_PORT),
        "SlurmUser": "slurm",
        "AuthType": "auth/slurm",
        "CredType": "cred/slurm",
        "AuthAltTypes": "auth/jwt",
        "AuthAltParameters": "jwt_key=/etc/slurm/jwt.key",
        # See `hosts`.
        "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny",
        "StateSaveLocation": "/var/lib/slurm/slurmctld",
        "SlurmdSpoolDir": "/var/spool/slurmd/%n",
        "SlurmctldPidFile": "/run/slurmctld/slurmctld.pid",
        "SlurmdPidFile": "/run/slurm/slurmd-%n.pid",
        "LogTimeFormat": "iso8601_ms,format_stderr",
        "SlurmctldDebug": "verbose",
        "SlurmdDebug": "verbose",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/linux",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        # Nodes claim more than this machine has.
        "SlurmdParameters": "config_overrides",
        "SchedulerParameters": "sched_min_interval=10000,batch_sched_delay=0,bf_interval=1",
        "MCSPlugin": "mcs/label",
        "MCSParameters": "ondemand,ondemandselect",
        "MaxNodeCount": "4096",
        "MaxJobCount": "50000",
        "TreeWidth": "65533",
        "ReturnToService": "2",
        "KillWait": "1",
        **(_ACCOUNTING if accounting else {}),
        **(settings or {}),
    }
    for name, value in lines.items():
        if not name.isidentifier() or not value.isprintable():
            raise ValueError(f"{name!r}={value!r} would not be one line of slurm.conf")
    return "\n".join(
        [
            *(f"{name}={value}" for name, value in lines.items()),
            *(_node_line(node) for node in nodes),
            f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
            "",
        ]
    )


def _node_line(node: Node) -> str:
    size = "CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4096"
    state = " State=EXTERNAL" if node.external else ""
    return f"NodeName={node.name} NodeHostname={node.name} NodeAddr={node.address} {size}{state}"


CGROUP_CONF = "CgroupPlugin=disabled\n"


def slurmdbd_conf(address: str) -> str:
    """slurmdbd.conf. The database is reached by its socket in the bed and asks for no password."""
    return f"""\
DbdHost={DATABASE}
DbdAddr={address}
DbdPort={SLURMDBD_PORT}
SlurmUser=slurm
AuthType=auth/slurm
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt.key
CommunicationParameters=NoInAddrAny
PidFile=/run/slurmdbd/slurmdbd.pid
LogTimeFormat=iso8601_ms,format_stderr
DebugLevel=verbose
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
"""
