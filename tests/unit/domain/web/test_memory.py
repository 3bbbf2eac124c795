"""What is remembered is bounded: steps of jobs and nodes, samples of the past; and who is who in Slurm."""

import pytest

from isthmus.domain.web.history import LEVELS, SERIES, History
from isthmus.domain.web.identity import slurm_user
from isthmus.domain.web.trails import Step, Trails


def test_a_step_that_says_the_same_is_not_kept_twice() -> None:
    trails = Trails[int]()
    assert trails.note(1, Step(1.0, "waiting", "Priority"))
    assert not trails.note(1, Step(2.0, "waiting", "Priority"))
    assert trails.note(1, Step(3.0, "waiting", "Resources"))
    assert [it.at for it in trails.of(1)] == [1.0, 3.0]


def test_of_many_steps_the_first_and_the_latest_stay() -> None:
    trails = Trails[int](max_steps=4)
    for second in range(10):
        trails.note(1, Step(float(second), str(second)))
    assert [it.at for it in trails.of(1)] == [0.0, 7.0, 8.0, 9.0]


def test_of_many_keys_the_longest_unchanged_are_forgotten() -> None:
    trails = Trails[str](max_keys=2)
    for key in ("a", "b"):
        trails.note(key, Step(1.0, "idle"))
    trails.note("a", Step(2.0, "down"))
    trails.note("c", Step(3.0, "idle"))
    assert (len(trails), trails.of("b"), len(trails.of("a"))) == (2, (), 2)


def test_history_keeps_less_of_what_is_longer_ago() -> None:
    history = History()
    for second in range(0, 8 * 3600, 10):
        history.add(float(second), (second,) * len(SERIES))
    hour, day, fortnight = (history.columns(level) for level in range(3))
    assert [len(it[0]) for it in (hour, day, fortnight)] == [360, 480, 32]
    assert all(len(it) == len(SERIES) + 1 for it in (hour, day, fortnight))
    assert hour[0][-1] - hour[0][0] == 3590
    assert day[1][0] == 50  # the last sample of the first minute
    assert all(len(it[0]) <= count for it, (_, count) in zip((hour, day, fortnight), LEVELS, strict=True))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("alice", "alice"),
        ("oidc:ann", ""),
        ("root", ""),
        ("slurm", ""),
        ("system:serviceaccount:default:robot", ""),
        ("system:admin", ""),
        ("Alice", ""),
        ("a b", ""),
        ("alice\n", ""),
        ("", ""),
        ("boss", "root"),
        ("broken", ""),
    ],
)
def test_nobody_becomes_somebody_by_a_name(name: str, expected: str) -> None:
    assert slurm_user(name, table={"boss": "root", "broken": "no such; name"}) == expected


def test_a_prefix_is_asked_for_and_taken_off() -> None:
    assert slurm_user("oidc:ann", table={}, prefix="oidc:") == "ann"
    assert slurm_user("ann", table={}, prefix="oidc:") == ""
    assert slurm_user("oidc:root", table={}, prefix="oidc:") == ""
