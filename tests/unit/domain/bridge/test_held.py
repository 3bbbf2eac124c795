from isthmus.domain.bridge.held import PATIENCE, Held


def test_more_counts_at_once_and_less_after_a_while() -> None:
    held = Held()
    assert held.settle("n", {"cpu": 300}, now=0) == ({"cpu": 300}, 0)
    assert held.settle("n", {"cpu": 500}, now=1) == ({"cpu": 500}, 0)
    assert held.settle("n", {"cpu": 300}, now=2) == ({"cpu": 500}, PATIENCE)
    assert held.settle("n", {"cpu": 300}, now=12) == ({"cpu": 500}, PATIENCE - 10)
    assert held.settle("n", {"cpu": 300}, now=2 + PATIENCE) == ({"cpu": 300}, 0)


def test_a_gap_between_a_pod_and_the_one_that_replaces_it_is_not_seen() -> None:
    held = Held()
    held.settle("n", {"cpu": 2000, "memory": 10}, now=0)
    assert held.settle("n", {}, now=100)[0] == {"cpu": 2000, "memory": 10}
    assert held.settle("n", {"cpu": 2000, "memory": 10}, now=105) == ({"cpu": 2000, "memory": 10}, 0)
    assert held.settle("n", {}, now=100 + PATIENCE)[0] == {"cpu": 2000, "memory": 10}


def test_more_of_one_counts_while_less_of_another_does_not() -> None:
    held = Held()
    held.settle("n", {"cpu": 2000, "memory": 10}, now=0)
    assert held.settle("n", {"cpu": 1000, "memory": 20}, now=1)[0] == {"cpu": 2000, "memory": 20}


def test_a_node_that_went_and_came_back_is_a_new_one() -> None:
    held = Held()
    held.settle("n", {"cpu": 2000}, now=0)
    held.forget("n")
    assert held.settle("n", {}, now=1) == ({}, 0)
