"""What becomes of jobs and pods, case by case and as properties of any case."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus import names
from isthmus.domain.bridge import marker, podrules
from isthmus.domain.bridge.groups import GANG_ANNOTATION, group_of
from isthmus.domain.bridge.jobstates import Phase, phase
from isthmus.domain.bridge.outcome import Result
from isthmus.domain.bridge.podrules import (
    OUT_OF_SERVICE_TAINT,
    SUSPENDED_CONDITION,
    Decision,
    EndJob,
    Evict,
    JobView,
    ReportSuspension,
    decide,
)
from isthmus.model.meta import Condition, Key, ObjectMeta
from isthmus.model.node import Node, NodeSpec, NodeStatus, Taint
from isthmus.model.pod import Pod, PodCondition, PodSpec, PodStatus, SchedulingGate
from isthmus.model.slurm import ENDED, Job, Number

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
JOB_ID = 7


def pod(
    name: str = "web",
    *,
    node: str = "k1",
    run: str = "Running",
    deleted: datetime | None = None,
    gang: str = "",
    gates: tuple[str, ...] = (),
    told: str = "",
    slurm_node: str = "n1",
    job_id: int = JOB_ID,
) -> Pod:
    labels = {names.JOB_ID_LABEL: str(job_id)} if node else {}
    annotations = {names.POD_SLURM_NODE_ANNOTATION: slurm_node} if node and slurm_node else {}
    if gang:
        labels[names.JOB_NAME_LABEL] = gang
        annotations[GANG_ANNOTATION] = "true"
    return Pod(
        ObjectMeta(name, "team", f"uid-{name}", deletion_timestamp=deleted, labels=labels, annotations=annotations),
        PodSpec(node_name=node, scheduling_gates=tuple(SchedulingGate(it) for it in gates)),
        PodStatus(run, conditions=(PodCondition(SUSPENDED_CONDITION, told),) if told else ()),  # type: ignore[arg-type]
    )


def scene(*states: str, pods: tuple[Pod, ...] = (), nodes: str = "n1", restarts: int = 0, **more: Any) -> JobView:
    everyone = pods or more.get("departed", ()) or (pod(),)
    group = group_of(everyone[0])
    marked = marker.mark(group, everyone[0].metadata.uid, everyone, cluster="c")
    return JobView(
        job=Job(job_id=JOB_ID, job_state=states, nodes=nodes, restarts=restarts),
        marker=marked,
        now=NOW,
        bound=tuple(it for it in pods if it.bound),
        loose=tuple(it for it in pods if not it.bound),
        slurm_names={"k1": "n1", "k2": "n2"},
        **more,
    )


def reasons(decision: Decision) -> list[str]:
    return [action.reason for action in decision.actions if isinstance(action, Evict)]


# --- a heterogeneous job -----------------------------------------------------------------------------------------


def test_a_leader_ends_when_the_pods_of_all_components_have() -> None:
    done, elsewhere = pod(run="Succeeded"), pod("other", node="k2", slurm_node="n2", job_id=8)
    assert decide(scene("RUNNING", pods=(done,), elsewhere=(elsewhere,))) == podrules.NOTHING
    failed = pod("other", node="k2", slurm_node="n2", job_id=8, run="Failed")
    (end,) = decide(scene("RUNNING", pods=(done,), elsewhere=(failed,))).actions
    assert isinstance(end, EndJob)
    assert end.outcome.result is Result.FAILED
    assert end.outcome.text.startswith("team/other: Failed")


def test_a_component_ends_with_its_leader() -> None:
    assert decide(scene("RUNNING", pods=(pod(run="Succeeded"),), led=True)) == podrules.NOTHING
    assert reasons(decide(scene("CANCELLED", pods=(pod(),), led=True)))


# --- a job that lives --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "SUSPENDED"])
@pytest.mark.parametrize(("run", "result"), [("Succeeded", Result.SUCCEEDED), ("Failed", Result.FAILED)])
def test_a_job_ends_when_its_pod_has(state: str, run: str, result: Result) -> None:
    (end,) = decide(scene(state, pods=(pod(run=run),))).actions
    assert isinstance(end, EndJob)
    assert end.outcome.result is result


def test_a_job_that_waits_though_its_pod_has_ended_is_read_again() -> None:
    assert decide(scene("PENDING", pods=(pod(run="Succeeded"),))).doubtful
    assert not decide(scene("RUNNING", pods=(pod(run="Succeeded"),))).doubtful
    assert not decide(scene("PENDING", pods=(pod(node="", deleted=NOW),))).doubtful


def test_a_job_goes_on_with_its_pod() -> None:
    assert decide(scene("RUNNING", pods=(pod(),))) == podrules.NOTHING


def test_a_job_ends_when_its_pod_is_gone() -> None:
    (end,) = decide(scene("RUNNING", departed=(pod(run="Succeeded"),))).actions
    assert isinstance(end, EndJob)
    assert end.outcome.result is Result.SUCCEEDED


def test_a_job_whose_pods_nobody_saw_ends_after_a_look() -> None:
    (end,) = decide(scene("RUNNING", missing=(Key("team", "web"),))).actions
    assert isinstance(end, EndJob)
    assert end.missing == (Key("team", "web"),)


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_a_job_waits_for_its_pod_to_be_bound(state: str) -> None:
    assert decide(scene(state, pods=(pod(node="", run="Pending"),))) == podrules.NOTHING


def test_gated_pods_keep_a_place_in_the_queue_but_no_nodes() -> None:
    gated = pod(node="", gates=("later",))
    assert decide(scene("PENDING", pods=(gated,))) == podrules.NOTHING
    assert isinstance(decide(scene("RUNNING", pods=(gated,))).actions[0], EndJob)


def test_pods_of_a_job_that_somebody_cancelled_are_not_wanted() -> None:
    waiting = pod(node="", run="Pending")
    decision = decide(scene("CANCELLED", pods=(waiting,), withdrawn=True))
    assert reasons(decision) == ["SlurmJobCancelled"]
    assert decision.doubtful, "only the job itself tells who cancelled it"
    assert decide(scene("CANCELLED", pods=(waiting,))) == podrules.NOTHING


def test_a_pod_that_came_later_is_not_meant_by_a_cancelled_job() -> None:
    first, late = (pod(name, node="", run="Pending", gang="train") for name in ("a", "b"))
    before = scene("CANCELLED", pods=(first,), withdrawn=True)
    after = msgspec.structs.replace(before, loose=(first, late))
    assert [action.pod for action in decide(after).actions if isinstance(action, Evict)] == [first]


def test_a_waiting_job_ends_when_its_only_pod_leaves() -> None:
    leaving = pod(node="", deleted=NOW)
    assert isinstance(decide(scene("PENDING", pods=(leaving,))).actions[0], EndJob)


def test_a_gang_goes_on_with_one_pod_and_with_one_that_waits() -> None:
    done, runs, waits = pod("a", run="Failed", gang="g"), pod("b", gang="g"), pod("c", node="", gang="g")
    assert decide(scene("RUNNING", pods=(done, runs))) == podrules.NOTHING
    assert decide(scene("RUNNING", pods=(done, waits))) == podrules.NOTHING
    assert isinstance(decide(scene("RUNNING", pods=(done,))).actions[0], EndJob)


def test_pods_of_a_new_gang_do_not_keep_the_job_of_the_old_one() -> None:
    waits = pod("c", node="", gang="g")
    assert isinstance(decide(scene("RUNNING", pods=(waits,), superseded=True)).actions[0], EndJob)


def test_of_two_jobs_with_one_key_the_one_too_many_ends_unless_pods_run_in_it() -> None:
    assert isinstance(decide(scene("PENDING", pods=(pod(node=""),), surplus=True)).actions[0], EndJob)
    assert decide(scene("RUNNING", pods=(pod(),), surplus=True)) == podrules.NOTHING


# --- a pod that leaves -------------------------------------------------------------------------------------------


def test_weakness_15_a_leaving_pod_keeps_its_job() -> None:
    assert decide(scene("RUNNING", pods=(pod(deleted=LONG_AGO),))) == podrules.NOTHING


def test_weakness_14_a_dead_node_does_not_keep_a_job_for_ever() -> None:
    leaving = pod(deleted=NOW - timedelta(seconds=31))
    (end,) = decide(scene("RUNNING", pods=(leaving,), dead_nodes={"k1"})).actions
    assert isinstance(end, EndJob)
    assert end.outcome.result is Result.DELETED


def test_weakness_14_a_dead_node_keeps_a_job_for_a_while() -> None:
    leaving = pod(deleted=NOW - timedelta(seconds=10))
    assert decide(scene("RUNNING", pods=(leaving,), dead_nodes={"k1"})) == Decision(again=20.0)


def test_weakness_14_a_pod_that_nobody_deleted_keeps_its_job_on_a_dead_node() -> None:
    assert decide(scene("RUNNING", pods=(pod(),), dead_nodes={"k1"})) == podrules.NOTHING


@pytest.mark.parametrize(
    ("node", "dead"),
    [
        (None, True),
        (Node(), False),
        (Node(status=NodeStatus(conditions=(Condition("Ready", "True"),))), False),
        (Node(status=NodeStatus(conditions=(Condition("Ready", "False"),))), True),
        (Node(status=NodeStatus(conditions=(Condition("Ready", "Unknown"),))), True),
        (
            Node(
                spec=NodeSpec(taints=(Taint(OUT_OF_SERVICE_TAINT, "NoExecute"),)),
                status=NodeStatus(conditions=(Condition("Ready", "True"),)),
            ),
            True,
        ),
    ],
)
def test_weakness_14_which_nodes_are_dead(node: Node | None, *, dead: bool) -> None:
    assert podrules.is_dead(node) is dead


# --- a job that ends ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("COMPLETING",)])
@pytest.mark.parametrize("state", sorted(ENDED))
def test_weakness_13_every_end_of_a_job_evicts_its_pods(state: str, flags: tuple[str, ...]) -> None:
    decision = decide(scene(state, *flags, pods=(pod("a", gang="g"), pod("b", gang="g"))))
    assert len(reasons(decision)) == 2
    assert not decision.doubtful


def test_an_end_leaves_pods_alone_that_are_over_leaving_or_waiting() -> None:
    pods = (pod("a", run="Succeeded", gang="g"), pod("b", deleted=NOW, gang="g"), pod("c", node="", gang="g"))
    assert decide(scene("CANCELLED", pods=pods)) == podrules.NOTHING


def test_the_reason_names_the_job_and_its_end() -> None:
    (eviction,) = decide(scene("TIMEOUT", pods=(pod(),))).actions
    assert isinstance(eviction, Evict)
    assert (eviction.reason, eviction.message) == ("SlurmJobTimeout", "Slurm job 7 reached its time limit")


@pytest.mark.parametrize("states", [("PENDING",), ("PENDING", "COMPLETING"), ("PENDING", "REQUEUED")])
def test_weakness_13_a_requeued_job_evicts_its_pods_once_that_is_sure(states: tuple[str, ...]) -> None:
    decision = decide(scene(*states, pods=(pod(),), nodes=""))
    assert reasons(decision) == ["SlurmJobRequeued"]
    assert decision.doubtful, "the pod may have been bound after the job was last read"


def test_weakness_13_a_job_that_runs_elsewhere_now_evicts_its_pods() -> None:
    decision = decide(scene("RUNNING", pods=(pod(),), nodes="n[2-3]", restarts=1))
    assert reasons(decision) == ["SlurmJobRequeued"]
    assert decision.doubtful


def test_a_job_that_lost_a_node_evicts_the_pod_there_alone() -> None:
    pods = pod("a", gang="g"), pod("b", gang="g", node="k2", slurm_node="n2")
    decision = decide(scene("RUNNING", pods=pods, nodes="n2"))
    (eviction,) = decision.actions
    assert isinstance(eviction, Evict)
    assert (eviction.pod.metadata.name, eviction.reason) == ("a", "SlurmJobNodeLost")


@pytest.mark.parametrize(
    ("then", "now"),
    [("n1", {}), ("", {"k1": "n1"}), ("n1", {"k1": "renamed"}), ("forged", {"k1": "n1"}), ("", {})],
)
def test_a_pod_stays_if_its_node_is_or_may_be_the_jobs(then: str, now: dict[str, str]) -> None:
    found = msgspec.structs.replace(scene("RUNNING", pods=(pod(slurm_node=then),)), slurm_names=now)
    assert decide(found) == podrules.NOTHING


def test_an_unknown_state_leads_to_nothing() -> None:
    assert decide(scene("HIBERNATING", pods=(pod(run="Succeeded"),))) == podrules.NOTHING


def test_suspension_is_told_once_each_way() -> None:
    (told,) = decide(scene("SUSPENDED", pods=(pod(),))).actions
    assert isinstance(told, ReportSuspension)
    assert told.suspended
    assert "cannot be paused" in told.message
    assert decide(scene("SUSPENDED", pods=(pod(told="True"),))) == podrules.NOTHING
    (told,) = decide(scene("RUNNING", pods=(pod(told="True"),))).actions
    assert isinstance(told, ReportSuspension)
    assert not told.suspended
    assert decide(scene("RUNNING", pods=(pod(told="False"),))) == podrules.NOTHING


# --- whose pod it is ---------------------------------------------------------------------------------------------


def of(found: Pod, job_id: int, *states: str, uid: str = "") -> tuple[Job, marker.Marker]:
    marked = marker.mark(group_of(found), uid or found.metadata.uid, [found], cluster="c")
    return Job(job_id=job_id, job_state=states or ("RUNNING",)), marked


def test_weakness_32_a_label_is_believed_only_if_the_job_is_the_pods() -> None:
    mine, other = pod("mine"), pod("other")
    assert podrules.true_job(mine, [of(mine, JOB_ID)]) == JOB_ID
    assert podrules.true_job(mine, [of(other, JOB_ID)]) is None
    assert podrules.true_job(mine, [of(mine, JOB_ID, uid="of an older pod with this name")]) is None


def test_weakness_32_the_true_job_is_the_one_that_names_the_pod() -> None:
    forged = pod(job_id=666)
    jobs = [of(forged, 5, "CANCELLED"), of(forged, 6), of(forged, 8, "FAILED")]
    assert podrules.true_job(forged, jobs) == 6
    assert podrules.true_job(forged, jobs[::2]) == 8


@pytest.mark.parametrize(
    ("submitted", "started", "another"),
    [
        (-1, -3600, False),
        (-1, 0, False),
        (1, -3600, True),
        (0, -3600, False),
        (0, -1, False),
        (0, 0, True),
        (0, 1, True),
        (0, 3600, False),
    ],
    ids=[
        "before the binding",
        "before the binding, and slurmctld remembers it",
        "after the binding",
        "in its second",
        "in its second, and slurmctld started in the one before",
        "in its second, as slurmctld was started",
        "in its second, and slurmctld took another to begin to count",
        "in its second, and slurmctld was reconfigured since",
    ],
)
def test_a_job_has_the_id_of_another_if_it_came_after_the_pod_was_bound(
    submitted: int, started: int, *, another: bool
) -> None:
    second = int(NOW.timestamp())
    job = Job(JOB_ID, submit_time=Number.of(second + submitted))
    assert podrules.has_id_of_another(job, bound=NOW, counts_since=second + started) is another


def test_weakness_32_a_gang_is_known_by_namespace_kind_and_name() -> None:
    member, stranger = pod("a", gang="g"), pod("s", gang="h")
    replacement = pod("z", gang="g")
    _, marked = of(member, JOB_ID, uid="uid-of-the-job")
    assert podrules.belongs(member, marked)
    assert podrules.belongs(replacement, marked)
    assert not podrules.belongs(stranger, marked)


def relabelled(found: Pod, *, gang: str = "x", seat: int | None = JOB_ID) -> Pod:
    meta = found.metadata
    labels = {**meta.labels, names.POD_GROUP_LABEL: gang}
    annotations = {**meta.annotations, **({names.POD_JOB_ANNOTATION: str(seat)} if seat else {})}
    meta = msgspec.structs.replace(meta, labels=labels, annotations=annotations)
    return msgspec.structs.replace(found, metadata=meta)


def test_weakness_32_a_label_of_another_group_parts_no_pod_from_its_job() -> None:
    alone, member, joined = pod("a"), pod("b", gang="g"), pod("c", gang="g")
    for found, first in ((alone, alone), (member, member), (joined, member)):
        uid = "uid-of-the-gang" if first is member else ""
        assert podrules.true_job(found, [of(first, JOB_ID, uid=uid)]) == JOB_ID
        assert podrules.true_job(relabelled(found), [of(first, JOB_ID, uid=uid)]) == JOB_ID


def test_weakness_32_a_gang_is_joined_by_the_binding_and_not_by_a_label() -> None:
    member, stranger = pod("b", gang="g"), relabelled(pod("c", job_id=JOB_ID), seat=None)
    marked = of(member, JOB_ID, uid="uid-of-the-gang")
    assert podrules.true_job(stranger, [marked]) is None
    assert podrules.true_job(relabelled(pod("c", job_id=JOB_ID), seat=JOB_ID + 1), [marked]) is None
    elsewhere = msgspec.structs.replace(relabelled(stranger), metadata=ObjectMeta(namespace="other", name="c"))
    assert podrules.true_job(elsewhere, [marked]) is None


# --- any case ----------------------------------------------------------------------------------------------------

pods_of_a_gang = st.builds(
    pod,
    st.text("abcdef", min_size=1, max_size=3),
    node=st.sampled_from(["", "k1", "k2"]),
    run=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
    deleted=st.sampled_from([None, NOW, LONG_AGO, NOW + timedelta(seconds=30)]),
    gang=st.just("g"),
    gates=st.sampled_from([(), ("later",)]),
    told=st.sampled_from(["", "True", "False"]),
    slurm_node=st.sampled_from(["", "n1", "n2"]),
)
states = st.tuples(
    st.sampled_from([*sorted(ENDED), "PENDING", "RUNNING", "SUSPENDED", "HIBERNATING"]),
    st.sampled_from(["", "COMPLETING", "REQUEUED", "CONFIGURING", "STOPPED"]),
).map(lambda it: tuple(filter(None, it)))


@st.composite
def scenes(draw: st.DrawFn) -> JobView:
    pods = draw(st.lists(pods_of_a_gang, max_size=5, unique_by=lambda it: it.metadata.name))
    return scene(
        *draw(states),
        pods=tuple(pods),
        nodes=draw(st.sampled_from(["", "n1", "n[1-2]"])),
        restarts=draw(st.integers(0, 1)),
        departed=tuple(draw(st.lists(pods_of_a_gang, max_size=2))),
        dead_nodes=draw(st.sampled_from([frozenset(), frozenset({"k1"}), frozenset({"k1", "k2"})])),
        superseded=draw(st.booleans()),
        surplus=draw(st.booleans()),
    )


def after(found: JobView, decision: Decision) -> JobView:
    """The world when everything that was decided has taken effect."""
    pods = {it.metadata.uid: it for it in (*found.bound, *found.loose)}
    job = found.job
    for action in decision.actions:
        match action:
            case EndJob():
                job = msgspec.structs.replace(job, job_state=("CANCELLED",))
            case Evict(pod=it):
                meta = msgspec.structs.replace(it.metadata, deletion_timestamp=found.now + timedelta(seconds=30))
                pods[meta.uid] = msgspec.structs.replace(it, metadata=meta)
            case ReportSuspension(pod=it, suspended=suspended):
                told = PodCondition(SUSPENDED_CONDITION, "True" if suspended else "False")
                status = msgspec.structs.replace(it.status, conditions=(told,))
                pods[it.metadata.uid] = msgspec.structs.replace(it, status=status)
    return msgspec.structs.replace(
        found,
        job=job,
        bound=tuple(it for it in pods.values() if it.bound),
        loose=tuple(it for it in pods.values() if not it.bound),
    )


@given(scenes())
def test_what_was_done_leaves_nothing_to_do(found: JobView) -> None:
    assert not decide(after(found, decide(found))).actions


@given(scenes())
def test_a_job_never_ends_while_a_pod_may_use_its_nodes(found: JobView) -> None:
    ends = any(isinstance(action, EndJob) for action in decide(found).actions)
    runs = any(not it.finished and not it.leaving for it in found.bound)
    assert not (ends and runs)


@given(scenes())
def test_a_pod_is_never_evicted_while_its_job_has_its_node(found: JobView) -> None:
    if phase(found.job.job_state) in {Phase.RUNNING, Phase.SUSPENDED, Phase.UNKNOWN}:
        kept = {it.metadata.uid for it in found.bound if it.spec.node_name == "k1" and found.job.nodes}
        evicted = {it.pod.metadata.uid for it in decide(found).actions if isinstance(it, Evict)}
        assert not kept & evicted


@given(scenes())
def test_no_allocation_is_held_for_nobody(found: JobView) -> None:
    alive = [it for it in (*found.bound, *found.loose) if not it.finished]
    if phase(found.job.job_state) in {Phase.WAITING, Phase.RUNNING, Phase.SUSPENDED} and not alive:
        assert isinstance(decide(found).actions[0], EndJob)


@given(scenes())
def test_nobody_is_evicted_who_has_ended_or_is_leaving(found: JobView) -> None:
    for action in decide(found).actions:
        if isinstance(action, Evict):
            assert action.pod.bound
            assert not action.pod.finished
            assert not action.pod.leaving


@pytest.mark.parametrize("state", sorted(ENDED))
def test_metrics_call_an_eviction_by_the_state_in_which_the_job_ended(state: str) -> None:
    (action,) = decide(scene(state, pods=(pod(),))).actions
    assert isinstance(action, Evict)
    assert action.label == state.lower()


def test_metrics_tell_a_job_that_was_put_back_moved_or_lost() -> None:
    assert podrules.evict_orphan(pod(), JOB_ID).label == "lost"
    for found, label in (
        (scene("PENDING", pods=(pod(),)), "requeued"),
        (scene("RUNNING", pods=(pod(),), nodes="n9"), "moved"),
    ):
        (action,) = decide(found).actions
        assert isinstance(action, Evict)
        assert action.label == label
