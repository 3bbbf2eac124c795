"""Which nodes a pod may run on, decided as kube-scheduler does. Whether there is room now is not looked at here.

    NodeUnschedulable   the node is not cordoned, or the pod tolerates that
    TaintToleration     each taint with effect NoSchedule or NoExecute is tolerated
    NodeAffinity        the node selector and the required node affinity hold
    VolumeBinding       each volume can be reached from the node
    NodeResourcesFit    it would fit if Slurm had placed nothing else there (bridge.cache.capacity)

Pods of one template have equal `Constraints`, so the question is answered once for all (bridge.cache.feasible).
`spec.nodeName` is not among them: a pod that has one is not waiting for us.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final

from isthmus.domain.kube.deviceclaims import Need
from isthmus.domain.kube.podshape import Port, host_ports, requests_of
from isthmus.domain.kube.selectors import compares, holds, matches
from isthmus.model.base import Data
from isthmus.model.node import Node, Taint
from isthmus.model.pod import NodeSelector, NodeSelectorTerm, Pod, PodAffinityTerm, Toleration

HOSTNAME: Final = "kubernetes.io/hostname"
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
_CORDONED: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_SHUT: Final = frozenset({_CORDONED.key, "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Taints that Kubernetes itself puts on nodes which are cordoned or do not answer."""
_PLURALS: Final = {"has": "have", "does": "do", "is": "are", "lacks": "lack"}

NamespaceLabels = Callable[[str], Mapping[str, str]]
"""Looks up the labels of a namespace."""


