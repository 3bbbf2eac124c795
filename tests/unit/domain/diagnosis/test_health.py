"""What the doctor says about node health: whether nodes are watched, and which wait for a human."""

from typing import Any

from isthmus.domain.diagnosis import ClusterFacts, Facts, Finding, diagnose
from isthmus.domain.diagnosis.facts import CheckFact, OperatorFact, SlurmNodeFact
from isthmus.inspect.doctor import check_fact
from isthmus.model.activecheck import (
    ActiveCheck,
    ActiveCheckSpec,
    ActiveCheckStatus,
    CheckedNode,
    JobAndReason,
    SlurmJobsStatus,
)
from isthmus.model.health import (
    Finding as HealthFinding,
)
from isthmus.model.health import (
    HealthPolicy,
    HealthPolicySpec,
    HealthPolicyStatus,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    Phase,
)
from isthmus.model.meta import Key, ObjectMeta

DEMO = Key("hpc", "demo")
GPU = CheckFact(key=Key("hpc", "gpu-checks"))
ALIVE, SILENT = OperatorFact(holder="a", renewed=1.0), OperatorFact(holder="a", renewed=90.0)
OURS = "[node_problem] gpu-checks: job 12 [slurm_job]"


def found(nodes: tuple[SlurmNodeFact, ...] = (), **facts: Any) -> tuple[Finding, ...]:
    cluster = ClusterFacts(key=DEMO, controller="demo", nodes=nodes)
    given = {"operators": (ALIVE,), "clusters": (cluster,), "checkers": (ALIVE,)} | facts
    return tuple(it for it in diagnose(Facts(**given)) if it.area in {"health", "nodes"})


def health(node: str, phase: Phase, *, message: str = "", cluster: str = "demo") -> NodeHealth:
    return NodeHealth(
        metadata=ObjectMeta(namespace="hpc", name=f"{cluster}.{node}"),
        spec=NodeHealthSpec(cluster=cluster, node=node),
        status=NodeHealthStatus(
            phase=phase,
            message=message,
            reason=OURS,
            findings=(HealthFinding(source="check", check="gpu-checks"),),
        ),
    )


def policy(name: str, cluster: str = "", *storms: str) -> HealthPolicy:
    return HealthPolicy(
        metadata=ObjectMeta(namespace="hpc", name=name),
        spec=HealthPolicySpec(slurm_cluster_ref_name=cluster),
        status=HealthPolicyStatus(storms=storms),
    )


def test_a_cluster_whose_checks_run_has_no_finding() -> None:
    assert (
        found(checks=(GPU,), healths=(health("w1", "Testing"),), policies=(policy("a"), policy("b", "demo"))) == ()
    )


def test_nodes_out_of_service_are_named_with_the_way_to_return_them() -> None:
    healths = (health("w2", "OutOfService", message="4 repairs in a week"), health("w1", "OutOfService"))
    (it,) = found(healths=(*healths, health("w3", "OutOfService", cluster="other")))
    assert it.what == "2 nodes are out of service: w1, w2"
    assert it.why == "4 repairs in a week"
    assert it.remedy[-1].endswith("isthmus health release w2 -n hpc")
    assert not it.grave, "the cluster works without them"


def test_a_drain_of_ours_is_not_to_be_lifted_by_hand() -> None:
    drained = SlurmNodeFact(name="w1", states=("IDLE", "DRAIN"), reason=f"{OURS} ")
    assert found((drained,), healths=(health("w1", "Repairing"),)) == ()
    (it,) = found((drained,))
    assert it.area == "nodes", "without a record, it is nobody's"
    foreign = SlurmNodeFact(name="w1", states=("IDLE", "DRAIN"), reason="broken fan")
    (it,) = found((foreign,), healths=(health("w1", "Repairing"),))
    assert it.why == "broken fan"


def test_checks_without_their_process_are_grave() -> None:
    (it,) = found(checks=(GPU, GPU), checkers=(SILENT,))
    assert it.grave
    assert "2 checks are not run" in it.what
    assert it.why == "the last one has not renewed its Lease for 90 s"
    (it,) = found(checks=(CheckFact(key=GPU.key, error="no such file"),), checkers=())
    assert it.why == "it has no Lease"
    assert found(checkers=()) == (), "where nothing is to be checked, nobody is missed"
    assert found(checks=(GPU,), checkers=None) == (), "it could not be found out"


def test_a_check_that_only_errors_is_named() -> None:
    (it,) = found(checks=(GPU, CheckFact(key=Key("hpc", "nccl"), error="w1: nvidia-smi: not found")))
    assert "nccl itself has an error" in it.what
    assert it.why == "w1: nvidia-smi: not found"
    assert "isthmus health run nccl --wait -n hpc" in it.remedy[-1]


def test_two_policies_for_one_cluster_are_a_mistake() -> None:
    (it,) = found(policies=(policy("b", "demo"), policy("a", "demo"), policy("c")))
    assert it.what == "2 policies claim the cluster demo of hpc: only a has effect"
    (it,) = found(policies=(policy("x"), policy("y")))
    assert "every cluster of hpc" in it.what


def test_a_storm_is_shown() -> None:
    (it,) = found(policies=(policy("a", "", "gpu-checks condemned 5 of 10 nodes within 5m"),))
    assert it.what == "a storm: gpu-checks condemned 5 of 10 nodes within 5m"
    assert it.grave


def check(**status: Any) -> ActiveCheck:
    return ActiveCheck(
        metadata=ObjectMeta(namespace="hpc", name="nccl"),
        spec=ActiveCheckSpec(slurm_cluster_ref_name="demo"),
        status=ActiveCheckStatus(**status),
    )


def test_what_a_status_says_of_the_check_itself() -> None:
    error = CheckedNode(node="w1", result="Error", evidence="exit code 2")
    assert check_fact(check(nodes=(error,))).error == "w1: exit code 2"
    assert not check_fact(check(nodes=(error,), passed=3)).error, "it works elsewhere"
    assert not check_fact(check(nodes=(error, CheckedNode(node="w2", result="Failed")))).error
    run = SlurmJobsStatus(last_run_status="Error", last_run_error_jobs_and_reasons=(JobAndReason("7", "TIMEOUT"),))
    assert check_fact(check(slurm_jobs_status=run)).error == "job 7: TIMEOUT"
    assert not check_fact(check(slurm_jobs_status=SlurmJobsStatus(last_run_status="Complete"), passed=1)).error
