"""No job is touched, no limit broken and no untested node returned, whatever nodes, checks and people do.

A small world stands in the place of Kubernetes and Slurm: nodes break, checks fail, lie and recover, people drain
and resume, pods come back with or without their drain, Slurm goes away, and the loop dies between any two actions.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from isthmus import names
from isthmus.domain.health import actions as act
from isthmus.domain.health.decision import decide
from isthmus.domain.health.limits import share_of
from isthmus.domain.health.observations import Settings, of_node
from isthmus.domain.health.view import ClusterView, NodeView, Observation, TestView
from isthmus.domain.operator.nodeset.drains import is_free
from isthmus.model.health import HealthPolicySpec, NodeHealth, NodeHealthSpec, NodeHealthStatus
from isthmus.model.meta import Condition, Key, ObjectMeta
from isthmus.model.node import Node, NodeStatus
from isthmus.model.pod import Pod
from isthmus.model.slurm import Node as SlurmNode
from isthmus.model.slurm import Number
from tests.properties.outages import SlurmOutages

COUNT = 6
NODES = st.integers(0, COUNT - 1)
CHECK, PASSIVE = "gpu", "disk"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ADMIN = "an administrator's reason"
DELAY = 30.0
ACTS = (act.Drain, act.Release, act.Reserve, act.Unreserve, act.RunTest, act.Climb, act.SetCondition)
LADDERS = ((), ("restartPod",), ("restartPod", "reboot"), ("reboot",), ("resetDevice", "replace"))


class Host:
    """A Slurm node, its pod and what is wrong with it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"n{number}"
        self.machine = f"m{number // 2}" if number < 4 else f"m{number}"
        self.nodeset = "a" if number < 4 else "b"
        self.bad = self.full = False
        self.cure = "restartPod"
        """Which rung ends what is wrong."""
        self.jobs = 0
        self.in_test = self.reserved = False
        self.drained = self.pod_leaving = False
        self.reason, self.reason_at = "", BEGIN
        self.uid = 0
        self.ready = True
        self.started = BEGIN
        self.failed_at: datetime | None = None
        """When the active check failed last."""
        self.passed_at: dict[str, datetime] = {}
        self.resumed = False
        """Whether a human has opened it since we hold it."""
        self.held_since = BEGIN

    @property
    def open(self) -> bool:
        return not self.drained and self.ready

    def record(self) -> SlurmNode:
        states = (
            ["DOWN", "NOT_RESPONDING"] if not self.ready else ["MIXED" if self.jobs or self.in_test else "IDLE"]
        )
        return SlurmNode(
            name=self.name,
            state=(*states, *(["DRAIN"] if self.drained else [])),
            reason=self.reason,
            reason_set_by_user="root" if self.reason else None,
            reason_changed_at=Number.of(int(self.reason_at.timestamp())),
            slurmd_start_time=Number.of(int(self.started.timestamp())),
        )

    def drain(self, reason: str, now: datetime) -> None:
        self.drained, self.reason, self.reason_at = True, reason, now

    def resume(self) -> None:
        self.drained, self.reason = False, ""


class Machine:
    def __init__(self, name: str) -> None:
        self.name = name
        self.uid = 0
        self.made = BEGIN
        self.ready_since: datetime | None = BEGIN
        self.away_since: datetime | None = None
        self.conditions: dict[str, Condition] = {}

    def node(self) -> Node:
        ready = Condition(
            type="Ready",
            status="True" if self.ready_since else "Unknown",
            last_transition_time=self.ready_since or self.away_since,
        )
        meta = ObjectMeta(name=self.name, uid=f"{self.name}-{self.uid}", creation_timestamp=self.made)
        return Node(metadata=meta, status=NodeStatus(conditions=(ready, *self.conditions.values())))


