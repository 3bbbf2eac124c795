"""The options in the script of a check: its `#SBATCH` lines, and SBATCH_… variables.

sbatch reads them and slurmrestd does not, so this does. As with sbatch, variables count more than lines. An option
that is not known here is refused: a check that runs without what its author asked for proves nothing.
"""

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from isthmus.domain.languages import slurmtime
from isthmus.errors import Terminal

_SHORT: Final[Mapping[str, str]] = {
    "A": "account",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "L": "licenses",
    "N": "nodes",
    "c": "cpus-per-task",
    "e": "error",
    "i": "input",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}
_VARIABLES: Final[Mapping[str, str]] = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_CONSTRAINT": "constraint",
    "SBATCH_ERROR": "error",
    "SBATCH_EXCLUSIVE": "exclusive",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GRES": "gres",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_OUTPUT": "output",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_TIMELIMIT": "time",
}
_IGNORED: Final = frozenset(
    {
        "comment",
        "deadline",
        "export",
        "get-user-env",
        "input",
        "job-name",
        "no-requeue",
        "nodes",
        "open-mode",
        "parsable",
        "quiet",
        "requeue",
        "verbose",
    }
)
"""What is read elsewhere, or has no meaning here: the job bears the check's name, it is run again by its schedule,
and the script always has our environment."""

_FLAGS: Final = frozenset({"exclusive", "get-user-env", "no-requeue", "parsable", "quiet", "requeue", "verbose"})
"""Options that may stand without a value."""

_RELATIVE: Final = re.compile(r"now\+([0-9]{1,9})(seconds?|minutes?|hours?|days?|weeks?)?", re.ASCII)
_UNITS: Final = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_SIZE: Final = re.compile(r"([0-9]{1,15})([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_NODES: Final = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", re.ASCII)


_Reader = Callable[[str, str], Mapping[str, Any]]


class ScriptError(Terminal):
    """A script asks for something that it cannot have."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a script asks for."""

    fields: Mapping[str, Any] = {}
    """Fields of `model.slurm.JobRequest`, as plain values; sizes in MiB, times in minutes."""
    least_nodes: int = 1
    """How many nodes it needs at least. A range such as --nodes=2-8 says so; a plain number is what it gets."""
    nodes: int = 1
    """How many it asks for."""
    deadline: int = 0
    """Seconds from its submission after which it has no use; 0 if it says nothing."""
    gpus: bool = False
    """Whether it needs GPUs."""


def read(script: str, variables: Mapping[str, str]) -> Options:
    """Read what a script and SBATCH_… variables ask for."""
    asked = dict(_directives(script))
    for name, value in variables.items():
        if name.startswith("SBATCH_"):
            if name not in _VARIABLES:
                raise ScriptError(
                    f"the variable {name} is not supported for checks",
                    remedy=f"write the option into the script; variables are {', '.join(sorted(_VARIABLES))}",
                )
            asked[_VARIABLES[name]] = value
    return _options(asked)


def _directives(script: str) -> Iterator[tuple[str, str]]:
    """Go through the options of a script; they end with its first command, as for sbatch."""
    for number, line in enumerate(script.splitlines(), start=1):
        if line.startswith("#SBATCH"):
            try:
                words = shlex.split(line[len("#SBATCH") :], comments=True)
            except ValueError as error:
                raise ScriptError(f"line {number} of the script: {error}") from error
            yield from _pairs(words, where=f"line {number} of the script")
        elif line.strip() and not line.lstrip().startswith("#"):
            return


def _pairs(words: Sequence[str], *, where: str) -> Iterator[tuple[str, str]]:
    left = list(words)
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
        elif word.startswith("-") and word[1:2] in _SHORT:
            name, value = _SHORT[word[1]], word[2:].removeprefix("=")
            given = value
        else:
            raise ScriptError(f"{where}: {word[:60]!r} is not an option", remedy="write --name=value")
        if not given and name not in _FLAGS:
            if not left:
                raise ScriptError(f"{where}: --{name} needs a value")
            value = left.pop(0)
        yield name, value


