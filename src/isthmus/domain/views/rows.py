"""A job, a pod or a node as one row of the page: plain values in the order of its columns.

Rows are read by programs that render tens of thousands of them, so each is a list and not an object. Texts that
users choose are cut: a name of 10 kB is a name all the same, and its full length is of use to nobody in a table.
"""

from datetime import datetime
from typing import Any, Final

from isthmus.domain.bridge import jobstates, marker, reasons
from isthmus.domain.bridge.groups import GroupKey, group_of
from isthmus.domain.bridge.jobstates import Phase
from isthmus.domain.exporter import jobfacts, nodestates
from isthmus.domain.kube import podshape, podtrouble
from isthmus.domain.languages import quantity
from isthmus.errors import Terminal
from isthmus.model.base import EMPTY
from isthmus.model.health import NodeHealth
from isthmus.model.meta import condition
from isthmus.model.node import Node as KubeNode
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job, Node, Number

Row = list[Any]

JOB_COLUMNS: Final = (
    "id",
    "label",
    "name",
    "user",
    "account",
    "partition",
    "qos",
    "state",
    "phase",
    "reason",
    "outlook",
    "priority",
    "cpus",
    "memory",
    "gpus",
    "nodes",
    "hosts",
    "tasks",
    "submit",
    "start",
    "end",
    "limit",
    "workload",
)
POD_COLUMNS: Final = (
    "id",
    "namespace",
    "name",
    "state",
    "phase",
    "reason",
    "node",
    "job",
    "workload",
    "slurm",
    "cpus",
    "memory",
    "gpus",
    "created",
    "started",
)
NODE_COLUMNS: Final = (
    "id",
    "kube",
    "state",
    "block",
    "partitions",
    "cpus",
    "cpusUsed",
    "memory",
    "memoryUsed",
    "gpus",
    "gpusUsed",
    "pods",
    "podCpus",
    "kubeCpus",
    "reason",
    "reasonBy",
    "reasonAt",
    "kubeState",
    "health",
)

_MIB: Final = 1 << 20
_MILLI: Final = 1000
_NAME: Final = 120
_TEXT: Final = 240
_GPU: Final = "gpu"
_PLACES: Final = (
    "topology.kubernetes.io/rack",
    "topology.kubernetes.io/block",
    "topology.kubernetes.io/zone",
)
_PHASES: Final = {
    Phase.WAITING: "waiting",
    Phase.RUNNING: "running",
    Phase.SUSPENDED: "suspended",
    Phase.ENDING: "ending",
    Phase.UNKNOWN: "unknown",
}
_POD_PHASES: Final = {"Pending": "waiting", "Running": "running", "Succeeded": "completed", "Failed": "failed"}
_ENDED_WELL: Final = frozenset({"COMPLETED"})
_ENDED_BY_PEOPLE: Final = frozenset({"CANCELLED", "PREEMPTED"})


def job_phase(job: Job) -> str:
    """One of waiting, running, suspended, ending, completed, cancelled, failed and unknown."""
    found = jobstates.phase(job.job_state)
    if found is not Phase.ENDED:
        return _PHASES[found]
    base = job.job_state[0]
    return "completed" if base in _ENDED_WELL else "cancelled" if base in _ENDED_BY_PEOPLE else "failed"


def job_label(job: Job) -> str:
    """The id as squeue writes it: `12_3` of an array, `12+1` of a heterogeneous job."""
    if job.array_job_id.value:
        task = job.array_task_id.value
        return f"{job.queue_id}_{task:.0f}" if task is not None else f"{job.queue_id}_[{_cut(job.array_tasks, 40)}]"
    if job.het_job_id.value:
        return f"{job.queue_id}+{job.het_job_offset.value or 0:.0f}"
    return str(job.job_id)


def job_row(job: Job, *, now: float) -> Row:
    facts = jobfacts.facts(job)
    phase = job_phase(job)
    waits = phase == "waiting"
    found = marker.read(job.admin_comment)
    expected = reasons.expected_start(job, now=now) if waits else None
    started = 0 if waits else _whole(job.start_time)
    return [
        job.job_id,
        job_label(job),
        _cut(job.name, _NAME),
        _cut(job.user_name, _NAME),
        _cut(job.account, _NAME),
        _cut(facts.partition, _NAME),
        _cut(job.qos, _NAME),
        facts.state,
        phase,
        _cut(job.state_reason if job.state_reason != "None" else "", _TEXT),
        reasons.sentence(job.state_reason).outlook.value if waits else "",
        _whole(job.priority),
        facts.resources.cpus,
        facts.resources.memory,
        facts.resources.gpus,
        facts.resources.nodes,
        _cut(job.nodes if not waits else "", _TEXT),
        facts.tasks,
        _whole(job.submit_time),
        round(expected.timestamp()) if expected else started,
        _whole(job.end_time) if job.has_ended else 0,
        _limit(job.time_limit),
        _workload(found.group) if found else "",
    ]


def pod_row(pod: Pod, *, job_id: int | None, ours: bool) -> Row:
    milli, memory, gpus = _asked(pod)
    meta = pod.metadata
    return [
        str(meta.key),
        meta.namespace,
        meta.name,
        _pod_state(pod),
        "ending" if pod.leaving and not pod.finished else _POD_PHASES.get(pod.status.phase, "unknown"),
        _cut(_pod_reason(pod), _TEXT),
        pod.spec.node_name,
        job_id or 0,
        _cut(pod_workload(pod), _TEXT),
        1 if ours else 0,
        milli / _MILLI,
        memory,
        gpus,
        _moment(meta.creation_timestamp),
        _moment(pod.status.start_time),
    ]


