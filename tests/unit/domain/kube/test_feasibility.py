from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
import pytest

from isthmus.domain.kube.feasibility import (
    Constraints,
    constraints_of,
    ignored_preferences,
    misfit,
    repelled,
    summary,
    unsupported,
)
from isthmus.model.meta import ObjectMeta
from isthmus.model.node import Node, NodeSpec, Taint
from isthmus.model.pod import (
    PODS,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    Requirement,
    Toleration,
)
from isthmus.model.pod import Affinity as PodsAffinity
from isthmus.model.pod import PodAffinity as Near

HOSTNAME = "kubernetes.io/hostname"


def node(*taints: Taint, name: str = "n1", unschedulable: bool = False, **labels: str) -> Node:
    return Node(ObjectMeta(name=name, labels=labels), NodeSpec(unschedulable=unschedulable, taints=taints))


def read(spec: Mapping[str, object]) -> Pod:
    """A pod as the API server sends it."""
    return PODS.decoder.decode(msgspec.json.encode({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec}))


def affine(*terms: Mapping[str, object]) -> Constraints:
    required = {"nodeSelectorTerms": terms}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return constraints_of(read({"affinity": affinity}))


def labelled(key: str, operator: str, *values: str) -> dict[str, object]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}


def named(operator: str, name: str) -> dict[str, object]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}


ANYWHERE = Constraints()


def test_weakness_22_the_node_selector_is_honoured() -> None:
    wanted = constraints_of(read({"nodeSelector": {"zone": "a", "disk": "ssd"}}))
    assert misfit(wanted, node(zone="a", disk="ssd", other="x")) is None
    assert misfit(wanted, node(zone="a")) == "does not match the node selector"
    assert misfit(wanted, node(zone="b", disk="ssd")) == "does not match the node selector"


def test_weakness_22_node_affinity_is_honoured() -> None:
    wanted = affine(labelled("zone", "In", "a"), labelled("gen", "Gt", "3"))
    assert misfit(wanted, node(zone="a")) is None
    assert misfit(wanted, node(zone="b", gen="4")) is None
    assert misfit(wanted, node(zone="b", gen="3")) == "does not match the node affinity"


def test_all_of_a_term_must_hold() -> None:
    term = {**labelled("zone", "In", "a"), **named("NotIn", "n1")}
    assert misfit(affine(term), node(zone="a", name="n2")) is None
    assert misfit(affine(term), node(zone="a", name="n1"))
    assert misfit(affine(term), node(zone="b", name="n2"))


def test_a_term_or_affinity_that_asks_for_nothing_selects_nothing() -> None:
    assert misfit(affine({}), node())
    assert misfit(affine(), node())
    assert misfit(affine({}, named("In", "n1")), node()) is None


def test_a_field_other_than_the_name_is_never_matched() -> None:
    assert misfit(affine({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["n1"]}]}), node())


GPU = Taint("gpu", "NoSchedule", "yes")


@pytest.mark.parametrize(
    ("taint", "toleration", "tolerated"),
    [
        (GPU, Toleration("gpu", "Equal", "yes", "NoSchedule"), True),
        (GPU, Toleration("gpu", "Equal", "yes"), True),
        (GPU, Toleration("gpu", "", "yes"), True),
        (GPU, Toleration("gpu", "Equal", "no"), False),
        (GPU, Toleration("gpu", "Equal", "yes", "NoExecute"), False),
        (GPU, Toleration("gpu", "Exists"), True),
        (GPU, Toleration("", "Exists"), True),
        (GPU, Toleration("", "Exists", "", "NoExecute"), False),
        (GPU, Toleration("tpu", "Exists"), False),
        (GPU, Toleration("gpu", "Maybe", "yes"), False),
        (Taint("lost", "NoExecute"), Toleration("lost", "Equal"), True),
        (Taint("lost", "NoExecute"), Toleration("lost", "Exists", "", "NoSchedule"), False),
        (Taint("sla", "NoSchedule", "950"), Toleration("sla", "Gt", "900"), True),
        (Taint("sla", "NoSchedule", "900"), Toleration("sla", "Gt", "900"), False),
        (Taint("sla", "NoSchedule", "850"), Toleration("sla", "Lt", "900"), True),
        (Taint("sla", "NoSchedule", "gold"), Toleration("sla", "Lt", "900"), False),
    ],
)
def test_taints_are_tolerated_as_in_kubernetes(taint: Taint, toleration: Toleration, *, tolerated: bool) -> None:
    assert (misfit(Constraints(tolerations=(toleration,)), node(taint)) is None) is tolerated


