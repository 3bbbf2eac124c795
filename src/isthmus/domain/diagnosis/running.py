"""Whether the daemons of a cluster find, trust and understand each other, and Slurm has the nodes there are."""

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from isthmus.domain.diagnosis.facts import ClusterFacts, InsideFact, PodFact, SlurmNodeFact
from isthmus.domain.diagnosis.finding import Finding
from isthmus.domain.diagnosis.rooting import refused_by_plugin, waits_for_root
from isthmus.domain.languages.hostlist import fold
from isthmus.model.meta import condition

_SKEW_MOST: Final = 60.0
"""Seconds by which clocks may differ: credentials hold for five minutes, and a part of that is for the way."""

_STARTING: Final = 60.0
"""Seconds for which a worker may be on its way into Slurm."""

_FULL: Final = 95
_FIRST: Final = 5
"""How many of many pods or nodes are named."""

_AUTH_WORDS: Final = (
    "authentication",
    "credential",
    "munge",
    "unauthorized",
    "sack",
    "access/permission denied",
)
_CLOCK_WORDS: Final = ("expired", "rewound", "replayed", "clock", "in the future")
_NAME_WORDS: Final = ("resolve", "name or service not known", "unable to contact", "temporary failure")


def check_running(cluster: ClusterFacts) -> Iterator[Finding]:
    """Check what happens once daemons run."""
    yield from _names(cluster)
    clocks = list(_clocks(cluster))
    yield from clocks
    keys = list(_keys(cluster))
    yield from keys
    if not clocks and not keys:
        yield from _ping(cluster)
    yield from _disks(cluster)
    yield from _configuration(cluster)
    yield from _registration(cluster)
    yield from _states(cluster)
    yield from _accounting(cluster)
    yield from _rest(cluster)


def _names(cluster: ClusterFacts) -> Iterator[Finding]:
    for inside in cluster.insides:
        if not inside.unresolved:
            continue
        nothing = not inside.resolved
        yield Finding(
            area="names",
            what=f"{inside.pod} does not find {_some(inside.unresolved)} in DNS",
            where=f"pod {cluster.key.namespace}/{inside.pod}",
            why=(
                "it finds no name at all: the cluster's DNS does not answer, or its domain is another one"
                if nothing
                else "these pods have no address yet, or the headless Service does not select them"
            ),
            remedy=(
                "kubectl get pods -n kube-system -l k8s-app=kube-dns"
                if nothing
                else f"kubectl get endpointslices -n {cluster.key.namespace}",
                f"kubectl exec -n {cluster.key.namespace} {inside.pod} -- cat /etc/resolv.conf",
            ),
        )


def _clocks(cluster: ClusterFacts) -> Iterator[Finding]:
    known = [it for it in cluster.insides if it.clock is not None]
    worst: tuple[float, InsideFact, InsideFact] | None = None
    for one, other in combinations(known, 2):
        apart = abs((one.clock or 0.0) - (other.clock or 0.0)) - one.doubt - other.doubt
        if apart > _SKEW_MOST and (worst is None or apart > worst[0]):
            worst = (apart, one, other)
    if worst is None:
        return
    apart, one, other = worst
    places = {pod.name: pod.node for pod in cluster.pods}
    yield Finding(
        area="clock",
        what=f"the clocks of {one.pod} and {other.pod} are {apart:.0f} s apart",
        where=f"nodes {places.get(one.pod) or 'unknown'} and {places.get(other.pod) or 'unknown'}",
        why="credentials of auth/slurm and munge carry the time: what is too old or from the future is refused",
        remedy=("set the clocks of these nodes by NTP (chrony, systemd-timesyncd)",),
    )


def _keys(cluster: ClusterFacts) -> Iterator[Finding]:
    files = sorted({name for it in cluster.insides for name in it.keys})
    for name in files:
        holders: dict[str, list[str]] = {}
        for inside in cluster.insides:
            if name in inside.keys:
                holders.setdefault(inside.keys[name], []).append(inside.pod)
        if len(holders) < 2:  # noqa: PLR2004 - all have the same
            continue
        main = max(holders.values(), key=len)
        others = sorted(pod for pods in holders.values() if pods is not main for pod in pods)
        yield Finding(
            area="auth",
            what=f"{_some(others)} and {_some(sorted(main))} have different keys ({name})",
            where=f"pods of {cluster.key}",
            why="the Secret was changed and not all pods have taken it, so they refuse what the others sign",
            remedy=(
                f"see how far it is: kubectl describe -n {cluster.key.namespace} controller {cluster.controller}",
                f"a pod that stays behind is made anew: kubectl delete -n {cluster.key.namespace} pod {others[0]}",
            ),
        )
    asked = [it for it in cluster.insides if it.component in {"controller", "worker", "login"} and not it.trouble]
    without = sorted(it.pod for it in asked if not it.keys)
    if files and without:
        yield Finding(
            area="auth",
            what=f"{_some(without)} has no key of Slurm or munge",
            where=f"pods of {cluster.key}",
            why="the Secret with the key is not mounted there",
            remedy=(f"kubectl get secret -n {cluster.key.namespace} {cluster.controller}-auth",),
        )