def node_row(
    name: str,
    slurm: Node | None,
    kube: KubeNode | None,
    *,
    pods: int = 0,
    pod_milli: int = 0,
    health: NodeHealth | None = None,
) -> Row:
    """A machine, which Slurm or Kubernetes or both know."""
    kube_milli = _allocatable(kube, "cpu")
    cpus = slurm.cpus if slurm else 0
    return [
        name,
        kube.metadata.name if kube else "",
        nodestates.state(slurm.state) if slurm else "kubernetes",
        _cut(_block(slurm, kube), _NAME),
        [_cut(it, _NAME) for it in slurm.partitions] if slurm else [],
        cpus,
        slurm.alloc_cpus if slurm else 0,
        slurm.real_memory * _MIB if slurm else _allocatable(kube, "memory"),
        slurm.alloc_memory * _MIB if slurm else 0,
        *(node_gpus(slurm) if slurm else (_kube_gpus(kube), 0)),
        pods,
        pod_milli / _MILLI,
        kube_milli / _MILLI,
        _cut(slurm.reason, _TEXT) if slurm else "",
        _cut(slurm.reason_set_by_user, _NAME) if slurm and slurm.reason else "",
        _whole(slurm.reason_changed_at) if slurm and slurm.reason else 0,
        _kube_state(kube),
        health.status.phase or "Suspect" if health else "",
    ]


def node_gpus(node: Node) -> tuple[int, int]:
    """How many GPUs a node of Slurm has, and how many are in use."""
    return jobfacts.gpus(node.gres), jobfacts.gpus(node.gres_used)


def pod_workload(pod: Pod) -> str:
    """What a person would call the pod's workload: its gang, or the object that made it."""
    group = group_of(pod)
    if not group.single:
        return _workload(group)
    owner = pod.metadata.controller
    return f"{owner.kind} {pod.metadata.namespace}/{owner.name}" if owner else ""


def pod_milli_cpu(pod: Pod) -> int:
    """What a pod takes of its node's CPUs, in thousandths; nothing once it is over."""
    return 0 if pod.finished else _asked(pod)[0]


def _workload(group: GroupKey) -> str:
    return f"{group.kind.partition('.')[0]} {group.namespace}/{group.name}"


def _asked(pod: Pod) -> tuple[int, int, int]:
    try:
        shape = podshape.shape_of(pod)
    except Terminal:  # a quantity that Kubernetes takes and we do not
        return 0, 0, 0
    return shape.milli_cpu, shape.memory, sum(n for name, n in shape.devices.items() if _GPU in name)


def _pod_state(pod: Pod) -> str:
    """One word, as kubectl shows it."""
    if pod.leaving and not pod.finished:
        return "Terminating"
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if status.state.waiting and status.state.waiting.reason:
            return _cut(status.state.waiting.reason, _NAME)
    return _cut(pod.status.reason or pod.status.phase or "Unknown", _NAME)


def _pod_reason(pod: Pod) -> str:
    if pod.status.phase in {"Succeeded", "Running"} and not pod.leaving:
        return next(podtrouble.of_containers(pod), "") if pod.status.phase == "Running" else ""
    if pod.spec.scheduling_gates and not pod.bound:
        return f"held back by {', '.join(it.name for it in pod.spec.scheduling_gates)}"
    told = condition(pod.status.conditions, "PodScheduled")
    if told and told.status == "False":
        return told.message or told.reason
    return next(podtrouble.of_containers(pod), pod.status.message)


def _kube_state(kube: KubeNode | None) -> str:
    if kube is None:
        return ""
    ready = condition(kube.status.conditions, "Ready")
    if ready is None or ready.status != "True":
        return "not ready"
    return "cordoned" if kube.spec.unschedulable else "ready"


def _block(slurm: Node | None, kube: KubeNode | None) -> str:
    """Where the machine stands: Slurm's topology unit, a label of Kubernetes, or else the first partition."""
    if slurm and slurm.topology:
        return slurm.topology.partition(",")[0].rpartition(":")[2]
    labels = kube.metadata.labels if kube else EMPTY
    found = next((labels[it] for it in _PLACES if labels.get(it)), "")
    return found or (slurm.partitions[0] if slurm and slurm.partitions else "" if slurm else "Kubernetes only")


def _allocatable(kube: KubeNode | None, name: str) -> int:
    text = kube.status.allocatable.get(name, "") if kube else ""
    try:
        return podshape.measure(name, text) if text else 0
    except Terminal:
        return 0


def _kube_gpus(kube: KubeNode | None) -> int:
    found = ((name, text) for name, text in (kube.status.allocatable if kube else {}).items() if _GPU in name)
    try:
        return sum(quantity.whole(text) for _, text in found)
    except Terminal:
        return 0


def _whole(number: Number) -> int:
    """A count, or a second since 1970; 0 where there is none."""
    value = number.value
    return 0 if value is None or value == float("inf") else round(value)


def _moment(moment: datetime | None) -> int:
    return round(moment.timestamp()) if moment else 0


def _limit(minutes: Number) -> int:
    """In seconds; -1 where there is none."""
    return -1 if minutes.infinite else round((minutes.value or 0) * 60)


def _cut(text: str | None, most: int) -> str:
    return "" if not text else text if len(text) <= most else f"{text[: most - 1]}…"
