from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
import pytest

from isthmus import names
from isthmus.bridge.cache.nodemap import OWNERS, NodeMap
from isthmus.kube.store import Store
from isthmus.model.base import EMPTY
from isthmus.model.meta import Key, ObjectMeta, OwnerReference, Partial
from isthmus.model.node import Node
from isthmus.model.pod import Pod, PodSpec, PodStatus

SLINKY = OwnerReference("slinky.slurm.net/v1beta1", "NodeSet", "slinky", "u1", controller=True)
SOPERATOR = OwnerReference("apps.kruise.io/v1beta1", "StatefulSet", "worker", "u2", controller=True)
NEBIUS = OwnerReference("slurm.nebius.ai/v1alpha1", "NodeSet", "worker", "u4", controller=True)
APP = OwnerReference("apps/v1", "StatefulSet", "worker", "u3", controller=True)


class Bed:
    """A map, its two stores, and what it told."""

    def __init__(self, *kube_nodes: str) -> None:
        self.nodes: Store[Node] = Store()
        self.pods: Store[Pod] = Store()
        for name in kube_nodes:
            self.node(name)
        self.owners: list[Store[Partial]] = [Store() for _ in OWNERS]
        self.owner(SLINKY)
        self.owner(NEBIUS)
        self.owner(SOPERATOR, above=NEBIUS)
        self.map = NodeMap(self.nodes, self.pods, self.owners)
        self.told: list[str] = []
        self.map.on_change(self.told.append)

    def owner(self, it: OwnerReference, *, above: OwnerReference | None = None, version: str = "") -> None:
        """Make the object that a worker pod names as its owner."""
        owners = (above,) if above else ()
        meta = ObjectMeta(it.name, "slurm", it.uid, resource_version=version, owner_references=owners)
        (store,) = [
            store
            for kind, store in zip(OWNERS, self.owners, strict=True)
            if (kind.api_version, kind.name) == (it.api_version, it.kind)
        ]
        store.put(Partial(meta))

    def node(
        self, name: str, *, label: str = "", annotation: str = "", external: bool = False, **marks: str
    ) -> None:
        labels = {**marks, **({names.NODE_NAME_LABEL: label} if label else {})}
        if external:
            labels[names.EXTERNAL_NODE_LABEL] = ""
        annotations = {names.NODE_NAME_LABEL: annotation} if annotation else {}
        self.nodes.put(Node(ObjectMeta(name=name, labels=labels, annotations=annotations)))

    def worker(
        self,
        name: str,
        node: str,
        *,
        owner: OwnerReference = SLINKY,
        hostname: str = "",
        phase: str = "Running",
        leaving: bool = False,
        host_network: bool = False,
        hour: int = 0,
        labels: Mapping[str, str] = EMPTY,
        namespace: str = "slurm",
    ) -> None:
        meta = ObjectMeta(
            name=name,
            namespace=namespace,
            labels=labels,
            owner_references=(owner,),
            creation_timestamp=datetime(2026, 1, 1, hour, tzinfo=UTC),
            deletion_timestamp=datetime(2026, 1, 2, tzinfo=UTC) if leaving else None,
        )
        self.pods.put(
            Pod(meta, PodSpec(node_name=node, hostname=hostname, host_network=host_network), PodStatus(phase=phase))
        )

    def pairs(self) -> dict[str, str | None]:
        return {key.name: self.map.slurm_name(key.name) for key in self.nodes}


def test_without_marks_names_are_the_same() -> None:
    bed = Bed("n1")
    assert bed.map.kube_name("n1") == "n1"
    assert bed.map.slurm_name("n1") == "n1"
    assert bed.map.kube_name("n2") is None
    assert bed.map.slurm_name("n2") is None


@pytest.mark.parametrize("mark", ["label", "annotation"])
def test_a_node_is_known_by_the_name_that_it_carries(mark: str) -> None:
    bed = Bed("k1")
    bed.node("k1", **{mark: "s1"})  # type: ignore[arg-type]
    assert bed.map.kube_name("s1") == "k1"
    assert bed.map.slurm_name("k1") == "s1"
    assert bed.map.kube_name("k1") is None


