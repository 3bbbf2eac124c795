"""What small scripts print inside pods, read into facts.

`INSIDE` runs in every kind of pod and looks around: its clock, its keys (a fingerprint of each), the names that it
can resolve, its disks. `ASK` runs where Slurm's commands work, and asks them. Each prints lines of fields between
tabs, and texts in base64, so that nothing that a program says can be taken for something else.
"""

import re
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Iterator, Mapping
from typing import Final

from isthmus.domain.diagnosis.facts import Answer, DiskFact, InsideFact, SlurmNodeFact

INSIDE: Final = r"""
printf 'time\t%s\n' "$(date +%s.%N)"
for file in /etc/slurm/slurm.jwks /etc/slurm/slurm.key /run/secrets/munge/munge.key; do
    [ -r "$file" ] && printf 'key\t%s\t%s\n' "${file##*/}" "$(sha256sum < "$file" | cut -c 1-16)"
done
for file in /etc/slurm/slurm.conf /run/slurm/conf/slurm.conf /var/spool/slurmd/conf-cache/slurm.conf; do
    [ -r "$file" ] && { printf 'conf\t%s\n' "$(sha256sum < "$file" | cut -d ' ' -f 1)"; break; }
done
for path in /mnt/jail /home /var/spool/slurmctld /var/spool/slurmd /var/lib/mysql; do
    [ -d "$path" ] || continue
    printf 'disk\t%s\t%s\t%s\n' "$path" "$(df -P "$path" | awk 'END { print $5 }')" \
        "$(df -Pi "$path" | awk 'END { print $5 }')"
done
for name in "$@"; do
    if getent ahosts "$name" > /dev/null; then found=yes; else found=no; fi
    printf 'name\t%s\t%s\n' "$name" "$found"
done
true
"""

ASK: Final = r"""
answers=$(mktemp -d)
ask() {
    what=$1; shift
    said=$(timeout 10 "$@" 2>&1)
    printf '%s\t%s\t%s\n' "$what" "$?" "$(printf '%s' "$said" | base64 -w 0)" > "$answers/$what"
}
# All at the same time: a slurmctld that hangs lets each of them wait for as long as it may.
ask ping scontrol ping &
ask nodes scontrol -o show nodes &
ask jobs squeue -h -a -r -o %T &
[ "$1" != accounting ] || ask database sacctmgr -n -P show cluster format=cluster &
wait
cat "$answers"/*
rm -r "$answers"
"""

_FIELD: Final = re.compile(r"(?:^|\s)(NodeName|State|Reason)=")


def read_inside(pod: str, component: str, text: str, *, asked: float, answered: float) -> InsideFact:
    """Read what `INSIDE` printed; `asked` and `answered` are by our own clock."""
    clock = None
    keys: dict[str, str] = {}
    resolved: list[str] = []
    unresolved: list[str] = []
    disks: list[DiskFact] = []
    config = ""
    for fields in _lines(text):
        match fields:
            case ["time", moment] if _is_number(moment):
                clock = float(moment)
            case ["key", name, fingerprint]:
                keys[name] = fingerprint
            case ["conf", fingerprint]:
                config = fingerprint
            case ["disk", path, space, files]:
                disks.append(DiskFact(path=path, space=_percent(space), files=_percent(files)))
            case ["name", name, found]:
                (resolved if found == "yes" else unresolved).append(name)
    middle, doubt = (asked + answered) / 2, (answered - asked) / 2
    return InsideFact(
        pod=pod,
        component=component,
        clock=None if clock is None else clock - middle,
        doubt=doubt,
        keys=keys,
        resolved=tuple(resolved),
        unresolved=tuple(unresolved),
        disks=tuple(disks),
        config=config,
    )


def read_answers(text: str) -> Mapping[str, Answer]:
    """Read what `ASK` printed: what each command said, by its name."""
    answers = {}
    for fields in _lines(text):
        match fields:
            case [what, code, said] if code.isdecimal():
                try:
                    told = b64decode(said, validate=True).decode(errors="replace")
                except NoBase64:
                    continue
                answers[what] = Answer(code=int(code), text=told)
    return answers


def read_nodes(text: str) -> tuple[SlurmNodeFact, ...]:
    """Read `scontrol -o show nodes`: a node in each line, its states joined by plus signs."""
    found = []
    for line in text.splitlines():
        settings = dict(_settings(line))
        if "NodeName" in settings:
            # IDLE*+DRAIN: the star says that it does not respond.
            states = tuple(state.strip("*~#!%$@^-") for state in settings.get("State", "").split("+"))
            silent = "*" in settings.get("State", "")
            reason = settings.get("Reason", "")
            found.append(
                SlurmNodeFact(
                    name=settings["NodeName"],
                    states=(*states, "NOT_RESPONDING") if silent and "NOT_RESPONDING" not in states else states,
                    reason="" if reason == "(null)" else reason,
                )
            )
    return tuple(found)


def read_jobs(text: str) -> Mapping[str, int]:
    """Count jobs by their state."""
    counts: dict[str, int] = {}
    for state in text.split():
        counts[state.lower()] = counts.get(state.lower(), 0) + 1
    return counts


def _settings(line: str) -> Iterator[tuple[str, str]]:
    """Find the settings that are read; a reason has spaces in it, and is the last but for comments."""
    for match in _FIELD.finditer(line):
        rest = line[match.end() :]
        if match[1] == "Reason":
            yield "Reason", re.split(r"\s+(?:Comment|Extra|InstanceId)=", rest)[0].strip()
        else:
            yield match[1], rest.split(maxsplit=1)[0] if rest.strip() else ""


def _lines(text: str) -> Iterator[list[str]]:
    return (line.split("\t") for line in text.splitlines() if "\t" in line)


def _percent(text: str) -> int:
    digits = text.removesuffix("%")
    return int(digits) if digits.isdecimal() else 0


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()
