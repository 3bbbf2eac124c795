"""How a worker pod waits until Slurm knows where its machine is, before slurmd starts.

    pod has a machine ──► topology.conf names it ──► slurmctld has read that ──► annotation ──► file ──► slurmd

A job begins when its nodes have registered. With this, what it is told of the network (the order of its tasks,
SLURM_TOPOLOGY_ADDR) is true from its first moment on. A machine that gets no label in time lets the container fail
with the reason, as Soperator does: kubelet starts it again, and Slurm gives the node up after its ResumeTimeout.
"""

from typing import Final

from isthmus import names
from isthmus.domain.operator.manifests.common import Manifest
from isthmus.model.pod import Pod
from isthmus.model.slinky import Controller, NodeSet

KNOWN: Final = "known"
VOLUME: Final = "slurm-topology"
_DIRECTORY: Final = "/run/slurm-topology"
_VARIABLE: Final = "ISTHMUS_TOPOLOGY_WAIT"

AWAIT_PLACE: Final = rf"""
# Returns when Slurm knows the place of this node, and at once where nobody has to wait.
await_place() {{
    local begun=$SECONDS place={_DIRECTORY}/place
    [[ ${{1-}} ]] || return 0
    until [[ -s $place ]]; do
        if (( SECONDS - begun >= $1 )); then
            echo "no place in Slurm's topology after $1 s (ephemeralTopologyWaitTimeout): the Kubernetes node" \
                'has no label that says where it is, or slurmctld has not read topology.conf' \
                | tee /dev/termination-log >&2
            exit 1
        fi
        pause 0.5
    done
    end_of_pauses
}}
await_place "${{{_VARIABLE}-}}"
"""
"""Bash, after `PAUSE` and a trap for signals."""


def seconds(nodeset: NodeSet, controller: Controller) -> int:
    """For how long its pods wait; 0 where they do not: nodes that are always there are placed before any job is."""
    waits = nodeset.elastic and controller.spec.topology is not None and not controller.spec.external
    return (nodeset.spec.ephemeral_topology_wait_timeout or 0) if waits else 0


def environment(wait: int) -> list[Manifest]:
    return [{"name": _VARIABLE, "value": str(wait)}] if wait else []


def volumes(wait: int) -> list[Manifest]:
    """The annotation as a file: kubelet writes it as soon as the annotation is there."""
    source = {"fieldPath": f"metadata.annotations['{names.TOPOLOGY_ANNOTATION}']"}
    return [{"name": VOLUME, "downwardAPI": {"items": [{"path": "place", "fieldRef": source}]}}] if wait else []


def mounts(wait: int) -> list[Manifest]:
    return [{"name": VOLUME, "mountPath": _DIRECTORY, "readOnly": True}] if wait else []


def is_in(pod: Pod) -> bool:
    """Whether a pod was made to wait."""
    return any(it.name == VOLUME for it in pod.spec.volumes)
