"""Pods of elastic NodeSets: they come and go with the power states of their nodes."""

from typing import Any

import msgspec

from isthmus.domain.kube import conditions
from isthmus.domain.operator.manifests import worker
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.nodeset import status
from isthmus.domain.operator.nodeset.actions import DeletePod, Drain
from isthmus.domain.operator.nodeset.departures import departures
from isthmus.domain.operator.nodeset.drains import drains
from isthmus.domain.operator.nodeset.identity import numbered
from isthmus.domain.operator.nodeset.placement import demand_of
from isthmus.domain.operator.nodeset.plan import Active, Plan, plan
from isthmus.domain.operator.nodeset.status import Trouble
from isthmus.domain.operator.nodeset.view import PodView, View
from isthmus.model.meta import condition
from isthmus.model.slinky import Controller
from tests.unit.domain.operator.nodeset.views import NOW, nodeset, pod, view

ELASTIC = nodeset(4, autoscale={})


def planned(*pods: PodView, kept: set[int], startable: set[int] | None = None) -> Plan:
    active = Active(frozenset(kept), frozenset(kept if startable is None else startable))
    return plan(ELASTIC, pods, nodes={}, demand=demand_of({}), now=NOW, active=active)


def seen(*pods: PodView, found: Plan, **given: Any) -> View:
    made = view(*pods, of=ELASTIC, desired=found.desired, jobs=(), **given)
    return msgspec.structs.replace(made, unwanted=found.unwanted)


def test_pods_are_those_of_active_nodes() -> None:
    found = planned(pod(0), kept={0, 2})
    assert ([it.pod for it in found.create], found.desired) == (["worker-2"], 2)
    assert planned(kept=set()) == Plan(desired=0)


def test_a_pod_is_made_only_when_slurm_has_begun_to_start_its_node() -> None:
    """Slurm does not accept a slurmd that started before."""
    found = planned(kept={1}, startable=set())
    assert (found.create, found.desired) == ((), 0)


def test_a_pod_that_leaves_is_waited_for() -> None:
    assert planned(pod(0, leaving=True), kept={0}).create == ()


def test_the_pod_of_a_node_that_slurm_stopped_goes_without_a_drain() -> None:
    going = pod(0, "IDLE", "POWERING_DOWN", "CLOUD")
    found = planned(going, kept=set())
    assert found.unwanted == {"worker-0"}
    left = departures(seen(going, found=found))
    assert [it for it in left.actions if isinstance(it, Drain)] == []
    (deleted,) = (it for it in left.actions if isinstance(it, DeletePod))
    assert (deleted.event, deleted.why) == ("PoweredDown", "Slurm has powered its node down")


def test_a_pod_that_is_not_active_and_has_a_job_is_drained_first() -> None:
    going = pod(3, "ALLOCATED", "CLOUD")
    left = departures(seen(going, found=planned(going, kept=set())))
    assert [type(it) for it in left.actions if isinstance(it, Drain | DeletePod)] == [Drain]


def test_a_pod_from_before_its_node_was_started_is_replaced() -> None:
    behind = pod(0, "ALLOCATED", "POWERING_UP", "NOT_RESPONDING", "CLOUD")
    left = departures(seen(behind, found=planned(behind, kept={0})))
    (deleted,) = (it for it in left.actions if isinstance(it, DeletePod | Drain))
    assert isinstance(deleted, DeletePod)
    assert (deleted.left_behind, deleted.cause) == (True, "repair")
    young = pod(0, "ALLOCATED", "POWERING_UP", "NOT_RESPONDING", "CLOUD", ready=False)
    left = departures(seen(young, found=planned(young, kept={0})))
    assert [it for it in left.actions if isinstance(it, DeletePod | Drain)] == []


def test_a_start_goes_on_when_its_pod_is_taken_away() -> None:
    """Slurm would take its job from a node that is drained while it starts."""
    states = ("ALLOCATED", "POWERING_UP", "NOT_RESPONDING", "CLOUD")
    assert drains(view(pod(0, *states, ready=False, leaving=True)), {}) == ()
    (ours,) = drains(view(pod(0, *states, ready=False)), {"worker-0": "update"})
    assert isinstance(ours, Drain)
    (up,) = drains(view(pod(0, "ALLOCATED", "CLOUD", leaving=True)), {})
    assert isinstance(up, Drain)


def test_nodes_that_are_off_or_starting_are_no_fault() -> None:
    none = status.held(seen(found=planned(kept=set())), Trouble())
    ready = condition(none, conditions.READY)
    assert ready
    assert (ready.status, ready.message) == ("True", "0 of 4 nodes are powered up")
    young = pod(0, "ALLOCATED", "POWERING_UP", "CLOUD", ready=False)
    held = status.held(seen(young, found=planned(young, kept={0, 1})), Trouble())
    assert conditions.holds(held, conditions.READY)
    assert conditions.holds(held, conditions.PROGRESSING)
    wrong = status.held(seen(young, found=planned(young, kept={0})), Trouble(wrong=("no machine",)))
    assert not conditions.holds(wrong, conditions.READY)


def test_slurmd_says_that_its_machine_has_just_booted() -> None:
    controller = msgspec.convert({"metadata": {"name": "slurm", "namespace": "slurm"}, "spec": {}}, Controller)
    made = worker.template(ELASTIC, controller, settings=Settings())
    (slurmd,) = (it for it in made.fill(numbered(ELASTIC, 0))["spec"]["containers"] if it["name"] == "slurmd")
    assert slurmd["args"] == ["-b"]
    assert worker.template(nodeset(4), controller, settings=Settings()).revision != made.revision
