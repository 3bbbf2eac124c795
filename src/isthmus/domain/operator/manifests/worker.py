"""The pods of a NodeSet: slurmd, started so that it can register its resources, and optionally sshd.

    Template ──fill(identity)──► Pod        rendered once per NodeSet; only names differ from pod to pod

slurmd's line of settings is one argument, which no shell ever reads. It fetches its configuration from slurmctld;
the Secret with the cluster's keys and the users are all that is mounted. Process 1 of the container is the shell
that started it and buries the dead: of steps that end, slurmd would leave a zombie each.

A pod is ready when slurmctld has its node in service (asked once per start), and as long as slurmd listens (which
asks nobody; the same probe lets slurmd read keys that came late). When a pod is deleted behind our back, slurmctld
is told at once, so that its jobs do not wait for a time-out; the node is used again as soon as its successor is
ready.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.domain.operator import partnames
from isthmus.domain.operator.manifests import (
    common,
    devicefiles,
    jail,
    munge,
    sshd,
    startorder,
    topologywait,
    users,
    workerssh,
)
from isthmus.domain.operator.manifests.common import Manifest, Settings
from isthmus.domain.operator.manifests.waitscripts import startup_probe
from isthmus.domain.operator.nodeset import claims, devices
from isthmus.domain.operator.nodeset.identity import Identity
from isthmus.domain.operator.nodeset.placement import TOLERATED_BY_DAEMONS, Demand, demand_of
from isthmus.domain.operator.nodeset.protection import MARKS
from isthmus.domain.operator.nodeset.shape import CONTAINER, shape_of
from isthmus.model.slinky import NODESETS, Controller, NodeSet, SharedRoot

APP: Final = "slurmd"
COMPONENT: Final = "worker"

_KEYS: Final = "/run/secrets/slurm"

_GROUPS: Final = r"""
groups=
if [[ -e /sys/fs/cgroup/cgroup.controllers && -w /sys/fs/cgroup/cgroup.subtree_control ]]; then
    groups=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
    mkdir -p "$groups/init" "$groups/start"
    controllers=$(< "$groups/cgroup.controllers")
    empty() {
        local pid
        while read -r pid; do echo "$pid" > "$groups/init/cgroup.procs" || true; done < "$groups/cgroup.procs"
        [[ ! $controllers ]] || echo "+${controllers// / +}" > "$groups/cgroup.subtree_control"
    }
    # Probes may come in while we look.
    for _ in {1..100}; do ! empty 2> /dev/null || break; sleep 0.05; done
fi
"""
"""Bash: lets Slurm make control groups (of version 2) below the container's own, where its limits hold.

A group has either processes or controllers for the groups below it. So all processes go one down; what is executed
in the container later follows process 1 there. slurmd starts in a group that nobody else comes into: for a moment,
who does so is of another process namespace, beside which slurmd refuses to start. It then moves on by itself.
"""

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - where shared memory is, on any Linux

_START: Final = (
    startorder.AWAIT
    + _GROUPS
    + devicefiles.WRITE
    + r"""
