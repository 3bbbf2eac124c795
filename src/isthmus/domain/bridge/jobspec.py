"""The Slurm job that stands for a pod or a gang.

    one pod              one node, one task; the pod's CPUs, memory and devices
    gang, whole nodes    as many nodes as pods, one task on each; what the largest pod needs, per node
    gang, shared nodes   as many tasks as pods, wherever Slurm finds room; what the largest pod needs, per task

Slurm has one size for all tasks of a job, so the largest pod sets it. A request never shrinks: CPUs and MiB are
rounded up, and 0 (which Slurm reads as all the memory of the node) is never sent. Annotations can ask for more than
the pod requests, never for less: Kubernetes gives a pod what it requests, and Slurm would give that to others, too.

A pod's priority becomes `nice`, and only if the administrator turns that on: a raw `priority` would make the job
deaf to fair share, age and QOS forever, while nice moves it by that much and leaves all the rest in force. It
stays off by itself because Kubernetes lets every user use any PriorityClass, and our token may go below zero where
users may not.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from isthmus.domain.bridge.joboptions import LARGEST, MIB, JobOptions
from isthmus.domain.kube.podshape import Shape, largest
from isthmus.domain.languages import slurmtime, tres
from isthmus.domain.languages.gresnames import gres_of
from isthmus.errors import Terminal
from isthmus.model.slurm import JobRequest, Number

LONGEST_COMMENT: Final = 1024
EXTERNAL_JOB: Final = "EXTERNAL_JOB"

_DIRECTORY: Final = "/tmp"  # noqa: S108 - nothing is written there; Slurm wants one that every node has
_ENVIRONMENT: Final = ("PATH=/usr/local/bin:/usr/bin:/bin",)
"""slurmrestd refuses a job without any."""
_MAX_NICE: Final = LARGEST - 2
_MILLI: Final = 1000
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every job of the bridge, unless it asks for something else."""

    partition: str = ""
    mcs_label: str = ""
    exclusive: bool = True
    placeholder: Literal["external", "batch"] = "external"
    gres: Mapping[str, str] = MappingProxyType({})
    """The GRES of further extended resources; "" if Slurm does not count a resource."""
    nice_from_priority: bool = False
    """Whether the priority of pods counts in Slurm."""


