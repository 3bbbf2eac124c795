"""Who goes first when there are too many, and that a choice is kept."""

from datetime import UTC, datetime, timedelta

import pytest

from isthmus import names
from isthmus.domain.operator.nodeset.victims import deletion_cost, in_order, victims
from isthmus.domain.operator.nodeset.view import PodView
from tests.unit.domain.operator.nodeset.views import GOING, NOW, kube_node, nodeset, pod, view

COST = names.POD_DELETION_COST_ANNOTATION
LATER = (NOW + timedelta(hours=1)).isoformat()
SOONER = (NOW + timedelta(minutes=1)).isoformat()
DEADLINE = names.POD_DEADLINE_ANNOTATION


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pod(0, bound=False, phase="Pending"), pod(1)),
        (pod(0, phase="Pending", ready=False), pod(1, ready=False)),
        (pod(0, ready=False), pod(1)),
        (pod(0, annotations={COST: "-5"}), pod(1)),
        (pod(0), pod(1, annotations={COST: "3"})),
        (pod(0), pod(1, "ALLOCATED")),
        (pod(0, "MIXED", annotations={DEADLINE: SOONER}), pod(1, "MIXED", annotations={DEADLINE: LATER})),
        (pod(0, "MIXED", annotations={DEADLINE: SOONER}), pod(1, "MIXED")),
        (pod(0, kube=kube_node(cordoned=True)), pod(1)),
        (pod(0, annotations={names.POD_CORDON_ANNOTATION: "true"}), pod(1)),
        (pod(1), pod(0)),
        (pod(10), pod(9)),
    ],
    ids=[
        "no node yet",
        "pending",
        "not ready",
        "cheap",
        "not dear",
        "idle",
        "ends sooner",
        "end is known",
        "cordoned node",
        "cordoned pod",
        "higher ordinal",
        "ordinals are numbers",
    ],
)
def test_the_first_goes_before_the_second(first: PodView, second: PodView) -> None:
    assert in_order([second, first], ()) == [first, second]
    assert in_order([first, second], ()) == [first, second]


def test_ends_that_were_just_read_count() -> None:
    one, other = pod(0, "ALLOCATED"), pod(1, "ALLOCATED")
    ends = {"worker-0": datetime(2027, 1, 1, tzinfo=UTC), "worker-1": datetime(2028, 1, 1, tzinfo=UTC)}
    assert in_order([other, one], (), ends) == [one, other]


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("7", 7),
        ("-3", -3),
        ("0", 0),
        ("+10", 0),
        ("008", 0),
        ("1.5", 0),
        ("9999999999", 0),
        ("-0", 0),
        ("", 0),
        ("٣", 0),
    ],
)
def test_a_cost_is_a_plain_number(text: str, cost: int) -> None:
    assert deletion_cost(pod(0, annotations={COST: text})) == cost


def test_as_many_go_as_are_too_many() -> None:
    assert victims(view(*map(pod, range(5)), of=nodeset(3))) == ("worker-4", "worker-3")
    assert victims(view(*map(pod, range(3)), of=nodeset(3))) == ()
    assert victims(view(*map(pod, range(3)), of=nodeset(5))) == ()


def test_a_choice_is_kept_while_jobs_move() -> None:
    """W18: the chosen one got busy last, and still goes."""
    pods = (pod(0), pod(1, "ALLOCATED"), pod(2))
    assert victims(view(*pods, of=nodeset(2, victims=["worker-1"]))) == ("worker-1",)


def test_a_choice_is_known_by_the_drain_where_the_status_was_lost() -> None:
    pods = (pod(0), pod(1, "MIXED", "DRAIN", reason=GOING), pod(2))
    assert victims(view(*pods, of=nodeset(2))) == ("worker-1",)


def test_who_is_wanted_again_is_the_one_who_costs_most() -> None:
    pods = (pod(0), pod(1, "MIXED", "DRAIN", reason=GOING), pod(2, "IDLE", "DRAIN", reason=GOING))
    assert victims(view(*pods, of=nodeset(2, victims=["worker-1", "worker-2"]))) == ("worker-2",)


def test_nobody_is_chosen_before_slurm_has_said_who_is_busy() -> None:
    """Who has just started knows of no job, and a choice is kept."""
    pods = [pod(n, known=False) for n in range(3)]
    assert victims(view(*pods, of=nodeset(2), in_touch=False)) == ()
    assert victims(view(*pods, of=nodeset(2, victims=["worker-1"]), in_touch=False)) == ("worker-1",)
    assert victims(view(*pods, of=nodeset(0), in_touch=False)) == ("worker-2", "worker-1", "worker-0")
    waiting = pod(3, bound=False, phase="Pending", known=False)
    assert victims(view(*pods, waiting, of=nodeset(2), in_touch=False)) == ("worker-3",)


def test_pods_that_leave_do_not_count() -> None:
    assert victims(view(pod(0), pod(1), pod(2, leaving=True), of=nodeset(2))) == ()


def test_pods_without_a_place_do_not_count() -> None:
    assert victims(view(pod(0), pod(1), pod(2), of=nodeset(2), unwanted=frozenset({"worker-0"}))) == ()


def test_daemons_are_not_counted() -> None:
    assert victims(view(pod(0), pod(1), of=nodeset(1, scalingMode="DaemonSet"))) == ()
