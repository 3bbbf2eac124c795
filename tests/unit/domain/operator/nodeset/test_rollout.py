"""Which old pods make way for new ones, and that never too many are away."""

import pytest

from isthmus.domain.operator.nodeset.rollout import budget, max_unavailable, to_update
from isthmus.domain.operator.nodeset.view import View
from isthmus.model.slinky import NodeSet
from tests.unit.domain.operator.nodeset.views import NEW, OLD, nodeset, pod, view

UPDATING = "slurm-operator: Pod (slurm/worker-0) is pending termination for update"


def rolling(replicas: int, limit: int | str = "25%") -> NodeSet:
    return nodeset(replicas, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": limit}})


@pytest.mark.parametrize(
    ("setting", "total", "limit"),
    [("25%", 4, 1), ("25%", 5, 2), ("25%", 1, 1), ("100%", 7, 7), (3, 10, 3), (0, 10, 1), ("2", 9, 2), ("x", 9, 1)],
)
def test_parts_of_all_round_up(setting: int | str, total: int, limit: int) -> None:
    assert max_unavailable(setting, total) == limit


def test_as_many_go_as_may_be_away_idle_ones_first() -> None:
    old = [pod(n, "ALLOCATED" if n % 2 else "IDLE", hash_=OLD) for n in range(8)]
    assert to_update(view(*old, of=rolling(8))) == ("worker-6", "worker-4")


def test_nobody_goes_while_new_pods_are_not_available() -> None:
    """A bad image stops the update by itself, and drains nothing more."""
    pods = [pod(0, hash_=NEW, ready=False, known=False), *(pod(n, hash_=OLD) for n in range(1, 4))]
    assert to_update(view(*pods, of=rolling(4))) == ()


def test_nobody_goes_while_a_place_is_empty() -> None:
    assert to_update(view(*(pod(n, hash_=OLD) for n in range(3)), of=rolling(4))) == ()


def test_nobody_goes_while_one_leaves() -> None:
    pods = [pod(0, hash_=OLD, leaving=True), *(pod(n, hash_=OLD) for n in range(1, 4))]
    assert to_update(view(*pods, of=rolling(4))) == ()


def test_who_was_chosen_stays_chosen_and_counts() -> None:
    pods = [pod(0, "MIXED", "DRAIN", reason=UPDATING, hash_=OLD), *(pod(n, hash_=OLD) for n in range(1, 4))]
    assert to_update(view(*pods, of=rolling(4))) == ("worker-0",)


def test_who_was_chosen_before_the_drain_shows_counts() -> None:
    pods = [pod(n, hash_=OLD) for n in range(4)]
    of = nodeset(4, victims=["worker-0"])
    assert to_update(view(*pods, of=of)) == ("worker-0",)


def test_nobody_goes_before_slurm_has_said_who_is_busy() -> None:
    pods = [pod(n, hash_=OLD, known=False) for n in range(4)]
    assert to_update(view(*pods, of=rolling(4), in_touch=False)) == ()


def test_broken_pods_are_replaced_before_healthy_ones() -> None:
    pods = [pod(0, hash_=OLD, ready=False, known=False), *(pod(n, hash_=OLD) for n in range(1, 8))]
    assert to_update(view(*pods, of=rolling(8))) == ("worker-0", "worker-7")


def test_broken_pods_go_no_faster_than_healthy_ones() -> None:
    """When readiness is lost everywhere for a moment, not everything is replaced."""
    assert len(to_update(view(*(pod(n, hash_=OLD, ready=False) for n in range(8)), of=rolling(8)))) == 2


def test_a_bad_specification_is_taken_back() -> None:
    """Pods of the bad one are old now, and make way though they use up what may be away."""
    pods = [pod(0, hash_=OLD, ready=False, known=False), pod(1), pod(2), pod(3)]
    assert to_update(view(*pods, of=rolling(4))) == ("worker-0",)


def test_a_pod_that_is_not_ready_but_runs_jobs_is_not_broken() -> None:
    pods = [pod(0, "ALLOCATED", hash_=OLD, ready=False), *(pod(n, hash_=OLD) for n in range(1, 4))]
    assert to_update(view(*pods, of=rolling(4))) == ()


def test_pods_that_go_for_good_are_left_to_that() -> None:
    pods = [pod(n, hash_=OLD) for n in range(5)]
    assert to_update(view(*pods, of=rolling(4)), {"worker-4"}) == ("worker-3",)


def test_nothing_is_updated_that_is_new() -> None:
    assert to_update(view(*map(pod, range(4)))) == ()


def test_on_delete_waits_for_people() -> None:
    of = nodeset(2, updateStrategy={"type": "OnDelete"})
    assert to_update(view(pod(0, hash_=OLD), pod(1, hash_=OLD, ready=False), of=of)) == ()


def scheduled(*maintained: int, new: int = 0) -> View:
    resv = "SlurmOperatorMaint-worker"
    pods = [
        pod(n, *(("IDLE", "MAINTENANCE") if n in maintained else ("IDLE",)), reservation=resv, hash_=OLD)
        for n in range(new, 8)
    ]
    of = nodeset(
        8, updateStrategy={"type": "ScheduledUpdate", "scheduledUpdate": {"startTime": "2026-01-01T00:00:00Z"}}
    )
    return view(*map(pod, range(new)), *pods, of=of)


def test_a_scheduled_update_waits_for_its_reservation() -> None:
    assert to_update(scheduled()) == ()


def test_a_scheduled_update_begins_with_a_few() -> None:
    assert to_update(scheduled(1, 2, 3, 4)) == ("worker-4", "worker-3")


def test_a_scheduled_update_takes_all_once_a_new_pod_works() -> None:
    assert to_update(scheduled(*range(1, 8), new=1)) == tuple(f"worker-{n}" for n in range(7, 0, -1))


def test_maintenance_of_others_is_not_ours() -> None:
    of = nodeset(
        1, updateStrategy={"type": "ScheduledUpdate", "scheduledUpdate": {"startTime": "2026-01-01T00:00:00Z"}}
    )
    assert to_update(view(pod(0, "IDLE", "MAINTENANCE", reservation="other", hash_=OLD), of=of)) == ()


def test_who_is_away_is_counted_once() -> None:
    pods = (pod(0, ready=False), pod(1, "IDLE", "DRAIN", reason=UPDATING), pod(2, leaving=True), pod(3, hash_=OLD))
    found = budget(view(*pods, of=rolling(5, 2)))
    assert (found.limit, found.away, found.room) == (2, 4, 0)
