"""What annotations ask of Slurm: one table of them, read and checked at once.

    slurmjob.slinky.slurm.net/partition: gpu
    slurmjob.slinky.slurm.net/timelimit: 1-12:00:00

The table is what `parse` reads by and what `docs/bridge-annotations.md` is made from, so the two cannot differ. The
first eighteen keys are slurm-bridge's. Keys may also carry the prefix that they had before slurm-bridge 1.0; where
both stand on one object, the newer prefix wins.

**Who has the last word.** An object's annotations are merged with those of the objects above it, from the inside
out, and the outer one wins field by field:

    configuration < what the pod's spec says < pod < its controller < … < outermost owner

CPUs, memory and GRES are never less than what the pod requests (`jobspec`).

A PodGroup of Kubernetes itself stands between the pod and its Job, and its Workload above all; any other object
that makes a gang (a PodGroup of scheduler-plugins, a LeaderWorkerSet) is the outermost. slurm-bridge reads the
outermost object alone (of built-in PodGroups: the group, then the Job, then the Workload, later ones winning), so
what its users wrote there keeps its meaning whatever else stands in their templates; what they could only write
there may now stand in a pod template, where it holds unless an object above says otherwise.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.domain.languages import quantity, slurmtime, tres
from isthmus.errors import IsthmusError, Terminal

MIB: Final = 1 << 20
LARGEST: Final = 2**31 - 1
_NO_ID: Final = 2**32 - 2
_MAX_CHARS: Final = 256


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked of Slurm; None is not asked for. `OPTIONS` says which annotation sets which field."""

    account: str | None = None
    constraints: str | None = None
    cpus_per_task: int | None = None
    exclusive: bool | None = None
    gres: str | None = None
    group_id: str | None = None
    job_name: str | None = None
    licenses: str | None = None
    max_nodes: int | None = None
    memory_per_node: int | None = None
    """In MiB, as everywhere in Slurm."""
    min_nodes: int | None = None
    partition: str | None = None
    priority: int | None = None
    qos: str | None = None
    reservation: str | None = None
    time_limit: float | None = None
    """In minutes; infinite for no limit."""
    user_id: str | None = None
    wckey: str | None = None
    begin: int | None = None
    """In seconds since 1970."""
    comment: str | None = None
    dependency: str | None = None
    gang: bool | None = None
    mcs_label: str | None = None
    nice: int | None = None
    requeue: bool | None = None


NOTHING: Final = JobOptions()


class Option(msgspec.Struct, frozen=True):
    """One annotation: its key behind the prefix, the field of `JobOptions`, how it is read, and what it means."""

    key: str
    field: str
    read: Callable[[str], Any]
    """Raises ValueError (or one of ours) for what it cannot read; `expects` then says what it could."""
    expects: str
    meaning: str
    example: str


def parse(annotations: Mapping[str, str], *, where: str = "") -> JobOptions:
    """Read what annotations ask of Slurm; one error names everything that is wrong with them.

    `where` says whose they are, such as "Job default/train".
    """
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for name, text, option in _of_the_family(annotations):
        if option is None:
            wrong.append(_unknown(name))
            continue
        try:
            found[option.field] = option.read(text.strip())
        except (ValueError, IsthmusError):
            wrong.append(f"{name} is {text[:80]!r}, expected {option.expects}")
    if wrong:
        whose = f"{where}: " if where else ""
        count = "an annotation" if len(wrong) == 1 else f"{len(wrong)} annotations"
        raise Terminal(f"{whose}{count} cannot be used: {'; '.join(wrong)}", remedy=_REMEDY)
    return JobOptions(**found) if found else NOTHING


def merge(*layers: JobOptions) -> JobOptions:
    """Lay one over the other: in each field, the last that asks for something has its way."""
    merged = {
        field: value
        for options in layers
        for field in JobOptions.__struct_fields__
        if (value := getattr(options, field)) is not None
    }
    return JobOptions(**merged)


def _of_the_family(annotations: Mapping[str, str]) -> Iterator[tuple[str, str, Option | None]]:
    """Find the annotations that are for Slurm, and the option of each; None where there is no such option."""
    for name, text in annotations.items():
        if name.startswith(names.JOB_ANNOTATIONS):
            yield name, text, _BY_KEY.get(name.removeprefix(names.JOB_ANNOTATIONS))
        elif name.startswith(names.JOB_ANNOTATIONS_OLD):
            key = name.removeprefix(names.JOB_ANNOTATIONS_OLD)
            if names.JOB_ANNOTATIONS + key in annotations or name in _OTHERS:
                continue
            # Others use this prefix too, so what looks like none of our keys is none of our business.
            if key in _BY_KEY or _nearest(key, cutoff=0.85):
                yield name, text, _BY_KEY.get(key)


