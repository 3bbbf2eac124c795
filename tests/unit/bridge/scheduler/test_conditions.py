"""Whose turn it is to be told why it waits."""

from isthmus.bridge.scheduler.conditions import Turns


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_of_thousands_each_is_told_when_it_comes_back_at_its_turn() -> None:
    clock = Clock()
    turns = Turns(clock=clock)
    pauses = {str(number): turns.wait(str(number)) for number in range(1000)}
    at_once = [uid for uid, pause in pauses.items() if not pause]
    assert len(at_once) == 100
    began = clock.now
    for uid, pause in pauses.items():
        if pause:
            clock.now = began + pause + 1e-6
            assert turns.wait(uid) == 0.0
    assert round(clock.now - began, 3) == 112.5  # 900 at 8 a second
    assert not len(turns)


def test_who_comes_too_early_keeps_its_turn() -> None:
    clock = Clock()
    turns = Turns(clock=clock)
    for number in range(100):
        turns.wait(str(number))
    pause = turns.wait("late")
    clock.now += pause / 2
    assert 0 < turns.wait("late") < pause
    clock.now += pause
    assert turns.wait("late") == 0.0


def test_turns_that_nobody_comes_for_are_forgotten() -> None:
    clock = Clock()
    turns = Turns(clock=clock)
    for number in range(200):
        turns.wait(str(number))
    assert len(turns) == 100
    clock.now += 100
    assert turns.wait("another") == 0.0
    assert not len(turns)
