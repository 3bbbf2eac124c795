"""Views of a few nodes, in few words."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from isthmus.domain.health.actions import Action, Record
from isthmus.domain.health.view import ClusterView, NodeView, Observation
from isthmus.model.health import Finding, HealthPolicySpec, NodeHealth, NodeHealthSpec, NodeHealthStatus
from isthmus.model.meta import Condition, Key, ObjectMeta
from isthmus.model.node import Node, NodeStatus
from isthmus.model.pod import Pod
from isthmus.model.slurm import Node as SlurmNode
from isthmus.model.slurm import Number

T = TypeVar("T")

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
REASON = "[node_problem] gpu: job 7 [slurm_job]"


def ago(**units: float) -> datetime:
    return NOW - timedelta(**units)


def slurm(
    *states: str, name: str = "n1", reason: str = "", started: datetime | None = None, **fields: Any
) -> SlurmNode:
    return SlurmNode(
        name=name,
        state=states or ("IDLE",),
        reason=reason,
        slurmd_start_time=Number.of(int(started.timestamp())) if started else Number(),
        **fields,
    )


def drained(reason: str = REASON, *, jobs: bool = False, name: str = "n1", **fields: Any) -> SlurmNode:
    return slurm("MIXED" if jobs else "IDLE", "DRAIN", name=name, reason=reason, **fields)


def machine(name: str = "m1", uid: str = "u1", made: datetime | None = None, **conditions: str) -> Node:
    """A machine; conditions as `Type="True/Reason"`."""
    told = {"Ready": "True/KubeletReady"} | conditions
    return Node(
        metadata=ObjectMeta(name=name, uid=uid, creation_timestamp=made or ago(days=30)),
        status=NodeStatus(
            conditions=tuple(
                Condition(type=type_, status=value.split("/")[0], reason=value.split("/")[1])  # type: ignore[arg-type]
                for type_, value in told.items()
            )
        ),
    )


def pod(uid: str = "p1") -> Pod:
    return Pod(metadata=ObjectMeta(name="n1", namespace="default", uid=uid))


def failed(check: str = "gpu", *, at: datetime | None = None, **fields: Any) -> Observation:
    """An ActiveCheck that failed as a Slurm job, and asks for a drain."""
    given: dict[str, Any] = {
        "source": "check",
        "wants": "drain",
        "reason": REASON,
        "test": True,
        "in_slurm": True,
        "evidence": "it failed",
    }
    return Observation(**(given | fields), check=check, at=at or ago(minutes=1))


def finding(check: str = "gpu", **fields: Any) -> Finding:
    """The same, as recorded."""
    given: dict[str, Any] = {
        "source": "check",
        "wants": "drain",
        "proof": "slurmTest",
        "evidence": "it failed",
        "first_seen": ago(minutes=1),
        "last_seen": ago(minutes=1),
    }
    return Finding(**(given | fields), check=check)


def held(phase: Any = "Draining", **fields: Any) -> NodeHealthStatus:
    """A record of a node that we hold, seen to be drained ten minutes ago."""
    given: dict[str, Any] = {
        "since": ago(minutes=10),
        "reason": REASON,
        "drained": ago(minutes=10),
        "findings": (finding(),),
        "machine": "m1",
        "nodeset": "workers",
    }
    return NodeHealthStatus(phase=phase, **(given | fields))


def node(
    name: str = "n1",
    *,
    status: NodeHealthStatus | None = None,
    observations: Iterable[Observation] = (),
    **fields: Any,
) -> NodeView:
    """A node in a pod on machine m1, open and idle unless told otherwise."""
    health = NodeHealth(spec=NodeHealthSpec(cluster="c", node=name), status=status) if status else None
    given: dict[str, Any] = {
        "slurm": slurm(name=name),
        "nodeset": "workers",
        "pod": pod(),
        "pod_ready": True,
        "machine": machine(),
    }
    return NodeView(name=name, health=health, observations=tuple(observations), **(given | fields))


def look(*nodes: NodeView, policy: dict[str, Any] | None = None, **fields: Any) -> ClusterView:
    given: dict[str, Any] = {"now": NOW, "slurm_in_touch": True}
    return ClusterView(
        cluster=Key("default", "c"),
        policy=msgspec.convert(policy or {}, HealthPolicySpec),
        nodes={it.name: it for it in nodes},
        **(given | fields),
    )


def only(actions: Iterable[Action], type_: type[T]) -> list[T]:
    return [it for it in actions if isinstance(it, type_)]


def status(actions: Iterable[Action], name: str = "n1") -> NodeHealthStatus:
    """What is recorded of a node."""
    return next(it.status for it in only(actions, Record) if it.node == name)
