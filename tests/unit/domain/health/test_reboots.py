"""What a rebooter does next: played through on plain values, one step at a time, as the process would."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from isthmus import names
from isthmus.domain.health import reboots
from isthmus.domain.health.reboots import (
    TAINT,
    Boot,
    Evict,
    Lock,
    Mark,
    Reboot,
    ReleaseLock,
    Rest,
    Seen,
    SetCondition,
    SetNode,
    Step,
    TakeLock,
    has_to_go,
    mark_of,
    next_step,
)
from isthmus.model.base import EMPTY
from isthmus.model.meta import Condition, ConditionStatus, Key, ObjectMeta, OwnerReference, condition
from isthmus.model.node import Node, NodeSpec, NodeStatus, Taint
from isthmus.model.pod import Pod, PodSpec, PodStatus, Toleration

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)
FOREIGN = Taint(key="gpu", value="yes", effect="NoSchedule")
DRAIN, REBOOT = names.NODE_DRAIN_CONDITION, names.NODE_REBOOT_CONDITION


def pod(name: str, *, owner: str = "ReplicaSet", protected: bool = False, **fields: Any) -> Pod:
    reference = OwnerReference(api_version="v1", kind=owner, name="x", uid="x", controller=True)
    labels = {names.POD_PROTECT_LABEL: "true"} if protected else EMPTY
    meta = ObjectMeta(name=name, namespace="ns", uid=name, labels=labels, owner_references=(reference,))
    return Pod(metadata=meta, **fields)


class Machine:
    """A node, its pods and its boot, to which steps are done as the real ones would be."""

    def __init__(self, *pods: Pod, unschedulable: bool = False, taints: tuple[Taint, ...] = (FOREIGN,)) -> None:
        self.node = Node(metadata=ObjectMeta(name="n1"), spec=NodeSpec(unschedulable=unschedulable, taints=taints))
        self.pods = pods
        self.boot = Boot("first", EARLIER)
        self.now = NOW
        self.lock = Lock(free=True)
        self.method: Any = "evict"
        self.ignore_protection = False
        self.done: list[Step] = []

    def ask(self, type_: str, status: ConditionStatus = "True", reason: str = "") -> None:
        self.tell(Condition(type_, status, reason, "asked", self.now))

    def tell(self, told: Condition) -> None:
        others = tuple(it for it in self.node.status.conditions if it.type != told.type)
        self.node = replace(self.node, status=NodeStatus(conditions=(*others, told)))

    def next(self) -> Step:
        return next_step(
            Seen(
                node=self.node,
                pods=self.pods,
                boot=self.boot,
                now=self.now,
                lock=self.lock,
                method=self.method,
                ignore_protection=self.ignore_protection,
            )
        )

    def run(self) -> Step:
        """Do everything up to a step that waits for others; return that."""
        for _ in range(30):
            step = self.next()
            self.done.append(step)
            if isinstance(step, Rest | Evict | Reboot):
                return step
            self.do(step)
        raise AssertionError(f"it does not settle: {self.done}")

    def do(self, step: Step) -> None:
        match step:
            case SetNode(unschedulable, taints, mark):
                annotations = {names.REBOOTER_ANNOTATION: msgspec.json.encode(mark).decode()} if mark else EMPTY
                meta = replace(self.node.metadata, annotations=annotations)
                spec = NodeSpec(unschedulable=unschedulable, taints=taints)
                self.node = replace(self.node, metadata=meta, spec=spec)
            case SetCondition(type_, status, reason, message):
                there = condition(self.node.status.conditions, type_)
                since = there.last_transition_time if there and there.status == status else self.now
                self.tell(Condition(type_, status, reason, message, since))
            case TakeLock():
                assert self.lock.free
                self.lock = Lock(held=True)
            case ReleaseLock():
                assert self.lock.held
                self.lock = Lock(free=True)
            case Reboot(mark):
                self.do(SetNode(self.node.spec.unschedulable, self.node.spec.taints, mark))

    def comes_up(self) -> None:
        self.boot = Boot("second", self.now)

    @property
    def reasons(self) -> dict[str, tuple[str, str]]:
        return {it.type: (it.status, it.reason) for it in self.node.status.conditions}

    @property
    def shut(self) -> tuple[bool, bool]:
        return self.node.spec.unschedulable, TAINT in self.node.spec.taints


def is_untouched(machine: Machine) -> bool:
    return machine.node.spec == NodeSpec(taints=(FOREIGN,)) and mark_of(machine.node) is None


def test_without_conditions_there_is_nothing_to_do() -> None:
    machine = Machine(pod("web"))
    assert machine.run() == Rest(reboots.SLOW)
    assert is_untouched(machine)


def test_a_drain_cordons_and_taints_waits_for_pods_and_is_undone_when_it_is_over() -> None:
    machine = Machine(pod("web"))
    machine.ask(DRAIN, reason="NodeNeedDrain")
    waiting = machine.run()
    assert isinstance(waiting, Rest)
    assert "ns/web" in waiting.why
    assert machine.reasons == {DRAIN: ("True", "NodeDraining")}
    assert machine.shut == (True, True)
    assert FOREIGN in machine.node.spec.taints
    told, cordoned, tainted, _ = machine.done
    assert isinstance(told, SetCondition)
    assert cordoned == SetNode(unschedulable=True, taints=(FOREIGN,), mark=Mark(cordoned=True))
    assert tainted == SetNode(unschedulable=True, taints=(FOREIGN, TAINT), mark=Mark(cordoned=True, tainted=True))
    machine.pods = ()
    assert machine.run() == Rest(reboots.SLOW)
    assert machine.reasons == {DRAIN: ("True", "NodeDrained")}
    machine.ask(DRAIN, "False", reason="NodeRebooted")
    machine.run()
    assert is_untouched(machine)
    assert machine.reasons == {DRAIN: ("False", "NodeRebooted")}


def rebooted(machine: Machine) -> None:
    """Go all the way."""
    machine.ask(REBOOT, reason="NodeNeedReboot")
    assert isinstance(machine.run(), Rest)
    machine.pods = ()
    step = machine.run()
    assert isinstance(step, Reboot)
    assert machine.reasons[REBOOT] == ("True", "NodeRebooting")
    assert machine.reasons[DRAIN] == ("True", "NodeDrained")
    assert machine.shut[0]
    assert machine.lock.held
    machine.do(step)
    machine.comes_up()
    assert machine.run() == Rest(reboots.SLOW)


def test_a_reboot_drains_reboots_once_and_puts_everything_back() -> None:
    machine = Machine(pod("web"))
    rebooted(machine)
    assert is_untouched(machine)
    assert machine.reasons == {DRAIN: ("False", "NodeUndrained"), REBOOT: ("True", "NodeRebooted")}
    assert machine.lock.free
    assert sum(isinstance(it, Reboot) for it in machine.done) == 1
    asked = condition(machine.node.status.conditions, REBOOT)
    assert asked
    assert asked.last_transition_time == NOW, "who asked finds the request that it made"
    machine.ask(REBOOT, "False", reason="NodeRebooted")
    assert machine.run() == Rest(reboots.SLOW)


def test_it_asks_for_a_second_reboot_like_for_the_first() -> None:
    machine = Machine(pod("web"))
    rebooted(machine)
    machine.now += timedelta(minutes=5)
    machine.ask(REBOOT, reason="NodeNeedReboot")
    assert isinstance(machine.run(), Reboot)


def test_a_cordon_and_a_taint_that_were_there_before_stay() -> None:
    machine = Machine(pod("web"), unschedulable=True, taints=(FOREIGN, TAINT))
    rebooted(machine)
    assert machine.shut == (True, True)
    assert mark_of(machine.node) is None


def test_a_machine_that_was_rebooted_since_it_was_asked_for_is_left_alone() -> None:
    machine = Machine(pod("web"))
    machine.ask(REBOOT, reason="NodeNeedReboot")
    machine.now += timedelta(minutes=3)
    machine.comes_up()
    machine.run()
    assert machine.reasons == {REBOOT: ("True", "NodeRebooted")}
    assert is_untouched(machine)


@pytest.mark.parametrize("off", [timedelta(hours=-2), timedelta(hours=2)], ids=["behind", "ahead"])
def test_a_clock_that_is_wrong_causes_neither_a_second_reboot_nor_the_loss_of_one(off: timedelta) -> None:
    machine = Machine()
    machine.ask(REBOOT, reason="NodeNeedReboot")
    step = machine.run()
    assert isinstance(step, Reboot)
    machine.do(step)
    machine.boot = Boot("first", NOW + off)  # the clock is set while it is still up
    assert isinstance(machine.run(), Rest)
    assert machine.reasons[REBOOT] == ("True", "NodeRebooting")
    machine.boot = Boot("second", NOW + off)
    machine.run()
    assert machine.reasons[REBOOT] == ("True", "NodeRebooted")


def test_a_machine_that_does_not_go_down_is_told_again_after_a_while() -> None:
    machine = Machine()
    machine.ask(REBOOT)
    step = machine.run()
    machine.do(step)
    machine.now += timedelta(seconds=reboots.REBOOT_PATIENCE - 1)
    assert machine.run() == Rest(1.0, "waits until the machine goes down")
    machine.now += timedelta(seconds=1)
    assert isinstance(machine.run(), Reboot)


@pytest.mark.parametrize("asked", [DRAIN, REBOOT])
def test_pods_with_jobs_are_waited_for_and_nothing_happens_to_them(asked: str) -> None:
    machine = Machine(pod("worker-0", protected=True), pod("web"))
    machine.ask(asked, reason="asked")
    waiting = machine.run()
    assert waiting == Rest(reboots.SLOW, "waits until Slurm's jobs have ended on worker-0")
    assert machine.shut == (True, False), "the cordon lets the operator drain the node in Slurm"
    assert machine.lock.free, "others can be rebooted meanwhile"
    told = condition(machine.node.status.conditions, asked)
    assert told
    assert "worker-0" in told.message
    machine.pods = (pod("worker-0"),)
    machine.run()
    assert machine.shut == (True, True)


def test_a_worker_that_gets_a_job_at_the_last_moment_keeps_the_machine_up() -> None:
    machine = Machine()
    machine.ask(REBOOT)
    assert isinstance(machine.run(), Reboot)
    machine.pods = (pod("worker-0", protected=True),)
    assert isinstance(machine.run(), Rest)
    assert machine.reasons[REBOOT] == ("True", "NodeNeedReboot")
    assert machine.lock.free


def test_protection_can_be_ignored() -> None:
    machine = Machine(pod("worker-0", protected=True))
    machine.ignore_protection = True
    machine.ask(REBOOT)
    machine.run()
    assert machine.shut == (True, True)


def test_another_machine_that_is_rebooted_is_waited_for_and_named() -> None:
    machine = Machine(pod("web"))
    machine.lock = Lock(holders=("n7",))
    machine.ask(REBOOT, reason="NodeNeedReboot")
    assert machine.run() == Rest(reboots.LOCK_AGAIN, "waits until other machines have been rebooted: n7")
    assert machine.shut == (False, False)
    machine.lock = Lock(free=True)
    machine.run()
    assert machine.lock.held
    assert machine.shut == (True, True)


def test_draining_by_evictions_sets_no_taint_and_asks_each_pod_that_is_not_leaving() -> None:
    leaving = msgspec.structs.replace(pod("late"), metadata=replace(pod("late").metadata, deletion_timestamp=NOW))
    machine = Machine(pod("web"), leaving, pod("log", owner="DaemonSet"))
    machine.method = "drain"
    machine.ask(DRAIN)
    assert machine.run() == Evict(((Key("ns", "web"), "web"),))
    assert machine.shut == (True, False)
    machine.pods = (leaving,)
    assert isinstance(machine.run(), Rest)
    assert machine.reasons == {DRAIN: ("True", "NodeDraining")}
    machine.pods = ()
    machine.run()
    assert machine.reasons == {DRAIN: ("True", "NodeDrained")}


@pytest.mark.parametrize(
    ("found", "goes"),
    [
        pytest.param(pod("web"), True, id="ordinary"),
        pytest.param(pod("log", owner="DaemonSet"), False, id="of a DaemonSet"),
        pytest.param(pod("etcd", owner="Node"), False, id="static"),
        pytest.param(pod("job", status=PodStatus(phase="Succeeded")), False, id="finished"),
        pytest.param(pod("cni", spec=PodSpec(tolerations=(Toleration(operator="Exists"),))), False, id="all"),
        pytest.param(
            pod("cni", spec=PodSpec(tolerations=(Toleration(key=TAINT.key, value="true"),))), False, id="this"
        ),
        pytest.param(
            pod("web", spec=PodSpec(tolerations=(Toleration(key="gpu", operator="Exists"),))), True, id="another"
        ),
        pytest.param(
            pod("web", spec=PodSpec(tolerations=(Toleration(operator="Exists", effect="NoSchedule"),))),
            True,
            id="another effect",
        ),
    ],
)
def test_who_has_to_go(found: Pod, *, goes: bool) -> None:
    assert has_to_go(found) is goes


def test_a_reboot_that_nobody_wants_any_more_is_undone() -> None:
    machine = Machine(pod("web"))
    machine.ask(REBOOT)
    machine.run()
    assert machine.lock.held
    machine.ask(REBOOT, "False")
    machine.run()
    assert is_untouched(machine)
    assert machine.lock.free
    assert machine.reasons[DRAIN] == ("False", "NodeUndrained")


def test_a_drain_that_others_asked_for_outlives_a_reboot_that_nobody_wants_any_more() -> None:
    machine = Machine(pod("web"))
    machine.ask(DRAIN, reason="NodeNeedDrain")
    machine.run()
    machine.ask(REBOOT)
    machine.run()
    assert machine.lock.held
    machine.ask(REBOOT, "False")
    machine.run()
    assert machine.lock.free
    assert machine.shut == (True, True)
    assert machine.reasons[DRAIN] == ("True", "NodeDraining")


def test_a_node_that_somebody_opens_meanwhile_is_shut_again() -> None:
    machine = Machine(pod("web"))
    machine.ask(DRAIN)
    machine.run()
    machine.node = replace(machine.node, spec=NodeSpec(taints=(FOREIGN,)))
    machine.run()
    assert machine.shut == (True, True)


def test_a_mark_that_cannot_be_read_leaves_nothing_shut() -> None:
    machine = Machine(unschedulable=True, taints=(FOREIGN, TAINT))
    meta = replace(machine.node.metadata, annotations={names.REBOOTER_ANNOTATION: "{"})
    machine.node = replace(machine.node, metadata=meta)
    machine.run()
    assert is_untouched(machine)


@pytest.mark.parametrize("crash", range(20))
def test_a_rebooter_that_is_killed_after_any_step_goes_on_where_it_was(crash: int) -> None:
    """All that it knows is in the node and the lock, so a crash is nothing but a pause, and a step done twice."""
    machine = Machine(pod("web"))
    machine.ask(REBOOT)
    rebooted_times = 0
    for number in range(40):
        step = machine.next()
        if isinstance(step, Rest) and machine.pods:
            machine.pods = ()
            continue
        if isinstance(step, Rest):
            break
        machine.do(step)
        if number == crash and isinstance(step, SetNode | SetCondition):
            machine.do(step)
        if isinstance(step, Reboot):
            rebooted_times += 1
            machine.comes_up()
    assert rebooted_times == 1
    assert is_untouched(machine)
    assert machine.lock.free
    assert machine.reasons == {DRAIN: ("False", "NodeUndrained"), REBOOT: ("True", "NodeRebooted")}
