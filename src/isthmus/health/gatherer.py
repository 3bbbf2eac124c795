"""Puts together what is known of a cluster's nodes, from caches alone: one `ClusterView` for one decision."""

import math
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from isthmus import names
from isthmus.clock import utc_now
from isthmus.domain.health import manualruns, observations, policies
from isthmus.domain.health.activechecks.results import CheckResult, results
from isthmus.domain.health.observations import Settings
from isthmus.domain.health.reboots import REBOOTED
from isthmus.domain.health.replacement import (
    Replacement,
    not_ready_for_long,
    not_ready_since,
    permitted,
)
from isthmus.domain.health.view import ClusterView, NodeView, Observation, TestView
from isthmus.domain.kube.blocks import block_of
from isthmus.domain.operator.nodeset.drains import held_reason
from isthmus.domain.operator.nodeset.identity import mode_of
from isthmus.domain.operator.nodeset.view import PodView
from isthmus.domain.operator.partnames import slurm_nodeset
from isthmus.health.passivetests import PassiveTests
from isthmus.health.world import HealthWorld
from isthmus.model.health import HealthPolicy, HealthPolicySpec, NodeHealth
from isthmus.model.meta import Key, condition
from isthmus.model.node import Node
from isthmus.model.pod import Pod
from isthmus.model.slurm import Node as SlurmNode
from isthmus.operator.nodesets.gatherer import is_ready

EXTERNAL: Final = "external"
"""Stands for a NodeSet where nodes are the bridge's."""

_EXTERNAL_STATE: Final = "EXTERNAL"
_CLAIM_S: Final = 60.0
"""For so long a reboot that was decided counts before the caches show it."""


class Memory:
    """What this process has just done to a cluster and its caches do not show yet. It decides nothing."""

    def __init__(self) -> None:
        self.wrote_slurm_at = float("-inf")
        """When we changed something in Slurm last: what was read before says nothing of it."""
        self.restarted_at = math.inf
        """When slurmctld was seen to be another one, until a decision has been carried out that knew it."""
        self.first = True
        """Whether this process has not carried out a decision yet."""
        self.can_reserve = True
        self.reserved: frozenset[str] | None = None
        """Nodes that our reservations hold, as read for this look; None if that is not known. Slurm shows it on the
        nodes, too, but seconds later."""
        self.nodesets: dict[str, str] = {}
        """The NodeSets of nodes: one whose pod is being replaced still counts for its own."""
        self.requeued: dict[str, float] = {}
        """When the jobs of nodes were requeued last: some cannot be, and to ask for all jobs costs."""
        self.not_ready_in: float | None = None
        """In how many seconds a kubelet will have been away for long enough to count; Kubernetes tells us once."""


class Checked:
    """What active checks say of one node."""

    def __init__(self) -> None:
        self.checks: set[str] = set()
        self.found: list[Observation] = []
        self.passed: dict[str, datetime] = {}

    def add(self, result: CheckResult, *, in_slurm: bool) -> None:
        self.checks.add(result.check)
        if result.result == "Passed" and result.wants in {"drain", "comment"}:
            # A check whose success is the finding. To run it again could not show that it is over.
            self.found.append(_observed(result, wants=result.wants, test=False, in_slurm=in_slurm))
        elif result.result == "Passed":
            self.passed[result.check] = result.at
            if result.wants == "undrain" and result.reason:
                self.passed[result.reason] = result.at  # the beginning of the reasons that it lifts
        elif result.result == "Failed":
            wants = result.wants if result.wants != "undrain" else ""
            self.found.append(_observed(result, wants=wants, test=result.test, in_slurm=in_slurm))


def _observed(
    result: CheckResult, *, wants: Literal["", "comment", "drain"], test: bool, in_slurm: bool
) -> Observation:
    return Observation(
        source="check",
        check=result.check,
        evidence=result.evidence,
        at=result.at,
        wants=wants,
        reason=result.reason,
        test=test,
        in_slurm=in_slurm,
    )


_NOTHING: Final = Checked()


