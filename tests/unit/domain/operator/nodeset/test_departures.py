"""What a NodeSet settles with Slurm, all of it at once: the order of things, and causes that meet."""

from typing import Any

from isthmus.domain.operator.nodeset.actions import (
    Action,
    DeletePod,
    Drain,
    Protect,
    RequeueJobs,
    SetDeadline,
    Undrain,
    Unprotect,
)
from isthmus.domain.operator.nodeset.departures import Departures, departures
from tests.unit.domain.operator.nodeset.views import GOING, NEW, OLD, job, kube_node, nodeset, pod, view

DRAINED = ("IDLE", "DRAIN")


def kinds(found: Departures) -> list[type[Action]]:
    return [type(it) for it in found.actions]


def deleted(found: Departures) -> list[str]:
    return [it.name for it in found.actions if isinstance(it, DeletePod)]


def test_scale_in_drains_first_and_deletes_when_slurm_has_said_so() -> None:
    found = departures(view(pod(0), pod(1), of=nodeset(1)))
    assert kinds(found) == [Drain]
    assert (found.victims, found.leaving_for_good) == (("worker-1",), ("worker-1",))
    found = departures(view(pod(0), pod(1, *DRAINED, reason=GOING), of=nodeset(1, victims=["worker-1"])))
    assert kinds(found) == [DeletePod]
    assert (found.victims, deleted(found)) == (("worker-1",), ["worker-1"])


def test_protection_comes_before_jobs_and_goes_after_them() -> None:
    back = pod(0, *DRAINED, reason=GOING, protected=False)
    assert kinds(departures(view(back))) == [Protect, Undrain]
    gone = pod(
        0, *DRAINED, reason="slurm-operator: Pod (slurm/worker-0) was cordoned", kube=kube_node(cordoned=True)
    )
    assert kinds(departures(view(gone))) == [Drain, Unprotect]


def test_jobs_are_read_before_busy_nodes_go() -> None:
    there: dict[str, Any] = {"of": nodeset(1)}
    pods = (pod(0, "ALLOCATED"), pod(1, "ALLOCATED"))
    assert departures(view(*pods, **there)) == Departures(wants_jobs=True)
    found = departures(view(*pods, **there, jobs=(job(7, "worker-0", minutes=20), job(8, "worker-1", minutes=60))))
    assert found.victims == ("worker-0",)
    assert kinds(found) == [Drain, SetDeadline]


def test_out_of_touch_means_wait() -> None:
    """W1."""
    pods = (pod(0, *DRAINED, reason=GOING), pod(1), pod(2, known=False, ready=False), pod(3, bound=False))
    found = departures(view(*pods, of=nodeset(0), in_touch=False))
    assert deleted(found) == ["worker-3"]
    assert set(found.victims) == {"worker-0", "worker-1", "worker-2", "worker-3"}


def test_a_pod_without_a_node_is_deleted_only_as_it_is() -> None:
    (action,) = departures(view(pod(0, bound=False, ready=False, known=False), of=nodeset(0))).actions
    assert action == DeletePod(
        "worker-0", "uid-worker-0", "the NodeSet was scaled in", event="ScalingDown", version="7"
    )


def test_an_update_replaces() -> None:
    there = view(pod(0, *DRAINED, reason=GOING, hash_=OLD), pod(1, hash_=NEW))
    (action,) = departures(there).actions
    assert isinstance(action, DeletePod)
    assert (action.name, action.cause, action.event) == ("worker-0", "rollout", "RollingUpdate")


def test_a_pod_that_is_too_many_is_not_updated() -> None:
    found = departures(view(pod(0), pod(1, hash_=OLD), of=nodeset(1, victims=["worker-1"])))
    assert (found.victims, found.leaving_for_good) == (("worker-1",), ("worker-1",))


