"""What the objects of each part of a Slurm cluster are called, and by which names its daemons find each other."""

from isthmus import names
from isthmus.model.meta import Key
from isthmus.model.slinky import Accounting, Controller, NodeSet

SLURMCTLD_PORT = 6817
SLURMD_PORT = 6818
SLURMDBD_PORT = 6819
SLURMRESTD_PORT = 6820
COMPLETER_PORT = 6821
SSH_PORT = 22
MARIADB_PORT = 3306


# Controller


def cluster_name(controller: Controller) -> str:
    meta = controller.metadata
    return controller.spec.cluster_name or f"{meta.namespace}_{meta.name}"[:40]


def controller_workload(controller: Controller) -> str:
    """Name of the StatefulSet of slurmctld; its pods carry this name and a number."""
    meta = controller.metadata
    return meta.annotations.get(names.WORKLOAD_NAME_ANNOTATION) or f"{meta.name}-controller"


def controller_pods(controller: Controller) -> tuple[str, ...]:
    """Names of the pods of slurmctld, in the order in which they stand in for each other."""
    workload = controller_workload(controller)
    return tuple(f"{workload}-{ordinal}" for ordinal in range(controller.spec.replicas))


def controller_service(controller: str) -> str:
    return f"{controller}-controller"


def controller_internal(controller: str) -> str:
    """Name of the headless Service that gives each slurmctld pod a name in DNS."""
    return f"{controller}-controller-internal"


def controller_hosts(controller: Controller) -> tuple[str, ...]:
    """Name of each slurmctld in DNS, short enough for any namespace's search path.

    Where there are standbys, each has a Service of its own, whose name stays in DNS while its pod is away. In every
    request, Slurm looks for a name that does not exist for ten seconds before it turns to the next slurmctld.
    """
    if controller.spec.external and controller.spec.external_config:
        return (controller.spec.external_config.host,)
    meta, pods = controller.metadata, controller_pods(controller)
    if len(pods) > 1:
        return tuple(f"{pod}.{meta.namespace}.svc" for pod in pods)
    return tuple(f"{pod}.{controller_internal(meta.name)}.{meta.namespace}.svc" for pod in pods)


def controller_port(controller: Controller) -> int:
    if controller.spec.external and controller.spec.external_config:
        return controller.spec.external_config.port
    return SLURMCTLD_PORT


def conf_server(controller: Controller) -> str:
    """Where slurmd and sackd fetch their configuration: every slurmctld, so that any may be away."""
    port = controller_port(controller)
    return ",".join(f"{host}:{port}" for host in controller_hosts(controller))


def config(controller: str) -> str:
    """Name of the ConfigMap with Slurm's files."""
    return f"{controller}-config"


def auth(controller: str) -> str:
    """Name of the Secret with the keys that daemons mount."""
    return f"{controller}-auth"


def users(controller: str) -> str:
    """Name of the ConfigMap with the cluster's users."""
    return f"{controller}-users"


def placeholder(controller: Controller) -> str:
    """Name of the DaemonSet of warm stand-ins."""
    return f"{controller_workload(controller)}-placeholder"


# Workers


def workers_service(controller: str) -> str:
    """Name of the headless Service under which workers are found."""
    return f"slurm-workers-{controller}"


def workers_budget(controller: str) -> str:
    """Name of the disruption budget of workers that are not drained."""
    return f"slurm-workers-pdb-{controller}"


def slurm_nodeset(nodeset: NodeSet) -> str:
    """What a NodeSet is called in slurm.conf: also the feature of its nodes, and its partition."""
    hostname = str(nodeset.spec.template.spec.get("hostname", "")).strip("-")
    return hostname or nodeset.metadata.name


def search_domains(controller: Key, *, domain: str) -> tuple[str, ...]:
    """List where short names such as worker-0 and controller-0 are looked up, in every pod of a cluster."""
    services = (workers_service(controller.name), controller_internal(controller.name))
    return tuple(f"{service}.{controller.namespace}.svc.{domain}" for service in services)


# The others


def accounting(name: str) -> str:
    """Name of the StatefulSet, the Service and the Secret of slurmdbd."""
    return f"{name}-accounting"


def accounting_address(accounting_: Accounting) -> tuple[str, int]:
    if accounting_.spec.external and accounting_.spec.external_config:
        external = accounting_.spec.external_config
        return external.host, external.port
    meta = accounting_.metadata
    return f"{accounting(meta.name)}.{meta.namespace}.svc", accounting_.spec.service.port or SLURMDBD_PORT


def database(accounting_: str) -> str:
    """Name of the StatefulSet, the Service and the Secret of the database that we run for slurmdbd."""
    return f"{accounting_}-mariadb"


def restapi(name: str) -> str:
    """Name of the Deployment and the Service of slurmrestd."""
    return f"{name}-restapi"


def completer(name: str) -> str:
    """Name of the Service of `isthmus-complete`, which runs beside slurmrestd."""
    return f"{name}-completer"


def login_internal(loginset: str) -> str:
    """Name of the headless Service of login pods."""
    return f"{loginset}-internal"


def ssh_host_keys(name: str) -> str:
    """Name of the Secret with the host keys of a LoginSet or NodeSet."""
    return f"{name}-ssh-host-keys"


def ssh_config(name: str) -> str:
    """Name of the ConfigMap of the sshd of a LoginSet or NodeSet."""
    return f"{name}-ssh-config"