@dataclass(eq=False)
class Gatherer:
    """Reads the caches for one cluster after the other."""

    world: HealthWorld
    settings: Settings
    replacement: Replacement
    passive: PassiveTests
    _claims: dict[str, float] = field(default_factory=dict, init=False)

    def look(self, cluster: Key, memory: Memory) -> ClusterView:
        """Read everything that bears on the nodes of a cluster."""
        world, now = self.world.operator, utc_now()
        slurm = world.slurms.of(cluster)
        slurm_nodes: Mapping[str, SlurmNode] = slurm.nodes if slurm else {}
        healths = self.world.healths_of(cluster)
        places = {name: self._place(cluster, name, slurm_nodes.get(name)) for name in {*slurm_nodes, *healths}}
        on_machine = _by_machine(places)
        said = self._said(cluster)
        checks = self.world.checks.by("cluster", cluster)
        tests = {it.metadata.name for it in checks if it.spec.check_type == "slurmJob"}
        nodes = {}
        for name, (pod, machine) in places.items():
            node, health = slurm_nodes.get(name), healths.get(name)
            checked = said.get(name, _NOTHING)
            seen = observations.of_node(
                node,
                machine,
                health=health,
                settings=self.settings,
                now=now,
                checks=checked.checks,
                tests=tests,
                devices=self.world.devices_of(machine.metadata.name) if machine else (),
            )
            nodes[name] = NodeView(
                name=name,
                slurm=node,
                nodeset=self._nodeset(cluster, name, pod, node, memory),
                block=block_of(node, machine or self._recorded_machine(health)),
                pod=pod,
                pod_ready=pod is not None and is_ready(pod),
                machine=machine,
                neighbours=tuple(it for it in on_machine.get(_name(machine), ()) if it != name),
                health=health,
                observations=(*checked.found, *seen, *self._away(machine, now)),
                passed=checked.passed,
                test=self._test(cluster, health),
                reserved=name in (memory.reserved or ()),
                operator_holds=_held(name, pod, machine),
            )
        memory.not_ready_in = self._next_away((machine for _, machine in places.values()), now)
        as_of = (slurm.as_of if slurm else None) or 0.0
        return ClusterView(
            cluster=cluster,
            now=now,
            policy=self.policy(cluster),
            nodes=nodes,
            slurm_in_touch=slurm is not None
            and slurm.in_touch
            and as_of > memory.wrote_slurm_at
            and memory.reserved is not None,
            slurm_forgot=as_of > memory.restarted_at,
            can_reserve=memory.can_reserve,
            rebooting=self._rebooting(),
            first=memory.first,
        )

    def governing(self, cluster: Key) -> HealthPolicy | None:
        """The policy of a cluster; None where none was made."""
        return policies.governing(self.world.policies.values(), cluster)

    def policy(self, cluster: Key) -> HealthPolicySpec:
        found = self.governing(cluster)
        return permitted(found.spec if found else HealthPolicySpec(), self.replacement)

    def claim_reboot(self, machine: str) -> None:
        """Count a machine among those that reboot, from the decision on: another cluster may decide meanwhile."""
        self._claims[machine] = time.monotonic() + _CLAIM_S

    def _said(self, cluster: Key) -> Mapping[str, Checked]:
        """What active checks say of nodes."""
        said: dict[str, Checked] = {}
        for check in self.world.checks.by("cluster", cluster):
            in_slurm = check.spec.check_type == "slurmJob"
            for result in results(check):
                said.setdefault(result.node, Checked()).add(result, in_slurm=in_slurm)
        return said

    def _away(self, machine: Node | None, now: datetime) -> tuple[Observation, ...]:
        found = not_ready_for_long(machine, self.replacement, now=now) if machine else None
        return (found,) if found else ()

    def _next_away(self, machines: Iterable[Node | None], now: datetime) -> float | None:
        waits = (self.settings.not_ready_grace, self.replacement.not_ready_after)
        due = [
            since + timedelta(seconds=wait)
            for machine in machines
            if machine and (since := not_ready_since(machine))
            for wait in waits
            if wait is not None
        ]
        return min(((it - now).total_seconds() for it in due if it > now), default=None)

    def _place(self, cluster: Key, name: str, node: SlurmNode | None) -> tuple[Pod | None, Node | None]:
        """Find the worker pod of a node, and the machine."""
        world = self.world.operator
        pod = _current(world.pods.by("slurm-node", (cluster, name)))
        if pod is not None:
            return pod, world.kube_nodes.get(Key("", pod.spec.node_name)) if pod.spec.node_name else None
        if node is not None and _EXTERNAL_STATE in node.state:
            return None, self.world.external_machine(name)
        return None, None

    def _nodeset(self, cluster: Key, name: str, pod: Pod | None, node: SlurmNode | None, memory: Memory) -> str:
        """Name the NodeSet of a node: by its pod, or without one by what was known, or by its features in Slurm."""
        owner = pod.metadata.controller if pod else None
        if owner is not None and owner.kind == "NodeSet":
            memory.nodesets[name] = owner.name
            return owner.name
        if node is None or name in memory.nodesets:
            return memory.nodesets.get(name, "")
        if _EXTERNAL_STATE in node.state:
            return EXTERNAL
        known = (it for it in self.world.operator.nodesets_of(cluster))
        return next((it.metadata.name for it in known if slurm_nodeset(it) in node.features), "")

    def _recorded_machine(self, health: NodeHealth | None) -> Node | None:
        """The machine on which a node was last seen."""
        if health is None or not health.status.machine:
            return None
        return self.world.operator.kube_nodes.get(Key("", health.status.machine))

    def _test(self, cluster: Key, health: NodeHealth | None) -> TestView | None:
        """How the recorded test of a node stands; None if nothing is known of it, as after a crash."""
        if health is None or not health.status.test:
            return None
        name = health.status.test
        job = self.world.check_jobs.get(Key(cluster.namespace, name))
        if job is not None:
            outcome = manualruns.outcome(job.status.conditions)
            return TestView(name, outcome.verdict, outcome.detail)
        return self.passive.result(cluster, name)

    def _rebooting(self) -> frozenset[str]:
        """Machines that reboot, or will: of all clusters, since the limit is for all of Kubernetes."""
        told = {it.metadata.name for it in self.world.operator.kube_nodes.values() if _reboots(it)}
        climbing = {
            it.status.machine
            for it in self.world.healths.values()
            if it.status.machine and it.status.steps and it.status.steps[-1].rung == "reboot"
            if it.status.steps[-1].ended is None
        }
        self._claims = unseen_claims(self._claims, told | climbing, now=time.monotonic())
        return frozenset(told | climbing | self._claims.keys())


