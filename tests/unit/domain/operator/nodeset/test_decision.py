"""What is done for a NodeSet, as one list in order; and what has to be read from Slurm before."""

from typing import Any

import msgspec

from isthmus import names
from isthmus.domain.operator.nodeset.actions import (
    Action,
    CreatePods,
    DeletePod,
    DeleteRecord,
    Drain,
    ReviseRecord,
    SaveVictims,
    SetDeadline,
    SetFinalizers,
    SetOwners,
)
from isthmus.domain.operator.nodeset.decision import Decision, decide, until_settled
from isthmus.domain.operator.nodeset.placement import demand_of
from isthmus.domain.operator.nodeset.plan import plan
from isthmus.domain.operator.nodeset.view import PodView, View
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.pod import ClaimSource, Volume
from isthmus.model.slinky import NodeSet
from isthmus.model.slurm import Reservation
from isthmus.model.storage import Claim
from tests.unit.domain.operator.nodeset import views
from tests.unit.domain.operator.nodeset.views import GOING, job, kube_node, pod, slurm_node, view

DRAINED = ("IDLE", "DRAIN")
OURS = (names.DRAIN_FINALIZER,)


def nodeset(replicas: int = 1, *, finalizers: tuple[str, ...] = OURS, **fields: Any) -> NodeSet:
    return views.nodeset(replicas, finalizers=finalizers, **fields)


def decided(seen: View) -> Decision:
    planned = plan(seen.nodeset, seen.pods, nodes={}, demand=demand_of({}), now=seen.now)
    return decide(msgspec.structs.replace(seen, unwanted=seen.unwanted | planned.unwanted), planned)


def kinds(found: Decision) -> list[type[Action]]:
    return [type(it) for it in found.actions]


def created(found: Decision) -> list[str]:
    return [slot.pod for it in found.actions if isinstance(it, CreatePods) for slot in it.slots]


def test_at_rest_nothing_is_done() -> None:
    assert decided(view(pod(0), pod(1, "ALLOCATED"), of=nodeset(2))) == Decision()


def test_the_finalizer_comes_before_the_first_pod() -> None:
    found = decided(view(of=nodeset(2, finalizers=("example.com/other",))))
    assert found == Decision((SetFinalizers(("example.com/other", *OURS)),), final=True)


def test_missing_pods_are_created_with_or_without_slurm() -> None:
    for in_touch in (True, False):
        assert created(decided(view(pod(1), of=nodeset(3), in_touch=in_touch))) == ["worker-0", "worker-2"]


def test_no_pod_is_created_without_keys_or_template() -> None:
    for lacking in ({"has_keys": False}, {"has_template": False}):
        assert decided(view(of=nodeset(2), **lacking)).actions == ()


def test_a_refusal_is_given_time() -> None:
    found = decided(view(of=nodeset(2), create_after=8.0))
    assert (found.actions, found.look_again) == ((), 8.0)


def test_a_record_that_does_not_fit_goes_before_its_next_pod_and_is_tried_once() -> None:
    there: dict[str, Any] = {
        "of": nodeset(1, extraConf="Feature=fast"),
        "also_in_slurm": {"worker-0": slurm_node("worker-0", *DRAINED)},
        "coming": frozenset({"worker-0"}),
    }
    assert kinds(decided(view(**there))) == [DeleteRecord]
    found = decided(view(**there, deletion_tried=frozenset({"worker-0"})))
    assert kinds(found) == [CreatePods, DeleteRecord]


def test_a_pod_waits_for_a_claim_that_is_on_its_way_out() -> None:
    of = nodeset(1, volumeClaimTemplates=[{"metadata": {"name": "data"}}])
    key = Key("slurm", "data-worker-0")
    meta = ObjectMeta(name=key.name, namespace=key.namespace, deletion_timestamp=views.NOW)
    assert decided(view(of=of, claims={key: Claim(metadata=meta)})).actions == ()
    assert created(decided(view(of=of))) == ["worker-0"]


def test_a_choice_is_not_made_by_the_last_poll() -> None:
    two = (pod(0), pod(1))
    assert decided(view(*two, of=nodeset(1))) == Decision(needs="nodes")
    found = decided(view(*two, of=nodeset(1), slurm_nodes_read=True))
    assert kinds(found) == [SaveVictims, Drain]
    assert found.victims == ("worker-1",)


def test_whoever_was_chosen_before_needs_no_reading() -> None:
    gone = pod(1, *DRAINED, reason=GOING)
    found = decided(view(pod(0), gone, of=nodeset(1, victims=["worker-1"])))
    assert kinds(found) == [DeletePod]
    # Whoever takes over knows it by the drain, and writes it down again.
    assert kinds(decided(view(pod(0), gone, of=nodeset(1)))) == [SaveVictims, DeletePod]


