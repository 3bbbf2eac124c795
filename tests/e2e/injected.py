"""Faults of the list in docs/operator.md, done to a cluster at work and taken back: what the doctor prints of each.

    with INJECTED["slurmctld hangs"].done_to(site, "demo"):
        …

The cluster has three workers, accounting, a shared root and the names of a first cluster of its namespace.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

from isthmus.inspect import doctor
from isthmus.kube.client import Client
from tests.bed.operator_ground import NAMESPACE as OPERATORS
from tests.bed.operator_ground import OperatorGround
from tests.e2e.operator_parts import part
from tests.e2e.site import Site

_KEY = "/etc/slurm/slurm.jwks"
_CONF = "/run/slurm/conf/slurm.conf"


class Fault(NamedTuple):
    """What is done, and how what the doctor prints of it begins."""

    done_to: Callable[[Site, str], AbstractContextManager[None]]
    printed: str
    within: float = 180.0


def findings(site: Site, cluster: str = "") -> list[str]:
    """Ask the doctor, in this process: a program of its own costs more than all that it asks."""

    async def examine(client: Client) -> list[str]:
        found = await doctor.examine(client, namespace=site.namespace, name=cluster, now=time.time())
        return [f"{it.area}: {it.what}" for it in found.findings]

    return site.ground.cluster.api.ask(examine)


def _makes(*manifests: dict[str, Any]) -> Callable[[Site, str], AbstractContextManager[None]]:
    """Beside the cluster, make something that cannot work; CLUSTER stands for its name."""

    @contextmanager
    def made(site: Site, cluster: str) -> Iterator[None]:
        objects = [_named(it, cluster) for it in manifests]
        site.apply(*objects)
        try:
            yield
        finally:
            for it in objects:
                group = it["apiVersion"].rpartition("/")[0].partition("/")[0]
                kind = it["kind"].lower() + (f".{group}" if group else "")
                site.kubectl("delete", f"{kind}/{it['metadata']['name']}", "--timeout=60s")

    return made


def _named(it: Any, cluster: str) -> Any:
    if isinstance(it, dict):
        return {key: _named(value, cluster) for key, value in it.items()}
    return cluster if it == "CLUSTER" else it


def _runs(where: str, broken: str, healed: str) -> Callable[[Site, str], AbstractContextManager[None]]:
    """In one of the cluster's pods, run a script that breaks something, and later one that heals it."""

    @contextmanager
    def run(site: Site, _: str) -> Iterator[None]:
        site.exec(where, "bash", "-euc", broken)
        try:
            yield
        finally:
            site.exec(where, "bash", "-euc", healed)

    return run


def _patches(broken: dict[str, Any], healed: dict[str, Any]) -> Callable[[Site, str], AbstractContextManager[None]]:
    @contextmanager
    def patched(site: Site, cluster: str) -> Iterator[None]:
        site.patch(f"slurmcluster/{cluster}", {"spec": broken})
        try:
            yield
        finally:
            site.patch(f"slurmcluster/{cluster}", {"spec": healed})
            site.ready(f"slurmcluster/{cluster}")

    return patched


def _in_slurm(broken: str, healed: str) -> Callable[[Site, str], AbstractContextManager[None]]:
    return _runs("controller-0", f"scontrol update {broken}", f"scontrol update {healed}")


@contextmanager
def _operator_gone(site: Site, _: str) -> Iterator[None]:
    def scale(count: int) -> None:
        site.ground.kubectl(
            "scale", "deployment/isthmus-operator", f"--namespace={OPERATORS}", f"--replicas={count}"
        )

    scale(0)
    try:
        yield
    finally:
        scale(2)
        wait = ("rollout", "status", "deployment/isthmus-operator", f"--namespace={OPERATORS}", "--timeout=120s")
        site.ground.kubectl(*wait)


@contextmanager
def _without_dns(site: Site, _: str) -> Iterator[None]:
    def scale(count: int) -> None:
        site.ground.kubectl("scale", "deployment/coredns", "--namespace=kube-system", f"--replicas={count}")

    scale(0)
    try:
        yield
    finally:
        scale(1)
        wait = ("rollout", "status", "deployment/coredns", "--namespace=kube-system", "--timeout=120s")
        site.ground.kubectl(*wait)