class Constraints(Data, frozen=True, cache_hash=True):
    """Everything about a pod that decides which nodes fit."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[NodeSelector, ...] = ()
    needs: tuple[tuple[str, int], ...] = ()
    """What a node must be able to give, as `podshape.requests_of` counts it."""
    ports: tuple[Port, ...] = ()
    devices: tuple[Need, ...] = ()
    """What claims ask for that have no devices yet."""
    shared: bool = False
    """Of a pod with such claims: whether other pods of Slurm may be on its node."""


def constraints_of(
    pod: Pod,
    volume_terms: Sequence[NodeSelector] = (),
    *,
    devices: tuple[Need, ...] = (),
    shared: bool = False,
    without: Container[str] = (),
) -> Constraints:
    """Read a pod; `volume_terms` say from where its volumes can be reached (`domain.kube.volumes`).

    Resources that `devices` stand for (`without`) are not looked for on the node.
    """
    spec = pod.spec
    affinity = spec.affinity and spec.affinity.node_affinity
    return Constraints(
        node_selector=tuple(sorted(spec.node_selector.items())),
        affinity=affinity.required if affinity else None,
        tolerations=spec.tolerations,
        volumes=tuple(dict.fromkeys(volume_terms)),
        needs=tuple(
            sorted((name, need) for name, need in requests_of(pod).items() if need > 0 and name not in without)
        ),
        ports=tuple(host_ports(pod)),
        devices=devices,
        shared=shared and bool(devices),
    )


def misfit(constraints: Constraints, node: Node, *, opened: bool = False) -> str | None:
    """Why a node does not fit, as in "has the taint gpu=yes:NoSchedule", or None if it does.

    With `opened`, say it of a node that is shut, by a cordon or because it does not answer, as if it were not.
    """
    tolerations = constraints.tolerations
    if node.spec.unschedulable and not opened and not tolerated(_CORDONED, tolerations):
        return "is cordoned"
    for taint in node.spec.taints:
        if opened and taint.key in _SHUT:
            continue
        if taint.effect in _REPELLING and not tolerated(taint, tolerations):
            return f"has the taint {_text(taint)}"
    labels = node.metadata.labels
    for key, value in constraints.node_selector:
        if labels.get(key) != value:
            return "does not match the node selector"
    if constraints.affinity is not None and not _selected(constraints.affinity, node):
        return "does not match the node affinity"
    if not all(_selected(reach, node) for reach in constraints.volumes):
        return "is out of reach of a volume"
    return None


def summary(misfits: Mapping[str, int], total: int) -> str:
    """Put reasons and how many nodes each one rules out into one line, the most frequent first."""
    fit = total - sum(misfits.values())
    head = f"{fit} of {total} nodes {'fits' if fit == 1 else 'fit'}"
    ordered = sorted(misfits.items(), key=lambda item: (-item[1], item[0]))
    reasons = ", ".join(f"{count} {_conjugated(reason, count)}" for reason, count in ordered)
    return f"{head}: {reasons}" if reasons else head


def unsupported(pod: Pod, *, exclusive: bool) -> list[str]:
    """What the pod insists on and Slurm cannot promise, each with what to write instead.

    Pods that do not share their node (`exclusive`) are kept apart by Slurm itself; two that may share one can be
    sent to the same node at the same time, so their anti-affinity could not be kept.
    """
    spec = pod.spec
    found = []
    if _required(pod, anti=False):
        found.append(
            "required podAffinity is not supported by Slurm: put the pods into one group (PodGroup, JobSet or "
            "LeaderWorkerSet), or choose nodes by the annotation slurmjob.slinky.slurm.net/constraints"
        )
    anti = _required(pod, anti=True)
    found.extend(
        f"required podAntiAffinity over {key} is not supported by Slurm: use topologyKey {HOSTNAME}, or choose "
        "nodes "
        "by nodeSelector or node affinity"
        for key in dict.fromkeys(term.topology_key for term in anti if term.topology_key != HOSTNAME)
    )
    if not exclusive and any(term.topology_key == HOSTNAME for term in anti):
        found.append(
            f"required podAntiAffinity over {HOSTNAME} is not supported for a pod that shares its node: remove it, "
            'or set the annotation slurmjob.slinky.slurm.net/exclusive to "true"'
        )
    if any(it.when_unsatisfiable == "DoNotSchedule" for it in spec.topology_spread_constraints):
        found.append(
            "topologySpreadConstraints with whenUnsatisfiable: DoNotSchedule are not supported, because Slurm "
            "spreads jobs by its own topology: remove them or set ScheduleAnyway, which is a preference"
        )
    return found


def ignored_preferences(pod: Pod) -> list[str]:
    """Preferences that Slurm does not know; the pod runs without them."""
    affinity = pod.spec.affinity
    kinds = (
        ("node affinity", affinity and affinity.node_affinity),
        ("pod affinity", affinity and affinity.pod_affinity),
        ("pod anti-affinity", affinity and affinity.pod_anti_affinity),
    )
    ignored = [
        f"preferred {name} is ignored: Slurm chooses among the nodes that fit"
        for name, kind in kinds
        if kind and kind.preferred
    ]
    if any(it.when_unsatisfiable == "ScheduleAnyway" for it in pod.spec.topology_spread_constraints):
        ignored.append("topologySpreadConstraints are ignored: Slurm spreads jobs by its own topology")
    return ignored


def _namespace_name_only(namespace: str) -> Mapping[str, str]:
    return {_NAMESPACE_NAME: namespace}


def repelled(
    pod: Pod, others: Iterable[Pod], *, namespace_labels: NamespaceLabels = _namespace_name_only
) -> str | None:
    """Which of the pods on a node must not share it with this one, by the anti-affinity of either.

    Of the anti-affinities of the pods there, only those over the host name are known to hold for this node alone;
    wider ones are not looked at.
    """
    for other in others:
        if other.finished or other.metadata.uid == pod.metadata.uid:
            continue
        if _keeps_away(pod, other, namespace_labels):
            return f"has pod {other.metadata.key}, from which this one must be kept apart (podAntiAffinity)"
        if _keeps_away(other, pod, namespace_labels):
            return f"has pod {other.metadata.key}, which must be kept apart from this one (its podAntiAffinity)"
    return None


def tolerates(pod: Pod, taint: Taint) -> bool:
    """Whether a pod can be on a node with this taint."""
    return tolerated(taint, pod.spec.tolerations)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether one of these tolerations is for this taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Equal" | "":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt" as operator:
            return compares(taint.value, operator, toleration.value)
    return False


def _selected(selector: NodeSelector, node: Node) -> bool:
    return any(_term_holds(term, node) for term in selector.node_selector_terms)


def _term_holds(term: NodeSelectorTerm, node: Node) -> bool:
    # A term that asks for nothing selects nothing, unlike an empty label selector.
    if not (term.match_expressions or term.match_fields):
        return False
    labels = node.metadata.labels
    return all(holds(it, labels.get(it.key)) for it in term.match_expressions) and all(
        it.key == "metadata.name" and holds(it, node.metadata.name) for it in term.match_fields
    )


def _required(pod: Pod, *, anti: bool) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    kind = affinity and (affinity.pod_anti_affinity if anti else affinity.pod_affinity)
    return kind.required if kind else ()


def _keeps_away(pod: Pod, other: Pod, namespace_labels: NamespaceLabels) -> bool:
    return any(
        term.topology_key == HOSTNAME
        and _in_namespaces(term, of=pod.metadata.namespace, other=other.metadata.namespace, labels=namespace_labels)
        and matches(term.label_selector, other.metadata.labels)
        for term in _required(pod, anti=True)
    )


def _in_namespaces(term: PodAffinityTerm, *, of: str, other: str, labels: NamespaceLabels) -> bool:
    if not term.namespaces and term.namespace_selector is None:
        return other == of
    return other in term.namespaces or matches(term.namespace_selector, labels(other))


def _text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _conjugated(reason: str, count: int) -> str:
    verb, space, rest = reason.partition(" ")
    return reason if count == 1 else f"{_PLURALS.get(verb, verb)}{space}{rest}"
