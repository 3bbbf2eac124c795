"""Which pods are restarted because their nodes do not come into service, and how many at a time."""

import msgspec
import pytest

from isthmus.domain.operator.nodeset.repair import registration, to_repair
from isthmus.domain.operator.nodeset.view import PodView, Registration
from isthmus.model.meta import Condition
from isthmus.model.pod import Pod
from tests.unit.domain.operator.nodeset.views import NOW, nodeset, pod, view

HEALTHY = tuple(map(pod, range(1, 8)))


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (pod(0, known=False, age=61), "does not know"),
        (pod(0, "DOWN", "NOT_RESPONDING", reason="Not responding", since=121), "is down in Slurm"),
        (pod(0, "DOWN", reason="slurm-operator: Pod is terminating", since=121), "is down in Slurm"),
        (pod(0, "IDLE", "DRAIN", "INVALID_REG", reason="Low RealMemory", ready=False, age=61), "Low RealMemory"),
    ],
    ids=["forgotten", "given up", "left behind", "of another shape"],
)
def test_a_stuck_node_gets_a_new_pod(there: PodView, why: str) -> None:
    assert why in to_repair(view(there, *HEALTHY), ()).pods["worker-0"]


@pytest.mark.parametrize(
    "there",
    [
        pod(0, known=False, age=59),
        pod(0, known=False, ready=False),
        pod(0, "DOWN", reason="Not responding", since=60),
        pod(0, "DOWN", reason="Not responding", since=500, ready=False),
        pod(0, "DOWN", reason="ticket 4711", since=500),
        pod(0, "IDLE", "DRAIN", reason="ticket 4711", since=500),
        pod(0, "MIXED", "INVALID_REG", since=500),
        pod(0, "IDLE", "NOT_RESPONDING"),
    ],
    ids=[
        "about to register",
        "starting",
        "down for a moment",
        "slurmd is away",
        "down by a person",
        "drained by a person",
        "runs a job",
        "about to answer",
    ],
)
def test_others_are_left_alone(there: PodView) -> None:
    """W14: a node that a person has set down stays down."""
    assert to_repair(view(there, *HEALTHY), ()).pods == {}


def test_a_few_at_a_time() -> None:
    lost = [pod(n, known=False) for n in range(4)]
    kept = [pod(n) for n in range(4, 8)]
    assert list(to_repair(view(*lost, *kept), ()).pods) == ["worker-0", "worker-1"]


def test_the_next_ones_wait_until_the_first_are_back() -> None:
    lost = [pod(0, known=False), pod(1, known=False, leaving=True), pod(2, known=False, ready=False, age=5)]
    assert to_repair(view(*lost, *(pod(n) for n in range(3, 8))), ()).pods == {}


def test_an_update_uses_the_same_budget() -> None:
    assert to_repair(view(pod(0, known=False), *HEALTHY), {"worker-6", "worker-7"}).pods == {}


def test_when_slurm_knows_hardly_any_node_nothing_is_restarted() -> None:
    """W5: slurmctld has lost its state, and jobs may still run."""
    found = to_repair(view(*(pod(n, known=False) for n in range(3)), pod(3)), ())
    assert not found.pods
    assert "3 of 4" in found.complaint


def test_whether_slurm_has_lost_its_state_is_judged_over_the_whole_cluster() -> None:
    lonely = view(pod(0, known=False), elsewhere=Registration(settled=3, unknown=2))
    assert not to_repair(lonely, ()).pods
    assert "3 of 4" in to_repair(lonely, ()).complaint
    assert to_repair(lonely, ()).look_again == 10, "nobody tells of nodes that others get"
    # Where all others are known, it is this NodeSet that has trouble.
    troubled = view(*(pod(n, known=False) for n in range(3)), pod(3), elsewhere=Registration(settled=9))
    assert list(to_repair(troubled, ()).pods) == ["worker-0"]
    assert not to_repair(troubled, ()).complaint
    # A NodeSet that Slurm knows has nothing to complain of.
    assert not to_repair(view(pod(0), elsewhere=Registration(settled=3, unknown=3)), ()).complaint


def test_of_other_nodesets_those_count_that_should_have_registered() -> None:
    ready = Condition(type="Ready", status="True")

    def status(it: PodView, *, ready_: bool = True) -> Pod:
        held = (ready,) if ready_ else ()
        return msgspec.structs.replace(it.pod, status=msgspec.structs.replace(it.pod.status, conditions=held))

    pods = [
        status(pod(0)),
        status(pod(1)),
        status(pod(2), ready_=False),
        status(pod(3, age=59)),
        status(pod(4, leaving=True)),
        status(pod(5, bound=False)),
        status(pod(6, phase="Failed")),
    ]
    assert registration(pods, known={"worker-0"}, now=NOW) == Registration(settled=3, unknown=1)


def test_a_lonely_node_is_restarted() -> None:
    assert list(to_repair(view(pod(0, known=False)), ()).pods) == ["worker-0"]


def test_nothing_is_restarted_without_slurm_or_on_the_way_out() -> None:
    assert not to_repair(view(pod(0, known=False), in_touch=False), ()).pods
    assert not to_repair(view(pod(0, known=False), of=nodeset(1, deleted=True)), ()).pods


def test_who_could_still_come_is_looked_at_again() -> None:
    assert to_repair(view(pod(0, known=False, age=20), *HEALTHY), ()).look_again == 40
    down = pod(0, "DOWN", reason="Not responding", since=100)
    assert to_repair(view(down, *HEALTHY), ()).look_again == 20
    assert to_repair(view(*HEALTHY), ()).look_again is None
