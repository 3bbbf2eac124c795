"""Commands for node health: pause, resume, and return a node to service."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from isthmus.domain.health.policies import governing
from isthmus.errors import Retry, Terminal
from isthmus.inspect import clusterfacts, clusterinside
from isthmus.inspect.clusterfacts import ClusterReader
from isthmus.inspect.health import clusters_in
from isthmus.kube.client import Client
from isthmus.model.health import HEALTH_POLICIES, HealthPolicy, NodeHealth
from isthmus.model.meta import Key

DEFAULT_POLICY: Final = "default"
REASON_COMMAND: Final = "sinfo --all --noheader --nodes={node} --format=%E"


class Switch(msgspec.Struct, frozen=True):
    """One policy that is to be paused or resumed; `new` where it does not exist yet."""

    policy: Key
    new: bool = False
    done: bool = False
    """Whether it is so already."""


def switches(policies: Iterable[HealthPolicy], clusters: Iterable[Key], *, paused: bool) -> Iterator[Switch]:
    """List the policies that govern these clusters. To pause a cluster that has none, one is made."""
    known = {it.metadata.key: it for it in policies}
    wanted: dict[Key, Switch] = {}
    for cluster in clusters:
        policy = governing(known.values(), cluster)
        if policy is not None:
            key = policy.metadata.key
            wanted[key] = Switch(key, done=policy.spec.paused is paused)
        elif paused:
            key = Key(cluster.namespace, DEFAULT_POLICY)
            if key in known:
                # It is named so and is for another cluster: to take it would change what that one has.
                key = Key(cluster.namespace, cluster.name)
            wanted[key] = Switch(key, new=True)
    yield from (wanted[key] for key in sorted(wanted))


async def set_paused(client: Client, *, paused: bool, namespace: str = "") -> tuple[Switch, ...]:
    """Pause or resume the repair of nodes: of the clusters of one namespace, or of all."""
    reader = ClusterReader(client, namespace)
    policies = await reader.list(HEALTH_POLICIES, "HealthPolicies")
    clusters = await clusters_in(reader)
    if reader.troubles:
        what, why = next(iter(reader.troubles.items()))
        raise Terminal(f"{what} cannot be read: {why}")
    if not clusters:
        where = f" in the namespace {namespace}" if namespace else ""
        raise Terminal(f"there is no cluster{where}", remedy="isthmus cluster list")
    found = tuple(switches(policies, clusters, paused=paused))
    for switch in found:
        if switch.new:
            spec: dict[str, object] = {"paused": paused}
            if switch.policy.name != DEFAULT_POLICY:
                spec["slurmClusterRefName"] = switch.policy.name
            metadata = {"name": switch.policy.name, "namespace": switch.policy.namespace}
            await client.create(HEALTH_POLICIES, {"metadata": metadata, "spec": spec})
        elif not switch.done:
            await client.merge_patch(HEALTH_POLICIES, switch.policy, {"spec": {"paused": paused}})
    return found


async def release(client: Client, health: NodeHealth, *, now: float) -> None:
    """Resume a node in Slurm as a human does, which overrides its findings.

    The health loop sees that its drain was lifted, marks the findings as cleared, and acts again only when they
    are newly seen. So this needs no second way to tell it, and what we did not drain stays as it is.
    """
    cluster = Key(health.metadata.namespace, health.spec.cluster)
    node = health.spec.node
    if not health.status.reason:
        raise Terminal(
            f"node health does not hold {node}: it is {health.status.phase or 'Suspect'}",
            remedy=f"if it is drained, another user or tool did so: scontrol show node {node}",
        )
    found = await clusterfacts.find(ClusterReader(client, cluster.namespace))
    facts = next((it for it in clusterfacts.clusters_of(found, now=now) if it.key == cluster), None)
    command = f"scontrol update nodename={node} state=resume"
    if facts is None:
        raise Terminal(f"the cluster {cluster} is not in Kubernetes", remedy=f"where its Slurm runs: {command}")
    code, said = await clusterinside.in_slurm(client, facts, REASON_COMMAND.format(node=node).split())
    if code:
        raise Retry(f"Slurm of {cluster} does not answer: {said.strip() or f'exit code {code}'}")
    if (reason := reason_of(said)) and not same_reason(reason, health.status.reason):
        inside = f"isthmus cluster exec {cluster.name} -n {cluster.namespace} --"
        raise Terminal(
            f"{node} is drained for another reason: {reason}",
            remedy=f"if that is yours to lift: {inside} {command}",
        )
    code, said = await clusterinside.in_slurm(client, facts, command.split())
    if code:
        raise Retry(f"Slurm refused to resume {node}: {said.strip() or f'exit code {code}'}")


def reason_of(shown: str) -> str:
    """Read what `sinfo` prints for a node: its reason, once for each of its partitions, or "none"."""
    first = next(iter(shown.splitlines()), "").strip()
    return "" if first == "none" else first


def same_reason(shown: str, recorded: str) -> bool:
    """Compare what Slurm shows with what we wrote, whatever blanks it has kept."""
    return shown.split() == recorded.split()