def _unknown(name: str) -> str:
    prefix, _, key = name.rpartition("/")
    nearest = _nearest(key, cutoff=0.6)
    return f"{name} is unknown" + (f", did you mean {prefix}/{nearest}?" if nearest else "")


def _nearest(key: str, *, cutoff: float) -> str:
    return next(iter(get_close_matches(key, _BY_KEY, n=1, cutoff=cutoff)), "")


def _matching(pattern: str, *, most: int = _MAX_CHARS) -> Callable[[str], str]:
    form = re.compile(pattern, re.ASCII)

    def read(text: str) -> str:
        if len(text) > most or not form.fullmatch(text):
            raise ValueError(text)
        return text

    return read


def _between(least: int, most: int = LARGEST) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", text, re.ASCII) or not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)

    return read


def _yes_or_no(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()] if text.lower() in {"true", "false"} else _refuse(text)


def _cpus(text: str) -> int:
    cpus = quantity.whole(text)
    return cpus if 1 <= cpus <= LARGEST else _refuse(text)


def _memory(text: str) -> int:
    size = quantity.whole(text)
    # Less than a mebibyte is a mistake: mostly Slurm's megabytes written as bytes.
    return -(-size // MIB) if MIB <= size <= LARGEST * MIB else _refuse(text)


def _minutes(text: str) -> float:
    seconds = slurmtime.parse_duration(text)
    minutes = slurmtime.whole_minutes(seconds)
    return minutes if minutes == math.inf or 1 <= minutes <= LARGEST else _refuse(text)


def _id(text: str) -> str:
    """Read a user or group. A number is rewritten: 00 is root as well, and 2**32 would come round to it."""
    if re.fullmatch(r"[0-9]{1,10}", text, re.ASCII):
        return str(int(text)) if int(text) < _NO_ID else _refuse(text)
    return (
        text if len(text) <= _MAX_CHARS and re.fullmatch(r"[A-Za-z_][\w.@-]*\$?", text, re.ASCII) else _refuse(text)
    )


def _gres(text: str) -> str:
    """Check GRES; what comes without `gres/` gets it, since that is what slurmctld wants to see."""
    kinds = text.split(",")
    if not text or any(gres.place or not gres.count for gres in tres.parse_gres(text)):
        raise ValueError(text)
    return ",".join(f"gres/{kind.removeprefix('gres:').removeprefix('gres/')}" for kind in kinds)


def _moment(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,10}", text, re.ASCII):
        return int(text)
    moment = datetime.fromisoformat(text)
    # Without a zone it would be Slurm's, which is not known here.
    return math.ceil(moment.timestamp()) if moment.tzinfo and moment.timestamp() >= 0 else _refuse(text)


def _printable(most: int) -> Callable[[str], str]:
    def read(text: str) -> str:
        return text if text and len(text.encode()) <= most and text.isprintable() else _refuse(text)

    return read


def _refuse(text: str) -> Any:
    raise ValueError(text)


_NAME = r"[\w.@+:=%/-]+"
_NAMES = rf"{_NAME}(?:,{_NAME})*"
# Everything that can be seen but for quotes, the backslash and what a shell would take for its own.
_EXPRESSION = r"""(?:(?!["'`\\$;<>])[!-~])+"""
_AFTER = (
    r"(?:after|afterany|afterburstbuffer|aftercorr|afternotok|afterok)(?::[0-9]+(?:_(?:[0-9]+|\*))?(?:\+[0-9]+)?)+"
)
_CONDITION = rf"(?:{_AFTER}|singleton)"
_DEPENDENCY = rf"{_CONDITION}(?:,{_CONDITION})*|{_CONDITION}(?:\?{_CONDITION})*"

OPTIONS: Final = (
    Option(
        "account", "account", _matching(_NAME), "the name of an account", "The account that is charged.", "physics"
    ),
    Option(
        "constraints",
        "constraints",
        _matching(_EXPRESSION, most=1024),
        "features as `sbatch --constraint` takes them, without blanks or quotes",
        "The features that nodes must have.",
        "a100&nvlink",
    ),
    Option(
        "cpu-per-task",
        "cpus_per_task",
        _cpus,
        "a quantity above 0, such as 2 or 1500m",
        "CPUs for each pod, where that is more than its containers request; rounded up.",
        "4",
    ),
    Option(
        "exclusive",
        "exclusive",
        _yes_or_no,
        '"true" or "false"',
        "Whether the job has its nodes for itself. Without it, the BridgePolicy or else the configuration decides.",
        "false",
    ),
    Option(
        "gres",
        "gres",
        _gres,
        "generic resources such as gres/gpu:a100=2 or gpu:2, several separated by commas",
        "Generic resources for each pod (of a job with whole nodes: for each node). Of each kind, the devices that"
        " its containers request count where they are more.",
        "gres/gpu:a100=2,gres/shard=1",
    ),
    Option(
        "group-id",
        "group_id",
        _id,
        "the name or number of a group",
        "The group that the job runs as. Needs a BridgePolicy that allows it.",
        "physics",
    ),
    Option(
        "job-name",
        "job_name",
        _printable(255),
        "up to 255 printable characters",
        "The job's name in Slurm. Without it, that of the pod or gang.",
        "train-1",
    ),
    Option(
        "licenses",
        "licenses",
        _matching(_EXPRESSION, most=1024),
        "licences as `sbatch --licenses` takes them, such as matlab:2",
        "Licences that the job takes.",
        "matlab:2",
    ),
    Option(
        "max-nodes",
        "max_nodes",
        _between(1),
        "a whole number from 1",
        "Nodes that a gang gets at most. Never more than it has pods.",
        "8",
    ),
    Option(
        "mem-per-node",
        "memory_per_node",
        _memory,
        "a quantity from 1Mi, such as 4Gi (a number alone is bytes)",
        "Memory on each node, where that is more than containers request; rounded up to whole MiB.",
        "16Gi",
    ),
    Option(
        "min-nodes",
        "min_nodes",
        _between(1),
        "a whole number from 1",
        "Nodes that a gang needs at least, instead of its minimum of members.",
        "4",
    ),
    Option(
        "partition",
        "partition",
        _matching(_NAMES, most=1024),
        "the name of a partition, or several separated by commas",
        "The partition; of several, the one that can start the job first.",
        "gpu",
    ),
    Option(
        "priority",
        "priority",
        _between(0),
        f"a whole number from 0 (held) to {LARGEST}",
        "The job's priority, instead of one from fair share and age; 0 holds the job. Needs a BridgePolicy that"
        " allows it.",
        "1000",
    ),
    Option("qos", "qos", _matching(_NAMES), "the name of a QOS", "The quality of service.", "high"),
    Option(
        "reservation",
        "reservation",
        _matching(_NAMES, most=1024),
        "the name of a reservation, or several separated by commas",
        "The reservation that the job runs in.",
        "maintenance",
    ),
    Option(
        "timelimit",
        "time_limit",
        _minutes,
        "minutes above 0, or as Slurm writes it: 1:30:00, 2-12, 1-00:00:00, INFINITE",
        "How long the job may run. Without it, activeDeadlineSeconds of the Job or the pod, else Slurm's own.",
        "1-12:00:00",
    ),
    Option(
        "user-id",
        "user_id",
        _id,
        "the name or number of a user",
        "The user that the job runs as. Needs a BridgePolicy that allows it.",
        "alice",
    ),
    Option("wckey", "wckey", _matching(_NAME), "a workload key", "The workload key for the accounts.", "paper-7"),
    Option(
        "begin",
        "begin",
        _moment,
        "a time with its zone such as 2027-01-31T06:00:00+01:00, or seconds since 1970",
        "The time before which the job does not start.",
        "2027-01-31T06:00:00Z",
    ),
    Option(
        "comment",
        "comment",
        _printable(512),
        "up to 512 printable characters",
        "A comment for the job, before the one that names its pods.",
        "night run",
    ),
    Option(
        "dependency",
        "dependency",
        _matching(_DEPENDENCY, most=4096),
        "dependencies as `sbatch --dependency` takes them, such as afterok:1234",
        "Slurm jobs that this one waits for.",
        "afterok:1234:1235",
    ),
    Option(
        "gang",
        "gang",
        _yes_or_no,
        '"true" or "false"',
        "On a Job or JobSet: its pods are one Slurm job and start together or not at all. "
        'With "false", pods of Ray, Kubeflow, Volcano and Kueue start one by one.',
        "true",
    ),
    Option(
        "mcs-label",
        "mcs_label",
        _matching(_NAME),
        "an MCS label",
        "The job's security label, instead of the configured one. Needs a BridgePolicy that allows it.",
        "secret",
    ),
    Option(
        "nice",
        "nice",
        _between(0, LARGEST - 2),
        "a whole number from 0",
        "How much to lower the job's priority, as `sbatch --nice` does.",
        "100",
    ),
    Option(
        "requeue",
        "requeue",
        _yes_or_no,
        '"true" or "false"',
        "Whether Slurm may requeue the job when a node fails or another job preempts it.",
        "false",
    ),
)
"""Every annotation that there is, slurm-bridge's own first."""

OF_SLURM_BRIDGE: Final = 18
"""So many of them come from slurm-bridge."""

_BY_KEY: Final = {option.key: option for option in OPTIONS}
_OTHERS: Final = frozenset({names.POD_NODE_ANNOTATION, names.NODE_NAME_LABEL})
_REMEDY: Final = "correct them; docs/bridge-annotations.md lists all of them, with examples"
