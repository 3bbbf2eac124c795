"""What `isthmus health` makes of the records and policies that it read."""

import pytest

from isthmus.errors import Terminal
from isthmus.inspect.health import Overview, assemble, choose
from isthmus.inspect.healthcontrol import Switch, reason_of, same_reason, switches
from isthmus.model.health import (
    Finding,
    HealthPolicy,
    HealthPolicySpec,
    HealthPolicyStatus,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    Phase,
)
from isthmus.model.meta import Key, ObjectMeta

DEMO, OTHER = Key("hpc", "demo"), Key("hpc", "other")


def health(node: str, phase: Phase, *, cluster: Key = DEMO, reason: str = "") -> NodeHealth:
    return NodeHealth(
        metadata=ObjectMeta(namespace=cluster.namespace, name=f"{cluster.name}.{node}"),
        spec=NodeHealthSpec(cluster=cluster.name, node=node),
        status=NodeHealthStatus(phase=phase, reason=reason, findings=(Finding(source="check", check="gpu"),)),
    )


def policy(name: str, cluster: str = "", *, paused: bool = False, storms: tuple[str, ...] = ()) -> HealthPolicy:
    return HealthPolicy(
        metadata=ObjectMeta(namespace="hpc", name=name),
        spec=HealthPolicySpec(slurm_cluster_ref_name=cluster, paused=paused),
        status=HealthPolicyStatus(storms=storms),
    )


def test_the_gravest_come_first_and_the_cluster_knows_what_it_holds() -> None:
    healths = (
        health("worker-1", "Recovered"),
        health("worker-2", "Draining", reason="[node_problem] gpu: x"),
        health("worker-3", "OutOfService", reason="[node_problem] gpu: y"),
        health("worker-4", "Suspect"),
    )
    found = assemble(healths, (policy("mine", "demo", storms=("gpu condemned 5 of 10 nodes",)),), (DEMO, OTHER))
    assert [it.health.spec.node for it in found.nodes] == ["worker-3", "worker-2", "worker-4", "worker-1"]
    assert found.nodes[0].next_step == "you decide: isthmus health release worker-3"
    demo, other = found.clusters
    assert (demo.held, demo.limit, demo.policy) == (2, "20%", "mine")
    assert demo.storms == ("gpu condemned 5 of 10 nodes",)
    assert (other.held, other.policy) == (0, "")


def test_a_second_policy_for_a_cluster_is_named() -> None:
    found = assemble((), (policy("b", "demo"), policy("a", "demo")), (DEMO,))
    assert (found.clusters[0].policy, found.clusters[0].rivals) == ("a", ("b",))


def test_a_record_of_a_cluster_that_is_gone_is_still_shown() -> None:
    found = assemble((health("worker-1", "Suspect", cluster=Key("old", "gone")),), (), ())
    assert [it.cluster for it in found.clusters] == ["old/gone"]


def test_a_node_is_found_by_its_name_and_by_that_of_its_record() -> None:
    found = assemble((health("w1", "Suspect"), health("w1", "Suspect", cluster=OTHER)), (), ())
    assert choose(found, "other.w1").cluster == OTHER
    with pytest.raises(Terminal, match=r"several clusters have a node 'w1': hpc/demo\.w1, hpc/other\.w1"):
        choose(found, "w1")
    with pytest.raises(Terminal, match="nothing was found on a node 'w2'"):
        choose(Overview(), "w2")


def test_pausing_makes_one_policy_where_none_governs() -> None:
    assert list(switches((), (DEMO, OTHER), paused=True)) == [Switch(Key("hpc", "default"), new=True)]
    assert list(switches((), (DEMO,), paused=False)) == [], "nothing is paused"


def test_pausing_reaches_every_policy_that_governs_and_no_other() -> None:
    policies = (policy("mine", "demo"), policy("rest", paused=True), policy("unused", "third"))
    assert list(switches(policies, (DEMO, OTHER), paused=True)) == [
        Switch(Key("hpc", "mine")),
        Switch(Key("hpc", "rest"), done=True),
    ]


def test_a_policy_called_default_that_is_for_another_cluster_is_left_alone() -> None:
    assert list(switches((policy("default", "demo"),), (OTHER,), paused=True)) == [
        Switch(Key("hpc", "other"), new=True)
    ]


def test_a_reason_is_compared_as_slurm_shows_it() -> None:
    ours = "[node_problem] gpu-checks: job 12 [slurm_job]"
    assert reason_of(f"{ours} \n{ours}\n") == ours
    assert reason_of("none\n") == ""
    assert reason_of("") == ""
    assert same_reason(ours, f"{ours} ")
    assert not same_reason("broken fan", ours)
