"""What is to be done for a group of pods, given its jobs."""

from datetime import UTC, datetime

import msgspec

from isthmus import names
from isthmus.domain.bridge.components import role_of
from isthmus.domain.bridge.placement import (
    ALONE,
    Allocation,
    Bind,
    Cancel,
    Demand,
    Gather,
    Queue,
    Step,
    Submit,
    decide,
    is_deserted,
    slot_nodes,
)
from isthmus.model.meta import ObjectMeta
from isthmus.model.pod import Pod, PodSpec, PodStatus, SchedulingGate
from isthmus.model.slurm import AllocatedNode, AllocatedNodes, Job, JobResources, Number, SharedCpus

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def loose(name: str, **spec: object) -> Pod:
    return Pod(ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}"), PodSpec(**spec))  # type: ignore[arg-type]


def bound(name: str, job_id: int, node: str, *, phase: str = "Running") -> Pod:
    annotations = {names.POD_JOB_ANNOTATION: str(job_id), names.POD_SLURM_NODE_ANNOTATION: node}
    meta = ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", annotations=annotations)
    return Pod(meta, PodSpec(node_name=node), PodStatus(phase=phase))


def leaving(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=NOW))


def seats(steps: list[Step]) -> list[tuple[str, int, str]]:
    return [
        (seat.pod.metadata.name, seat.job_id, seat.slurm_node)
        for step in steps
        if isinstance(step, Bind)
        for seat in step.seats
    ]


def test_a_pod_without_a_job_gets_one() -> None:
    pod = loose("a")
    assert decide([pod], [], ALONE) == [Submit((pod,), 1, 1)]


def test_a_pod_waits_for_its_job() -> None:
    pod = loose("a")
    assert decide([pod], [Allocation(7, 1)], ALONE) == [Queue(7, (pod,))]


def test_a_pod_gets_the_node_of_its_job() -> None:
    assert seats(decide([loose("a")], [Allocation(7, 1, ("n1",))], ALONE)) == [("a", 7, "n1")]


def test_weakness_22_a_gated_pod_takes_no_allocation() -> None:
    assert decide([loose("a", scheduling_gates=(SchedulingGate("wait"),))], [], ALONE) == []


def test_finished_and_leaving_pods_ask_for_nothing() -> None:
    done = bound("a", 7, "n1", phase="Succeeded")
    assert decide([done, leaving(loose("b"))], [], ALONE) == []


def test_a_gang_waits_for_its_members() -> None:
    assert decide([loose("a-0"), loose("a-1")], [], Demand(3, 3)) == [Gather(2, 3, 0)]


def test_a_gang_says_how_many_are_gated() -> None:
    gated = loose("a-1", scheduling_gates=(SchedulingGate("wait"),))
    assert decide([loose("a-0"), gated], [], Demand(2, 2)) == [Gather(1, 2, 1)]


def test_a_complete_gang_is_one_job() -> None:
    pods = [loose(f"a-{number}") for number in range(3)]
    assert decide(pods, [], Demand(3, 3)) == [Submit(tuple(pods), 3, 3)]


def test_a_job_leaves_room_for_workers_that_come_when_their_leader_is_ready() -> None:
    leader = loose("a-0")
    assert decide([leader], [], Demand(1, 4)) == [Submit((leader,), 4, 1)]
    running = Allocation(7, 4, ("n1", "n2", "n3", "n4"))
    there = [bound("a-0", 7, "n1"), loose("a-1"), loose("a-2")]
    assert seats(decide(there, [running], Demand(1, 4))) == [("a-1", 7, "n2"), ("a-2", 7, "n3")]


def test_weakness_18_ranks_follow_the_order_of_slurm() -> None:
    pods = [loose(f"a-{number}") for number in (10, 2, 1)]
    (step,) = decide(pods, [Allocation(7, 3, ("n5", "n6", "n4"))], Demand(3, 3))
    assert seats([step]) == [("a-1", 7, "n5"), ("a-2", 7, "n6"), ("a-10", 7, "n4")]
    assert isinstance(step, Bind)
    assert step.together


