import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from isthmus import names
from isthmus.bridge.cache.capacity import Capacity
from isthmus.bridge.cache.feasible import Excluded, FeasibleNodes
from isthmus.bridge.cache.nodemap import OWNERS, NodeMap
from isthmus.domain.kube.feasibility import Constraints
from isthmus.domain.languages.hostlist import expand
from isthmus.kube.store import Store
from isthmus.model import slurm
from isthmus.model.meta import Condition, Key, ObjectMeta, OwnerReference, Partial
from isthmus.model.node import Node, NodeSpec, NodeStatus, Taint
from isthmus.model.pod import Container, Pod, PodSpec, Resources, Toleration
from isthmus.slurm.store import Store as SlurmStore

ANYWHERE = Constraints()
SSD = Constraints(node_selector=(("disk", "ssd"),))
JOB = names.JOB_ID_LABEL
GPU = Taint("gpu", "NoSchedule", "yes")


class Bed:
    """Feasible nodes of stores that a test writes."""

    def __init__(self, *both: str) -> None:
        self.nodes: Store[Node] = Store()
        self.pods: Store[Pod] = Store()
        self.slurm: SlurmStore[str, slurm.Node] = SlurmStore()
        self.owners: list[Store[Partial]] = [Store() for _ in OWNERS]
        for name in both:
            self.node(name)
            self.slurm_node(name)
        self.map = NodeMap(self.nodes, self.pods, self.owners)
        self.capacity = Capacity(self.nodes, self.pods, placed=lambda pod: JOB in pod.metadata.labels)
        self.feasible = FeasibleNodes(self.nodes, self.map, self.slurm, self.capacity)

    def node(self, name: str, *taints: Taint, cordoned: bool = False, ready: bool = True, **labels: str) -> None:
        spelled = {names.NODE_NAME_LABEL if key == "slurm_name" else key: value for key, value in labels.items()}
        status = NodeStatus(conditions=(Condition("Ready", "True" if ready else "False"),))
        self.nodes.put(Node(ObjectMeta(name=name, labels=spelled), NodeSpec(cordoned, taints), status))

    def slurm_node(self, name: str, *state: str) -> None:
        self.slurm.put(name, slurm.Node(name, state))

    def fresh(self, constraints: Constraints) -> Excluded:
        """What somebody answers who has never been asked before."""
        return FeasibleNodes(self.nodes, self.map, self.slurm, self.capacity).excluded(constraints)


def test_nothing_is_left_out_where_every_node_fits() -> None:
    assert Bed("n1", "n2").feasible.excluded(ANYWHERE) == Excluded("", 2, "2 of 2 nodes fit")


def test_nodes_that_do_not_fit_are_left_out_and_counted() -> None:
    bed = Bed(*(f"n{i}" for i in range(1, 12)))
    bed.node("n2", disk="ssd")
    bed.node("n10", GPU, disk="ssd")
    bed.node("n11", cordoned=True)
    assert bed.feasible.excluded(SSD) == Excluded(
        "n[1,3-11]",
        1,
        "1 of 11 nodes fits: 8 do not match the node selector, 1 has the taint gpu=yes:NoSchedule, 1 is cordoned",
    )


def test_slurm_nodes_without_a_kubernetes_node_are_left_out() -> None:
    bed = Bed("n1")
    bed.slurm_node("login")
    assert bed.feasible.excluded(ANYWHERE) == Excluded(
        "login", 1, "1 of 2 nodes fits: 1 is not a node of this Kubernetes cluster"
    )


