from typing import Any

from msgspec.structs import replace

from isthmus import names
from isthmus.domain.health.observations import Settings, of_drivers, of_machine, of_node, of_slurm
from isthmus.domain.health.view import Observation
from isthmus.model.dra import Attribute, Device
from isthmus.model.health import NodeHealth, NodeHealthSpec
from isthmus.model.meta import Condition
from isthmus.model.node import Node, NodeSpec, Taint
from isthmus.model.slurm import Node as SlurmNode
from isthmus.model.slurm import Number
from tests.unit.domain.health.scene import NOW, REASON, ago, drained, held, machine, slurm


def from_slurm(node: SlurmNode, **fields: Any) -> list[Observation]:
    given: dict[str, Any] = {"recorded": "", "settings": Settings()}
    return list(of_slurm(node, **(given | fields)))


def from_machine(node: Node, **settings: Any) -> list[Observation]:
    return list(of_machine(node, settings=Settings(**settings), now=NOW))


def with_condition(type_: str, status: Any, **fields: Any) -> Node:
    made = machine()
    told = Condition(type=type_, status=status, last_transition_time=ago(minutes=5), **fields)
    others = tuple(it for it in made.status.conditions if it.type != type_)
    return replace(made, status=replace(made.status, conditions=(*others, told)))


def test_the_check_runners_reason_is_a_finding_that_can_be_tested() -> None:
    text = "[node_problem] boot_disk_full: 97% [hc_program]"
    (seen,) = from_slurm(drained(text, reason_changed_at=Number.of(1000)))
    assert (seen.source, seen.check, seen.evidence) == ("healthcheck", "boot_disk_full", text)
    assert (seen.test, seen.at.timestamp()) == (True, 1000)
    (seen,) = from_slurm(drained(text), settings=Settings(passive_checks=frozenset({"other"})))
    assert (seen.test, seen.proof) == (False, "machine")


def test_hardware_that_nobody_can_test_is_proved_by_another_machine() -> None:
    (seen,) = from_slurm(drained("[hardware_problem] NVLink: down"))
    assert (seen.source, seen.check, seen.test, seen.proof) == ("healthcheck", "NVLink", False, "machine")


def test_a_task_that_could_not_be_killed_is_proved_by_a_repair() -> None:
    (seen,) = from_slurm(drained("Kill task failed"))
    assert (seen.source, seen.test, seen.proof) == ("epilog", False, "repair")


def test_a_humans_drain_is_a_finding_under_their_name() -> None:
    (seen,) = from_slurm(drained("fans are loud", reason_set_by_user="bob"))
    assert (seen.source, seen.check, seen.evidence, seen.test) == ("human", "bob", "fans are loud", False)
    (seen,) = from_slurm(slurm("DOWN", reason="dead"))
    assert seen.source == "human"


def test_reasons_of_the_operator_of_slurmctld_and_of_ours_are_no_findings() -> None:
    assert from_slurm(drained("slurm-operator: Pod (a/b) was cordoned")) == []
    assert from_slurm(slurm("DOWN", "NOT_RESPONDING", reason="Not responding")) == []
    assert from_slurm(drained(REASON), recorded=REASON) == []
    assert from_slurm(slurm("IDLE", reason="left over")) == []


def test_a_checks_own_drain_is_not_read_back_but_one_without_a_record_is_taken_up() -> None:
    assert from_slurm(drained(REASON), checks=["gpu"]) == []
    (seen,) = from_slurm(drained(REASON))
    assert (seen.source, seen.check, seen.wants) == ("check", "gpu", "drain")
    assert (seen.test, seen.proof) == (False, "machine")
    (seen,) = from_slurm(drained(REASON), tests=["gpu"])
    assert (seen.test, seen.in_slurm) == (True, True), "its check is there, and can be run again"


