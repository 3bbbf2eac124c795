"""slurmrestd: a Deployment that answers any client with a token, and holds no key of its own.

It refuses to run as root, as Slurm's own user and as nobody, so it has a user for itself. When its configuration
changes, new pods are ready before old ones go.

Beside it runs `isthmus-complete`, which ends jobs of the bridge as their pods ended. It works with the callers'
tokens, too, and has a Service of its own, so that it is not seen from outside where slurmrestd is.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from isthmus import names
from isthmus.domain.languages import slurmconf
from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.manifests.common import Manifest, Settings
from isthmus.model.slinky import Controller, RestApi

APP: Final = "slurmrestd"
COMPONENT: Final = "restapi"
CONTAINER: Final = "slurmrestd"
COMPLETER: Final = "completer"
UID: Final = 64031

_FILES: Final = ("slurm.conf", "cgroup.conf")

_GRACE: Final = 8
"""Seconds that a pod takes at most to end: three until no node sends it requests, the rest for those that it has.

slurmrestd often does not end when it is told to: 24.11 after any client that came and went without a word, as a
probe does, and every version while slurmctld owes it an answer. Until it is killed, its threads wake one another
all the time, which takes half a processor.
"""

_OF_NODES: Final = frozenset({"nodename", "nodeset", "partitionname", "downnodes", "prolog", "epilog"})
"""Lines of slurm.conf that slurmrestd has no use for: it asks slurmctld."""


def labels(restapi: RestApi, controller: str) -> dict[str, str]:
    """Make the marks of everything that belongs to a RestApi."""
    return common.labels(APP, restapi.metadata.name, COMPONENT, cluster=controller)


def selector(restapi: RestApi) -> str:
    """How the pods are selected, for the scale subresource."""
    return f"{names.NAME_LABEL}={APP},{names.INSTANCE_LABEL}={restapi.metadata.name}"


def service(restapi: RestApi, controller: str) -> Manifest:
    meta = restapi.metadata
    return common.service(
        partnames.restapi(meta.name),
        meta.namespace,
        labels(restapi, controller),
        port=partnames.SLURMRESTD_PORT,
        port_name="slurmrestd",
        template=restapi.spec.service,
    )


def completer_service(restapi: RestApi, controller: str) -> Manifest:
    """Make the Service of `isthmus-complete`."""
    meta = restapi.metadata
    return common.service(
        partnames.completer(meta.name),
        meta.namespace,
        labels(restapi, controller),
        port=partnames.COMPLETER_PORT,
        port_name=COMPLETER,
    )


def inputs(restapi: RestApi, controller: Controller, *, settings: Settings, files: Mapping[str, str]) -> object:
    """Everything that the pods depend on except our own code: a change recreates them."""
    return (
        msgspec.to_builtins(restapi.spec.template),
        restapi.spec.slurmrestd,
        [controller.spec.accounting_ref is None, config_hash(files)],
        [settings.slurm_image, settings.domain],
    )


def deployment(
    restapi: RestApi, controller: Controller, *, settings: Settings, files: Mapping[str, str]
) -> Manifest:
    """Make the Deployment; `files` are Slurm's, as they are in the cluster's ConfigMap."""
    meta, marks = restapi.metadata, labels(restapi, controller.metadata.name)
    template = common.pod_template(
        {
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": UID,
                "runAsGroup": UID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "dnsConfig": common.dns(controller.metadata.key, settings),
            "terminationGracePeriodSeconds": _GRACE,
            "containers": [_container(restapi, controller, settings), _completer(restapi, settings)],
            "volumes": [_volume(controller.metadata.name, files)],
        },
        marks,
        main=CONTAINER,
        template=restapi.spec.template,
        containers={CONTAINER: restapi.spec.slurmrestd},
        hashes={names.SLURM_CONFIG_HASH_ANNOTATION: config_hash(files)},
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": common.metadata(partnames.restapi(meta.name), meta.namespace, marks),
        "spec": {
            "replicas": restapi.spec.replicas,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": common.selector(marks)},
            "template": template,
        },
    }


def config_hash(files: Mapping[str, str]) -> str:
    """Make the hash of what slurmrestd reads at its start; nodes and partitions may come and go."""
    conf = slurmconf.parse(files.get("slurm.conf", ""))
    return common.hash_of([line.render() for line in conf.directives() if line.key.lower() not in _OF_NODES])


def _container(restapi: RestApi, controller: Controller, settings: Settings) -> Manifest:
    port = partnames.SLURMRESTD_PORT
    # To be asked for accounts where there are none would end it.
    plugins = [] if controller.spec.accounting_ref else ["-s", "openapi/slurmctld"]
    return {
        "name": CONTAINER,
        "image": restapi.spec.slurmrestd.get("image") or settings.slurm_image,
        "command": ["slurmrestd"],
        "args": ["-a", "rest_auth/jwt", *plugins, f"0.0.0.0:{port}"],
        "env": [
            {"name": "SLURM_JWT", "value": "daemon"},
            # A container is the jail already.
            {"name": "SLURMRESTD_SECURITY", "value": "disable_unshare_files,disable_unshare_sysv"},
        ],
        "ports": [{"name": "slurmrestd", "containerPort": port, "protocol": "TCP"}],
        "startupProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 10},
        # Until every node knows that it goes, it answers. Of the signals that end it, it heeds INT alone, and the
        # first process of a container hears no other: it would be waited for until it is killed.
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "sleep 3; kill -INT 1"]}}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": common.mounts([("slurm-config", "/etc/slurm")]),
    }


# An image that somebody else made has no such program. slurmrestd works without, so its pod must, too.
_COMPLETE: Final = f"""\
if ! command -v isthmus-complete > /dev/null; then
    echo "this image has no isthmus-complete: jobs of the bridge are cancelled when their pods end"
    trap 'exit 0' TERM
    sleep infinity & wait
fi
exec isthmus-complete 0.0.0.0 {partnames.COMPLETER_PORT}
"""


def _completer(restapi: RestApi, settings: Settings) -> Manifest:
    return {
        "name": COMPLETER,
        "image": restapi.spec.slurmrestd.get("image") or settings.slurm_image,
        "command": ["bash", "-c", _COMPLETE],
        "ports": [{"name": COMPLETER, "containerPort": partnames.COMPLETER_PORT, "protocol": "TCP"}],
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "3"]}}},
        "securityContext": dict(common.LOCKED),
        "volumeMounts": common.mounts([("slurm-config", "/etc/slurm")]),
    }


def _volume(controller: str, files: Mapping[str, str]) -> Manifest:
    items = [{"key": file, "path": file} for file in _FILES if file in files]
    return {"name": "slurm-config", "configMap": {"name": partnames.config(controller), "items": items}}