def test_jobs_are_read_for_busy_nodes() -> None:
    two = (pod(0, "ALLOCATED"), pod(1, "ALLOCATED"))
    assert decided(view(*two, of=nodeset(1))) == Decision(needs="jobs")
    jobs = (job(7, "worker-0", minutes=20), job(8, "worker-1", minutes=60))
    assert decided(view(*two, of=nodeset(1), jobs=jobs)) == Decision(needs="nodes")
    found = decided(view(*two, of=nodeset(1), jobs=jobs, slurm_nodes_read=True))
    assert kinds(found) == [SaveVictims, Drain, SetDeadline]


def test_what_needs_kubernetes_alone_does_not_wait_for_a_reading() -> None:
    scheduled = {
        "type": "ScheduledUpdate",
        "scheduledUpdate": {"startTime": "2026-05-05T00:00:00Z", "duration": "1h"},
    }
    finalizers = (*OURS, names.RESERVATION_FINALIZER)
    found = decided(view(pod(0), of=nodeset(2, finalizers=finalizers, updateStrategy=scheduled)))
    assert (found.needs, created(found), len(found.actions)) == ("reservations", ["worker-1"], 1)


def test_out_of_touch_means_wait() -> None:
    """W1."""
    pods = (pod(0, *DRAINED, reason=GOING), pod(1), pod(2, known=False, ready=False), pod(3, bound=False))
    found = decided(view(*pods, of=nodeset(0), in_touch=False))
    assert found.needs is None
    assert [it.name for it in found.actions if isinstance(it, DeletePod)] == ["worker-3"]
    assert {type(it) for it in found.actions} == {SaveVictims, DeletePod}


def test_the_order_of_a_scale_in() -> None:
    of = nodeset(
        1,
        victims=["worker-1"],
        volumeClaimTemplates=[{"metadata": {"name": "data"}}],
        persistentVolumeClaimRetentionPolicy={"whenScaled": "Delete"},
    )
    key = Key("slurm", "data-worker-2")
    there = view(
        pod(0, kube=kube_node(annotations={names.NODE_FEATURES_ANNOTATION: "ssd"})),
        pod(1, *DRAINED, reason=GOING),
        with_claim(pod(2, bound=False, ready=False, known=False), key.name),
        pod(3),
        of=of,
        claims={key: Claim(metadata=ObjectMeta(name=key.name, namespace=key.namespace, resource_version="1"))},
        also_in_slurm={"worker-9": slurm_node("worker-9", *DRAINED)},
        slurm_nodes_read=True,
    )
    found = decided(there)
    assert kinds(found) == [
        DeleteRecord,
        SaveVictims,
        SetOwners,
        DeletePod,
        Drain,
        DeletePod,
        ReviseRecord,
    ]
    assert [it.name for it in found.actions if isinstance(it, DeletePod)] == ["worker-2", "worker-1"]
    told = frozenset(it for it in found.actions if isinstance(it, ReviseRecord))
    again = decided(msgspec.structs.replace(there, revision_tried=told))
    assert kinds(again) == kinds(found)[:-1], "what Slurm did not take is not repeated at once"


def with_claim(found: PodView, claim: str) -> PodView:
    volume = Volume(name="data", persistent_volume_claim=ClaimSource(claim_name=claim))
    spec = msgspec.structs.replace(found.pod.spec, volumes=(volume,))
    return msgspec.structs.replace(found, pod=msgspec.structs.replace(found.pod, spec=spec))


def test_a_deleted_nodeset_goes_when_its_pods_and_records_are_gone() -> None:
    """W3."""
    gone = {"worker-0": slurm_node("worker-0", "DOWN", "NOT_RESPONDING")}
    found = decided(view(pod(0, leaving=True), of=nodeset(2, deleted=True)))
    assert not found.final
    found = decided(view(of=nodeset(2, deleted=True), also_in_slurm=gone))
    assert (kinds(found), found.final) == ([DeleteRecord, SetFinalizers], True)


def test_a_deleted_nodeset_waits_for_its_reservation() -> None:
    of = nodeset(2, deleted=True, finalizers=(*OURS, names.RESERVATION_FINALIZER))
    assert decided(view(of=of)) == Decision(needs="reservations")
    left = SetFinalizers((names.RESERVATION_FINALIZER,))
    assert decided(view(of=of, in_touch=False)) == Decision((left,), final=True)
    there = (Reservation(name="SlurmOperatorMaint-worker"),)
    assert decided(view(of=of, reservations=there)) == Decision((left,), final=True)
    assert decided(view(of=of, reservations=())) == Decision((SetFinalizers(()),), final=True)


def test_everything_that_is_wrong_is_reported() -> None:
    found = decided(view(*(pod(n, known=False) for n in range(3)), of=nodeset(3), wrong=("sshd: no",)))
    assert found.trouble.wrong[0] == "sshd: no"
    assert [it.reason for it in found.notes] == ["SlurmStateLost"]
    assert found.notes[0].note in found.trouble.wrong


def test_what_no_event_reports_is_looked_at_again() -> None:
    assert until_settled(view(pod(0))) is None
    assert until_settled(view(pod(0, available=False))) == 1.0
    assert until_settled(view(pod(0), in_touch=False)) is None
    assert until_settled(view(pod(0), in_touch=False, slurm_answers=True)) == 1.0, "it answers, with what is old"