@contextmanager
def _root_unmounted(site: Site, _: str) -> Iterator[None]:
    """Take the shared root from a worker, and let a job find that out."""
    before = site.uid("worker-1")
    site.exec("worker-1", "umount", "--lazy", "/mnt/jail")
    job = site.run("sbatch", "--parsable", "--nodelist=worker-1", "--chdir=/tmp", "--wrap=true", where="login-0")
    try:
        yield
    finally:
        site.run("scancel", job.strip(), where="login-0")
        site.kubectl("delete", "pod/worker-1")
        site.replaced("worker-1", before)
        _resumed(site, "worker-1")


def _resumed(site: Site, node: str) -> None:
    """Wait until a node is used again, whoever has shut it."""

    def state() -> str:
        found = site.states().get(node, "")
        if found.startswith("d"):
            site.run("scontrol", "update", f"nodename={node}", "state=resume", where="controller-0")
        return found

    site.eventually(state, f"{node} to be idle", holds=lambda it: it == "idle")


OF_IT = {"controllerRef": {"name": "CLUSTER"}}
_NO_FILES = {
    "apiVersion": "slurm.nebius.ai/v1alpha1",
    "kind": "JailedConfig",
    "metadata": {"name": "nothing", "labels": {"app.kubernetes.io/instance": "CLUSTER"}},
    "spec": {"configMap": {"name": "nothing"}, "items": [{"key": "x", "path": "/etc/x"}]},
}
_SSSD = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "sssd"},
    "stringData": {"sssd.conf": "[sssd]"},
}
_NO_VOLUME = {"volumes": [{"name": "x", "secret": {"secretName": "nowhere"}}]}
_MOUNT = [{"name": "x", "mountPath": "/mnt/x"}]
_MOON = {"spec": {"nodeSelector": {"planet": "moon"}}}
_NONE = "isthmus.local/none:1"

INJECTED: dict[str, Fault] = {
    "the node port is taken": Fault(
        _makes(part("LoginSet", "second", **OF_IT, service={"spec": {"type": "NodePort"}, "nodePort": 30022})),
        "parts: LoginSet second is degraded",
    ),
    "no node takes a worker": Fault(
        _makes(part("NodeSet", "moon", **OF_IT, replicas=1, template=_MOON)),
        "placing: no node can run pod moon-0",
    ),
    "the image of login nodes does not exist": Fault(
        # Not of workers: there is one of them on every node already.
        _makes(part("LoginSet", "bare", **OF_IT, login={"image": _NONE, "imagePullPolicy": "Never"})),
        f"images: pod bare-0 cannot pull the image {_NONE}",
    ),
    "a volume is not mounted": Fault(
        _makes(part("LoginSet", "empty", **OF_IT, template={"spec": _NO_VOLUME}, login={"volumeMounts": _MOUNT})),
        "storage: the volumes of pod empty-0 are not there",
    ),
    "the login image has no SSSD": Fault(
        _makes(_SSSD, part("LoginSet", "directory", **OF_IT, sssdConfRef={"name": "sssd", "key": "sssd.conf"})),
        "parts: LoginSet directory runs without SSSD: users of the directory cannot log in",
    ),
    "the ConfigMap of a JailedConfig is missing": Fault(
        _makes(_NO_FILES), "configuration: the files of JailedConfig nothing are not written"
    ),
    "the shared root is from an older image": Fault(
        _patches({"populateJail": {"image": _NONE}}, {"populateJail": {"image": None}}),
        "root: a newer image of the shared root is due",
    ),
    "somebody sets a node down": Fault(
        _in_slurm("nodename=worker-2 state=down reason=broken", "nodename=worker-2 state=resume"),
        "nodes: 1 node is DOWN: worker-2",
    ),
    "somebody drains a node": Fault(
        _in_slurm("nodename=worker-2 state=drain reason=maintenance", "nodename=worker-2 state=resume"),
        "nodes: 1 node is drained: worker-2",
    ),
    "a worker has an old key": Fault(
        _runs(
            "worker-1",
            f"cp -L {_KEY} /run/old; echo >> /run/old; mv /run/old {_KEY}",
            f"ln -sfn /run/secrets/slurm/slurm.jwks {_KEY}",
        ),
        "auth: worker-1 and ",
    ),
    "a node's clock is wrong": Fault(
        # The clock of a pod is that of its machine; what shows it is not.
        _runs(
            "worker-1",
            r"""printf '#!/bin/sh\nexec /usr/bin/date -d "-400 sec" "$@"\n' > /usr/local/bin/date
            chmod +x /usr/local/bin/date""",
            "rm /usr/local/bin/date",
        ),
        "clock: the clocks of ",
    ),
    "slurmctld hangs": Fault(
        _runs("controller-0", "pkill -STOP -x 'slurmctld(-wlm)?'", "pkill -CONT -x 'slurmctld(-wlm)?'"),
        "starting: slurmctld does not answer the cluster's own tools",
    ),
    "the shared root is not mounted on workers": Fault(
        _root_unmounted, "root: worker-1 cannot run jobs in the shared root"
    ),
    "DNS does not answer": Fault(_without_dns, "names: "),
    "the operator is gone": Fault(_operator_gone, "operator: the operator does not run"),
    # Late: for that, the configuration has to have been the same for two minutes.
    "a pod has another slurm.conf": Fault(
        _runs("worker-1", f"echo '# mine' >> {_CONF}", f"sed -i '/^# mine$/d' {_CONF}"),
        "configuration: worker-1 does not have the cluster's current slurm.conf",
        within=300,
    ),
    "slurm.conf has a line that Slurm refuses": Fault(
        _patches({"customSlurmConfig": "PartitionName=bad Nodes=nowhere"}, {"customSlurmConfig": None}),
        "configuration: Slurm rejects its new configuration and keeps the old one",
    ),
}