class World(SlurmOutages):
    """Kubernetes, Slurm, people, and the health loop."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN
        self.hosts = {host.name: host for host in map(Host, range(COUNT))}
        self.machines = {it.machine: Machine(it.machine) for it in self.hosts.values()}
        self.records: dict[str, NodeHealthStatus] = {}
        self.tests: dict[str, tuple[str, str, str]] = {}
        """By name: node, check, result."""
        self.policy: dict[str, Any] = {"healthyDelay": "30s", "testTimeout": "10m"}
        self.answers = True
        self.fresh = False
        self.can_reserve = True
        self.seen: dict[str, tuple[SlurmNode, bool]] = {}
        self.touched: set[str] = set()
        """Nodes that people changed in Slurm since it was read."""
        self.forgot = False
        """Whether slurmctld is another one since the loop has worked."""

    # People

    @rule(share=st.sampled_from(["20%", "50%", "100%", 0, 1, 2]), storm=st.sampled_from(["33%", "100%"]))
    def limit(self, share: int | str, storm: str) -> None:
        self.policy["limits"] = {"maxUnavailable": share, "storm": {"share": storm}}

    @rule(
        ladder=st.sampled_from(LADDERS),
        deadline=st.none() | st.just("5m"),
        action=st.sampled_from(["repair", "drain"]),
    )
    def change_policy(self, ladder: tuple[str, ...], deadline: str | None, action: str) -> None:
        self.policy["ladder"] = [{"rung": it, "timeout": "10m"} for it in ladder]
        entry = {"match": {"sources": ["check", "healthcheck"]}, "action": action}
        self.policy["rules"] = [entry | ({"jobDeadline": deadline} if deadline else {})]

    @rule(paused=st.booleans(), shadow=st.booleans())
    def hold_back(self, *, paused: bool, shadow: bool) -> None:
        self.policy |= {"paused": paused, "mode": "shadow" if shadow else "enforce"}

    @rule(number=NODES, drained=st.booleans())
    def administrate(self, number: int, *, drained: bool) -> None:
        host = self.hosts[f"n{number}"]
        self.touched.add(host.name)
        if drained:
            host.drain(ADMIN, self.now)
        else:
            host.resume()
            host.resumed = True

    # Jobs

    @rule(numbers=st.sets(NODES, min_size=1))
    def start_jobs(self, numbers: set[int]) -> None:
        for number in numbers:
            host = self.hosts[f"n{number}"]
            host.jobs += host.open and not host.reserved

    @rule(number=NODES)
    def end_job(self, number: int) -> None:
        host = self.hosts[f"n{number}"]
        host.jobs = max(0, host.jobs - 1)

    # Trouble

    @rule(
        numbers=st.sets(NODES, min_size=1),
        cure=st.sampled_from(["restartPod", "resetDevice", "reboot", "replace", ""]),
    )
    def nodes_break(self, numbers: set[int], cure: str) -> None:
        for number in numbers:
            host = self.hosts[f"n{number}"]
            host.bad, host.cure = True, cure

    @rule(number=NODES)
    def disk_fills(self, number: int) -> None:
        """The passive check drains a node by itself, unless somebody has."""
        host = self.hosts[f"n{number}"]
        host.full, host.cure = True, "restartPod"
        if host.open and not host.reserved:
            self.touched.add(host.name)
            host.drain(f"[node_problem] {PASSIVE}: 97% used [hc_program]", self.now)

    @rule(number=NODES)
    def disk_is_cleaned(self, number: int) -> None:
        self.hosts[f"n{number}"].full = False

    @rule(number=NODES)
    def kubelet_goes(self, number: int) -> None:
        machine = self.machines[self.hosts[f"n{number}"].machine]
        if machine.ready_since:
            machine.ready_since, machine.away_since = None, self.now

    @rule(number=NODES)
    def kubelet_comes(self, number: int) -> None:
        machine = self.machines[self.hosts[f"n{number}"].machine]
        machine.ready_since = machine.ready_since or self.now

    @rule(lies=st.sets(NODES))
    def check_runs(self, lies: set[int]) -> None:
        """On nodes that take jobs. Those in `lies` are said to be bad."""
        self.now += timedelta(seconds=1)
        for host in self.hosts.values():
            if host.open and not host.reserved:
                failed = host.bad or host.number in lies
                host.failed_at = self.now if failed else None

    @rule(numbers=st.sets(NODES, min_size=1), cure=st.sampled_from(["restartPod", "reboot", ""]))
    def nodes_are_found(self, numbers: set[int], cure: str) -> None:
        """A whole beginning at once: without it, few of the short stories would get far."""
        self.nodes_break(numbers, cure)
        self.check_runs(set())
        for _ in range(3):
            self.loop_reads()
            self.loop_works()

    @rule()
    def check_is_made_anew(self) -> None:
        """It has forgotten what it found."""
        for host in self.hosts.values():
            host.failed_at = None

    # Machinery

    @rule(errors=st.booleans())
    def tests_end(self, *, errors: bool) -> None:
        self.now += timedelta(seconds=1)
        for job, (name, check, result) in list(self.tests.items()):
            if result != "running":
                continue
            host = self.hosts[name]
            host.in_test = False
            wrong = host.bad if check == CHECK else host.full
            outcome = "error" if errors or not host.ready else "failed" if wrong else "passed"
            self.tests[job] = (name, check, outcome)
            if outcome == "passed":
                host.passed_at[check] = self.now

    @rule(anew=st.booleans())
    def kubelets_work(self, *, anew: bool) -> None:
        """A pod that has gone is replaced; its slurmd may register as a new node, without the drain."""
        self.now += timedelta(seconds=1)
        for host in self.hosts.values():
            if host.pod_leaving:
                host.uid += 1
                host.jobs = 0  # started by somebody who resumed it in the last moment; Slurm puts it back
                host.pod_leaving = host.ready = False
            elif not host.ready:
                host.ready, host.started = True, self.now
                if anew and host.reason != ADMIN:
                    host.resume()

    @rule()
    def rebooters_work(self) -> None:
        self.now += timedelta(seconds=1)
        for machine in self.machines.values():
            asked = machine.conditions.get(names.NODE_REBOOT_CONDITION)
            if asked and asked.status == "True" and asked.reason == "NodeNeedReboot":
                here = [host for host in self.hosts.values() if host.machine == machine.name]
                if any(host.jobs for host in here):
                    continue  # it looks at the label that protects pods with jobs
                self._set(machine, asked.type, "True", "NodeRebooted")
                for host in here:
                    self._cured(host, "reboot")
                    host.started = self.now
            drain = machine.conditions.get(names.NODE_DRAIN_CONDITION)
            if drain and drain.status == "True":
                self._set(machine, drain.type, "True", "NodeDrained")

    @rule(seconds=st.sampled_from([1, 31, 61, 301, 1860]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(can=st.booleans())
    def another_slurm(self, *, can: bool) -> None:
        if not any(host.reserved for host in self.hosts.values()):
            self.can_reserve = can

    @rule(numbers=st.sets(NODES, min_size=1), found=st.booleans())
    def slurmctld_is_killed(self, numbers: set[int], *, found: bool) -> None:
        """It forgets drains of its last seconds, whoever made them, and people wait until it is back.

        With `found`, those of nodes that were just found to be bad under their jobs.
        """
        if found:
            self.start_jobs(numbers)
            self.nodes_are_found(numbers, "restartPod")
        self.forgot, self.fresh = True, False
        for number in numbers:
            host = self.hosts[f"n{number}"]
            if host.drained and host.name not in self.touched:
                host.resume()
        if found:
            self.loop_reads()
            self.loop_works()

    @rule()
    def loop_reads(self) -> None:
        if self.answers:
            self.seen = {name: (host.record(), host.reserved) for name, host in self.hosts.items()}
            self.fresh = True
            self.touched.clear()

    def _cured(self, host: Host, rung: str) -> None:
        if rung == host.cure:
            host.bad = host.full = False

    @staticmethod
    def _set(machine: Machine, type_: str, status: Any, reason: str) -> None:
        machine.conditions[type_] = Condition(type=type_, status=status, reason=reason)

    # The loop

    @rule(done=st.none() | st.integers(0, 8), racing=st.sets(NODES), resumed=st.none() | NODES)
    def loop_works(
        self, done: int | None = None, racing: set[int] | None = None, resumed: int | None = None
    ) -> None:
        """Look, decide and act; in between, jobs start and a human resumes a node; it may die."""
        view = self.view()
        decided = decide(view)
        self._check_budget(view, decided)
        if racing:
            self.start_jobs(racing)
        if resumed is not None:
            self.administrate(resumed, drained=False)
            self.start_jobs({resumed})
        broken: set[str] = set()
        for action in decided[:done]:
            self._act(view, action, broken)
        if view.slurm_in_touch and self.forgot:
            self.forgot = False
            for host in self.hosts.values() if done is not None else ():
                host.resumed = True  # the next process does not know that slurmctld was killed, too

    @rule(racing=st.sets(NODES))
    def loop_reads_and_works(self, racing: set[int]) -> None:
        self.loop_reads()
        self.loop_works(None, racing)

    @rule(kind=st.sampled_from(ACTS))
    def loop_dies_before(self, kind: type[act.Action]) -> None:
        """Die right before the first action of a kind: what is recorded by then must do."""
        self.loop_reads()
        decided = decide(self.view())
        self.loop_works(next((number for number, it in enumerate(decided) if isinstance(it, kind)), 0))

    @initialize(ladder=st.sampled_from(LADDERS), share=st.sampled_from(["50%", "100%"]))
    def begin(self, ladder: tuple[str, ...], share: str) -> None:
        self.change_policy(ladder, None, "repair")
        self.limit(share, "100%")
        self.loop_reads()

    @rule()
    def all_goes_on(self) -> None:
        for _ in range(3):
            self.loop_reads()
            self.loop_works()
            self.kubelets_work(anew=False)
            self.rebooters_work()
            self.tests_end(errors=False)

    def _act(self, view: ClusterView, action: act.Action, broken: set[str]) -> None:
        match action:
            case act.Record(node, status):
                if node not in broken:
                    assert len(status.findings) <= 16
                    assert view.policy.mode != "shadow" or status.reason == self._record(node).reason
                    self._check_dismissals(node, status)
                    self.records[node] = status
            case act.Forget(node):
                assert not self._record(node).reason
                del self.records[node]
            case act.SetCondition():
                self._show(action)
            case act.Climb():
                self._climb(view, action, broken)
            case act.Notify():
                assert action.message
            case act.Comment():
                raise AssertionError(action)
            case act.Drain() | act.Release() | act.Reserve() | act.Unreserve() | act.RunTest() | act.Requeue():
                assert view.slurm_in_touch
                assert view.policy.mode != "shadow"
                self._act_in_slurm(view, action, broken)

    def _act_in_slurm(self, view: ClusterView, action: Any, broken: set[str]) -> None:
        names_ = action.nodes if isinstance(action, act.Drain | act.Release) else (action.node,)
        if not self.answers:
            broken.update(names_)
        for host in (self.hosts[it] for it in names_ if it not in broken):
            seen = view.nodes[host.name].slurm
            assert seen is not None
            if host.name in self.touched and (seen.reason, seen.state) != (host.reason, host.record().state):
                broken.add(host.name)  # asked once more, it is not as it was
                continue
            self._change(view, action, host, seen)
            self.fresh = False

    def _change(self, view: ClusterView, action: Any, host: Host, seen: SlurmNode) -> None:
        ours = self._record(host.name).reason
        match action:
            case act.Drain(_, reason):
                assert not (host.drained and host.reason == ADMIN), "a human's reason was overwritten"
                assert reason == ours
                host.drain(reason, self.now)
            case act.Release():
                assert host.drained
                assert host.reason == ours, "a drain was lifted that is not ours"
                self._check_proof(host)
                host.resume()
            case act.Reserve():
                assert host.drained
                assert host.reason == ours
                assert view.can_reserve
                host.reserved = True
                host.resume()
            case act.Unreserve():
                host.reserved = False
                if host.open and ours:
                    self._check_proof(host)
            case act.RunTest(_, check, _, job):
                in_slurm = check == CHECK and view.can_reserve
                anew = host.record().slurmd_start_time != seen.slurmd_start_time
                assert host.reserved if in_slurm else host.drained or anew
                if job not in self.tests:
                    self.tests[job] = (host.name, check, "running")
                    host.in_test = in_slurm
            case act.Requeue():
                assert any(it.job_deadline for it in view.policy.rules)
                drained = self._record(host.name).drained
                assert drained
                assert self.now - drained >= timedelta(minutes=5)
                host.jobs = 0

    def _climb(self, view: ClusterView, action: act.Climb, broken: set[str]) -> None:
        host = self.hosts[action.node]
        if host.name in broken:
            return
        if host.name in self.touched and not is_free(host.record()):
            broken.add(host.name)  # Slurm is asked once more
            return
        assert view.slurm_in_touch
        assert not view.policy.paused
        assert view.policy.mode != "shadow"
        assert not host.jobs, f"{action.rung} on a node with jobs"
        assert host.drained or not host.ready
        match action.rung:
            case "restartPod":
                assert action.pod_uid == f"{host.name}-{host.uid}"
                host.pod_leaving = True
                self._cured(host, "restartPod")
            case "resetDevice":
                self._cured(host, "resetDevice")
            case "replace":
                machine = self.machines[host.machine]
                here = [it for it in self.hosts.values() if it.machine == machine.name]
                if any(it.name in self.touched for it in here):
                    return
                assert not any(it.jobs for it in here)
                machine.uid, machine.made, machine.conditions = machine.uid + 1, self.now, {}
                for it in here:
                    self._cured(it, "replace")
                    it.pod_leaving = True
            case _:
                raise AssertionError(action)

    def _show(self, action: act.SetCondition) -> None:
        machine = self.machines[action.machine]
        asked = (action.type, action.status) == (names.NODE_REBOOT_CONDITION, "True")
        here = [host for host in self.hosts.values() if host.machine == machine.name]
        if asked and not any(host.name in self.touched for host in here):
            assert not any(host.jobs for host in here), "a machine with jobs is to be rebooted"
            assert all(host.drained or not host.ready for host in here)
        self._set(machine, action.type, action.status, action.reason)

    def _check_proof(self, host: Host) -> None:
        """What returns a node: each check that condemned it has passed since, and its machine has been well."""
        status = self._record(host.name)
        for it in status.findings:
            if it.source in {"check", "healthcheck"} and it.cleared and it.dismissed and it.last_seen:
                overruled = it.cleared <= host.held_since
                assert overruled or host.passed_at[it.check] > it.last_seen, "returned untested"
            if it.source in {"check", "healthcheck"} and it.cleared and not it.dismissed:
                assert status.since
                assert not host.held_since < it.cleared < status.since, "returned untested"
            if it.source in {"check", "healthcheck"} and it.cleared is None:
                assert self._only_recorded(it.source), "returned with a finding"
            if it.source == "notReady" and it.cleared and not it.dismissed:
                assert (self.now - it.cleared).total_seconds() >= DELAY

    def _check_dismissals(self, node: str, status: NodeHealthStatus) -> None:
        """A finding is ended by its own test, or by somebody who opened the node."""
        host = self.hosts[node]
        before = {(it.source, it.check): it for it in self._record(node).findings}
        for it in status.findings:
            old = before.get((it.source, it.check))
            if it.dismissed and not (old and old.dismissed) and it.last_seen and not host.resumed:
                assert host.passed_at.get(it.check, BEGIN) > it.last_seen, "ended without a test"
        if not status.reason or not self._record(node).reason:
            host.resumed, host.held_since = node in self.touched and host.resumed, self.now

    def _only_recorded(self, source: str) -> bool:
        return any(
            source in it["match"]["sources"] and it["action"] == "record" for it in self.policy.get("rules", ())
        )

    def _record(self, node: str) -> NodeHealthStatus:
        return self.records.get(node, NodeHealthStatus())

    def _check_budget(self, view: ClusterView, decided: list[act.Action]) -> None:
        """Whoever is newly held leaves no more held than is allowed."""
        after = {name: status.reason for name, status in self.records.items()}
        new = set()
        for it in decided:
            if isinstance(it, act.Record):
                if it.status.reason and not after.get(it.node):
                    new.add(it.node)
                after[it.node] = after.get(it.node, "") or it.status.reason
        for nodeset in {self.hosts[it].nodeset for it in new}:
            total = [it.name for it in self.hosts.values() if it.nodeset == nodeset]
            held = [it for it in total if after.get(it)]
            assert len(held) <= share_of(view.policy.limits.max_unavailable, len(total)), held

    # What it sees

    def view(self) -> ClusterView:
        return ClusterView(
            cluster=Key("default", "c"),
            now=self.now,
            policy=msgspec.convert(self.policy, HealthPolicySpec),
            nodes={host.name: self._node(host) for host in self.hosts.values()},
            slurm_in_touch=self.fresh,
            slurm_forgot=self.forgot,
            can_reserve=self.can_reserve,
            rebooting=frozenset(
                it.name
                for it in self.machines.values()
                if (found := it.conditions.get(names.NODE_REBOOT_CONDITION)) and found.status == "True"
            ),
        )

    def _node(self, host: Host) -> NodeView:
        slurm, reserved = self.seen.get(host.name, (None, False))
        status = self.records.get(host.name)
        health = None
        if status is not None:
            health = NodeHealth(spec=NodeHealthSpec(cluster="c", node=host.name), status=status)
        machine = self.machines[host.machine].node()
        checks = self._of_check(host)
        deleted = self.now if host.pod_leaving else None
        meta = ObjectMeta(
            name=host.name, namespace="default", uid=f"{host.name}-{host.uid}", deletion_timestamp=deleted
        )
        job = status.test if status else ""
        test = TestView(job, self.tests[job][2], "") if job in self.tests else None  # type: ignore[arg-type]
        settings_ = Settings(not_ready_grace=60.0)
        return NodeView(
            name=host.name,
            slurm=slurm,
            nodeset=host.nodeset,
            pod=Pod(metadata=meta),
            pod_ready=host.ready and not host.pod_leaving,
            machine=machine,
            neighbours=tuple(
                it.name for it in self.hosts.values() if it.machine == host.machine and it.name != host.name
            ),
            health=health,
            observations=(
                *checks,
                *of_node(
                    slurm,
                    machine,
                    health=health,
                    settings=settings_,
                    now=self.now,
                    checks=[CHECK] if checks else [],
                ),
            ),
            test=test,
            reserved=reserved,
        )

    def _of_check(self, host: Host) -> tuple[Observation, ...]:
        if host.failed_at is None:
            return ()
        text = f"[node_problem] {CHECK}: job {host.number} [slurm_job]"
        return (
            Observation(
                source="check",
                check=CHECK,
                evidence="it failed",
                devices=("gpu-0",),
                at=host.failed_at,
                wants="drain",
                reason=text,
                test=True,
                in_slurm=True,
            ),
        )

    @invariant()
    def what_we_hold_is_recorded(self) -> None:
        """No drain of ours stands without a record of it, so that each is lifted some day."""
        for host in self.hosts.values():
            if host.drained and host.reason.endswith("[slurm_job]"):
                assert self._record(host.name).reason, host.name

    # Rest

    def teardown(self) -> None:
        """When everything is well and jobs have ended, all nodes are back, soon, and nothing is done any more."""
        self.answers = True
        self.policy |= {"paused": False, "mode": "enforce", "limits": {"maxUnavailable": "100%", "maxReboots": 10}}
        for machine in self.machines.values():
            machine.ready_since = machine.ready_since or self.now
        for host in self.hosts.values():
            host.jobs = 0
            host.bad = host.full = False
            if host.reason == ADMIN:
                self.administrate(host.number, drained=False)
        for turn in range(40):
            self.time_passes({0: 1860, 12: 3660}.get(turn, 90))
            self.loop_reads()
            self.loop_works()
            self.kubelets_work(anew=False)
            self.rebooters_work()
            self.tests_end(errors=False)
            self.check_runs(set())
            if turn > 1 and not self._held() and all(host.open for host in self.hosts.values()):
                break
        for name, status in self.records.items():
            if status.phase == "OutOfService":
                self.administrate(self.hosts[name].number, drained=False)
        for _ in range(3):
            self.loop_reads()
            self.loop_works()
            self.check_runs(set())
        self.loop_reads()
        rest = decide(self.view())
        assert rest == [], rest
        assert all(host.open and not host.reserved for host in self.hosts.values()), self._held()
        assert not self._held()

    def _held(self) -> Mapping[str, NodeHealthStatus]:
        return {name: status for name, status in self.records.items() if status.reason}


TestWorld = World.TestCase
TestWorld.settings = settings(stateful_step_count=30)