def test_a_taint_that_only_discourages_rules_nothing_out() -> None:
    assert misfit(ANYWHERE, node(Taint("gpu", "PreferNoSchedule"))) is None


def test_every_taint_needs_a_toleration_and_the_missing_one_is_named() -> None:
    tolerant = Constraints(tolerations=(Toleration("gpu", "Exists"),))
    assert misfit(tolerant, node(GPU, Taint("lost", "NoExecute"))) == "has the taint lost:NoExecute"
    assert misfit(ANYWHERE, node(GPU)) == "has the taint gpu=yes:NoSchedule"


def test_a_cordoned_node_takes_only_pods_that_tolerate_the_cordon() -> None:
    cordon = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
    assert misfit(ANYWHERE, node(cordon, unschedulable=True)) == "is cordoned"
    assert misfit(ANYWHERE, node(unschedulable=True)) == "is cordoned"
    daemon = Constraints(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists", "", "NoSchedule"),))
    assert misfit(daemon, node(cordon, unschedulable=True)) is None


def test_each_volume_must_be_within_reach() -> None:
    reach = [NodeSelector((NodeSelectorTerm((Requirement(key, "In", ("a",)),)),)) for key in ("zone", "rack")]
    wanted = constraints_of(Pod(), reach)
    assert misfit(wanted, node(zone="a", rack="a")) is None
    assert misfit(wanted, node(zone="a", rack="b")) == "is out of reach of a volume"


def test_pods_of_one_template_have_equal_constraints() -> None:
    spec = {"nodeSelector": {"a": "1", "b": "2"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    swapped = {**spec, "nodeSelector": {"b": "2", "a": "1"}, "nodeName": "n7"}
    one, other = constraints_of(read(spec)), constraints_of(read(swapped))
    assert one == other
    assert hash(one) == hash(other)
    assert one != constraints_of(read({}))


def test_the_summary_counts_the_most_frequent_reason_first() -> None:
    reasons = {"is cordoned": 1, "has the taint gpu=yes:NoSchedule": 3, "does not match the node selector": 1}
    assert summary(reasons, 5) == (
        "0 of 5 nodes fit: 3 have the taint gpu=yes:NoSchedule, 1 does not match the node selector, 1 is cordoned"
    )
    assert summary({"is cordoned": 2}, 3) == "1 of 3 nodes fits: 2 are cordoned"
    assert summary({}, 2) == "2 of 2 nodes fit"


def anti(*topology: str) -> dict[str, object]:
    terms = [{"topologyKey": key, "labelSelector": {}} for key in topology]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("spec", "exclusive", "begins"),
    [
        ({}, False, []),
        (anti(HOSTNAME), True, []),
        (anti(HOSTNAME), False, [f"required podAntiAffinity over {HOSTNAME}"]),
        (anti(HOSTNAME, "zone", "zone"), True, ["required podAntiAffinity over zone"]),
        (
            {
                "affinity": {
                    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}
                }
            },
            True,
            ["required podAffinity"],
        ),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, True, ["topologySpread"]),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, True, []),
    ],
)
def test_weakness_22_what_cannot_be_kept_is_refused_with_a_way_out(
    spec: Mapping[str, object], begins: list[str], *, exclusive: bool
) -> None:
    found = unsupported(read(spec), exclusive=exclusive)
    assert len(found) == len(begins)
    for sentence, begin in zip(found, begins, strict=True):
        assert sentence.startswith(begin)
        assert ": " in sentence


