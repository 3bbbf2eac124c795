from isthmus import names
from isthmus.domain.bridge.ranks import rank
from isthmus.model.meta import ObjectMeta, OwnerReference
from isthmus.model.pod import Pod


def pod(name: str, owner: str = "", **labels: str) -> Pod:
    owners = (OwnerReference("apps/v1", "StatefulSet", owner, "u", controller=True),) if owner else ()
    spelled = {getattr(names, key): value for key, value in labels.items()}
    return Pod(ObjectMeta(name=name, namespace="ns", labels=spelled, owner_references=owners))


def ordered(*pods: Pod) -> list[str]:
    """Sort from both directions: the order must not depend on how the pods were found."""
    forwards, backwards = (sorted(found, key=rank) for found in (pods, pods[::-1]))
    assert forwards == backwards
    return [it.metadata.name for it in forwards]


def test_workers_of_a_leader_worker_set_are_ordered_by_their_index() -> None:
    pods = [pod(f"lws-0-{n}", LWS_WORKER_INDEX_LABEL=str(n)) for n in (10, 9, 1)]
    leader = pod("lws-0", LWS_WORKER_INDEX_LABEL="0")
    assert ordered(*pods, leader) == ["lws-0", "lws-0-1", "lws-0-9", "lws-0-10"]


def test_pods_of_a_jobset_are_ordered_by_job_and_then_by_completion_index() -> None:
    def member(job: int, index: int) -> Pod:
        return pod(
            f"js-{job}-{index}-x{index}",
            JOBSET_NAME_LABEL="js",
            JOBSET_JOB_INDEX_LABEL=str(job),
            JOB_NAME_LABEL=f"js-{'zyx'[job]}",
            JOB_INDEX_LABEL=str(index),
        )

    found = ordered(member(1, 0), member(0, 10), member(0, 2), member(2, 0))
    assert found == ["js-0-2-x2", "js-0-10-x10", "js-1-0-x0", "js-2-0-x0"]


def test_pods_of_an_indexed_job_are_ordered_by_index_whatever_their_random_names() -> None:
    found = ordered(*(pod(name, JOB_NAME_LABEL="j", JOB_INDEX_LABEL=n) for name, n in [("a", "10"), ("z", "2")]))
    assert found == ["z", "a"]


def test_pods_of_several_stateful_sets_stay_together() -> None:
    found = ordered(
        pod("worker-0", "worker", STATEFUL_INDEX_LABEL="0"),
        pod("ps-1", "ps", STATEFUL_INDEX_LABEL="1"),
        pod("worker-2", "worker", STATEFUL_INDEX_LABEL="2"),
        pod("worker-10", "worker", STATEFUL_INDEX_LABEL="10"),
    )
    assert found == ["ps-1", "worker-0", "worker-2", "worker-10"]


def test_other_pods_are_ordered_by_name_as_people_count() -> None:
    assert ordered(pod("m10"), pod("m9"), pod("m1")) == ["m1", "m9", "m10"]


def test_an_index_that_is_no_number_counts_as_the_first() -> None:
    assert ordered(pod("b", JOB_INDEX_LABEL="1"), pod("a", JOB_INDEX_LABEL="what")) == ["a", "b"]


def test_weakness_18_ranks_do_not_depend_on_chance() -> None:
    twins = [pod(name, JOB_NAME_LABEL="j", JOB_INDEX_LABEL="0") for name in ("j-0-b", "j-0-a")]
    assert ordered(*twins) == ["j-0-a", "j-0-b"]


def test_whoever_leads_comes_first() -> None:
    ray = ordered(
        pod("r-b-worker-1", RAY_NODE_TYPE_LABEL="worker", RAY_GROUP_LABEL="b"),
        pod("r-a-worker-9", RAY_NODE_TYPE_LABEL="worker", RAY_GROUP_LABEL="a"),
        pod("r-head", RAY_NODE_TYPE_LABEL="head", RAY_GROUP_LABEL="headgroup"),
    )
    assert ray == ["r-head", "r-a-worker-9", "r-b-worker-1"]
    training = ordered(
        pod("t-worker-10", TRAINING_JOB_LABEL="t", TRAINING_TYPE_LABEL="worker", TRAINING_INDEX_LABEL="10"),
        pod("t-worker-2", TRAINING_JOB_LABEL="t", TRAINING_TYPE_LABEL="worker", TRAINING_INDEX_LABEL="2"),
        pod("t-master-0", TRAINING_JOB_LABEL="t", TRAINING_ROLE_LABEL="master", TRAINING_TYPE_LABEL="master"),
    )
    assert training == ["t-master-0", "t-worker-2", "t-worker-10"]


def test_pods_of_a_volcano_job_are_ordered_by_task_and_index() -> None:
    found = ordered(
        *(
            pod(f"{task}-{n}", VOLCANO_JOB_LABEL="v", VOLCANO_TASK_LABEL=task, VOLCANO_INDEX_LABEL=str(n))
            for task, n in [("worker", 10), ("worker", 9), ("master", 0)]
        )
    )
    assert found == ["master-0", "worker-9", "worker-10"]
