"""The Slurm jobs of a run, as they are submitted."""

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

import msgspec

from isthmus.domain.health.activechecks import choice
from isthmus.domain.health.activechecks.plan import Part, Plan
from isthmus.domain.health.activechecks.scripts import Options
from isthmus.model.activecheck import ActiveCheck
from isthmus.model.slurm import JobRequest, Number

HIDDEN_PARTITION: Final = "hidden"
CHECK_USER: Final = "soperatorchecks"
_FALLBACK_USER: Final = "root"
USERS: Final = (CHECK_USER, _FALLBACK_USER)
"""Who runs a check that names no user: the first whom Slurm knows. Soperator makes the first one; root can always
run jobs, and checks what it likes."""

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DIRECTORY: Final = "/tmp"  # noqa: S108 - where a job starts that names no directory; nothing is written there
_NUMBERS: Final = ("time_limit", "memory_per_node", "memory_per_cpu")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What all jobs of a run have in common."""

    check: ActiveCheck
    uid: str
    """Of the Job: the seed of all choices."""
    script: str
    options: Options
    reservation: str = ""


def key(uid: str, place: int) -> str:
    """The key by which a job is submitted once."""
    return f"activecheck/{uid}/{place}"


def variables(check: ActiveCheck) -> dict[str, str]:
    """Read the variables of a check that have values; others, such as those from Secrets, stay in Kubernetes."""
    spec = check.spec.slurm_job_spec
    env = spec.job_container.env if spec else ()
    return {it["name"]: str(it["value"]) for it in env if it.get("name") and it.get("value") is not None}


def environment(check: ActiveCheck) -> tuple[str, ...]:
    """Make the variables of a job."""
    spec = check.spec.slurm_job_spec
    own = {name: value for name, value in variables(check).items() if not name.startswith("SBATCH_")}
    made = {"PATH": _PATH, **own, "ACTIVE_CHECK_NAME": check.metadata.name}
    if spec and spec.each_worker_jobs:
        made["EACH_WORKER_JOBS"] = "true"
    return tuple(f"{name}={value}" for name, value in made.items())


def partition(check: ActiveCheck, options: Options, there: Iterable[str]) -> str:
    """Choose the partition; empty for Slurm's default."""
    spec = check.spec.slurm_job_spec
    if spec and spec.partition:
        return spec.partition
    if HIDDEN_PARTITION in there:
        return HIDDEN_PARTITION
    return str(options.fields.get("partition", ""))


def users(check: ActiveCheck) -> tuple[str, ...]:
    """Who may run the jobs, the best first."""
    spec = check.spec.slurm_job_spec
    return (spec.user,) if spec and spec.user else USERS


def first_plan(run: Run, *, partition: str, nodes: Iterable[str], node: str, now: int) -> Plan:
    """Make the plan of a run on these usable nodes; with `node`, of a test of that one."""
    spec = run.check.spec.slurm_job_spec
    common: dict[str, Any] = {"partition": partition, "least": run.options.least_nodes, "begun": now}
    if node:
        return Plan(parts=(Part(node),), each=True, **common)
    if spec and spec.each_worker_jobs:
        picked = choice.chosen(nodes, limit=spec.max_number_of_jobs, seed=run.uid)
        return Plan(parts=tuple(map(Part, picked)), each=True, **common)
    return Plan(parts=(Part(),), **common)


def impossible(run: Run, plan: Plan, *, node: str, there: Container[str]) -> str:
    """Why a plan cannot be carried out; empty if it can. `there` are all nodes of Slurm."""
    if node and node not in there:
        return f"Slurm has no node {node}"
    if node and run.options.least_nodes > 1:
        return f"its script needs {run.options.least_nodes} nodes, so a single node cannot be tested"
    if not plan.parts:
        where = f" of partition {plan.partition}" if plan.partition else ""
        return f"no node{where} is usable: all are down, drained, reserved or being restarted"
    return ""


def request(run: Run, plan: Plan, place: int, *, now: int) -> JobRequest:
    part, options, spec = plan.parts[place], run.options, run.check.spec
    fields: dict[str, Any] = {
        "time_limit": -(-spec.active_deadline_seconds // 60),
        "standard_output": "/dev/null",
        "current_working_directory": _DIRECTORY,
        **{name: value for name, value in options.fields.items() if name != "partition"},
    }
    if plan.each or place:
        fields |= _placed(part, options)
    else:
        fields |= {"minimum_nodes": max(options.least_nodes, 1), "maximum_nodes": options.nodes}
        if options.least_nodes == 1:
            fields["minimum_nodes"] = options.nodes
    if run.reservation:
        fields["reservation"] = run.reservation
    fields |= {name: Number.of(fields[name]) for name in _NUMBERS if name in fields}
    later = choice.delay(run.uid, part.nodes, jitter=spec.jitter_seconds) if not place or plan.each else 0
    return JobRequest(
        name=run.check.metadata.name,
        script=run.script,
        environment=environment(run.check),
        comment=f"ActiveCheck {run.check.metadata.name}",
        partition=plan.partition or None,
        requeue=False,
        user_id=plan.user or None,
        begin_time=Number.of(now + later) if later else None,
        deadline=now + later + options.deadline if options.deadline else None,
        **fields,
    )


def _placed(part: Part, options: Options) -> Mapping[str, Any]:
    """Pin a job to its nodes. A number of tasks for the whole job is shared out among fewer nodes."""
    nodes = part.group
    placed: dict[str, Any] = {"required_nodes": nodes, "minimum_nodes": len(nodes), "maximum_nodes": len(nodes)}
    tasks = options.fields.get("tasks")
    if tasks and options.nodes > len(nodes):
        placed["tasks"] = max(1, tasks * len(nodes) // options.nodes)
    return placed
