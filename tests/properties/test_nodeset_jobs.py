"""No job is lost, whatever users, jobs, outages and crashes do to a NodeSet, and it always comes to rest.

A small world stands in the place of Kubernetes and Slurm: it does what decisions ask for, at the worst moments.
What the operator sees is a copy that may be old; jobs start between its look and its deed; it forgets all it knew.
"""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from isthmus import names
from isthmus.domain.operator.nodeset.actions import (
    Action,
    CreatePods,
    DeletePod,
    DeleteRecord,
    Drain,
    Protect,
    SaveVictims,
    Undrain,
    Unprotect,
)
from isthmus.domain.operator.nodeset.decision import Decision, decide
from isthmus.domain.operator.nodeset.departures import departures
from isthmus.domain.operator.nodeset.drains import is_free, says_leaving
from isthmus.domain.operator.nodeset.identity import Identity
from isthmus.domain.operator.nodeset.placement import demand_of
from isthmus.domain.operator.nodeset.plan import plan
from isthmus.domain.operator.nodeset.rollout import max_unavailable
from isthmus.domain.operator.nodeset.view import PodView, View
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Pod, PodSpec, PodStatus
from isthmus.model.slinky import NodeSet
from isthmus.model.slurm import Node as SlurmNode
from tests.properties.outages import SlurmOutages

NODES = st.integers(0, 7)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ADMIN = "an administrator's reason"


class Worker:
    """A pod, as Kubernetes has it."""

    def __init__(self, ordinal: int, serial: int, hash_: str) -> None:
        self.ordinal = ordinal
        self.uid = f"uid-{serial}"
        self.hash = hash_
        self.bound = self.ready = self.leaving = self.cordoned = False
        self.protected = True
        self.started: datetime | None = None

    @property
    def name(self) -> str:
        return f"w-{self.ordinal}"


class Node:
    """A node, as Slurm has it."""

    def __init__(self) -> None:
        self.jobs = 0
        self.drained = False
        self.reason = ""
        self.answers = True

    @property
    def open(self) -> bool:
        return self.answers and not self.drained

    def record(self, name: str) -> SlurmNode:
        states = ["MIXED" if self.jobs else "IDLE", "DYNAMIC_NORM", *(["DRAIN"] if self.drained else [])]
        return SlurmNode(name=name, state=tuple(states), reason=self.reason, features=("w",))