def test_weakness_17_a_replaced_member_joins_its_running_gang() -> None:
    job = Allocation(7, 3, ("n1", "n2", "n3"))
    pods = [bound("a-0", 7, "n1"), loose("a-1"), bound("a-2", 7, "n3")]
    (step,) = decide(pods, [job], Demand(3, 3))
    assert seats([step]) == [("a-1", 7, "n2")]
    assert isinstance(step, Bind)
    assert not step.together


def test_a_leaving_member_keeps_its_slot_until_it_is_gone() -> None:
    job = Allocation(7, 2, ("n1", "n2"))
    pods = [bound("a-0", 7, "n1"), leaving(bound("a-1", 7, "n2")), loose("a-1b")]
    steps = decide(pods, [job], Demand(2, 2))
    assert seats(steps) == []


def test_weakness_17_finished_members_do_not_count_as_there() -> None:
    pods = [bound("a-0", 6, "n1", phase="Failed"), loose("a-1")]
    assert decide(pods, [], Demand(2, 2)) == [Gather(1, 2, 0)]


def test_several_pods_of_a_gang_share_a_node_where_slurm_says_so() -> None:
    job = Allocation(7, 3, ("n1", "n1", "n2"))
    pods = [bound("a-0", 7, "n1"), loose("a-1"), loose("a-2")]
    assert seats(decide(pods, [job], Demand(3, 3))) == [("a-1", 7, "n1"), ("a-2", 7, "n2")]


def test_a_pod_beyond_the_gang_gets_a_job_of_its_own() -> None:
    pods = [bound("a-0", 7, "n1"), bound("a-1", 7, "n2"), loose("a-2")]
    job = Allocation(7, 2, ("n1", "n2"))
    assert decide(pods, [job], Demand(2, 2)) == [Submit((pods[2],), 1, 1)]


def test_a_waiting_job_is_taken_back_when_its_gang_falls_apart() -> None:
    (step,) = decide([loose("a-0")], [Allocation(7, 2)], Demand(2, 2))
    assert isinstance(step, Cancel)


def test_a_waiting_job_that_became_too_large_is_taken_back() -> None:
    steps = decide([loose("a-0"), loose("a-1")], [Allocation(7, 3)], Demand(2, 2))
    assert [type(step) for step in steps] == [Cancel]


def test_nothing_is_decided_twice() -> None:
    pods = [loose(f"a-{number}") for number in range(3)]
    assert decide(pods, [Allocation(7, 3)], Demand(3, 3)) == [Queue(7, tuple(pods))]


# Heterogeneous jobs

LEADER, WORKER = role_of(loose("l")), role_of(loose("w", node_selector={"kind": "gpu"}))


def leader(name: str = "l") -> Pod:
    return loose(name)


def worker(name: str) -> Pod:
    return loose(name, node_selector={"kind": "gpu"})


def component(job_id: int, role: str, *pods: str, nodes: tuple[str, ...] = ()) -> Allocation:
    """Make a component of job 7 that was submitted for these pods."""
    uids, keys = frozenset(f"uid-{name}" for name in pods), frozenset(f"ns/{name}" for name in pods)
    return Allocation(job_id, len(pods), nodes, uids, 7, role, keys)


def test_pods_take_the_slots_of_their_own_component() -> None:
    jobs = [component(7, LEADER, "z", nodes=("n9",)), component(8, WORKER, "a", "b", nodes=("n1", "n2"))]
    (step,) = decide([worker("a"), worker("b"), leader("z")], jobs, Demand(3, 3))
    assert seats([step]) == [("z", 7, "n9"), ("a", 8, "n1"), ("b", 8, "n2")]
    assert isinstance(step, Bind)
    assert step.together


def test_a_heterogeneous_job_starts_when_all_its_components_have() -> None:
    jobs = [component(7, LEADER, "l", nodes=("n9",)), component(8, WORKER, "a")]
    pods = [leader(), worker("a")]
    assert decide(pods, jobs, Demand(2, 2)) == [Queue(7, (pods[0],)), Queue(8, (pods[1],))]


def test_a_replaced_pod_takes_the_slot_of_its_role() -> None:
    jobs = [component(7, LEADER, "l", nodes=("n9",)), component(8, WORKER, "a", "b", nodes=("n1", "n2"))]
    pods = [bound("l", 7, "n9"), bound("a", 8, "n1"), worker("new")]
    assert seats(decide(pods, jobs, Demand(3, 3))) == [("new", 8, "n2")]


