from datetime import UTC, datetime

from isthmus import names
from isthmus.domain.kube.volumes import Volumes, claim_keys, volumes_of
from isthmus.model.meta import Key, ObjectMeta, OwnerReference
from isthmus.model.pod import (
    ClaimSource,
    Ephemeral,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PodStatus,
    Requirement,
    Volume,
)
from isthmus.model.storage import (
    Claim,
    ClaimSpec,
    PersistentVolume,
    StorageClass,
    StorageStatus,
    TopologyRequirement,
    TopologyTerm,
    VolumeNodeAffinity,
    VolumeSpec,
)

IN_A = NodeSelector((NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),))
DATA = Key("ns", "data")


def pod(*volumes: Volume, name: str = "p", node: str = "", phase: str = "Pending") -> Pod:
    meta = ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}")
    return Pod(meta, PodSpec(volumes=volumes, node_name=node), PodStatus(phase=phase))


def uses(claim: str) -> Volume:
    return Volume(f"v-{claim}", ClaimSource(claim))


def claim(
    name: str = "data",
    *,
    volume: str = "",
    phase: str = "Pending",
    storage_class: str | None = "fast",
    **more: object,
) -> Claim:
    modes = ("ReadWriteOncePod",) if more.pop("one_pod", False) else ("ReadWriteOnce",)
    return Claim(
        ObjectMeta(name=name, namespace="ns", **more),  # type: ignore[arg-type]
        ClaimSpec(storage_class_name=storage_class, volume_name=volume, access_modes=modes),
        StorageStatus(phase),
    )


def bound(name: str = "data", **more: object) -> Claim:
    return claim(name, volume=f"pv-{name}", phase="Bound", **more)  # type: ignore[arg-type]


class Cluster:
    """What is there, found by name."""

    def __init__(self, *claims: Claim, reach: NodeSelector | None = IN_A) -> None:
        self.claims = {it.metadata.key: it for it in claims}
        self.volumes = {
            it.spec.volume_name: PersistentVolume(
                ObjectMeta(name=it.spec.volume_name), VolumeSpec(node_affinity=VolumeNodeAffinity(reach))
            )
            for it in claims
            if it.spec.volume_name
        }
        self.classes = {
            "now": StorageClass("csi"),
            "fast": StorageClass("csi", volume_binding_mode="WaitForFirstConsumer"),
            "local": StorageClass("kubernetes.io/no-provisioner", volume_binding_mode="WaitForFirstConsumer"),
            "zonal": StorageClass(
                "csi",
                volume_binding_mode="WaitForFirstConsumer",
                allowed_topologies=(
                    TopologyTerm((TopologyRequirement("zone", ("a", "b")), TopologyRequirement("rack", ("1",)))),
                    TopologyTerm((TopologyRequirement("zone", ("c",)),)),
                ),
            ),
        }

    def of(self, pod: Pod, *users: Pod) -> Volumes:
        return volumes_of(pod, self.claims.get, self.volumes.get, self.classes.get, users=lambda _: users)

    def waiting(self, pod: Pod, *users: Pod) -> str:
        found = self.of(pod, *users)
        assert found.terms == ()
        assert found.unbound == ()
        return found.waiting


def test_a_pod_without_claims_may_go_anywhere() -> None:
    assert Cluster().of(pod()) == Volumes()
    assert Cluster().of(pod(Volume("scratch"))) == Volumes()


def test_a_bound_claim_says_where_its_volume_is() -> None:
    assert Cluster(bound()).of(pod(uses("data"))) == Volumes(terms=(IN_A,))
    assert Cluster(bound(), reach=None).of(pod(uses("data"))) == Volumes()


def test_a_claim_counts_as_bound_once_the_binding_is_complete() -> None:
    done = claim(volume="pv", annotations={"pv.kubernetes.io/bind-completed": "yes"})
    assert Cluster(done).of(pod(uses("data"))) == Volumes(terms=(IN_A,))
    assert (
        Cluster(claim(volume="pv")).waiting(pod(uses("data")))
        == "volume claim ns/data is not bound to volume pv yet"
    )