def test_nodes_are_left_out_by_their_slurm_names() -> None:
    bed = Bed()
    bed.slurm_node("s1")
    bed.slurm_node("w-0")
    bed.node("k1", slurm_name="s1")
    bed.node("k2")
    owner = OwnerReference("slinky.slurm.net/v1beta1", "NodeSet", "w", "u", controller=True)
    bed.owners[0].put(Partial(ObjectMeta(name="w", namespace="ns", uid="u")))
    bed.pods.put(Pod(ObjectMeta(name="w-0", namespace="ns", owner_references=(owner,)), PodSpec(node_name="k2")))
    assert bed.feasible.excluded(SSD).hostlist == "s1,w-0"
    bed.node("k2", disk="ssd")
    assert bed.feasible.excluded(SSD).hostlist == "s1"
    bed.pods.remove(Key("ns", "w-0"))
    assert bed.feasible.excluded(SSD).hostlist == "s1,w-0"


def test_a_slurm_without_nodes_is_said_to_have_none() -> None:
    assert Bed().feasible.excluded(ANYWHERE) == Excluded("", 0, "Slurm has no nodes")


def test_answers_follow_changes_of_nodes() -> None:
    bed = Bed("n1", "n2")
    tolerant = Constraints(tolerations=(Toleration("gpu", "Exists"),))
    for constraints in (ANYWHERE, tolerant, SSD):
        bed.feasible.excluded(constraints)
    bed.node("n1", GPU)
    assert bed.feasible.excluded(ANYWHERE).hostlist == "n1"
    assert bed.feasible.excluded(tolerant).hostlist == ""
    bed.node("n1", cordoned=True)
    assert bed.feasible.excluded(tolerant).hostlist == "n1"
    bed.node("n1", disk="ssd")
    assert bed.feasible.excluded(SSD).hostlist == "n2"
    bed.nodes.remove(Key("", "n1"))
    assert bed.feasible.excluded(SSD).hostlist == "n[1-2]"
    bed.slurm.drop("n1")
    assert bed.feasible.excluded(SSD).hostlist == "n2"
    bed.slurm_node("n3")
    assert bed.feasible.excluded(SSD) == bed.fresh(SSD)


def test_heartbeats_and_states_of_nodes_do_not_count() -> None:
    bed = Bed("n1")
    version, answer = bed.feasible.version, bed.feasible.excluded(ANYWHERE)
    bed.node("n1", ready=False)
    bed.slurm_node("n1", "ALLOCATED")
    assert bed.feasible.version == version
    assert bed.feasible.excluded(ANYWHERE) is answer
    bed.node("n1", zone="a")
    assert bed.feasible.version > version


def test_an_answer_that_is_far_behind_is_made_anew() -> None:
    bed = Bed("n1", "n2")
    bed.feasible.excluded(SSD)
    for turn in range(5000):
        bed.node("n1", disk="hdd", turn=str(turn))
    bed.node("n2", disk="ssd")
    for turn in range(5000):
        bed.node("n1", disk="hdd", turn=str(turn))
    assert bed.feasible.excluded(SSD).hostlist == "n1"
    assert len(bed.feasible._log) <= 4096


def test_only_so_many_answers_are_remembered() -> None:
    bed = Bed("n1")
    for number in range(200):
        bed.feasible.excluded(Constraints(node_selector=(("number", str(number)),)))
        bed.feasible.excluded(ANYWHERE)
    assert len(bed.feasible._answers) == 64
    assert ANYWHERE in bed.feasible._answers


def test_a_change_is_told_once_until_somebody_asks() -> None:
    bed, told = Bed("n1"), []
    bed.feasible.on_change(lambda: told.append(bed.feasible.version))
    bed.node("n1", zone="a")
    bed.node("n1", zone="b")
    assert len(told) == 1
    bed.feasible.excluded(ANYWHERE)
    bed.node("n1", ready=False, zone="b")
    assert len(told) == 1
    bed.node("n1", zone="c")
    assert len(told) == 2


def test_one_node_is_judged_by_its_kubernetes_name() -> None:
    bed = Bed()
    bed.node("k1", GPU, slurm_name="s1")
    assert bed.feasible.misfit(ANYWHERE, "k1") == "has the taint gpu=yes:NoSchedule"
    assert bed.feasible.misfit(Constraints(tolerations=(Toleration("", "Exists"),)), "k1") is None
    assert bed.feasible.misfit(ANYWHERE, "s1") == "is not a node of this Kubernetes cluster"