shopt -s nullglob
for key in /run/secrets/slurm/*; do ln -sfn "$key" /etc/slurm/; done
mkdir -p /run/slurm /var/spool/slurmd
"""
    + startorder.CONF_LINKS
    + r"""
write_gres
await_one_of "$ISTHMUS_CONF_SERVERS"
"""
    + topologywait.AWAIT_PLACE
    + r"""
# RDMA pins memory, and a job has the limits of slurmd. Few machines forbid this to a privileged container.
ulimit -l unlimited 2> /dev/null || true
slurmd= early=
pass_on() { if [[ $slurmd ]]; then kill -s "$1" "$slurmd" || true; else early+=" $1"; fi; }
# Before slurmd is there: a signal may come at once, and without a trap nobody hears it, or only the shell ends.
trap 'pass_on TERM' TERM INT
trap 'pass_on HUP' HUP
# A shell has what it starts beside itself ignore Ctrl-C, and so would every job.
start() {
    [[ ! ${groups-} ]] || echo 0 > "$groups/start/cgroup.procs"
    exec env --default-signal slurmd -D -N "$ISTHMUS_NODE" --conf-server "$ISTHMUS_CONF_SERVERS" "$@"
}
start "$@" &
slurmd=$!
for signal in $early; do pass_on "$signal"; done
# A signal ends the waiting, and not slurmd.
while wait "$slurmd" || true; kill -0 "$slurmd" 2> /dev/null; do :; done
# It may have ended after a signal had ended the waiting, so how it ended is asked now.
wait "$slurmd"
"""
)

# For `sbatch --get-user-env` slurmd runs su, outside: it shall be the user's profile inside that counts. Prologs,
# epilogs and health checks run outside, too; but their authors see only the shared root.
_OUTSIDE: Final = rf"""
cat > /usr/bin/su.inside << EOF
#!/bin/sh
exec $(command -v isthmus-enter) $ISTHMUS_INSIDE -- /usr/bin/su "\$@"
EOF
chmod 755 /usr/bin/su.inside
mv -f /usr/bin/su.inside /usr/bin/su
[[ -e {jail.SCRIPTS} ]] || ln -s {jail.ROOT}{jail.SCRIPTS} {jail.SCRIPTS}
"""

_REGISTERED: Final = (
    r"""
started() {
    local node state unknown=/run/slurm/unknown said wrong
    [[ -e /run/slurm/conf/slurm.conf ]] || return 1
    if ! node=$(scontrol --oneliner show node "$ISTHMUS_NODE" 2>&1); then
        [[ $node == *' not found'* ]] || return 1
        echo >> $unknown
        if (($(wc -l < $unknown) > 10)); then
            rm $unknown
            pkill -HUP --oldest --exact slurmd
        fi
        return 1
    fi
    rm -f $unknown
    [[ $node =~ \ State=([A-Z_+*]+) ]] || return 1
    state=${BASH_REMATCH[1]}
"""
    + devicefiles.TELL
    + r"""
    [[ ! $state =~ NOT_RESPONDING|UNKNOWN|DOWN|POWERING_UP|INVALID|FUTURE|ERROR|\* ]]
}
"""
)
"""A node that is drained is in service, too: somebody has shut it, and that is not for a probe to judge.

A slurmctld that crashes within seconds forgets who registered meanwhile, and slurmd does not notice. So one that is
not known for a while is made to register again.
"""

_LISTENS: Final = r"""
mounted=/run/secrets/slurm/..data told=/run/slurm/told-of-keys
if [[ $mounted -nt /run/slurm/conf/slurm.conf && $mounted -nt $told ]] &&
    (( EPOCHSECONDS - $(stat -Lc %Y "$mounted") > 10 )); then
    : > $told
    pkill -HUP --oldest --exact slurmd || true
fi
printf -v port '%04X' 6818
grep -q ":$port [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6
"""
"""slurmd writes slurm.conf when it starts, and when slurmctld has all nodes read their files. Where a kubelet
brings new keys only after that, slurmd would know the old ones alone, and refuse slurmctld itself: it is told here,
once.
"""

_GOODBYE: Final = r"""
tell() { timeout 5 scontrol "$@" || exit 0; }
node=$(tell --oneliner show node "$ISTHMUS_NODE")
[[ $node =~ \ State=([A-Z_+*]+) ]] || exit 0
state=${BASH_REMATCH[1]}
# Nothing runs on a node that is drained: no job has to hear of its end.
if [[ $state =~ DRAIN && $state =~ ^IDLE && ! $state =~ COMPLETING ]]; then exit 0; fi
# Slurm itself has stopped it, or starts it anew.
if [[ $state =~ POWERED_DOWN|POWERING_ ]]; then exit 0; fi
reason='slurm-operator: Pod is terminating'
if [[ $node =~ \ Reason=(.*)\ \[[^]]*@[^]]*\] ]]; then reason=${BASH_REMATCH[1]}; fi
if [[ ! $state =~ DRAIN ]]; then tell update "NodeName=$ISTHMUS_NODE" State=DRAIN "Reason=$reason"; fi
tell update "NodeName=$ISTHMUS_NODE" State=DOWN "Reason=$reason"
"""
"""Down ends the jobs or puts them back into the queue. But slurmd lives for some milliseconds yet, and any answer
takes the node back into service: so that no job begins on a node that is about to go, it is drained before. Our
drain ends when the successor is ready. Somebody else's reason is kept: it says who may take the node back.
"""


class Template(msgspec.Struct, frozen=True):
    """The pods of a NodeSet, but for their names."""

    nodeset: NodeSet
    metadata: Manifest
    spec: Manifest
    demand: Demand
    revision: str

    def fill(self, identity: Identity) -> Manifest:
        labels = {**self.metadata["labels"], **identity.labels}
        spec = {**self.spec, "hostname": identity.hostname}
        own = claims.volumes(self.nodeset, identity)
        if own:
            taken = {it["name"] for it in own}
            spec["volumes"] = [*(it for it in spec.get("volumes", ()) if it["name"] not in taken), *own]
        if identity.node:
            spec["affinity"] = _on(identity.node, spec.get("affinity") or {})
        return {"metadata": {**self.metadata, "name": identity.pod, "labels": labels}, "spec": spec}


def labels(nodeset: NodeSet, controller: str) -> dict[str, str]:
    """Make the marks of everything that belongs to a NodeSet."""
    return common.labels(APP, nodeset.metadata.name, COMPONENT, cluster=controller)


def selector(nodeset: NodeSet) -> str:
    """How the pods of a NodeSet are selected, for the scale subresource."""
    return f"{names.NAME_LABEL}={APP},{names.INSTANCE_LABEL}={nodeset.metadata.name}"


def revision(nodeset: NodeSet, controller: Controller, contents: Mapping[str, str]) -> str:
    """Make the hash of what a pod has to be recreated for.

    It is over what users say, not over what we make of it: a new version of the operator restarts nobody's jobs.
    `contents` are hashes of files that slurmd, or a daemon beside it, reads only when it starts.
    """
    spec = nodeset.spec
    told: dict[str, Any] = {
        "template": msgspec.to_builtins(spec.template),
        "slurmd": spec.slurmd,
        "conf": shape_of(nodeset).conf(),
        "claims": claims.templates(nodeset),
        "padding": spec.ordinal_padding,
        "oversubscribe": spec.oversubscribe_node,
        "registration": spec.registration,
        "auth": controller.spec.auth_type,
        "external": msgspec.to_builtins(controller.spec.external_config) if controller.spec.external else None,
        "contents": dict(contents),
    }
    if spec.devices:
        told["devices"] = msgspec.to_builtins(spec.devices)
    if nodeset.elastic:
        told["elastic"] = True
    if spec.ssh.enabled:
        told["ssh"] = True
    if spec.shared_root:
        told["root"] = msgspec.to_builtins(spec.shared_root)
    return common.hash_of(told)[:10]


def template(
    nodeset: NodeSet, controller: Controller, *, settings: Settings, contents: Mapping[str, str] | None = None
) -> Template:
    """Make the pods of a NodeSet, but for their names; raises `Terminal` for what cannot be made."""
    hash_ = revision(nodeset, controller, contents or {})
    made = common.pod_template(
        common.ping_for_all(_pod(nodeset, controller, settings), nodeset.spec.template.spec),
        labels(nodeset, controller.metadata.name),
        main=CONTAINER,
        template=nodeset.spec.template,
        containers={CONTAINER: nodeset.spec.slurmd},
    )
    spec = _settled(made["spec"], nodeset)
    meta = nodeset.metadata
    # From the first moment on: a pod that is protected later can be evicted with its first job.
    protection: Mapping[str, Mapping[str, str]] = MARKS if nodeset.spec.workload_disruption_protection else {}
    metadata = {
        **made["metadata"],
        "namespace": meta.namespace,
        "labels": {
            **made["metadata"]["labels"],
            names.REVISION_LABEL: hash_,
            **protection.get("labels", {}),
        },
        "annotations": {
            **made["metadata"].get("annotations", {}),
            **protection.get("annotations", {}),
            **({names.ANNOUNCED_ANNOTATION: "true"} if nodeset.elastic else {}),
        },
        "ownerReferences": [
            {
                "apiVersion": NODESETS.api_version,
                "kind": NODESETS.name,
                "name": meta.name,
                "uid": meta.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    return Template(nodeset, metadata, spec, demand_of(spec), hash_)


def service(controller: Controller) -> Manifest:
    """Make the headless Service under which all workers of a cluster are found by their names."""
    name, namespace = controller.metadata.name, controller.metadata.namespace
    marks = common.labels(APP, name, COMPONENT, cluster=name)
    return common.service(
        partnames.workers_service(name),
        namespace,
        marks,
        port=partnames.SLURMD_PORT,
        port_name="slurmd",
        headless=True,
        before_ready=True,
        select=_all_workers(name),
    )


def budget(controller: Controller) -> Manifest:
    """Make the budget that keeps evictions away from workers that are not drained."""
    name, namespace = controller.metadata.name, controller.metadata.namespace
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": common.metadata(
            partnames.workers_budget(name), namespace, common.labels(APP, name, COMPONENT, cluster=name)
        ),
        "spec": {
            "maxUnavailable": 0,
            "selector": {"matchLabels": {**_all_workers(name), names.POD_PROTECT_LABEL: "true"}},
        },
    }


def _all_workers(controller: str) -> dict[str, str]:
    return {names.NAME_LABEL: APP, names.CLUSTER_LABEL: controller}


def _pod(nodeset: NodeSet, controller: Controller, settings: Settings) -> Manifest:
    # The image of login nodes: what users compile there has to find its libraries here.
    image = nodeset.spec.slurmd.get("image") or settings.login_image
    munged = controller.spec.auth_type == "munge"
    wait = topologywait.seconds(nodeset, controller)
    pod: Manifest = {
        "subdomain": partnames.workers_service(controller.metadata.name),
        "dnsConfig": common.dns(controller.metadata.key, settings),
        "containers": [_slurmd(nodeset, controller, image=image, munged=munged)],
        "volumes": [*_volumes(controller, munged=munged), *topologywait.volumes(wait)],
    }
    if munged:
        # With another key, workers are made anew, which drains them first.
        pod["initContainers"] = [munge.sidecar(image, follow=False)]
    if nodeset.spec.ssh.enabled:
        pod["volumes"] += sshd.volumes(nodeset.metadata.name)
        pod["containers"] = [workerssh.beside(it) for it in pod["containers"]]
    if shared := nodeset.spec.shared_root:
        pod["volumes"] += jail.volumes(shared)
        within, auth = jail.PATIENCE + wait, controller.spec.auth_type
        pod["containers"] = [_with_root(it, shared, auth, within=within) for it in pod["containers"]]
    return pod


def _with_root(slurmd: Manifest, shared: SharedRoot, auth_type: str, *, within: int) -> Manifest:
    """Let slurmd start when the shared root is filled, and have what its jobs need to get there."""
    shell, flags, script, *rest = slurmd["command"]
    binds = jail.worker_binds(auth_type)
    return {
        **slurmd,
        "command": [shell, flags, f"{jail.WAIT}{jail.KNOW_USERS}{jail.SHOW_DRIVER}{_OUTSIDE}{script}", *rest],
        "env": [*slurmd["env"], {"name": "ISTHMUS_INSIDE", "value": " ".join(jail.options(binds))}],
        "startupProbe": startup_probe(_REGISTERED, within=within),
        "volumeMounts": [*slurmd["volumeMounts"], *jail.mounts(shared, binds)],
    }


def _slurmd(nodeset: NodeSet, controller: Controller, *, image: str, munged: bool) -> Manifest:
    node = {"fieldRef": {"fieldPath": f"metadata.labels['{names.POD_HOSTNAME_LABEL}']"}}
    wait = topologywait.seconds(nodeset, controller)
    return {
        "name": CONTAINER,
        "image": image,
        "command": ["bash", "-euc", _START, CONTAINER],
        "args": _registration(nodeset),
        "env": [
            {"name": "ISTHMUS_NODE", "valueFrom": node},
            {"name": "ISTHMUS_CONF_SERVERS", "value": partnames.conf_server(controller)},
            *_devices(nodeset),
            *topologywait.environment(wait),
        ],
        "ports": [{"name": "slurmd", "containerPort": partnames.SLURMD_PORT, "protocol": "TCP"}],
        # A slurmd that is not taken within ten minutes is started again.
        "startupProbe": startup_probe(_REGISTERED, within=600 + wait),
        "readinessProbe": _probe(_LISTENS, period=10, failures=3),
        "lifecycle": {"preStop": {"exec": _bash(_GOODBYE)}},
        "securityContext": {"privileged": True},
        "volumeMounts": [
            munge.socket_mount(read_only=False) if munged else common.mounts([("slurm-keys", _KEYS)])[0],
            users.mount(),
            *topologywait.mounts(wait),
        ],
    }


def _devices(nodeset: NodeSet) -> list[Manifest]:
    found = "\n".join(it.line() for it in devices.sources(nodeset))
    return [{"name": "ISTHMUS_DEVICES", "value": found}] if found else []


def _registration(nodeset: NodeSet) -> list[str]:
    """Options of slurmd for how it registers."""
    if nodeset.elastic:
        # It has just booted, whatever its machine says: Slurm waits for a boot after it has asked for the node.
        return ["-b"]
    if nodeset.spec.registration == "Static":
        return []
    conf = shape_of(nodeset).conf()
    return ["-Z", *(["--conf", conf] if conf else [])]


def _volumes(controller: Controller, *, munged: bool) -> list[Manifest]:
    name = controller.metadata.name
    keys = munge.volumes(partnames.auth(name)) if munged else [common.key_volume(controller)]
    return [*keys, users.volume(name)]


def _probe(script: str, *, period: int, failures: int) -> Manifest:
    return {"exec": _bash(script), "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures}


def _bash(script: str) -> Manifest:
    return {"command": ["bash", "-euc", script]}


def _settled(spec: Manifest, nodeset: NodeSet) -> Manifest:
    """Add what has to hold beside whatever the user's template says."""
    tolerations = [
        {"key": names.WORKER_TAINT, "operator": "Exists", "effect": "NoExecute"},
        *(TOLERATED_BY_DAEMONS if nodeset.spec.scaling_mode == "DaemonSet" else ()),
    ]
    given = list(spec.get("tolerations") or ())
    spec = {**spec, "tolerations": [*given, *(dict(it) for it in tolerations if it not in given)]}
    spec = _with_shared_memory(spec)
    if nodeset.spec.oversubscribe_node:
        return spec
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {names.NAME_LABEL: APP}},
    }
    affinity = dict(spec.get("affinity") or {})
    apart = dict(affinity.get("podAntiAffinity") or {})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    apart[required] = [*(apart.get(required) or ()), term]
    return {**spec, "affinity": {**affinity, "podAntiAffinity": apart}}


def _with_shared_memory(spec: Manifest) -> Manifest:
    """Let jobs share as much memory as the pod has, where nobody said how much: a container's own is 64 MB.

    Frameworks pass tensors between processes that way. What is in it counts as memory of the container.
    """
    (slurmd,) = (it for it in spec["containers"] if it["name"] == CONTAINER)
    mounts = list(slurmd.get("volumeMounts") or ())
    if any(mount.get("mountPath") == _SHARED_MEMORY for mount in mounts):
        return spec
    volume = {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
    mounts.insert(0, {"name": "shared-memory", "mountPath": _SHARED_MEMORY})
    return {
        **spec,
        "containers": [{**it, "volumeMounts": mounts} if it is slurmd else it for it in spec["containers"]],
        "volumes": [*(spec.get("volumes") or ()), volume],
    }


def _on(node: str, affinity: Mapping[str, Any]) -> Manifest:
    """Let a pod run on one node only, beside what its affinity says already."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    given = dict(affinity.get("nodeAffinity") or {})
    terms = (given.get(required) or {}).get("nodeSelectorTerms") or [{}]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    given[required] = {
        "nodeSelectorTerms": [{**term, "matchFields": [*term.get("matchFields", ()), field]} for term in terms]
    }
    return {**affinity, "nodeAffinity": given}
