"""What the status of a NodeSet says."""

from datetime import timedelta
from typing import Any

import msgspec

from isthmus.domain.operator.nodeset import status
from isthmus.domain.operator.nodeset.status import Trouble
from isthmus.domain.operator.nodeset.view import PodView, View
from isthmus.model.meta import condition
from isthmus.model.pod import PodCondition, PodStatus
from tests.unit.domain.operator.nodeset.views import NEW, NOW, OLD, kube_node, nodeset, pod, slurm_node, view

SELECTOR = "app.kubernetes.io/name=slurmd"


def told(of: View, **more: Any) -> dict[str, Any]:
    return status.fields(of, selector=SELECTOR, **more)


def ready(of: View, trouble: Trouble | None = None) -> tuple[str, str, str, str]:
    """Tell Ready, Progressing, Degraded, and what Ready says."""
    found = status.held(of, trouble or Trouble())
    three = [condition(found, it) for it in ("Ready", "Progressing", "Degraded")]
    return (*(it.status if it else "" for it in three), three[0].message if three[0] else "")  # type: ignore[return-value]


def test_counts() -> None:
    of = view(
        pod(0),
        pod(1, "ALLOCATED", hash_=OLD),
        pod(2, "MIXED", "DRAIN"),
        pod(3, "DOWN", ready=False),
        pod(4, "IDLE", "DRAIN"),
        pod(5, leaving=True, known=False),
        of=nodeset(6),
    )
    found = told(of, victims=("worker-4",))
    assert found == {
        "desired": 6,
        "replicas": 6,
        "updatedReplicas": 4,
        "readyReplicas": 4,
        "availableReplicas": 4,
        "unavailableReplicas": 2,
        "nodeSetHash": NEW,
        "selector": SELECTOR,
        "slurmIdle": 1,
        "slurmAllocated": 2,
        "slurmDown": 1,
        "slurmDrain": 2,
        "victims": ["worker-4"],
    }


def test_out_of_touch_the_counts_of_slurm_stay() -> None:
    before = nodeset(1)
    before = msgspec.structs.replace(before, status=msgspec.structs.replace(before.status, slurm_idle=7))
    assert told(view(pod(0, known=False), of=before, in_touch=False))["slurmIdle"] == 7
    reachable = condition(status.held(view(), Trouble(slurm="no RestApi")), "SlurmReachable")
    assert (reachable and reachable.status, reachable and reachable.message) == ("False", "no RestApi")


def test_a_settled_nodeset_is_ready() -> None:
    assert ready(view(pod(0), pod(1))) == ("True", "False", "False", "2 of 2 nodes are ready")
    assert ready(view(of=nodeset(0))) == ("True", "False", "False", "no nodes are requested")


def test_it_says_what_it_waits_for() -> None:
    assert ready(view(pod(0), of=nodeset(3)))[3] == "1 of 3 pods exist"
    assert ready(view(pod(0), pod(1, ready=False)))[3] == "1 of 2 nodes are ready"
    assert ready(view(pod(0), pod(1), of=nodeset(1)))[3].startswith("1 pods are deleted as soon as")
    assert ready(view(pod(0), pod(1, hash_=OLD)))[3] == "1 of 2 pods are up to date"
    assert ready(view(pod(0), of=nodeset(1, deleted=True)))[3].startswith("1 pods are drained and deleted before")


def test_old_pods_are_no_reason_to_wait_where_only_people_update() -> None:
    assert ready(view(pod(0, hash_=OLD), of=nodeset(1, updateStrategy={"type": "OnDelete"})))[0] == "True"


def test_why_pods_have_no_place() -> None:
    waiting = pod(0, ready=False, bound=False, known=False)
    told_so = PodCondition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")
    stuck = msgspec.structs.replace(
        waiting,
        pod=msgspec.structs.replace(
            waiting.pod, status=msgspec.structs.replace(waiting.pod.status, conditions=(told_so,))
        ),
    )
    assert ready(view(stuck))[3] == "0 of 1 nodes are ready; 1 has no place: 0/3 nodes are available"


def with_status(of: PodView, *, age: float, **fields: Any) -> PodView:
    """Give a pod a status, and an age in seconds."""
    made = msgspec.structs.replace(of.pod.metadata, creation_timestamp=NOW - timedelta(seconds=age))
    told = msgspec.convert({"phase": "Pending", **fields}, PodStatus)
    return msgspec.structs.replace(of, pod=msgspec.structs.replace(of.pod, metadata=made, status=told))


def test_a_pod_that_stays_without_a_place_needs_somebody() -> None:
    told_so = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    waiting = pod(0, ready=False, bound=False, known=False)
    new, old = (with_status(waiting, age=age, conditions=[told_so]) for age in (1, 60))
    text = "0 of 1 nodes are ready; 1 has no place: 0/3 nodes"
    assert ready(view(new)) == ("False", "True", "False", text)
    assert ready(view(old)) == ("False", "True", "True", text)


def test_an_image_that_workers_cannot_get_is_named() -> None:
    hold = {"name": "slurmd", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    stuck = with_status(pod(0, ready=False, known=False), age=5, containerStatuses=[hold])
    found = ready(view(pod(1), stuck))
    assert found[2:] == (
        "True",
        "1 of 2 nodes are ready; pod worker-0: container slurmd: ErrImagePull: no such image",
    )


def test_what_is_wrong_goes_first_and_is_not_without_end() -> None:
    trouble = Trouble(wrong=("quota", "quota", "b", "c", "d"))
    found = ready(view(of=nodeset(1)), trouble)
    assert found == ("False", "True", "True", "quota; b; c; and 1 more")


def test_pins_are_remembered_while_their_node_is_there() -> None:
    of = nodeset(2, pinToNode=True)
    of = msgspec.structs.replace(
        of, status=msgspec.structs.replace(of.status, ordinal_to_node={"0": "k1", "1": "k2", "2": "gone"})
    )
    nodes = {"k2": kube_node("k2"), "k3": kube_node("k3")}
    found = told(view(pod(0, kube=kube_node("k3")), of=of, kube_nodes=nodes))
    assert found["ordinalToNode"] == {"0": "k3", "1": "k2"}
    assert "ordinalToNode" not in told(view(pod(0)))


def test_devices_that_are_only_counted_are_told() -> None:
    why = "gpu: 8 are seen and 2 asked for, so they are only counted"
    counted = [pod(it, comment=f"isthmus devices: {why}") for it in range(2)]
    found = condition(status.held(view(*counted, pod(2, comment="somebody's")), Trouble()), "DevicesKnown")
    assert found is not None
    assert (found.status, found.message) == ("False", f"2 nodes; {why}")
    assert condition(status.held(view(pod(0)), Trouble()), "DevicesKnown") is None


def test_states_of_slurm_are_mirrored() -> None:
    record = slurm_node("worker-0", "MIXED", "DRAIN", "PLANNED", reason="because")
    assert status.mirrored(record) == (("SlurmNodeStateDrain", "because"), ("SlurmNodeStateMixed", "because"))
    assert status.mirrored(None) == ()
