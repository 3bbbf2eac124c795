from isthmus.domain.health.actions import SetCondition
from isthmus.domain.health.decision import decide
from isthmus.domain.health.view import NodeView, Observation
from tests.unit.domain.health.scene import ago, drained, failed, finding, held, look, machine, node, only, slurm


def shown(*nodes: NodeView) -> dict[str, tuple[str, str]]:
    """What is written of machine m1."""
    policy = {"limits": {"maxUnavailable": "100%"}}
    return {
        it.type: (it.status, it.reason)
        for it in only(decide(look(*nodes, policy=policy)), SetCondition)
        if it.machine == "m1"
    }


def test_a_drain_reaches_the_machine_and_goes_with_it() -> None:
    busy = node(status=held(), slurm=drained(jobs=True), observations=[failed()])
    assert shown(busy)["SoperatorChecksNodeDegraded"] == ("True", "NodeDraining")
    out = node(status=held("OutOfService", tried=1), slurm=drained(), observations=[failed()])
    assert shown(out)["SoperatorChecksNodeDegraded"] == ("True", "NodeDrained")
    told = machine(SoperatorChecksNodeDegraded="True/NodeDrained")
    back = node(status=held("Recovered", reason="", findings=(finding(cleared=ago(minutes=1)),)), machine=told)
    assert shown(back) == {"SoperatorChecksNodeDegraded": ("False", "NodeUndrained")}


def test_nothing_is_written_of_a_machine_that_shows_it_already() -> None:
    told = machine(
        SoperatorChecksNodeDegraded="True/NodeDrained", HardwareIssuesSuspected="True/GPUHealthCheckFailedSoperator"
    )
    assert shown(node(status=held("OutOfService", tried=1), slurm=drained(), machine=told)) == {}
    assert shown(node(status=held("Recovered", reason=""))) == {}


def test_a_node_out_of_service_makes_its_hardware_suspect_unless_users_are_to_blame() -> None:
    out = node(status=held("OutOfService", tried=1), slurm=drained(), observations=[failed()])
    assert shown(out)["HardwareIssuesSuspected"] == ("True", "GPUHealthCheckFailedSoperator")
    user = held("OutOfService", tried=1, findings=(finding(evidence="[user_problem] x"),))
    assert "HardwareIssuesSuspected" not in shown(node(status=user, slurm=drained()))


def test_somebody_elses_suspicion_is_left_alone() -> None:
    theirs = machine(HardwareIssuesSuspected="True/CloudSaysSo", SoperatorChecksNodeDegraded="True/NodeDrained")
    assert shown(node(status=held("OutOfService", tried=1), slurm=drained(), machine=theirs)) == {}
    assert (
        shown(node(status=held("Recovered", reason=""), machine=machine(HardwareIssuesSuspected="True/Cloud")))
        == {}
    )


def test_maintenance_is_shown_when_all_nodes_of_the_machine_are_drained() -> None:
    notice = Observation(source="maintenance", check="Upkeep", at=ago(minutes=5))
    recorded = held(findings=(finding("Upkeep", source="maintenance", proof="gone", last_seen=ago(minutes=5)),))
    first = node(status=recorded, slurm=drained(), observations=[notice], neighbours=("n2",))
    busy = node("n2", slurm=slurm("MIXED", name="n2"), neighbours=("n1",))
    assert "SoperatorChecksNodeMaintenance" not in shown(first, busy)
    idle = node("n2", slurm=drained(name="n2"), neighbours=("n1",))
    assert shown(first, idle)["SoperatorChecksNodeMaintenance"] == ("True", "NodeDraining")


def test_a_reboot_that_a_human_asked_for_is_not_called_off() -> None:
    asked = machine(SlurmNodeReboot="True/NodeNeedReboot", SoperatorChecksNodeDegraded="True/NodeDraining")
    assert shown(node(status=held(), slurm=drained(jobs=True), machine=asked)) == {}
