"""What the objects of all parts have in common."""

from isthmus.domain.operator.manifests.common import (
    CONTROL_PLANE_LABEL,
    away_from_control_plane,
    hash_of,
    labels,
    pod_template,
    selector,
    service,
)
from isthmus.model.slinky import PodTemplate, ServiceTemplate, TemplateMeta

MARKS = labels("slurmctld", "slurm", "controller", cluster="slurm")
NOT_THERE = {"key": CONTROL_PLANE_LABEL, "operator": "DoesNotExist"}


def test_pods_are_kept_off_the_control_plane() -> None:
    spec = away_from_control_plane({})
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [NOT_THERE]}]}


def test_every_term_of_the_users_affinity_is_kept_and_limited() -> None:
    terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"matchFields": []}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    spec = away_from_control_plane({"affinity": affinity})
    made = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert made == [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}, NOT_THERE]},
        {"matchFields": [], "matchExpressions": [NOT_THERE]},
    ]


def test_who_asks_for_the_control_plane_gets_it() -> None:
    asked = {"tolerations": [{"key": CONTROL_PLANE_LABEL, "operator": "Exists"}]}
    assert away_from_control_plane(asked) == asked


def test_a_service_takes_the_users_wishes_but_no_external_addresses() -> None:
    wish = ServiceTemplate(
        metadata=TemplateMeta(labels={"team": "a"}, annotations={"lb": "internal"}),
        spec={"type": "NodePort", "externalIPs": ["198.18.0.1"], "selector": {"app": "other"}},
        port=7000,
        node_port=30817,
    )
    made = service("x", "ns", MARKS, port=6817, port_name="slurmctld", template=wish)
    assert made["spec"] == {
        "type": "NodePort",
        "selector": selector(MARKS),
        "ports": [
            {"name": "slurmctld", "port": 7000, "targetPort": 6817, "protocol": "TCP", "nodePort": 30817},
        ],
    }
    assert made["metadata"]["labels"] == {"team": "a", **MARKS}
    assert made["metadata"]["annotations"] == {"lb": "internal"}


def test_a_pod_template_is_ours_with_the_users_over_it() -> None:
    template = PodTemplate(
        metadata=TemplateMeta(labels={"app.kubernetes.io/name": "stolen", "team": "a"}),
        spec={"tolerations": [{"key": CONTROL_PLANE_LABEL}], "enableServiceLinks": True},
    )
    made = pod_template(
        {"containers": [{"name": "slurmctld", "image": "a"}]},
        MARKS,
        main="slurmctld",
        template=template,
        containers={"slurmctld": {"image": "b"}},
        hashes={"hash": "1"},
    )
    assert made["metadata"]["labels"] == {"team": "a", **MARKS}
    assert made["metadata"]["annotations"] == {
        "kubectl.kubernetes.io/default-container": "slurmctld",
        "hash": "1",
    }
    assert made["spec"]["containers"] == [{"name": "slurmctld", "image": "b"}]
    assert made["spec"]["enableServiceLinks"] is True
    assert made["spec"]["automountServiceAccountToken"] is False


def test_a_hash_does_not_depend_on_the_order_of_keys() -> None:
    assert hash_of({"a": 1, "b": 2}) == hash_of({"b": 2, "a": 1}) != hash_of({"a": 1, "b": 3})