def _ping(cluster: ClusterFacts) -> Iterator[Finding]:
    if cluster.ping is None or cluster.ping.ok:
        return
    said = cluster.ping.text
    words = said.lower()
    namespace = cluster.key.namespace
    controllers = [pod for pod in cluster.pods if pod.component == "controller"]
    name = controllers[0].name if controllers else "controller-0"
    logs = f"kubectl logs -n {namespace} {name} -c slurmctld --tail=50"
    if any(word in words for word in _CLOCK_WORDS):
        area, why = "clock", "a credential came too early or too late: clocks differ, or a pod was frozen"
    elif any(word in words for word in _AUTH_WORDS):
        area, why = "auth", "slurmctld does not accept the credential: another key, or munge does not run"
    elif any(word in words for word in _NAME_WORDS):
        area, why = "names", "slurmctld was not found or not reached"
    else:
        area, why = "starting", "slurmctld does not answer"
    if controllers and not any(pod.ready for pod in controllers):
        why = f"{name} is not ready; {why}"
    yield Finding(
        area=area,  # type: ignore[arg-type] # one of the four above
        what="slurmctld does not answer to the cluster's own tools",
        where=f"{cluster.kind} {cluster.key}",
        why=f"{why} ({said.strip().splitlines()[-1] if said.strip() else 'it said nothing'})",
        remedy=(logs,),
    )


def _disks(cluster: ClusterFacts) -> Iterator[Finding]:
    seen: set[str] = set()
    for inside in cluster.insides:
        for disk in inside.disks:
            shared = disk.path in {"/home", "/mnt/jail"}
            if max(disk.space, disk.files) < _FULL or (shared and disk.path in seen):
                continue
            seen.add(disk.path)
            what = "space" if disk.space >= _FULL else "files (inodes)"
            yield Finding(
                area="storage",
                what=f"{disk.path} of {inside.pod} is full: {max(disk.space, disk.files)} % of its {what}",
                where=f"pod {cluster.key.namespace}/{inside.pod}",
                why=(
                    "users' files, and what is installed for all"
                    if shared
                    else "slurmctld stops when it cannot write its state; slurmd drains its node"
                ),
                remedy=(
                    f"kubectl exec -n {cluster.key.namespace} {inside.pod} -- du -xhd1 {disk.path}",
                    "remove what is not needed, or give the claim more (spec.resources.requests.storage)",
                ),
            )


def _configuration(cluster: ClusterFacts) -> Iterator[Finding]:
    namespace = cluster.key.namespace
    for part in cluster.parts:
        applied = condition(part.conditions, "ConfigApplied")
        if applied and applied.status == "False":
            yield Finding(
                area="configuration",
                what="Slurm does not take its new configuration; it goes on with the old one",
                where=f"{part.kind} {namespace}/{part.name}",
                why=applied.message or applied.reason,
                remedy=(
                    f"mend it: kubectl edit -n {namespace} {cluster.kind.lower()} {cluster.key.name}",
                    (
                        f"what slurmctld said: kubectl logs -n {namespace}"
                        f" -l app.kubernetes.io/component=controller -c slurmctld --tail=20"
                    ),
                ),
            )
            return
    behind = sorted(it.pod for it in cluster.insides if cluster.config and it.config not in {"", cluster.config})
    if behind:
        yield Finding(
            area="configuration",
            what=f"{_some(behind)} has another slurm.conf than the cluster should have",
            where=f"ConfigMap {namespace}/{cluster.controller}-config",
            why="it is on its way (kubelet takes up to a minute where nobody hurries it), or reconfiguring failed",
            remedy=(
                f"isthmus cluster exec {cluster.key.name} -n {namespace} -- scontrol reconfigure",
                f"kubectl logs -n {namespace} {behind[0]} --all-containers --tail=20",
            ),
        )


def _registration(cluster: ClusterFacts) -> Iterator[Finding]:
    """Find workers that run and that Slurm does not know."""
    if cluster.nodes is None or waits_for_root(cluster):
        return
    known = {node.name for node in cluster.nodes}
    missing = [
        pod
        for pod in cluster.pods
        if pod.component == "worker"
        and pod.phase == "Running"
        and not pod.leaving
        and pod.host not in known
        and (pod.ready or pod.age is None or pod.age > _STARTING)
    ]
    if missing:
        first = missing[0]
        ready = "is ready" if first.ready else "runs"
        yield Finding(
            area="registration",
            what=f"{_some([pod.name for pod in missing])} {ready}, but is not a node of Slurm",
            where=f"pods of {cluster.key}",
            why="slurmd did not reach slurmctld, was refused, or MaxNodeCount is reached",
            remedy=(
                f"kubectl logs -n {cluster.key.namespace} {first.name} -c slurmd --tail=20",
                (
                    f"isthmus cluster exec {cluster.key.name} -n {cluster.key.namespace}"
                    f" -- scontrol show config | grep -i MaxNodeCount"
                ),
            ),
        )


