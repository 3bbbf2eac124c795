"""Keeps the NodeSetPowerState of an elastic NodeSet: which of its nodes are on, as Slurm and the policy want it.

    gather   what Slurm says of each node, its pods, the policy at this moment
    decide   requests to Slurm, and which ordinals are active       (domain.elastic.decision)
    act      ask Slurm for one thing, then write activeNodes
    report   its status, and Events of the NodeSet

It comes before the pods of a NodeSet are looked at: they follow from what is active.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Any, Final

import msgspec

from isthmus import names
from isthmus.clock import utc_now
from isthmus.domain.elastic import policy
from isthmus.domain.elastic.decision import (
    PodState,
    PowerDecision,
    PowerView,
    Request,
    Slot,
    Verb,
    decide,
    in_turn,
)
from isthmus.domain.elastic.ledger import PowerLedger
from isthmus.domain.kube import conditions, podtrouble
from isthmus.domain.kube.removal import notice_of
from isthmus.domain.languages.hostlist import fold
from isthmus.domain.operator import scaling
from isthmus.domain.operator.nodeset.departures import Note
from isthmus.domain.operator.nodeset.identity import numbered, ordinal_of
from isthmus.domain.operator.nodeset.plan import Active
from isthmus.domain.operator.slurmfiles import power as slurmconf
from isthmus.errors import Retry, Terminal
from isthmus.kube.client import Client
from isthmus.kube.errors import AlreadyExists, Conflict
from isthmus.kube.store import Store
from isthmus.model.meta import Condition, Key, condition
from isthmus.model.node import Node
from isthmus.model.pod import Pod
from isthmus.model.powerstate import POWER_STATES, NodeSetPowerState
from isthmus.model.slinky import NODESETS, NodeSet
from isthmus.model.slurm import NodeChange
from isthmus.operator.applier import owner_reference
from isthmus.operator.nodesets.memory import Memory
from isthmus.operator.nodesets.report import Report
from isthmus.operator.slurms import Slurm
from isthmus.operator.statuswriter import Reporter
from isthmus.slurm.errors import NotFound

_SLURM_TIMEOUT_S: Final = 20.0
MAX_NODES_PER_REQUEST: Final = 500
"""slurmctld answers no other request while it changes them."""

_NEXT_REQUEST_S: Final = 1.0
_USAGE_INTERVAL_S: Final = 60.0
"""Node-hours of a budget are counted in steps of this, each of which writes the status. Metrics follow as soon."""

_UNLISTED_S: Final = 10.0
"""So long, Slurm may lack nodes that are in its files: it gets those and reads them."""

_RELIST_PAUSE_S: Final = 60.0

_CHANGES: Final[dict[Verb, str]] = {
    "PowerUp": "POWER_UP",
    "PowerDown": "POWER_DOWN",
    # Slurm counts idle time anew from here.
    "KeepAwake": "IDLE",
    # A node that is being stopped is off at once.
    "Settle": "RESUME",
    "SetDown": "DOWN",
    "Fence": "DRAIN",
    "Unfence": "UNDRAIN",
}
_EVENTS: Final[dict[Verb, str]] = {
    "PowerUp": "PowerUpRequested",
    "PowerDown": "PowerDownRequested",
    "SetDown": "NoCapacity",
    "Fence": "NodesHeldBack",
    "Unfence": "NodesReleased",
}


class Settled(msgspec.Struct, frozen=True):
    """Which nodes have a pod, what is wrong, and when to look again."""

    active: Active
    wrong: tuple[str, ...] = ()
    look_again: float | None = None


class PowerSync:
    """The power states of the NodeSets of one process."""

    def __init__(
        self,
        kube: Client,
        *,
        states: Store[NodeSetPowerState],
        pods: Store[Pod],
        machines: Store[Node],
        report: Report,
        reporter: Reporter,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._states = states
        self._pods = pods
        self._machines = machines
        self._report = report
        self._reporter = reporter
        self._now = now
        self._clock = clock
        self._ledgers: dict[Key, PowerLedger] = {}
        self._relist_at: dict[Key, float] = {}
        self._asked: dict[Key, Request] = {}
        """What Slurm was asked for last."""
        self._written: dict[Key, NodeSetPowerState] = {}
        """What the API server answered last, which the cache may not show yet."""

    async def settle(self, nodeset: NodeSet, slurm: Slurm | None, memory: Memory) -> Settled:
        """Bring Slurm and activeNodes into step."""
        await self._mark(nodeset)
        state = self._current(nodeset) or await self._create(nodeset)
        view = self._view(nodeset, state, slurm, memory)
        decided = decide(view)
        more = False
        if slurm is not None and view.in_touch:
            more = await self._ask(nodeset, slurm, decided.requests, memory)
            if _moves(view):
                slurm.hurry()
            await self._relist(nodeset, slurm, decided.unlisted)
        state = await self._write(nodeset, state, decided)
        await self._tell(nodeset, state, view, decided)
        if decided.refused:
            self._report.event(nodeset, "NotStarted", decided.refused, warning=True)
        active = Active(decided.active, decided.startable)
        pauses = [self._count(nodeset, view, decided.look_again), _NEXT_REQUEST_S if more else None]
        if due := self._relist_at.get(nodeset.metadata.key):
            pauses.append(max(0.0, due - self._clock()))
        look_again = min((it for it in pauses if it is not None), default=None)
        return Settled(active, decided.wrong, look_again)

    def _count(self, nodeset: NodeSet, view: PowerView, look_again: float | None) -> float | None:
        """Count how nodes are used, and look again soon enough for counters to follow."""
        ledger = self._ledgers.setdefault(nodeset.metadata.key, PowerLedger())
        if view.in_touch:
            self._report.count_power(nodeset, ledger.look(view.slots, now=self._clock()))
        if not ledger.counts_on:
            return look_again
        return _USAGE_INTERVAL_S if look_again is None else min(look_again, _USAGE_INTERVAL_S)

    def forget(self, key: Key) -> None:
        """Forget a NodeSet that is gone."""
        self._written.pop(key, None)
        self._ledgers.pop(key, None)
        self._relist_at.pop(key, None)
        self._asked.pop(key, None)

    # Gather

    def _current(self, nodeset: NodeSet) -> NodeSetPowerState | None:
        key = nodeset.metadata.key
        seen, written = self._states.get(key), self._written.get(key)
        found = max((it for it in (seen, written) if it is not None), key=_version, default=None)
        owner = found.metadata.controller if found else None
        if found is not None and owner is not None and owner.uid != nodeset.metadata.uid:
            self._written.pop(key, None)
            raise Retry(f"NodeSetPowerState {key} belongs to another NodeSet and is deleted with it")
        return found

    def _view(self, nodeset: NodeSet, state: NodeSetPowerState, slurm: Slurm | None, memory: Memory) -> PowerView:
        spec, now = nodeset.spec, self._now()
        rules = nodeset.policy
        default_idle = float(spec.suspend_time or policy.IDLE_S)
        used = policy.used_today(_usage(state), rules.budget, now)
        as_of = (slurm.as_of if slurm else None) or 0.0
        return PowerView(
            slots=tuple(self._slots(nodeset, slurm, memory)),
            active=state.spec.active_nodes,
            written=_read(state.metadata.annotations.get(names.ACTIVE_NODES_ANNOTATION, "")),
            limits=policy.effective(rules, size=spec.replicas, now=now, used_today=used, default_idle=default_idle),
            now=now,
            in_touch=slurm is not None and slurm.in_touch and as_of > memory.wrote_slurm_at,
            states=state.status.node_states,
            hold=state.status.hold,
            kept_by_slurm=slurmconf.floor(nodeset),
            idle_in_slurm=float(slurmconf.idle_seconds(nodeset)),
        )

    def _slots(self, nodeset: NodeSet, slurm: Slurm | None, memory: Memory) -> Iterable[Slot]:
        pods: dict[int, Pod] = {}
        for pod in self._pods.by("owner", nodeset.metadata.uid):
            ordinal = ordinal_of(nodeset.metadata.name, pod)
            if ordinal is not None and (ordinal not in pods or pods[ordinal].leaving):
                pods[ordinal] = pod
        now = self._now()
        for ordinal in range(nodeset.spec.replicas):
            name = numbered(nodeset, ordinal).hostname
            found = pods.get(ordinal)
            machine = self._machines.get(Key("", found.spec.node_name)) if found and found.spec.node_name else None
            yield Slot(
                ordinal=ordinal,
                name=name,
                record=slurm.nodes.get(name) if slurm else None,
                pod=_pod_state(found),
                placed=found is not None and found.bound,
                trouble=podtrouble.of_pods([found], now=now).wrong if found else memory.refusal,
                doomed=notice_of(machine) is not None,
            )

    # Act

    async def _create(self, nodeset: NodeSet) -> NodeSetPowerState:
        spec, meta = nodeset.spec, nodeset.metadata
        first = range(min(spec.initial_number_ephemeral_nodes, spec.replicas))
        body = {
            "metadata": {
                "name": meta.name,
                "namespace": meta.namespace,
                "labels": {names.INSTANCE_LABEL: meta.name, names.COMPONENT_LABEL: "worker"},
                "ownerReferences": [owner_reference(NODESETS, nodeset)],
            },
            "spec": {"nodeSetRef": meta.name, "activeNodes": list(first)},
        }
        try:
            made = await self._kube.create(POWER_STATES, body)
        except AlreadyExists:
            made = await self._kube.get(POWER_STATES, meta.key)
        self._written[meta.key] = made
        return made

    async def _mark(self, nodeset: NodeSet) -> None:
        """Note that its nodes stand in slurm.conf: without them there, their jobs would fail."""
        if names.ANNOUNCED_ANNOTATION not in nodeset.metadata.annotations:
            patch = {"metadata": {"annotations": {names.ANNOUNCED_ANNOTATION: "true"}}}
            await self._kube.merge_patch(NODESETS, nodeset.metadata.key, patch)

    async def _relist(self, nodeset: NodeSet, slurm: Slurm, unlisted: tuple[str, ...]) -> None:
        """Let slurmctld read its files if it has had nodes of another kind until now, by the same names."""
        key, now = nodeset.metadata.key, self._clock()
        if not unlisted:
            self._relist_at.pop(key, None)
        elif now >= self._relist_at.setdefault(key, now + _UNLISTED_S):
            self._relist_at[key] = now + _RELIST_PAUSE_S
            await slurm.reconfigure(now=self._now().timestamp())
            self._report.event(nodeset, "NodesAnnounced", f"slurmctld learns of {fold(unlisted)} from its files")

    async def _ask(self, nodeset: NodeSet, slurm: Slurm, requests: Iterable[Request], memory: Memory) -> bool:
        """Send the first request that Slurm takes; return whether there may be more to ask for.

        The rest is decided anew from what Slurm says then. So slurmctld, which answers nobody while it changes
        nodes, gets no more than one change from a NodeSet between two looks, however many nodes change.
        """
        key = nodeset.metadata.key
        parts = in_turn(requests, self._asked.pop(key, None), size=MAX_NODES_PER_REQUEST)
        for sent, part in enumerate(parts, start=1):
            change = change_of(part.verb, part.why)
            try:
                async with asyncio.timeout(_SLURM_TIMEOUT_S):
                    await slurm.client.update_nodes(part.names, change)
            except NotFound:
                pass  # those that exist are changed all the same
            except Terminal as error:
                self._report.event(nodeset, "RefusedBySlurm", error.what, warning=True)
                continue
            memory.wrote_slurm_at = self._clock()
            self._asked[key] = part
            slurm.hurry()
            if part.verb in _EVENTS:
                warning = part.verb == "SetDown"
                note = f"{fold(part.names)}: {part.why}"
                self._report.event(nodeset, _EVENTS[part.verb], note, warning=warning)
            return sent < len(parts)
        return False

    async def _write(self, nodeset: NodeSet, state: NodeSetPowerState, decided: PowerDecision) -> NodeSetPowerState:
        told = _listed(decided.written)
        before = state.metadata.annotations.get(names.ACTIVE_NODES_ANNOTATION, "")
        if state.spec.active_nodes == decided.active and before == told:
            return state
        meta = state.metadata
        patch = {
            "metadata": {
                "resourceVersion": meta.resource_version,
                "annotations": {names.ACTIVE_NODES_ANNOTATION: told},
            },
            "spec": {"activeNodes": sorted(decided.active)},
        }
        try:
            written = await self._kube.merge_patch(POWER_STATES, meta.key, patch)
        except Conflict as error:
            self._written.pop(meta.key, None)
            raise Retry(f"NodeSetPowerState {meta.key} was changed by another client") from error
        self._written[meta.key] = written
        started = decided.active - state.spec.active_nodes
        if started:
            hosts = fold(numbered(nodeset, it).hostname for it in sorted(started))
            self._report.event(nodeset, "PoweringUp", f"Slurm starts {hosts}")
        return written

    # Report

    async def _tell(
        self, nodeset: NodeSet, state: NodeSetPowerState, view: PowerView, decided: PowerDecision
    ) -> None:
        ready = sum(it.pod == "ready" and it.ordinal in decided.active for it in view.slots)
        fields: dict[str, Any] = {
            "activeCount": ready,
            "nodeStates": [msgspec.to_builtins(it) for it in decided.states],
            **self._used(nodeset, state, view),
        }
        if decided.hold:
            fields["hold"] = msgspec.to_builtins(decided.hold)
        seen = self._states.get(state.metadata.key)
        about = seen if seen is not None and _version(seen) >= _version(state) else state
        other = scaling.intruder(nodeset, since=state.metadata.creation_timestamp)
        if other:
            self._report.notes(nodeset, [Note("ScaledTwice", other)])
        await self._reporter.report(POWER_STATES, about, fields, _conditions(view, decided, ready, other))

    @staticmethod
    def _used(nodeset: NodeSet, state: NodeSetPowerState, view: PowerView) -> dict[str, Any]:
        """Count node-hours, for the budget."""
        rules = nodeset.policy
        if rules.budget is None:
            return {}
        before = _usage(state)
        if before is None or (view.now - before.at).total_seconds() >= _USAGE_INTERVAL_S or before.at > view.now:
            on = sum(it.phase in {"starting", "on", "stopping"} for it in view.slots)
            before = policy.accrue(before, rules.budget, on=on, now=view.now)
        return {
            "usedDay": before.day.isoformat(),
            "usedNodeHours": round(before.node_hours, 4),
            "usedAt": msgspec.to_builtins(before.at.astimezone(UTC)),
        }


def change_of(verb: Verb, why: str) -> NodeChange:
    """What a request is in the language of slurmrestd."""
    return NodeChange(state=(_CHANGES[verb],), reason=why if verb in {"SetDown", "Fence"} else None)


def _usage(state: NodeSetPowerState) -> policy.Usage | None:
    told = state.status
    if not told.used_day or told.used_at is None:
        return None
    return policy.Usage(date.fromisoformat(told.used_day), told.used_node_hours, told.used_at)


def _moves(view: PowerView) -> bool:
    return any(it.phase in {"starting", "stopping"} or it.waking for it in view.slots)


def _conditions(view: PowerView, decided: PowerDecision, ready: int, other: str) -> tuple[Condition, ...]:
    moving = [it for it in view.slots if it.phase in {"starting", "stopping"} or it.waking]
    total = len(decided.active)
    message = f"{ready} of {total} active nodes are ready"
    settled = ready == total and not moving
    scaling = f"starting or stopping: {fold(it.name for it in moving)}" if moving else ""
    return (
        conditions.yes(conditions.READY, "ActiveNodesReconciled", message)
        if settled
        else conditions.no(
            conditions.READY, "Held" if decided.wrong else "ScalingInProgress", _why(decided, message)
        ),
        conditions.yes("ScalingInProgress", "NodesStartOrStop", scaling)
        if moving
        else conditions.no("ScalingInProgress", "Settled", message),
        conditions.no("SoleScaler", "ScaledTwice", other) if other else conditions.yes("SoleScaler", "AsExpected"),
    )


def _why(decided: PowerDecision, message: str) -> str:
    return "; ".join((message, *decided.wrong))


def _pod_state(pod: Pod | None) -> PodState:
    if pod is None:
        return "none"
    if pod.leaving:
        return "leaving"
    held = condition(pod.status.conditions, "Ready")
    if held is not None and held.status == "True":
        return "ready"
    return "running" if pod.status.phase == "Running" else "pending"


def _version(state: NodeSetPowerState) -> int:
    return int(state.metadata.resource_version or 0)


def _listed(ordinals: Iterable[int]) -> str:
    """Write ordinals as ranges, such as 0-3,7."""
    spans: list[list[int]] = []
    for it in sorted(ordinals):
        if spans and it == spans[-1][1] + 1:
            spans[-1][1] = it
        else:
            spans.append([it, it])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def _read(text: str) -> frozenset[int]:
    """Read them; what is not ours, as if nothing had been written."""
    found: set[int] = set()
    for span in filter(None, text.split(",")):
        first, _, last = span.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            return frozenset()
        found.update(range(int(first), min(int(last or first), 65533) + 1))
    return frozenset(found)
