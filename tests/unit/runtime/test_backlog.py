"""The order and the cost of a backlog; its invariants are in tests/properties/test_queue.py."""

from isthmus.runtime.backlog import Backlog


def work_off(backlog: Backlog[str], now: float) -> list[str]:
    order = []
    while taken := backlog.take(now):
        order.append(taken[0])
        backlog.done(taken[0], now)
    return order


def test_keys_of_one_priority_come_in_the_order_of_their_adding() -> None:
    backlog: Backlog[str] = Backlog()
    for key in "cab":
        backlog.add(key, 0.0, due=0.0)
    backlog.add("c", 0.0, due=0.0)
    assert work_off(backlog, 0.0) == ["c", "a", "b"]


def test_higher_priority_overtakes_and_a_second_add_can_raise_it() -> None:
    backlog: Backlog[str] = Backlog()
    backlog.add("list", 0.0, due=0.0, priority=-100)
    backlog.add("another", 0.0, due=0.0, priority=-100)
    backlog.add("change", 0.0, due=0.0)
    backlog.add("another", 0.0, due=0.0, priority=1)
    assert work_off(backlog, 0.0) == ["another", "change", "list"]


def test_keys_become_ready_in_the_order_of_their_due_times() -> None:
    backlog: Backlog[str] = Backlog()
    backlog.add("late", 0.0, due=2.0)
    backlog.add("early", 0.0, due=1.0)
    assert backlog.take(0.5) is None
    assert backlog.next_due() == 1.0
    assert work_off(backlog, 3.0) == ["early", "late"]


def test_bringing_keys_forward_again_and_again_does_not_grow_the_heaps() -> None:
    backlog: Backlog[int] = Backlog()
    for round_ in range(200):
        for key in range(50):
            backlog.add(key, 0.0, due=1000.0 - round_, priority=round_)
    assert len(backlog) == 50
    assert len(backlog._later) <= 64 + 2 * 50 + 1
    for priority in range(200, 400):
        for key in range(50):
            backlog.add(key, 0.0, due=0.0, priority=priority)
    assert backlog.ready_count(0.0) == 50
    assert len(backlog._ready) <= 64 + 2 * 50 + 1