class Stillborn(NamedTuple):
    """A cluster that cannot come up: its specification, what is done once slurmctld runs, and what is printed."""

    spec: dict[str, Any]
    printed: str
    then: str = ""
    objects: tuple[dict[str, Any], ...] = ()


_SMALL = {"worker": {"size": 0}, "login": {"size": 0}}
_STATE = "/var/spool/slurmctld"
_NOWHERE: dict[str, Any] = {
    "enabled": True,
    "externalDB": {
        "enabled": True,
        "host": "nowhere.invalid",
        "user": "slurm",
        "passwordSecretKeyRef": {"name": "database", "key": "password"},
    },
}
STILLBORN: dict[str, Stillborn] = {
    "slurmctld ends again and again": Stillborn(
        {"slurmNodes": _SMALL, "customSlurmConfig": "SlurmctldDebug=nonsense"},
        "starting: container slurmctld of pod controller-0 keeps failing",
    ),
    "slurmctld's image does not exist": Stillborn(
        {"slurmNodes": {**_SMALL, "controller": {"slurmctld": {"image": _NONE, "imagePullPolicy": "Never"}}}},
        f"images: pod controller-0 cannot pull the image {_NONE}",
    ),
    "the image of the shared root does not exist": Stillborn(
        {
            "populateJail": {"image": _NONE, "imagePullPolicy": "Never"},
            "volumeSources": [{"name": "jail", "emptyDir": {}}],
            "slurmNodes": _SMALL,
        },
        "root: the shared root is not filled",
    ),
    "the database cannot be reached": Stillborn(
        {"slurmNodes": {**_SMALL, "accounting": _NOWHERE}},
        "accounting: the database of accounting does not answer at nowhere.invalid:3306",
        objects=(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "database"},
                "stringData": {"password": "guessed"},
            },
        ),
    ),
    "the disk of slurmctld's state is full": Stillborn(
        {
            "volumeSources": [{"name": "state", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
            "slurmNodes": {**_SMALL, "controller": {"volumes": {"spool": {"volumeSourceName": "state"}}}},
        },
        f"storage: {_STATE} of controller-0 is full",
        then=f"dd if=/dev/zero of={_STATE}/ballast bs=1M count=32 2> /dev/null || true",
    ),
}


@contextmanager
def stillborn(ground: OperatorGround) -> Iterator[dict[str, Site]]:
    """Make them all at once, each in a namespace of its own."""
    with ExitStack() as namespaces:
        sites = {}
        for number, (fault, it) in enumerate(STILLBORN.items()):
            site = sites[fault] = Site(ground, namespaces.enter_context(ground.namespace(f"stillborn-{number}")))
            cluster = {"apiVersion": "slurm.nebius.ai/v1", "kind": "SlurmCluster", "metadata": {"name": "ill"}}
            site.apply(*it.objects, {**cluster, "spec": {"populateJail": {"enabled": False}, **it.spec}})
        yield sites
        for site in sites.values():
            site.kubectl("delete", "slurmcluster/ill", "--wait=false")
