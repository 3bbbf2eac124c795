"""Details of a job or a pod beside its row: its history in steps, and its properties by name."""

from typing import Final

from isthmus.domain.exporter import jobfacts
from isthmus.domain.views import rows
from isthmus.domain.web.trails import Step
from isthmus.model.node import Node as KubeNode
from isthmus.model.pod import Pod
from isthmus.model.slurm import Job, Node

_MAX_CHARS: Final = 12_000


def job_steps(job: Job, seen: tuple[Step, ...]) -> tuple[Step, ...]:
    """Slurm's own times, and what was seen between them."""
    told = [
        Step(number.value, state)
        for state, number in (("submitted", job.submit_time), ("eligible", job.eligible_time))
        if number.value
    ]
    submitted = told[0].at if told else 0
    reasons = [Step(max(it.at, submitted), it.state, it.why) for it in seen if it.state == "waiting" and it.why]
    phase = rows.job_phase(job)
    if phase != "waiting" and job.start_time.value:
        told.append(Step(job.start_time.value, "started", job.nodes or ""))
    if job.has_ended and job.end_time.value:
        told.append(Step(job.end_time.value, phase))
    return tuple(sorted((*told, *reasons), key=lambda it: it.at))


def pod_steps(pod: Pod) -> tuple[Step, ...]:
    steps = []
    if pod.metadata.creation_timestamp:
        steps.append(Step(pod.metadata.creation_timestamp.timestamp(), "pod created"))
    if pod.status.start_time:
        steps.append(Step(pod.status.start_time.timestamp(), "pod started", pod.spec.node_name))
    return tuple(steps)


def job_facts(job: Job) -> dict[str, str]:
    has, asks = jobfacts.counted(job.tres_allocated), jobfacts.counted(job.tres_requested)
    return _without_empty(
        {
            "name": job.name or "",
            "requested": job.tres_requested if asks.cpus or asks.nodes else "",
            "allocated": job.tres_allocated if has.cpus else "",
            "QOS": job.qos or "",
            "reservation": job.reservation or "",
            "dependency": job.dependency or "",
            "features": job.features or "",
            "working directory": job.work_directory or "",
            "output": job.standard_output or "",
            "restarts": str(job.restarts) if job.restarts else "",
            "exit code": f"{job.exit_code.return_code.value:.0f}" if job.exit_code.return_code.value else "",
            "comment": job.comment or "",
        }
    )


def pod_facts(pod: Pod) -> dict[str, str]:
    return _without_empty(
        {
            "workload": rows.pod_workload(pod),
            "scheduler": pod.spec.scheduler_name,
            "service account": pod.spec.service_account_name,
            "containers": ", ".join(it.name for it in pod.spec.containers),
            "priority class": pod.spec.priority_class_name,
            "address": pod.status.pod_ip,
        }
    )


def node_facts(slurm: Node | None, kube: KubeNode | None) -> dict[str, str]:
    found: dict[str, str] = {}
    if slurm:
        found |= {
            "Slurm state": "+".join(slurm.state),
            "Features": ", ".join(slurm.features),
            "GRES": slurm.gres,
            "Reservation": slurm.reservation,
            "slurmd": slurm.version,
            "Comment": slurm.comment,
        }
    if kube:
        taints = ", ".join(f"{it.key}:{it.effect}" for it in kube.spec.taints)
        found |= {"Kubernetes node": kube.metadata.name, "Taints": taints}
    return _without_empty(found)


def _without_empty(facts: dict[str, str]) -> dict[str, str]:
    """Leave out what is empty, and cut what is endless."""
    return {name: text[:_MAX_CHARS] for name, text in facts.items() if text}