def _states(cluster: ClusterFacts) -> Iterator[Finding]:
    """Find nodes that Slurm does not use, grouped by the reason that it gives."""
    pods = {pod.host: pod for pod in cluster.pods if pod.component == "worker"}
    groups: dict[tuple[str, str], list[SlurmNodeFact]] = {}
    for node in cluster.nodes or ():
        if trouble := _trouble(node, pods.get(node.name)):
            groups.setdefault((trouble, node.reason), []).append(node)
    run = f"isthmus cluster exec {cluster.key.name} -n {cluster.key.namespace} --"
    for (trouble, reason), nodes in sorted(groups.items()):
        if trouble == "drained" and (refused := refused_by_plugin(nodes, reason, cluster)):
            yield refused
            continue
        listed = fold(tuple(node.name for node in nodes))
        state, why, grave = {
            "invalid": (
                "registered with less than they promised (INVALID_REG)",
                reason or "a node has fewer CPUs or less memory than its NodeSet says",
                True,
            ),
            "down": ("DOWN", reason or "slurmd does not answer", True),
            "silent": ("not responding", reason or "slurmd does not answer", True),
            "drained": ("drained", reason or "no reason was given", False),
        }[trouble]
        resume = f"{run} scontrol update nodename={listed} state=resume"
        yield Finding(
            area="nodes",
            what=f"{len(nodes)} node{'s are' if len(nodes) > 1 else ' is'} {state}: {listed}",
            where=f"Slurm of {cluster.key}",
            why=why,
            remedy=(f"{run} scontrol show node {listed}", f"when it is mended: {resume}"),
            grave=grave,
        )


def _trouble(node: SlurmNodeFact, pod: PodFact | None) -> str:
    """Tell in which way a node is of no use; empty if it is of use, or if its pod says all there is to say."""
    states = {state.upper() for state in node.states}
    if "INVALID_REG" in states:
        return "invalid"
    if pod is not None and (pod.leaving or pod.unplaced or pod.holds):
        return ""
    if "DOWN" in states and not states & {"POWERED_DOWN", "POWERING_UP"}:
        return "down"
    if "NOT_RESPONDING" in states:
        return "silent"
    return "drained" if states & {"DRAIN", "DRAINED", "DRAINING", "FAIL"} else ""


def _accounting(cluster: ClusterFacts) -> Iterator[Finding]:
    if cluster.database is None or cluster.database.ok:
        return
    said = cluster.database.text.strip()
    namespace = cluster.key.namespace
    database = [pod for pod in cluster.pods if pod.component == "database"]
    away = bool(database) and not any(pod.ready for pod in database)
    yield Finding(
        area="accounting",
        what="accounting does not answer; jobs run, and their records wait in slurmctld",
        where=f"Accounting of {cluster.key}",
        why=f"the database is away: pod {database[0].name} is not ready"
        if away
        else said.splitlines()[-1]
        if said
        else "slurmdbd does not answer",
        remedy=(
            f"kubectl get pods -n {namespace} -l 'app.kubernetes.io/component in (accounting, database)'",
            f"kubectl logs -n {namespace} -l app.kubernetes.io/component=accounting --tail=20",
        ),
    )


def _rest(cluster: ClusterFacts) -> Iterator[Finding]:
    for part in cluster.parts:
        told = condition(part.conditions, "SlurmReachable")
        if part.kind not in {"Controller", "RestApi"} or told is None or told.status != "False":
            continue
        refused = "token" in told.message.lower() or "401" in told.message or "denied" in told.message.lower()
        yield Finding(
            area="rest",
            what="the operator's token is refused by slurmrestd" if refused else "the operator cannot ask Slurm",
            where=f"{part.kind} {cluster.key.namespace}/{part.name}",
            why=told.message or told.reason,
            remedy=(
                f"kubectl get pods -n {cluster.key.namespace} -l app.kubernetes.io/component=restapi",
                "the JWT key in the Secret and the one that slurmctld has must be the same:"
                f" kubectl describe -n {cluster.key.namespace} controller {cluster.controller}"
                if refused
                else f"kubectl logs -n {cluster.key.namespace} -l app.kubernetes.io/component=restapi --tail=20",
            ),
        )
        return


def _some(listed: list[str] | tuple[str, ...]) -> str:
    rest = len(listed) - _FIRST
    return ", ".join(listed[:_FIRST]) + (f" and {rest} more" if rest > 0 else "")