def _options(asked: Mapping[str, str]) -> Options:
    fields: dict[str, Any] = {}
    tres: dict[str, list[str]] = {}
    for name, value in asked.items():
        if name in _TRES:
            tres.setdefault(_TRES[name], []).extend(_gres(name, value))
        elif name in _READERS:
            fields |= _READERS[name](name, value)
        elif name not in _IGNORED:
            raise ScriptError(
                f"the option --{name[:40]} is not supported in the script of a check",
                remedy="remove it, or run a script that submits what it needs as a k8sJob",
            )
    fields |= {where: ",".join(dict.fromkeys(wanted)) for where, wanted in tres.items() if wanted}
    least, nodes = _nodes(asked["nodes"]) if "nodes" in asked else (1, 1)
    return Options(
        fields=fields,
        least_nodes=least,
        nodes=nodes,
        deadline=_deadline(asked["deadline"]) if "deadline" in asked else 0,
        gpus=any(it.startswith("gres/gpu") for wanted in tres.values() for it in wanted),
    )


def _text(field: str) -> _Reader:
    return lambda _, value: {field: value}


def _list(field: str) -> _Reader:
    return lambda _, value: {field: (value,)}


def _count(field: str) -> _Reader:
    return lambda name, value: {field: _number(name, value)}


def _memory(field: str) -> _Reader:
    return lambda name, value: {field: _mebibytes(name, value)}


def _time(_: str, value: str) -> Mapping[str, Any]:
    limit = slurmtime.parse_duration(value)
    return {"time_limit": slurmtime.whole_minutes(limit)} if 0 < limit < math.inf else {}


def _gres(name: str, value: str) -> list[str]:
    if name != "gres":
        return [f"gres/gpu:{value}"]
    wanted = [it.removeprefix("gres/") for it in value.split(",")]
    return [f"gres/{it}" for it in wanted if it and it.lower() != "none"]


def _deadline(text: str) -> int:
    if match := _RELATIVE.fullmatch(text):
        return int(match[1]) * _UNITS[(match[2] or "").removesuffix("s")]
    raise ScriptError(f"--deadline={text[:40]} is not supported", remedy="write it as now+4hours")


def _nodes(text: str) -> tuple[int, int]:
    match = _NODES.fullmatch(text)
    if not match or not int(match[1]) or (match[2] and int(match[2]) < int(match[1])):
        raise ScriptError(f"--nodes={text[:40]} is not a number of nodes", remedy="write 4, or 2-4")
    return (int(match[1]), int(match[2])) if match[2] else (1, int(match[1]))


def _mebibytes(name: str, text: str) -> int:
    match = _SIZE.fullmatch(text)
    if not match:
        raise ScriptError(f"--{name}={text[:40]} is not an amount of memory", remedy="write 0, 512M or 4G")
    kibibytes = int(match[1]) * {"K": 1, "": 1024, "M": 1024, "G": 1024**2, "T": 1024**3}[match[2].upper()]
    return -(-kibibytes // 1024)


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", text, re.ASCII):
        raise ScriptError(f"--{name}={text[:40]} is not a number")
    return int(text)


_TRES: Final = {
    "gpus": "tres_per_job",
    "gpus-per-node": "tres_per_node",
    "gpus-per-task": "tres_per_task",
    "gres": "tres_per_node",
}
_READERS: Final[Mapping[str, _Reader]] = {
    **{name: _text(name) for name in ("account", "licenses", "partition", "qos", "reservation")},
    "chdir": _text("current_working_directory"),
    "constraint": _text("constraints"),
    "cpus-per-task": _count("cpus_per_task"),
    "error": _text("standard_error"),
    "exclude": _list("excluded_nodes"),
    "exclusive": lambda _, value: {"shared": (value or "none",)},
    "mem": _memory("memory_per_node"),
    "mem-per-cpu": _memory("memory_per_cpu"),
    "nice": _count("nice"),
    "nodelist": _list("required_nodes"),
    "ntasks": _count("tasks"),
    "ntasks-per-node": _count("tasks_per_node"),
    "output": _text("standard_output"),
    "time": _time,
}
