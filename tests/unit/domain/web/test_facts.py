from isthmus.domain.web import facts
from isthmus.domain.web.trails import Step
from isthmus.model.meta import ObjectMeta
from isthmus.model.node import Node as KubeNode
from isthmus.model.slurm import Job, Node, Number


def test_steps_of_a_job_are_in_order_and_none_is_before_its_submission() -> None:
    job = Job(
        job_id=1,
        job_state=("RUNNING",),
        submit_time=Number.of(100),
        eligible_time=Number.of(100),
        start_time=Number.of(130),
        nodes="n1",
    )
    seen = (Step(90, "waiting", "Priority"), Step(120, "waiting", "Resources"), Step(131, "running"))
    assert [(it.at, it.state, it.why) for it in facts.job_steps(job, seen)] == [
        (100, "submitted", ""),
        (100, "eligible", ""),
        (100, "waiting", "Priority"),
        (120, "waiting", "Resources"),
        (130, "started", "n1"),
    ]


def test_a_node_has_the_facts_of_both_sides_and_no_empty_ones() -> None:
    found = facts.node_facts(Node(name="n1", state=("IDLE", "DRAIN")), KubeNode(metadata=ObjectMeta(name="k1")))
    assert found == {"Slurm state": "IDLE+DRAIN", "Kubernetes node": "k1"}
    assert facts.node_facts(None, None) == {}
