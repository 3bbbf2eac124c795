"""NodeSets with pods and Slurm nodes as plain values, for tests of decisions."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from isthmus import names
from isthmus.domain.operator.nodeset.view import PodView, View
from isthmus.model.meta import Condition, ObjectMeta
from isthmus.model.node import Node, NodeSpec, NodeStatus, Taint
from isthmus.model.pod import Pod, PodSpec, PodStatus
from isthmus.model.slinky import NodeSet
from isthmus.model.slurm import Job, Number
from isthmus.model.slurm import Node as SlurmNode

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
OLD, NEW = "old", "new"
GOING = "slurm-operator: Pods of NodeSet (slurm/worker) are pending termination for scale-in"


def nodeset(
    replicas: int = 3,
    *,
    deleted: bool = False,
    victims: Iterable[str] = (),
    finalizers: Iterable[str] = (),
    **spec: Any,
) -> NodeSet:
    """A NodeSet `slurm/worker`; `spec` are further fields as a manifest has them."""
    meta: dict[str, Any] = {"name": "worker", "namespace": "slurm", "uid": "u", "finalizers": list(finalizers)}
    if deleted:
        meta["deletionTimestamp"] = NOW.isoformat()
    manifest = {
        "metadata": meta,
        "spec": {"controllerRef": {"name": "slurm"}, "replicas": replicas, **spec},
        "status": {"victims": list(victims)},
    }
    return msgspec.convert(manifest, NodeSet)


def slurm_node(name: str, *states: str, reason: str = "", since: float | None = None, **fields: Any) -> SlurmNode:
    """A dynamic node of ours in these states, or idle; `since` is how old its reason is, in seconds."""
    changed = Number() if since is None else Number.of(NOW.timestamp() - since)
    return SlurmNode(
        name=name,
        state=(*(states or ("IDLE",)), "DYNAMIC_NORM"),
        reason=reason,
        reason_changed_at=changed,
        features=fields.pop("features", ("worker",)),
        **fields,
    )


def kube_node(
    name: str = "k1",
    *,
    cordoned: bool = False,
    taint: str = "",
    annotations: Mapping[str, str] | None = None,
    **true: str,
) -> Node:
    """A node of Kubernetes; `true` are conditions that hold, each with its message."""
    held = tuple(Condition(type=it, status="True", reason=f"{it}Reason", message=text) for it, text in true.items())
    return Node(
        metadata=ObjectMeta(name=name, annotations=annotations or {}),
        spec=NodeSpec(unschedulable=cordoned, taints=(Taint(taint, "NoSchedule"),) if taint else ()),
        status=NodeStatus(conditions=held),
    )


def pod(
    ordinal: int,
    *states: str,
    ready: bool = True,
    available: bool | None = None,
    hash_: str = NEW,
    phase: str = "Running",
    bound: bool = True,
    leaving: bool = False,
    protected: bool = True,
    known: bool = True,
    age: float = 3600,
    kube: Node | None = None,
    annotations: Mapping[str, str] | None = None,
    reason: str = "",
    since: float | None = None,
    **slurm: Any,
) -> PodView:
    """A pod `worker-N` whose Slurm node is in these states; `known=False` if Slurm does not know it."""
    name = f"worker-{ordinal}"
    moment = NOW - timedelta(seconds=age)
    meta = ObjectMeta(
        name=name,
        namespace="slurm",
        uid=f"uid-{name}",
        resource_version="7",
        creation_timestamp=moment,
        deletion_timestamp=NOW if leaving else None,
        labels={names.POD_PROTECT_LABEL: "true"} if protected else {},
        annotations=annotations or {},
    )
    made = Pod(
        metadata=meta,
        spec=PodSpec(node_name=(kube.metadata.name if kube else "k1") if bound else ""),
        status=PodStatus(phase=phase, start_time=moment),
    )
    ready = ready and not leaving
    return PodView(
        pod=made,
        mode="StatefulSet",
        slurm_name=name,
        ordinal=ordinal,
        hash=hash_,
        ready=ready,
        available=ready if available is None else available,
        kube_node=kube,
        slurm=slurm_node(name, *states, reason=reason, since=since, **slurm) if known else None,
    )


def view(*pods: PodView, of: NodeSet | None = None, in_touch: bool = True, **more: Any) -> View:
    """What is known of these pods; as many are desired as the NodeSet says."""
    owner = of or nodeset(len(pods))
    records = {it.slurm_name: it.slurm for it in pods if it.slurm}
    return View(
        nodeset=owner,
        pods=pods,
        now=NOW,
        hash=NEW,
        desired=more.pop("desired", 0 if owner.metadata.deletion_timestamp else owner.spec.replicas),
        kube_nodes=more.pop("kube_nodes", {}),
        slurm_in_touch=in_touch,
        slurm_nodes={**records, **more.pop("also_in_slurm", {})},
        **more,
    )


def job(job_id: int, *nodes: str, minutes: float = 60, state: str = "RUNNING", **fields: Any) -> Job:
    """A batch job that began ten minutes ago and can be requeued."""
    return Job(
        job_id=job_id,
        job_state=(state,),
        nodes=",".join(nodes),
        start_time=Number.of(NOW.timestamp() - 600),
        time_limit=Number.of(minutes),
        batch_flag=fields.pop("batch_flag", True),
        requeue=fields.pop("requeue", True),
        **fields,
    )