def request(
    *,
    name: str,
    comment: str,
    admin_comment: str,
    shapes: Sequence[Shape],
    options: JobOptions,
    defaults: Defaults,
    minimum: int | None = None,
    slots: int | None = None,
    excluded_nodes: str = "",
    deadline_seconds: int = 0,
    pod_priority: int | None = None,
    script: str | None = None,
) -> JobRequest:
    """Make the job of one pod, or of a gang with room for `slots` pods, of which `minimum` must start together.

    `shapes` are those of the pods that are there; both numbers are theirs unless given. `excluded_nodes` is a host
    list, `script` what a batch placeholder runs. `comment` is sent as it is: whoever writes it has the one that is
    asked for in it.
    """
    if not shapes:
        raise ValueError("a job needs at least one pod")
    slots = max(slots or 0, len(shapes))
    exclusive = defaults.exclusive if options.exclusive is None else options.exclusive
    size = largest(shapes)
    cpus = max(options.cpus_per_task or 0, _cpus(size)) or None
    memory = -(-size.memory // MIB)
    gres = _gres(size, defaults, asked=options.gres or "") or None
    base = JobRequest(
        name=_checked(options.job_name or name, what="job name", most=255),
        comment=_checked(comment, what="comment", most=LONGEST_COMMENT),
        admin_comment=_checked(admin_comment, what="admin comment"),
        flags=(EXTERNAL_JOB,) if defaults.placeholder == "external" else (),
        script=_script(script, defaults),
        environment=_ENVIRONMENT,
        current_working_directory=_DIRECTORY,
        partition=options.partition or defaults.partition or None,
        account=options.account,
        qos=options.qos,
        reservation=options.reservation,
        mcs_label=options.mcs_label or defaults.mcs_label or None,
        wckey=options.wckey,
        licenses=options.licenses,
        dependency=options.dependency,
        constraints=options.constraints,
        cpus_per_task=cpus,
        excluded_nodes=(_checked(excluded_nodes, what="excluded nodes"),) if excluded_nodes else (),
        shared=("none",) if exclusive else (),
        time_limit=_time_limit(options, deadline_seconds),
        priority=None if options.priority is None else Number.of(options.priority),
        nice=_nice(options, pod_priority, defaults),
        begin_time=None if options.begin is None else Number.of(options.begin),
        requeue=options.requeue,
        user_id=options.user_id,
        group_id=options.group_id,
    )
    if exclusive or slots == 1:
        least, most = _nodes(options, minimum=minimum or slots, slots=slots)
        return msgspec.structs.replace(
            base,
            minimum_nodes=least,
            maximum_nodes=most,
            tasks=least if least == most else None,
            tasks_per_node=1,
            memory_per_node=_megabytes(max(options.memory_per_node or 0, memory)),
            tres_per_node=gres,
        )
    # All pods may come to be on one node. Only if there is enough for them all can it be given by the node.
    sized = (options.memory_per_node or 0) >= max(1, slots * memory)
    return msgspec.structs.replace(
        base,
        minimum_nodes=options.min_nodes,
        maximum_nodes=options.max_nodes,
        tasks=slots,
        memory_per_node=_megabytes(options.memory_per_node or 0) if sized else None,
        memory_per_cpu=None if sized else _megabytes(-(-memory // (cpus or 1))),
        tres_per_task=gres,
    )


def may_start_at_once(request: JobRequest) -> bool:
    """Whether an external job can be asked for as an allocation that starts now or not at all.

    Of such a request slurmctld takes the user of the token, whatever it says. A job that is held, or that waits for
    a time or another job, can only fail.
    """
    somebody_elses = request.user_id is not None or request.group_id is not None
    held = request.priority is not None and request.priority.value == 0
    later = request.begin_time is not None or request.dependency is not None
    return EXTERNAL_JOB in request.flags and not (somebody_elses or held or later)


def component_options(of_parts: Sequence[JobOptions]) -> list[JobOptions]:
    """Fit what is asked for to the components of one heterogeneous job, the leader first.

    They are one person's, begin together, and Slurm takes licences of the leader alone. Numbers of nodes are for
    the gang as a whole, and each component has the number of its pods.
    """
    leader, *others = (msgspec.structs.replace(options, min_nodes=None, max_nodes=None) for options in of_parts)
    common = {field: getattr(leader, field) for field in ("user_id", "group_id", "begin", "dependency")}
    return [leader, *(msgspec.structs.replace(options, licenses=None, **common) for options in others)]


def _nodes(options: JobOptions, *, minimum: int, slots: int) -> tuple[int, int]:
    """How many nodes, at least and at most, for pods of which each gets one."""
    least, most = options.min_nodes or min(minimum, slots), min(options.max_nodes or slots, slots)
    if least > slots:
        raise Terminal(
            f"min-nodes asks for {least} nodes, but there {'is' if slots == 1 else 'are'} {slots}"
            f" pod{'s' * (slots > 1)} to be placed together, each on one node",
            remedy='remove min-nodes, or have the pods placed together (a PodGroup, or gang: "true" on the Job)',
        )
    if least > most:
        raise Terminal(
            f"max-nodes asks for {most} nodes at most, but {least} pods need one each",
            remedy='raise max-nodes, or let the pods share nodes (exclusive: "false")',
        )
    return least, most


def _cpus(shape: Shape) -> int:
    return -(-shape.milli_cpu // _MILLI)


def _megabytes(amount: int) -> Number | None:
    return Number.of(amount) if amount else None


def _gres(shape: Shape, defaults: Defaults, *, asked: str) -> str:
    """The GRES of a pod: of each kind its devices, or what the annotation asks for if that is more."""
    if asked and shape.gres:
        raise Terminal(
            f"the annotation gres ({asked}) conflicts with resource claims, which take {', '.join(shape.gres)}",
            remedy="remove the annotation: claims are authoritative",
        )
    requested = Counter(_gres_of_devices(shape, defaults, known=not asked)) + Counter(shape.gres)
    wanted = Counter[str]()
    for it in tres.parse_gres(asked):
        wanted[f"{it.name}:{it.type}" if it.type else it.name] += it.count
    enough = {kind for kind in _kinds(wanted) if _total(wanted, kind) >= _total(requested, kind)}
    counted = {name: count for name, count in requested.items() if _kind(name) not in enough}
    untyped = sorted(name for name in counted if any(other.startswith(f"{name}:") for other in counted))
    if untyped:
        raise Terminal(
            f"one Slurm job cannot have {untyped[0]} both with and without a type, as in "
            f"{', '.join(sorted(shape.devices))}",
            remedy="request one kind of it, or use the annotation gres",
        )
    counts = {name: count for name, count in wanted.items() if _kind(name) in enough} | counted
    return ",".join(f"gres/{name}={count}" for name, count in counts.items())


def _kind(name: str) -> str:
    return name.partition(":")[0]


def _kinds(counts: Mapping[str, int]) -> set[str]:
    return {_kind(name) for name in counts}


def _total(counts: Mapping[str, int], kind: str) -> int:
    """Add up the counts of all types of a GRES."""
    return sum(count for name, count in counts.items() if _kind(name) == kind)


def _gres_of_devices(shape: Shape, defaults: Defaults, *, known: bool) -> dict[str, int]:
    """Count GRES by the devices of a pod, all of which have to be `known` unless an annotation names GRES."""
    counts: dict[str, int] = {}
    unknown = []
    for resource, count in sorted(shape.devices.items()):
        gres = gres_of(resource, defaults.gres)
        if gres is None:
            unknown.append(resource)
        elif gres:
            counts[gres] = counts.get(gres, 0) + count
    if unknown and known:
        raise Terminal(
            f"Slurm has no GRES for {', '.join(unknown)}",
            remedy=(
                "map it to a GRES in the configuration of the bridge (to an empty string if it is none), "
                "or use the annotation gres"
            ),
        )
    return counts


def _time_limit(options: JobOptions, deadline_seconds: int) -> Number | None:
    if options.time_limit is not None:
        return Number.of(options.time_limit)
    return Number.of(slurmtime.whole_minutes(deadline_seconds)) if deadline_seconds > 0 else None


def _nice(options: JobOptions, pod_priority: int | None, defaults: Defaults) -> int | None:
    if (
        options.nice is not None
        or options.priority is not None
        or not pod_priority
        or not defaults.nice_from_priority
    ):
        return options.nice
    return max(-_MAX_NICE, min(-pod_priority, _MAX_NICE))


def _script(script: str | None, defaults: Defaults) -> str | None:
    if (script is None) != (defaults.placeholder == "external"):
        raise ValueError("a batch placeholder needs a script, an external job takes none")
    return script


def _checked(text: str, *, what: str, most: int | None = None) -> str:
    """Refuse what slurmctld, its log or its accounting cannot handle. Others checked what annotations say."""
    if found := _CONTROL.search(text):
        raise Terminal(f"the {what} {text[:60]!r} contains the control character {found[0]!r}")
    if most is not None and len(text.encode()) > most:
        raise Terminal(f"the {what} {text[:60]!r}… is longer than {most} bytes", remedy="make it shorter")
    return text