class World(SlurmOutages):
    """Kubernetes, Slurm, the people, and the operator in between."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN
        self.serial = 0
        self.replicas = 3
        self.limit: int | str = "25%"
        self.hash = "h0"
        self.bad: set[str] = set()
        self.pods: dict[str, Worker] = {}
        self.nodes: dict[str, Node] = {}
        self.answers = True
        # What the operator knows.
        self.victims: tuple[str, ...] = ()
        self.seen: dict[str, SlurmNode] = {}
        self.fresh = False
        self.opened: set[str] = set()
        """Nodes that an administrator has opened since the operator read them."""

    # People

    @rule(replicas=st.integers(0, 8))
    def scale(self, replicas: int) -> None:
        self.replicas = replicas

    @rule(limit=st.sampled_from(["25%", "50%", "100%", 1, 2]))
    def change_budget(self, limit: int | str) -> None:
        self.limit = limit

    @rule(works=st.booleans())
    def change_specification(self, *, works: bool) -> None:
        self.serial += 1
        self.hash = f"h{self.serial}"
        if not works:
            self.bad.add(self.hash)

    @rule()
    def take_back_specification(self) -> None:
        self.hash = "h0"

    @rule(ordinal=NODES, cordoned=st.booleans())
    def cordon(self, ordinal: int, *, cordoned: bool) -> None:
        if pod := self.pods.get(f"w-{ordinal}"):
            pod.cordoned = cordoned

    @rule(ordinal=NODES, drained=st.booleans())
    def administrate(self, ordinal: int, *, drained: bool) -> None:
        if node := self.nodes.get(f"w-{ordinal}"):
            node.drained, node.reason = drained, ADMIN if drained else ""
            self.opened.add(f"w-{ordinal}")

    # Jobs

    @rule(ordinals=st.sets(NODES, min_size=1))
    def start_jobs(self, ordinals: set[int]) -> None:
        for ordinal in ordinals:
            self._start_job(f"w-{ordinal}")

    def _start_job(self, name: str) -> None:
        pod, node = self.pods.get(name), self.nodes.get(name)
        if pod and node and node.open and pod.ready and not pod.leaving:
            node.jobs += 1

    @rule(ordinal=NODES)
    def end_job(self, ordinal: int) -> None:
        if (node := self.nodes.get(f"w-{ordinal}")) and node.jobs:
            node.jobs -= 1

    # Machines

    @rule()
    def kubelets_work(self) -> None:
        self.now += timedelta(seconds=1)
        for name, pod in list(self.pods.items()):
            if pod.leaving:
                del self.pods[name]
                if node := self.nodes.get(name):
                    node.answers = False
            elif not pod.bound:
                pod.bound, pod.started = True, self.now
            elif pod.hash not in self.bad:
                pod.ready = True
                self.nodes.setdefault(name, Node()).answers = True

    @rule(seconds=st.sampled_from([1, 61, 3600]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def operator_reads(self) -> None:
        if self.answers:
            self.seen = {name: node.record(name) for name, node in self.nodes.items()}
            self.fresh = True
            self.opened.clear()

    @rule()
    def operator_restarts(self) -> None:
        self.seen, self.fresh = {}, False

    @rule()
    def status_is_lost(self) -> None:
        self.victims = ()

    # The operator

    @rule(racing=st.sets(NODES), resumed=st.none() | NODES, acts=st.none() | st.integers(0, 6))
    def operator_works(
        self, racing: Collection[int] = (), resumed: int | None = None, acts: int | None = None
    ) -> None:
        """Look, decide and act; between these, jobs start and an administrator resumes a node; it may crash."""
        view = self.view()
        actions = self._decided(view).actions
        self._check_budget(view, actions)
        for ordinal in racing:
            self._start_job(f"w-{ordinal}")
        if node := self.nodes.get(f"w-{resumed}"):
            node.drained = False
            self.opened.add(f"w-{resumed}")
            self._start_job(f"w-{resumed}")
        for action in actions[:acts]:
            self._act(view, action)
        for ordinal in racing:
            self._start_job(f"w-{ordinal}")

    def _decided(self, view: View) -> Decision:
        planned = plan(view.nodeset, view.pods, nodes={}, demand=demand_of({}), now=view.now)
        coming = frozenset(it.hostname for it in planned.create)
        view = msgspec.structs.replace(view, coming=coming, unwanted=planned.unwanted)
        self._check_first_look(view, decide(msgspec.structs.replace(view, slurm_nodes_read=False), planned))
        return decide(view, planned)

    @staticmethod
    def _check_first_look(view: View, decided: Decision) -> None:
        """Nothing that needs Slurm is done before it was read for the choice."""
        placed = {pod.uid for pod in view.pods if pod.node_name}
        new = {it.name for it in decided.actions if isinstance(it, DeletePod) and it.uid in placed}
        assert new <= {*view.nodeset.status.victims, *(it.name for it in view.pods if it.draining)}
        if decided.needs:
            assert view.slurm_in_touch
            assert all(
                isinstance(it, CreatePods) or (isinstance(it, DeletePod) and it.uid not in placed)
                for it in decided.actions
            )

    @initialize()
    def begin(self) -> None:
        self.all_goes_well()

    @rule()
    def all_goes_well(self) -> None:
        for _ in range(3):
            self.kubelets_work()
            self.operator_reads()
            self.operator_works()

    @rule(racing=st.sets(NODES))
    def operator_looks_and_works(self, racing: set[int]) -> None:
        self.operator_reads()
        self.operator_works(racing)

    def _act(self, view: View, action: Action) -> None:
        match action:
            case CreatePods(slots):
                for slot in slots:
                    self._create(slot)
            case SaveVictims(victims):
                self.victims = victims
            case DeletePod(name, uid):
                self._delete(name, uid)
            case Protect(name, uid) | Unprotect(name, uid):
                if (pod := self.pods.get(name)) and pod.uid == uid:
                    pod.protected = isinstance(action, Protect)
            case Drain() | Undrain() | DeleteRecord():
                assert view.slurm_in_touch
                self._act_in_slurm(view, action)
            case _:
                raise AssertionError(action)

    def _act_in_slurm(self, view: View, action: Drain | Undrain | DeleteRecord) -> None:
        match action:
            case Drain(nodes, reason) | Undrain(nodes, reason):
                self.fresh = False
                for name in nodes if self.answers else ():
                    if node := self.nodes.get(name):
                        assert not (node.drained and node.reason == ADMIN and isinstance(action, Undrain)) or (
                            view.slurm_nodes[name].reason != ADMIN
                        )
                        node.drained, node.reason = isinstance(action, Drain), reason
            case DeleteRecord(name):
                if self.answers and (node := self.nodes.get(name)) and not node.jobs:
                    del self.nodes[name]

    def _create(self, slot: Identity) -> None:
        self.serial += 1
        assert slot.ordinal is not None
        assert slot.pod not in self.pods
        self.pods[slot.pod] = Worker(slot.ordinal, self.serial, self.hash)

    def _delete(self, name: str, uid: str) -> None:
        """Delete the very pod that was meant.

        Slurm is asked once more only where the decision alone cannot be sure: an administrator has opened the node
        since, or it was not there.
        """
        pod, node = self.pods.get(name), self.nodes.get(name)
        if pod is None or pod.uid != uid:
            return
        unsure = pod.bound and (name in self.opened or name not in self.seen)
        if unsure and (not self.answers or (node is not None and not is_free(node.record(name)))):
            return
        assert node is None or not node.jobs, f"{name} was deleted with its jobs"
        pod.leaving, pod.ready = True, False

    def view(self) -> View:
        spec = {"controllerRef": {"name": "c"}, "replicas": self.replicas}
        spec["updateStrategy"] = {"rollingUpdate": {"maxUnavailable": self.limit}}
        manifest: dict[str, Any] = {
            "metadata": {"name": "w", "namespace": "n", "finalizers": [names.DRAIN_FINALIZER]},
            "spec": spec,
            "status": {"victims": self.victims},
        }
        return View(
            nodeset=msgspec.convert(manifest, NodeSet),
            pods=tuple(self._pod_view(pod) for pod in self.pods.values()),
            now=self.now,
            hash=self.hash,
            desired=self.replicas,
            kube_nodes={},
            slurm_in_touch=self.fresh,
            slurm_nodes=self.seen,
            slurm_nodes_read=True,  # as if read for this, though it may be old
            jobs=(),
        )

    def _pod_view(self, pod: Worker) -> PodView:
        meta = ObjectMeta(
            name=pod.name,
            namespace="n",
            uid=pod.uid,
            deletion_timestamp=self.now if pod.leaving else None,
            labels={names.POD_PROTECT_LABEL: "true"} if pod.protected else {},
            annotations={names.POD_CORDON_ANNOTATION: "true"} if pod.cordoned else {},
        )
        status = PodStatus(phase="Running" if pod.bound else "Pending", start_time=pod.started)
        return PodView(
            pod=Pod(metadata=meta, spec=PodSpec(node_name="k" if pod.bound else ""), status=status),
            mode="StatefulSet",
            slurm_name=pod.name,
            ordinal=pod.ordinal,
            hash=pod.hash,
            ready=pod.ready,
            available=pod.ready,
            slurm=self.seen.get(pod.name),
        )

    def _check_budget(self, view: View, actions: Iterable[Action]) -> None:
        """Whoever is taken out of service for an update leaves no more away than is allowed."""
        going: set[str] = set()
        for action in actions:
            if isinstance(action, Drain) and "for update" in action.reason:
                going.update(action.slurm_names)
            if isinstance(action, DeletePod) and action.event == "RollingUpdate":
                going.add(action.name)
        for_good = set(departures(view).leaving_for_good)
        serving = {
            pod.name
            for pod in view.pods
            if pod.ready and pod.name not in for_good and not (pod.slurm and says_leaving(pod.slurm.reason))
        } - set(self.victims)
        if going & serving:
            limit = max_unavailable(self.limit, self.replicas)
            assert self.replicas - len(serving - going) <= limit, (going, serving)

    @invariant()
    def a_pod_that_can_be_evicted_has_no_job(self) -> None:
        """Except where an administrator opened its node a moment ago, which nobody can know yet."""
        for name, pod in self.pods.items():
            node = self.nodes.get(name)
            if node and node.jobs and not pod.protected and not pod.leaving:
                assert self.seen.get(name) != node.record(name) or not self.fresh or not node.drained

    # Rest

    def teardown(self) -> None:
        """When nobody wants anything else and jobs have ended, everything is as it should be, soon."""
        self.answers = True
        self.bad.discard(self.hash)
        for pod in self.pods.values():
            pod.cordoned = False
        for node in self.nodes.values():
            node.jobs = 0
            if node.reason == ADMIN:
                node.drained, node.reason = False, ""
        for _ in range(12 * (len(self.pods) + self.replicas + 1)):
            self.operator_reads()
            self.operator_works()
            self.kubelets_work()
        self.operator_reads()
        assert self._decided(self.view()).actions == ()
        assert self.victims == ()
        assert sorted(self.pods) == sorted(f"w-{pod.ordinal}" for pod in self.pods.values())
        assert len(self.pods) == self.replicas
        assert all(pod.ready and pod.hash == self.hash and pod.protected for pod in self.pods.values())
        assert all(self.nodes[name].open for name in self.pods)
        assert set(self.nodes) == set(self.pods), "records of nodes that are gone are still there"


TestWorld = World.TestCase
TestWorld.settings = settings(stateful_step_count=30)