def test_a_name_that_is_carried_no_longer_is_given_back() -> None:
    bed = Bed()
    bed.node("k1", label="s1")
    bed.node("k1")
    assert (bed.map.kube_name("s1"), bed.map.kube_name("k1")) == (None, "k1")
    bed.node("k1", label="s2")
    bed.nodes.remove(Key("", "k1"))
    assert (bed.map.kube_name("s2"), bed.map.kube_name("k1"), bed.map.slurm_name("k1")) == (None, None, None)


def test_weakness_18_names_that_cross_are_kept_apart() -> None:
    bed = Bed()
    bed.node("a", label="b")
    bed.node("b", label="a")
    assert bed.pairs() == {"a": "b", "b": "a"}
    assert (bed.map.kube_name("a"), bed.map.kube_name("b")) == ("b", "a")


def test_a_node_whose_name_another_one_took_has_none() -> None:
    bed = Bed("b")
    bed.node("a", label="b")
    assert bed.pairs() == {"b": None, "a": "b"}


def test_two_that_carry_one_name_are_decided_alike_everywhere() -> None:
    for order in (("k1", "k2"), ("k2", "k1")):
        bed = Bed()
        for name in order:
            bed.node(name, label="s")
        assert bed.map.kube_name("s") == "k1"
        assert bed.map.slurm_name("k2") is None


def test_a_worker_pod_names_its_node_by_its_host_name() -> None:
    bed = Bed("k1", "k2", "k3")
    bed.worker("slinky-0", "k1")
    bed.worker("pod-x", "k2", hostname="gpu-0")
    bed.worker("worker-0", "k3", owner=SOPERATOR, labels={"slurm.nebius.ai/nodeset": "worker"})
    assert bed.pairs() == {"k1": "slinky-0", "k2": "gpu-0", "k3": "worker-0"}
    assert [bed.map.kube_name(name) for name in ("slinky-0", "gpu-0", "worker-0", "k1")] == ["k1", "k2", "k3", None]


def test_a_worker_on_the_network_of_its_host_has_the_name_of_the_node() -> None:
    bed = Bed("k1")
    bed.worker("slinky-0", "k1", host_network=True, hostname="slinky-0")
    assert bed.pairs() == {"k1": "k1"}


def test_pods_that_merely_look_like_workers_are_not_believed() -> None:
    bed = Bed("k1", "k2")
    component = {"app.kubernetes.io/component": "worker", "nodeset.slinky.slurm.net/pod-hostname": "k1"}
    bed.worker("worker-0", "k2", owner=APP, labels=component)
    bed.worker("k1", "k2", owner=OwnerReference("example.com/v1", "NodeSet", "x", "u", controller=True))
    assert bed.pairs() == {"k1": "k1", "k2": "k2"}


def test_a_worker_is_believed_only_if_its_owner_is_there() -> None:
    bed = Bed("k1", "k2")
    bed.worker("k1", "k2", owner=msgspec.structs.replace(SLINKY, uid="of another"))
    bed.worker("k1", "k2", owner=msgspec.structs.replace(SLINKY, name="none"))
    bed.worker("k1", "k2", owner=SLINKY, namespace="tenant")
    bed.worker("k1", "k2", owner=msgspec.structs.replace(SLINKY, controller=False))
    assert bed.pairs() == {"k1": "k1", "k2": "k2"}
    assert bed.told == []


def test_a_statefulset_is_believed_only_if_it_belongs_to_a_nodeset() -> None:
    other = msgspec.structs.replace(SOPERATOR, name="other", uid="u5")
    bed = Bed("k1", "k2", "k3")
    bed.owner(other)
    bed.worker("k1", "k2", owner=other, labels={"slurm.nebius.ai/nodeset": "worker"})
    bed.worker("w-0", "k3", owner=SOPERATOR)
    assert bed.pairs() == {"k1": "k1", "k2": "k2", "k3": "w-0"}
    bed.owner(other, above=msgspec.structs.replace(NEBIUS, uid="of another"))
    assert bed.map.kube_name("k1") == "k1"
    bed.owner(other, above=NEBIUS)
    assert bed.map.kube_name("k1") == "k2"


