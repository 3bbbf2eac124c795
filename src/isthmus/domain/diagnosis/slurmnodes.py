"""Whether Slurm has the nodes that there are, and uses them."""

from collections.abc import Iterator
from typing import Final

from isthmus.domain.diagnosis.facts import ClusterFacts, Facts, PodFact, SlurmNodeFact
from isthmus.domain.diagnosis.finding import Finding
from isthmus.domain.diagnosis.health import held_nodes
from isthmus.domain.diagnosis.known import Known, about_pod
from isthmus.domain.diagnosis.sharedroot import refused_by_plugin, waits_for_root
from isthmus.domain.languages.hostlist import fold
from isthmus.domain.languages.prose import some
from isthmus.domain.operator.nodeset.drains import is_ours

_STARTING: Final = 60.0
"""Seconds for which a worker may be on its way into Slurm."""


def check_registration(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Find workers that run and that Slurm does not know."""
    del facts
    if cluster.nodes is None or waits_for_root(cluster):
        return
    there = {node.name for node in cluster.nodes}
    missing = [
        pod
        for pod in cluster.pods
        if pod.component == "worker"
        and pod.phase == "Running"
        and not pod.leaving
        and pod.host not in there
        and not known.explains_pod(pod)
        and (pod.ready or pod.age is None or pod.age > _STARTING)
    ]
    if missing:
        first = missing[0]
        ready = "is ready" if first.ready else "runs"
        yield Finding(
            area="registration",
            what=f"{some(pod.name for pod in missing)} {ready}, but is not a node of Slurm",
            where=f"pods of {cluster.key}",
            why="slurmd did not reach slurmctld, was refused, or MaxNodeCount is reached",
            remedy=(
                f"kubectl logs -n {cluster.key.namespace} {first.name} -c slurmd --tail=20",
                (
                    f"isthmus cluster exec {cluster.key.name} -n {cluster.key.namespace}"
                    f" -- scontrol show config | grep -i MaxNodeCount"
                ),
            ),
            subjects=tuple(map(about_pod, missing)),
        )


def check_states(cluster: ClusterFacts, facts: Facts, known: Known) -> Iterator[Finding]:
    """Find nodes that Slurm does not use, grouped by the reason that it gives."""
    held = held_nodes(facts, cluster.key)
    pods = {pod.host: pod for pod in cluster.pods if pod.component == "worker"}
    groups: dict[tuple[str, str], list[SlurmNodeFact]] = {}
    for node in cluster.nodes or ():
        pod = pods.get(node.name)
        if node.name in held and node.reason.split() == held[node.name].split():
            continue  # node health drained it, and says itself what comes next
        if (pod is None or not known.explains_pod(pod)) and (trouble := _trouble(node, pod)):
            groups.setdefault((trouble, node.reason), []).append(node)
    run = f"isthmus cluster exec {cluster.key.name} -n {cluster.key.namespace} --"
    for (trouble, reason), nodes in sorted(groups.items()):
        if trouble == "drained" and (refused := refused_by_plugin(nodes, reason, cluster)):
            yield refused
            continue
        listed = fold(tuple(node.name for node in nodes))
        state, why, grave = {
            "invalid": (
                "registered with fewer resources than configured (INVALID_REG)",
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
            remedy=(f"{run} scontrol show node {listed}", f"when it is fixed: {resume}"),
            grave=grave,
            subjects=tuple(about_pod(pods[it.name]) for it in nodes if it.name in pods),
        )


def _trouble(node: SlurmNodeFact, pod: PodFact | None) -> str:
    """In which way a node is of no use; empty if it is of use, or if its pod says all there is to say."""
    states = {state.upper() for state in node.states}
    if "INVALID_REG" in states:
        return "invalid"
    if pod is not None and (pod.leaving or pod.unplaced or pod.holds):
        return ""
    if "DOWN" in states and not states & {"POWERED_DOWN", "POWERING_UP"}:
        return "down"
    if "NOT_RESPONDING" in states and "POWERING_UP" not in states:
        return "silent"
    if states & {"POWERED_DOWN", "POWERING_DOWN"} and is_ours(node.reason):
        return ""  # its NodeSet says why it is not started
    return "drained" if states & {"DRAIN", "DRAINED", "DRAINING", "FAIL"} else ""