@pytest.fixture
def large() -> Bed:
    bed = Bed(*(f"n{i}" for i in range(5000)))
    for number in range(0, 5000, 2):
        bed.node(f"n{number}", disk="ssd")
    return bed


def steps(work: Callable[[], object]) -> int:
    """Count what the interpreter does: that is the same on every machine, however busy."""
    done = 0

    def count(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal done
        frame.f_trace_opcodes = True
        done += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return done


def test_weakness_5_no_list_of_nodes_is_walked_for_one_more_pod(large: Bed) -> None:
    first = large.feasible.excluded(SSD)
    assert len(expand(first.hostlist)) == first.feasible == 2500
    for _ in range(100):
        assert large.feasible.excluded(SSD) is first
        # A look-up takes fifty steps; a walk takes more of them than there are nodes.
        assert steps(lambda: large.feasible.excluded(SSD)) < 500
    large.node("n1", disk="ssd")
    assert steps(lambda: large.feasible.excluded(SSD)) > 5000, "this is how a walk is noticed"


def test_weakness_9_no_node_is_ever_required_but_others_are_left_out(large: Bed) -> None:
    excluded = set(expand(large.feasible.excluded(SSD).hostlist))
    assert all(int(name.removeprefix("n")) % 2 for name in excluded)
    # A node that fitted goes: jobs that were submitted before name only nodes that they do not want.
    large.nodes.remove(Key("", "n0"))
    assert "n0" not in excluded
    assert "n0" in expand(large.feasible.excluded(SSD).hostlist)


def sized(bed: Bed, name: str, cpu: str, *, slurm_cpus: int = 0, external: bool = False) -> None:
    status = NodeStatus(allocatable={"cpu": cpu, "memory": "8Gi"})
    labels = {names.EXTERNAL_NODE_LABEL: ""} if external else {}
    bed.nodes.put(Node(ObjectMeta(name=name, labels=labels), status=status))
    bed.slurm.put(name, slurm.Node(name, cpus=slurm_cpus))


def daemon(bed: Bed, name: str, node: str, cpu: str, **labels: str) -> None:
    containers = (Container(name="c", resources=Resources(requests={"cpu": cpu})),)
    spelled = {JOB if key == "job" else key: value for key, value in labels.items()}
    meta = ObjectMeta(name=name, namespace="ns", labels=spelled)
    bed.pods.put(Pod(meta, PodSpec(node_name=node, containers=containers)))


TWO_CPUS = Constraints(needs=(("cpu", 2000),))


def test_a_node_that_could_not_take_a_pod_even_when_empty_is_left_out() -> None:
    bed = Bed()
    sized(bed, "n1", "2")
    sized(bed, "n2", "2")
    daemon(bed, "placed", "n1", "2", job="7")
    assert bed.feasible.excluded(TWO_CPUS) == Excluded("", 2, "2 of 2 nodes fit")
    daemon(bed, "proxy", "n2", "300m")
    assert bed.feasible.excluded(TWO_CPUS) == Excluded("n2", 1, "1 of 2 nodes fits: 1 is too small")
    bed.pods.remove(Key("ns", "proxy"))
    assert bed.feasible.excluded(TWO_CPUS) == Excluded("", 2, "2 of 2 nodes fit")


def test_a_pod_that_fits_nowhere_is_told_of_the_largest_node() -> None:
    bed = Bed()
    for name, others in (("n1", "1500m"), ("n2", "300m"), ("n3", "900m")):
        sized(bed, name, "2")
        daemon(bed, f"proxy-{name}", name, others)
    assert bed.feasible.excluded(TWO_CPUS) == Excluded(
        "n[1-3]",
        0,
        "0 of 3 nodes fit: 3 are too small. The largest node, n2, is too small even without other pods of Slurm: "
        "needs 2 CPUs, 1.7 are free",
    )


def test_a_node_is_no_larger_than_slurm_has_it() -> None:
    bed = Bed()
    sized(bed, "n1", "4", slurm_cpus=1)
    assert bed.feasible.excluded(TWO_CPUS).why.endswith("needs 2 CPUs, 1 are free")
    sized(bed, "n1", "4", slurm_cpus=3)
    assert bed.feasible.excluded(TWO_CPUS).feasible == 1


def test_nobody_is_woken_for_a_daemon_that_makes_no_node_too_small() -> None:
    bed = Bed()
    sized(bed, "n1", "4")
    woken: list[int] = []
    bed.feasible.excluded(TWO_CPUS)
    bed.feasible.on_change(lambda: woken.append(1))
    daemon(bed, "first", "n1", "500m")
    daemon(bed, "second", "n1", "500m")
    assert not woken
    daemon(bed, "third", "n1", "1500m")
    assert woken
    assert bed.feasible.excluded(TWO_CPUS).hostlist == "n1"


def test_a_worker_on_an_external_node_counts_as_that_one() -> None:
    bed = Bed()
    sized(bed, "k1", "8", external=True)
    owner = OwnerReference("slinky.slurm.net/v1beta1", "NodeSet", "w", "u", controller=True)
    bed.owners[0].put(Partial(ObjectMeta(name="w", namespace="ns", uid="u")))
    bed.pods.put(Pod(ObjectMeta(name="w-0", namespace="ns", owner_references=(owner,)), PodSpec(node_name="k1")))
    bed.slurm_node("w-0")
    assert bed.feasible.excluded(ANYWHERE).hostlist == "w-0"
    bed.slurm.drop("k1")
    assert bed.feasible.excluded(ANYWHERE).hostlist == ""
    bed.slurm_node("k1")
    assert (
        bed.feasible.excluded(ANYWHERE)
        == bed.fresh(ANYWHERE)
        == Excluded("w-0", 1, "1 of 2 nodes fits: 1 runs on a machine that Slurm has as an external node")
    )


NOT_READY = Taint("node.kubernetes.io/not-ready", "NoSchedule")


@pytest.mark.parametrize("taints", [(), (Taint("node.kubernetes.io/unschedulable", "NoSchedule"),), (NOT_READY,)])
def test_a_node_that_is_shut_is_left_out_until_slurm_has_drained_it(taints: tuple[Taint, ...]) -> None:
    """So jobs that wait need not be told of a cordon, and need not be told again when it ends."""
    bed = Bed("n1", "n2", "n3")
    bed.node("n3", GPU)
    before = bed.feasible.excluded(ANYWHERE)
    assert (before.hostlist, before.lasting) == ("n3", "n3")
    bed.node("n2", *taints, cordoned=NOT_READY not in taints)
    shut = bed.feasible.excluded(ANYWHERE)
    assert (shut.hostlist, shut.lasting, shut.feasible) == ("n[2-3]", "n3", 1)
    bed.slurm_node("n2", "IDLE", "DRAIN")
    drained = bed.feasible.excluded(ANYWHERE)
    assert (drained.hostlist, drained.lasting, drained.feasible) == ("n3", "n3", 1)
    assert set(bed.feasible.misfits(ANYWHERE)) == {"n2", "n3"}
    bed.node("n2")
    opened = bed.feasible.excluded(ANYWHERE)
    assert (opened.hostlist, opened.lasting, opened.feasible) == ("n3", "n3", 2)
    bed.slurm_node("n2", "IDLE")
    assert bed.feasible.excluded(ANYWHERE) == before


def test_a_node_that_is_shut_and_does_not_fit_either_is_left_out_for_good() -> None:
    bed = Bed("n1", "n2")
    bed.node("n2", GPU, cordoned=True)
    bed.slurm_node("n2", "IDLE", "DRAIN")
    found = bed.feasible.excluded(ANYWHERE)
    assert (found.hostlist, found.lasting, found.why) == ("n2", "n2", "1 of 2 nodes fits: 1 is cordoned")