def test_workers_are_believed_as_their_owner_comes_and_goes() -> None:
    late = msgspec.structs.replace(SLINKY, name="late", uid="u6")
    bed = Bed("k1")
    bed.worker("w-0", "k1", owner=late)
    assert bed.map.kube_name("w-0") is None
    bed.owner(late)
    assert bed.map.kube_name("w-0") == "k1"
    assert set(bed.told) == {"w-0", "k1"}
    bed.told.clear()
    bed.owner(late, version="2")
    assert bed.told == []
    bed.owners[0].remove(Key("slurm", "late"))
    assert bed.map.kube_name("w-0") is None
    assert set(bed.told) == {"w-0", "k1"}


def test_no_worker_takes_the_name_of_a_registered_node() -> None:
    bed = Bed()
    bed.node("k1", external=True)
    bed.node("k2")
    bed.worker("k1", "k2")
    assert (bed.map.kube_name("k1"), bed.map.slurm_name("k1"), bed.map.slurm_name("k2")) == ("k1", "k1", None)


def test_a_label_and_a_registration_go_before_worker_pods() -> None:
    bed = Bed()
    bed.node("k1", label="s1")
    bed.node("k2", external=True)
    bed.worker("w-1", "k1")
    bed.worker("w-2", "k2")
    assert bed.pairs() == {"k1": "s1", "k2": "k2"}
    assert bed.map.kube_name("w-2") == "k2"


def test_a_worker_that_moved_finished_or_went_is_followed() -> None:
    bed = Bed("k1", "k2")
    bed.worker("w-0", "")
    assert bed.map.kube_name("w-0") is None
    bed.worker("w-0", "k1")
    assert bed.map.kube_name("w-0") == "k1"
    bed.pods.remove(Key("slurm", "w-0"))
    assert bed.pairs() == {"k1": "k1", "k2": "k2"}
    bed.worker("w-0", "k2")
    assert bed.map.kube_name("w-0") == "k2"
    bed.worker("w-0", "k2", phase="Failed")
    assert bed.map.kube_name("w-0") is None


def test_of_two_workers_with_one_name_the_one_that_stays_counts_then_the_older() -> None:
    bed = Bed("k1", "k2")
    bed.worker("w-x", "k1", hostname="w", hour=1)
    bed.worker("w-y", "k2", hostname="w", hour=2)
    assert bed.map.kube_name("w") == "k1"
    bed.worker("w-x", "k1", hostname="w", hour=1, leaving=True)
    assert bed.map.kube_name("w") == "k2"


def test_several_workers_on_one_node_all_lead_to_it() -> None:
    bed = Bed("k1")
    bed.worker("w-10", "k1")
    bed.worker("w-9", "k1")
    assert (bed.map.kube_name("w-9"), bed.map.kube_name("w-10")) == ("k1", "k1")
    assert bed.map.slurm_name("k1") == "w-9"
    assert bed.map.slurm_names("k1") == {"k1", "w-9", "w-10"}


def test_a_worker_on_a_node_that_is_gone_leads_nowhere() -> None:
    bed = Bed()
    bed.worker("w-0", "k1")
    assert bed.map.kube_name("w-0") is None


def test_only_what_changes_a_name_is_told() -> None:
    bed = Bed("k1")
    bed.node("k1", zone="a")
    assert bed.told == []
    bed.node("k1", label="s1")
    assert set(bed.told) == {"k1", "s1"}
    bed.told.clear()
    bed.worker("w-0", "k1")
    assert set(bed.told) == {"k1", "w-0"}
    bed.told.clear()
    bed.worker("w-0", "k1", phase="Pending")
    assert bed.told == []
    bed.node("k1", label="s2")
    assert set(bed.told) == {"k1", "s1", "s2", "w-0"}