def test_wishes_are_named_and_not_refused() -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
    spec = {
        "affinity": {"nodeAffinity": preferred, "podAffinity": preferred, "podAntiAffinity": preferred},
        "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}],
    }
    assert [it.split(":")[0] for it in ignored_preferences(read(spec))] == [
        "preferred node affinity is ignored",
        "preferred pod affinity is ignored",
        "preferred pod anti-affinity is ignored",
        "topologySpreadConstraints are ignored",
    ]
    assert unsupported(read(spec), exclusive=False) == []
    assert ignored_preferences(read({})) == []


WEB = LabelSelector({"app": "web"})


def pod(name: str, *terms: PodAffinityTerm, app: str = "web", namespace: str = "ns", phase: str = "Running") -> Pod:
    return Pod(
        ObjectMeta(name=name, namespace=namespace, uid=f"uid-{namespace}-{name}", labels={"app": app}),
        PodSpec(affinity=PodsAffinity(pod_anti_affinity=Near(terms))),
        PodStatus(phase=phase),
    )


def test_anti_affinity_counts_in_both_directions() -> None:
    shy = pod("shy", PodAffinityTerm(HOSTNAME, WEB), app="db")
    web = pod("web")
    assert repelled(shy, [web]) == "has pod ns/web, from which this one must be kept apart (podAntiAffinity)"
    assert repelled(web, [shy]) == "has pod ns/shy, which must be kept apart from this one (its podAntiAffinity)"
    assert repelled(shy, [pod("other", app="db")]) is None
    assert repelled(shy, []) is None


def test_a_pod_does_not_repel_itself_nor_do_finished_pods_or_wider_topologies() -> None:
    alone = pod("a", PodAffinityTerm(HOSTNAME, WEB))
    assert repelled(alone, [alone]) is None
    assert repelled(alone, [pod("b", phase="Succeeded")]) is None
    assert repelled(alone, [pod("b")]) is not None
    assert repelled(pod("a", PodAffinityTerm("zone", WEB)), [pod("b")]) is None
    assert repelled(pod("a", PodAffinityTerm(HOSTNAME, None)), [pod("b")]) is None


@pytest.mark.parametrize(
    ("term", "namespace", "expected"),
    [
        (PodAffinityTerm(HOSTNAME, WEB), "other", False),
        (PodAffinityTerm(HOSTNAME, WEB, ("other",)), "other", True),
        (PodAffinityTerm(HOSTNAME, WEB, ("other",)), "ns", False),
        (PodAffinityTerm(HOSTNAME, WEB, (), LabelSelector()), "other", True),
        (PodAffinityTerm(HOSTNAME, WEB, (), LabelSelector({"team": "red"})), "other", True),
        (PodAffinityTerm(HOSTNAME, WEB, (), LabelSelector({"team": "red"})), "ns", False),
        (PodAffinityTerm(HOSTNAME, WEB, ("ns",), LabelSelector({"team": "red"})), "ns", True),
    ],
)
def test_anti_affinity_holds_in_the_namespaces_that_it_names(
    term: PodAffinityTerm, namespace: str, *, expected: bool
) -> None:
    teams = {"other": {"team": "red"}, "ns": {"team": "blue"}}
    found = repelled(pod("a", term), [pod("b", namespace=namespace)], namespace_labels=teams.__getitem__)
    assert (found is not None) is expected


def test_a_taint_reads_the_same_whenever_it_was_added() -> None:
    taint = Taint("lost", "NoExecute", time_added=datetime(2026, 1, 1, tzinfo=UTC))
    assert misfit(ANYWHERE, node(taint)) == "has the taint lost:NoExecute"