def test_a_claim_that_waits_for_its_first_consumer_is_bound_with_the_pod() -> None:
    both = Cluster(claim(), bound("more"))
    assert both.of(pod(uses("data"), uses("more"), uses("data"))) == Volumes((IN_A,), (DATA,))


def test_a_claim_for_which_a_node_was_named_keeps_the_pod_on_that_node() -> None:
    named = claim(annotations={names.SELECTED_NODE_ANNOTATION: "n7"})
    only = NodeSelector((NodeSelectorTerm(match_fields=(Requirement("metadata.name", "In", ("n7",)),)),))
    assert Cluster(named).of(pod(uses("data"))) == Volumes((only,), (DATA,))


def test_a_class_says_where_its_volumes_can_be_made() -> None:
    terms = (
        NodeSelectorTerm((Requirement("zone", "In", ("a", "b")), Requirement("rack", "In", ("1",)))),
        NodeSelectorTerm((Requirement("zone", "In", ("c",)),)),
    )
    zonal = Cluster(claim(storage_class="zonal"))
    assert zonal.of(pod(uses("data"))) == Volumes((NodeSelector(terms),), (DATA,))


def test_what_a_claim_waits_for_is_said() -> None:
    wants = pod(uses("data"))
    assert Cluster().waiting(wants) == "there is no volume claim ns/data"
    assert Cluster(claim(storage_class="now")).waiting(wants) == "volume claim ns/data is not bound yet"
    assert Cluster(claim(storage_class=None)).waiting(wants) == "volume claim ns/data is not bound yet"
    assert Cluster(claim(storage_class="")).waiting(wants) == "volume claim ns/data is not bound yet"
    assert "storage class gone, which does not exist" in Cluster(claim(storage_class="gone")).waiting(wants)
    assert "lost its volume pv" in Cluster(claim(volume="pv", phase="Lost")).waiting(wants)
    leaving = bound(deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    assert Cluster(leaving).waiting(wants) == "volume claim ns/data is being deleted"
    no_volume = Cluster(bound())
    no_volume.volumes.clear()
    assert no_volume.waiting(wants) == "volume pv-data of claim ns/data does not exist"


def test_a_class_that_makes_no_volumes_is_explained() -> None:
    told = Cluster(claim(storage_class="local")).waiting(pod(uses("data")))
    assert "storage class local makes no volumes" in told
    assert "spec.volumeName" in told


def test_one_claim_that_waits_stops_the_pod() -> None:
    assert "ns/late" in Cluster(bound(), claim("late", storage_class="now")).waiting(
        pod(uses("data"), uses("late"))
    )


def test_an_ephemeral_claim_must_have_been_made_for_the_pod() -> None:
    wants = pod(Volume("tmp", ephemeral=Ephemeral()))
    assert list(claim_keys(wants)) == [Key("ns", "p-tmp")]
    mine, other = (
        bound("p-tmp", owner_references=(OwnerReference("v1", "Pod", "p", uid, controller=True),))
        for uid in ("uid-p", "uid-of-a-pod-before")
    )
    assert Cluster(mine).of(wants) == Volumes(terms=(IN_A,))
    assert "was not made for this pod" in Cluster(other).waiting(wants)
    assert "was not made for this pod" in Cluster(bound("p-tmp")).waiting(wants)
    assert Cluster().waiting(wants) == "there is no volume claim ns/p-tmp"


def test_a_volume_for_one_pod_waits_for_the_pod_that_has_it() -> None:
    cluster, wants = Cluster(bound(one_pod=True)), pod(uses("data"))
    assert cluster.of(wants) == Volumes(terms=(IN_A,))
    assert cluster.waiting(wants, pod(name="q", node="n1", phase="Running")).endswith("and pod ns/q has it")
    assert cluster.of(wants, wants, pod(name="q"), pod(name="r", node="n1", phase="Failed")).waiting == ""
    assert Cluster(bound()).of(wants, pod(name="q", node="n1", phase="Running")).waiting == ""