def test_a_pod_of_another_role_gets_a_job_of_its_own() -> None:
    jobs = [component(7, LEADER, "l", nodes=("n9",)), component(8, WORKER, "a", nodes=("n1",))]
    pods = [bound("a", 8, "n1"), bound("l", 7, "n9"), leader("l2")]
    assert decide(pods, jobs, Demand(2, 2)) == [Submit((pods[2],), 1, 1)]


def test_components_of_one_role_keep_the_pods_they_were_made_for() -> None:
    """Their volumes are on different nodes, and a pod that is made anew has the name of the old one."""
    jobs = [component(7, LEADER, "p-0", nodes=("n1",)), component(8, LEADER, "p-1", nodes=("n2",))]
    again = Pod(ObjectMeta(name="p-1", namespace="ns", uid="uid-of-another"), PodSpec())
    assert seats(decide([again], jobs, Demand(1, 2))) == [("p-1", 8, "n2")]
    assert seats(decide([again, bound("p-0", 7, "n1")], jobs, Demand(1, 2))) == [("p-1", 8, "n2")]


def test_a_heterogeneous_job_is_taken_back_as_a_whole() -> None:
    jobs = [component(7, LEADER, "l"), component(8, WORKER, "a", "b")]
    assert decide([leader()], jobs, Demand(3, 3)) == [Cancel(7, "pods of its gang are gone")]
    assert decide([], jobs, Demand(0, 0)) == [Cancel(7, "no pod is left for it")]
    (step,) = decide([leader(), worker("a")], jobs, Demand(2, 2))
    assert step == Cancel(7, "it is larger than its gang is now")


def job(nodes: str, *shares: tuple[str, int], each: int = 1) -> Job:
    allocation = tuple(AllocatedNode(name, SharedCpus(count=cpus)) for name, cpus in shares)
    return Job(
        7,
        nodes=nodes,
        cpus_per_task=Number.of(each),
        resources=JobResources(nodes=AllocatedNodes(allocation=allocation)),
    )


def test_each_pod_has_a_node_of_its_own_unless_packed() -> None:
    assert slot_nodes(job("n[3-4],n1", ("n3", 4), ("n4", 4), ("n1", 4)), 3, packed=False) == ("n3", "n4", "n1")


def test_packed_pods_share_nodes_as_slurm_divided_them() -> None:
    assert slot_nodes(job("n[1-2]", ("n1", 4), ("n2", 2), each=2), 3, packed=True) == ("n1", "n1", "n2")


def test_a_slot_on_a_node_that_cannot_be_used_stays_free_and_its_pod_gets_a_further_job() -> None:
    pods = [bound("a", 7, "n1"), bound("b", 7, "n2"), loose("c")]
    job = Allocation(7, 3, ("n1", "n2", "n3"))
    assert seats(decide(pods, [job], Demand(3, 3))) == [("c", 7, "n3")]
    assert decide(pods, [job], Demand(3, 3), avoided={"n3"}) == [Submit((pods[2],), 1, 1)]
    waiting = Allocation(8, 1)
    assert decide(pods, [job, waiting], Demand(3, 3), avoided={"n3"}) == [Queue(8, (pods[2],))]


def test_a_job_whose_pods_are_all_gone_is_deserted() -> None:
    job = Allocation(7, 2, ("n1", "n2"), frozenset({"uid-a", "uid-b"}))
    assert not is_deserted(job, [loose("a")]), "it was made for this pod"
    assert not is_deserted(job, [bound("c", 7, "n1")]), "this one joined"
    assert not is_deserted(job, [leaving(bound("a", 7, "n1")), loose("c")]), "it uses its node to the end"
    assert is_deserted(job, [loose("c")])
    assert is_deserted(job, [bound("a", 7, "n1", phase="Failed"), loose("c")])
    assert is_deserted(job, [bound("c", 8, "n1")])
    assert not is_deserted(Allocation(7, 2), [loose("c")]), "it waits, and takes nothing from anybody"