def test_a_deleted_nodeset_drains() -> None:
    """W3."""
    found = departures(view(pod(0), pod(1, *DRAINED, reason=GOING), of=nodeset(2, deleted=True)))
    assert kinds(found) == [Drain, DeletePod]
    assert deleted(found) == ["worker-1"]


def test_pods_without_a_place_are_drained() -> None:
    found = departures(view(pod(0), pod(1), of=nodeset(1), unwanted=frozenset({"worker-0"})))
    assert (kinds(found), found.victims) == ([Drain], ("worker-0",))


def test_a_restart_says_what_was_wrong() -> None:
    (action,) = departures(view(pod(0, known=False), pod(1), pod(2))).actions
    assert isinstance(action, DeletePod)
    assert (action.event, action.cause) == ("SlurmNodeNotRegistered", "repair")
    assert "does not know" in action.why


def test_lost_state_is_told() -> None:
    found = departures(view(*(pod(n, known=False) for n in range(3))))
    assert (found.actions, found.notes[0].reason) == ((), "SlurmStateLost")


def test_at_rest_nothing_is_done() -> None:
    assert departures(view(pod(0), pod(1, "ALLOCATED"), pod(2, "MIXED"))) == Departures()


def test_a_pod_that_may_still_register_is_looked_at_again() -> None:
    assert departures(view(pod(0, known=False, age=45), of=nodeset(0))).look_again == 15


SCALED_IN = kube_node(taint="ToBeDeletedByClusterAutoscaler")
SCALED_IN_REASON = (
    "slurm-operator: Node (k1) is being removed by Cluster Autoscaler, Pod (slurm/worker-0) must be cordoned"
)
SPOT = kube_node(taint="aws-node-termination-handler/spot-itn")
SPOT_REASON = "slurm-operator: Node (k1) is being reclaimed by AWS (spot), Pod (slurm/worker-0) must be cordoned"


def test_a_machine_that_an_autoscaler_removes_is_drained_before_its_pod_may_be_evicted() -> None:
    (drain,) = departures(view(pod(0, kube=SCALED_IN))).actions
    assert isinstance(drain, Drain)
    assert (drain.reason, drain.cause) == (SCALED_IN_REASON, "cordon")
    # However long its jobs take.
    busy = pod(0, "ALLOCATED", "DRAIN", reason=SCALED_IN_REASON, since=9000, kube=SCALED_IN)
    assert departures(view(busy)) == Departures()
    assert kinds(departures(view(pod(0, *DRAINED, reason=SCALED_IN_REASON, kube=SCALED_IN)))) == [Unprotect]
    # It gave up, or another job came in between.
    stays = pod(0, *DRAINED, reason=SCALED_IN_REASON, protected=False, kube=kube_node())
    assert kinds(departures(view(stays))) == [Protect, Undrain]


def test_jobs_on_a_machine_that_is_taken_back_are_requeued_in_time() -> None:
    (drain,) = departures(view(pod(0, "ALLOCATED", kube=SPOT))).actions
    assert isinstance(drain, Drain)
    assert drain.reason == SPOT_REASON
    busy: dict[str, Any] = {"reason": SPOT_REASON, "kube": SPOT}
    soon = departures(view(pod(0, "ALLOCATED", "DRAIN", since=20, **busy)))
    assert (soon.actions, soon.look_again) == ((), 40)
    late = pod(0, "ALLOCATED", "DRAIN", since=60, **busy)
    assert departures(view(late)).wants_jobs
    found = departures(view(late, jobs=(job(7, "worker-0"), job(8, "elsewhere"))))
    (requeue,) = found.actions
    assert isinstance(requeue, RequeueJobs)
    assert requeue.jobs == (7,)
    (note,) = found.notes
    assert note.reason == "MachineTakenBack"
    # What cannot be requeued is told of, and left to run as long as it can.
    stuck = departures(view(late, jobs=(job(7, "worker-0", requeue=False),)))
    assert stuck.actions == ()
    assert "job 7 cannot be requeued" in stuck.notes[0].note