def unseen_claims(claims: Mapping[str, float], shown: Container[str], *, now: float) -> dict[str, float]:
    """Reboots that were decided and that the caches do not show yet. From then on, they show the end of it, too."""
    return {machine: until for machine, until in claims.items() if until > now and machine not in shown}


def _current(pods: Iterable[Pod]) -> Pod | None:
    """Of several pods of one node, the one that stays; the others are on their way out."""
    return min(pods, key=lambda it: (it.leaving, it.finished, it.metadata.name), default=None)


def _name(machine: Node | None) -> str:
    return machine.metadata.name if machine else ""


def _by_machine(places: Mapping[str, tuple[Pod | None, Node | None]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, (_, machine) in places.items():
        if machine is not None:
            found.setdefault(machine.metadata.name, []).append(name)
    return found


def _held(name: str, pod: Pod | None, machine: Node | None) -> str:
    """Why the operator wants the node of a pod drained. The pod that takes its place is looked at by itself."""
    if pod is None:
        return ""
    return held_reason(PodView(pod=pod, mode=mode_of(pod), slurm_name=name, kube_node=machine))


def _reboots(machine: Node) -> bool:
    found = condition(machine.status.conditions, names.NODE_REBOOT_CONDITION)
    return found is not None and found.status == "True" and found.reason != REBOOTED
