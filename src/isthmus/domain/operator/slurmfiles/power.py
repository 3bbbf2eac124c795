"""Power saving in slurm.conf: the nodes that exist only while jobs need them.

Such nodes stand in the file with all that they will have, so that jobs can be given nodes that are off. Slurm takes
their address from each registration: no name has to be known before there is a pod. The programs that Slurm calls
leave a record for people; what is to be done is read from the states of nodes, which no crash loses.

Only elastic nodes have a SuspendTime: no other node is ever powered down.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from isthmus.domain.elastic.policy import IDLE_S, longest_idle
from isthmus.domain.languages.slurmconf import Directive, Value
from isthmus.domain.operator.slurmfiles.nodes import Workers
from isthmus.model.slinky import NodeSet

RECORD: Final = "/var/spool/slurmctld/power.jsonl"
"""What Slurm asked for, one JSON object a line; the oldest lines are dropped."""

WAIT_FILE: Final = "power-wait"
"""What runs, as PrologSlurmctld, while the nodes of a job start."""

RESUME_TIMEOUT_S: Final = 1800
FIRST_WITH_TIME_PER_NODE: Final = (26, 5)
"""The release from which on a node can have a SuspendTime of its own."""

WAIT_FOR_NODES: Final = ("salloc_wait_nodes", "sbatch_wait_nodes", "requeue_on_resume_failure")
"""For SchedulerParameters: a job begins when all its nodes are up, and is requeued if one of them does not come."""

PARAMETERS: Final = ("idle_on_node_suspend", "power_save_interval=1", "power_save_min_interval=0")
"""For SlurmctldParameters."""

_GRACE_S: Final = 30
"""What Kubernetes gives a pod to end, where its template does not say it."""

_SLACK_S: Final = 30

_PROGRAM: Final = r"""#!/bin/bash
# Slurm calls this when it starts and stops nodes. It writes that down and no more: what is to be done, the
# operator reads from the states of nodes.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
record=@RECORD@
verb=${0##*/power-} nodes=${1-} jobs=null
[[ $nodes =~ ^[][A-Za-z0-9_.,-]+$ ]] || exit 0
if [[ -s ${SLURM_RESUME_FILE-} ]] && (( $(stat -Lc %s "$SLURM_RESUME_FILE") <= 65536 )); then
    jobs=$(tr -d '\n' < "$SLURM_RESUME_FILE")
fi
umask 027
exec 9>> "$record.lock"
flock -w 5 9 || exit 0
line='{"time":"%s","verb":"%s","nodes":"%s","resume":%s}\n'
printf "$line" "$(date -u +%FT%TZ)" "$verb" "$nodes" "$jobs" >> "$record"
if (( $(stat -c %s "$record") > 524288 )); then
    tail -c 262144 "$record" | tail -n +2 > "$record.new" && mv "$record.new" "$record"
fi
""".replace("@RECORD@", RECORD)

_WAIT: Final = r"""#!/bin/bash
# Slurm calls this when it has given nodes to a job. By itself it looks every 30 seconds whether they are up, and
# at the end of this: so this ends when they have. A few of these watch; other jobs wait for Slurm's next look.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
nodes=${SLURM_JOB_NODELIST-} job=${SLURM_JOB_ID-}
[[ $nodes =~ ^[][A-Za-z0-9_.,-]+$ && $job =~ ^[0-9]+$ ]] || exit 0
starting() {
    local states
    states=$(scontrol --oneliner show node "$nodes" 2> /dev/null) || exit 0
    [[ $states =~ \ State=[^\ ]*(POWERED_DOWN|POWERING_|POWER_UP) ]]
}
starting || exit 0
for slot in {1..8} none; do
    [[ $slot != none ]] || exit 0
    exec 9> "/run/slurmctld/power-wait.$slot"
    ! flock -n 9 || break
done
for (( tries = 1; tries <= 240; tries++ )); do
    sleep "$(( tries > 40 ? 2 : 0 )).5"
    starting || exit 0
    if (( tries % 10 == 0 )); then
        [[ $(squeue --noheader --job "$job" --format %T 2> /dev/null) == CONFIGURING ]] || exit 0
    fi
done
"""

_PROGRAMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ResumeProgram": "power-resume",
        "SuspendProgram": "power-suspend",
        "ResumeFailProgram": "power-resume-failed",
    }
)


def files(workers: Iterable[Workers]) -> dict[str, str]:
    """The programs that Slurm calls; none where no node is elastic."""
    if not any(it.elastic for it in workers):
        return {}
    return {**dict.fromkeys(_PROGRAMS.values(), _PROGRAM), WAIT_FILE: _WAIT}


def settings(workers: Iterable[Workers], *, directory: str) -> dict[str, Value]:
    """The settings of the whole cluster; none where no node is elastic."""
    elastic = [it for it in workers if it.elastic]
    if not elastic:
        return {}
    made: dict[str, Value] = {key: f"{directory}/{file}" for key, file in _PROGRAMS.items()}
    made |= {
        "ResumeTimeout": RESUME_TIMEOUT_S,
        "SuspendTimeout": max(_grace(it.nodeset) for it in elastic) + _SLACK_S,
        "ResumeRate": 0,
        "SuspendRate": 0,
        "PrologSlurmctld": f"{directory}/{WAIT_FILE}",
        # Powering down takes these states away, and with them what somebody has to look at.
        "SuspendExcStates": ("DOWN", "DRAIN", "FAIL"),
    }
    if kept := [f"{it.range}:{least}" for it in elastic if it.nodes and (least := floor(it.nodeset))]:
        made["SuspendExcNodes"] = tuple(kept)
    return made


def partition(each: Workers) -> Directive:
    """A partition that nobody uses, for what a release that knows no SuspendTime of nodes takes from partitions."""
    settings: dict[str, Value] = {
        "PartitionName": f"{each.name}-power",
        "Nodes": each.name,
        "Hidden": True,
        "State": "INACTIVE",
        "SuspendTime": idle_seconds(each.nodeset),
    }
    return Directive.of(settings)


def idle_seconds(nodeset: NodeSet) -> int:
    """For how long a node may be idle, whatever the hour: shorter times are kept by the operator."""
    spec = nodeset.spec
    return max(1, round(longest_idle(spec.autoscale, default=float(spec.suspend_time or IDLE_S))))


def floor(nodeset: NodeSet) -> int:
    """How many nodes are on at any hour: those that Slurm itself keeps."""
    policy = nodeset.policy
    if policy.dry_run or policy.budget:
        return 0
    given = (policy.min, *(it.min for it in policy.schedule if it.min is not None))
    most = (policy.max, *(it.max for it in policy.schedule))
    return min(*given, nodeset.spec.replicas, *(it for it in most if it is not None))


def _grace(nodeset: NodeSet) -> int:
    given = nodeset.spec.template.spec.get("terminationGracePeriodSeconds")
    return given if isinstance(given, int) else _GRACE_S