def test_maintenance_and_hardware_conditions_are_found_and_our_own_is_not() -> None:
    (seen,) = from_machine(with_condition("NebiusMaintenanceScheduled", "True", reason="R", message="m"))
    assert (seen.source, seen.evidence, seen.at) == ("maintenance", "R: m", ago(minutes=5))
    assert seen.reason == "[compute_maintenance] node replacement process"
    assert from_machine(with_condition("NebiusMaintenanceScheduled", "False")) == []
    (seen,) = from_machine(with_condition("Upkeep", "True"), maintenance_condition="Upkeep")
    assert seen.source == "maintenance"
    (seen,) = from_machine(with_condition("HardwareIssuesSuspected", "True", reason="Cloud"))
    assert seen.source == "condition"
    ours = with_condition("HardwareIssuesSuspected", "True", reason="GPUHealthCheckFailedSoperator")
    assert from_machine(ours) == []


def test_maintenance_of_machines_with_an_exempt_label_does_not_count() -> None:
    node = with_condition("NebiusMaintenanceScheduled", "True")
    node = replace(node, metadata=replace(node.metadata, labels={"keep": "yes"}))
    assert from_machine(node, ignored_machines={"keep": "yes"}) == []
    assert len(from_machine(node, ignored_machines={"keep": "no"})) == 1


def test_conditions_of_problem_detectors_count_as_configured() -> None:
    node = with_condition("KernelDeadlock", "True", reason="DockerHung")
    (seen,) = from_machine(node)
    assert (seen.source, seen.reason) == ("condition", "[node_problem] KernelDeadlock: DockerHung")
    assert from_machine(node, conditions=frozenset()) == []


def test_a_kubelet_that_is_away_is_found_after_a_grace() -> None:
    node = with_condition("Ready", "Unknown", reason="NodeStatusUnknown")
    (seen,) = from_machine(node, not_ready_grace=300)
    assert (seen.source, seen.check, seen.at) == ("notReady", "NotReady", ago(minutes=5))
    assert from_machine(node, not_ready_grace=301) == []


def test_devices_are_named_by_a_taint_or_by_an_annotation() -> None:
    node = machine()
    tainted = replace(node, spec=NodeSpec(taints=(Taint("gpu-bad", "NoSchedule", "gpu-3_gpu-1", ago(hours=1)),)))
    (seen,) = from_machine(tainted, device_taints=frozenset({"gpu-bad"}))
    assert (seen.source, seen.devices, seen.at) == ("device", ("gpu-1", "gpu-3"), ago(hours=1))
    told = replace(node, metadata=replace(node.metadata, annotations={names.UNHEALTHY_DEVICES: "gpu-0, gpu-7"}))
    (seen,) = from_machine(told)
    assert seen.devices == ("gpu-0", "gpu-7")


def test_devices_that_drivers_taint_are_found_by_the_key_of_the_taint() -> None:
    lost = Taint("gpu.example.com/lost", "NoExecute", "XID79", ago(minutes=2))
    slow = Taint("gpu.example.com/lost", "NoSchedule", "", ago(minutes=9))
    aside = Taint("example.com/set-aside", "NoSchedule")
    named = {"uuid": Attribute(string="GPU-1234")}
    devices = (
        Device("gpu-0"),
        Device("gpu-3", attributes=named, taints=(lost,)),
        Device("gpu-1", taints=(slow, aside, Taint("example.com/old", "None"))),
    )
    seen, kept = of_drivers(devices, made=ago(days=1))
    assert (seen.source, seen.check, seen.wants, seen.at) == ("device", lost.key, "drain", ago(minutes=2))
    assert (seen.devices, seen.evidence) == (("GPU-1234", "gpu-1"), "gpu-1, gpu-3: NoSchedule, XID79:NoExecute")
    assert (kept.check, kept.devices, kept.wants, kept.at) == (aside.key, ("gpu-1",), "", ago(days=1))
    found = of_node(None, machine(), health=None, settings=Settings(), now=NOW, devices=devices)
    assert [it.check for it in found] == [lost.key, aside.key]


def test_all_sources_of_a_node_come_together() -> None:
    health = NodeHealth(spec=NodeHealthSpec(cluster="c", node="n1"), status=held())
    node = with_condition("KernelDeadlock", "True")
    seen = of_node(drained("bob"), node, health=health, settings=Settings(), now=NOW)
    assert [it.source for it in seen] == ["human", "condition"]
    assert of_node(drained(REASON), None, health=health, settings=Settings(), now=NOW) == ()
