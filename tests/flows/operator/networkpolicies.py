"""Judges NetworkPolicies as the documentation of Kubernetes describes them, since the network here enforces none.

    admits(policies, Pod("monitoring", {"app": "prometheus"}), Pod("hpc", {…}), 8080)

Only what policies here use is known: ingress, selectors by labels, ports by number or name. Anything else raises.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_NAMESPACE = "kubernetes.io/metadata.name"


class Pod(NamedTuple):
    namespace: str
    labels: Mapping[str, str]


def admits(policies: Iterable[Mapping[str, Any]], source: Pod, target: Pod, port: int | str) -> bool:
    """Whether a pod may connect to a port of another one, which is named as the policy names it."""
    about = [it for it in policies if _is_about(it, target)]
    if not about:
        return True
    return any(
        _has_port(rule, port) and _has_peer(rule, source, policy["metadata"]["namespace"])
        for policy in about
        for rule in policy["spec"]["ingress"]
    )


def _is_about(policy: Mapping[str, Any], target: Pod) -> bool:
    assert policy["spec"]["policyTypes"] == ["Ingress"], "only ingress is judged here"
    selects = _selects(policy["spec"]["podSelector"], target.labels)
    return bool(policy["metadata"]["namespace"] == target.namespace and selects)


def _has_port(rule: Mapping[str, Any], port: int | str) -> bool:
    asked = rule.get("ports") or []
    assert all(it.keys() == {"protocol", "port"} for it in asked), "ranges are not judged here"
    return not asked or any(it["protocol"] == "TCP" and it["port"] == port for it in asked)


def _has_peer(rule: Mapping[str, Any], source: Pod, namespace: str) -> bool:
    peers = rule.get("from") or []
    return not peers or any(_is_peer(it, source, namespace) for it in peers)


def _is_peer(peer: Mapping[str, Any], source: Pod, namespace: str) -> bool:
    assert peer.keys() <= {"namespaceSelector", "podSelector"}, "blocks of addresses are not judged here"
    if "namespaceSelector" in peer:
        there = _selects(peer["namespaceSelector"], {_NAMESPACE: source.namespace})
    else:
        there = source.namespace == namespace
    return there and _selects(peer.get("podSelector") or {}, source.labels)


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    expressions = selector.get("matchExpressions") or []
    assert all(it["operator"] == "In" for it in expressions)
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()) and all(
        labels.get(it["key"]) in it["values"] for it in expressions
    )
