"""What elastic nodes cost, and how long they take."""

from isthmus.domain.elastic.decision import PodState, Slot
from isthmus.domain.elastic.ledger import PowerLedger, Start
from isthmus.model.slurm import Node


def slot(ordinal: int, *states: str, pod: PodState = "none", placed: bool = False) -> Slot:
    record = Node(name=f"w-{ordinal}", state=(*states, "CLOUD"))
    return Slot(ordinal=ordinal, name=record.name, record=record, pod=pod, placed=placed)


OFF = slot(0, "IDLE", "POWERED_DOWN")
STARTING = slot(0, "ALLOCATED", "POWERING_UP")
IDLE = slot(0, "IDLE", pod="ready", placed=True)
BUSY = slot(0, "ALLOCATED", pod="ready", placed=True)
STOPPING = slot(0, "IDLE", "POWERING_DOWN", pod="ready", placed=True)


def test_a_start_is_split_into_its_steps() -> None:
    ledger = PowerLedger()
    placed = slot(0, "ALLOCATED", "POWERING_UP", pod="pending", placed=True)
    running = slot(0, "ALLOCATED", "POWERING_UP", pod="running", placed=True)
    for at, seen in ((0, OFF), (10, STARTING), (15, placed), (17, placed), (22, running)):
        assert ledger.look([seen], now=at).starts == ()
    assert ledger.look([BUSY], now=23).starts == (Start(5, 7, 1),)
    assert ledger.look([BUSY], now=24).starts == ()


def test_steps_that_nobody_saw_take_no_time() -> None:
    ledger = PowerLedger()
    ledger.look([OFF], now=0)
    ledger.look([STARTING], now=1)
    assert ledger.look([BUSY], now=4).starts == (Start(3, 0, 0),)


def test_what_began_before_the_first_look_is_neither_timed_nor_called_unused() -> None:
    for first in (STARTING, IDLE):
        ledger = PowerLedger()
        assert ledger.look([first], now=0).seconds == {}
        assert ledger.look([IDLE], now=5).starts == ()
        assert ledger.look([STOPPING], now=9).unused == 0


def test_a_node_that_had_no_job_was_started_for_nothing() -> None:
    lives = (((STARTING, IDLE, STOPPING), 1), ((STARTING, OFF), 1), ((STARTING, BUSY, IDLE, STOPPING), 0))
    for seen, unused in lives:
        ledger = PowerLedger()
        ledger.look([OFF], now=0)
        assert sum(ledger.look([it], now=at).unused for at, it in enumerate(seen, start=1)) == unused
        # It is told once.
        assert ledger.look([OFF], now=9).unused == 0


def test_time_is_counted_by_what_nodes_did_until_the_look() -> None:
    ledger = PowerLedger()
    other = slot(1, "ALLOCATED")
    ledger.look([OFF, other], now=0)
    assert ledger.look([STARTING, other], now=10).seconds == {"busy": 10}
    assert ledger.look([IDLE, other], now=13).seconds == {"busy": 3, "starting": 3}
    assert ledger.look([STOPPING, other], now=15).seconds == {"busy": 2, "idle": 2}
    assert ledger.look([OFF, OFF], now=16).seconds == {"busy": 1, "stopping": 1}
    assert ledger.look([OFF], now=100).seconds == {}


def test_there_is_something_to_count_while_a_node_is_not_off() -> None:
    ledger = PowerLedger()
    counts = []
    for at, it in enumerate((OFF, STARTING, BUSY, STOPPING, OFF)):
        ledger.look([it], now=at)
        counts.append(ledger.counts_on)
    assert counts == [False, True, True, True, False]


def test_a_clock_that_stands_still_adds_nothing() -> None:
    ledger = PowerLedger()
    ledger.look([BUSY], now=5)
    assert ledger.look([BUSY], now=5).seconds == {"busy": 0}
    assert ledger.look([BUSY], now=4).seconds == {"busy": 0}


def test_a_node_that_slurm_does_not_know_for_a_moment_goes_on() -> None:
    ledger = PowerLedger()
    ledger.look([OFF], now=0)
    ledger.look([STARTING], now=1)
    ledger.look([Slot(ordinal=0, name="w-0")], now=2)
    assert len(ledger.look([BUSY], now=3).starts) == 1
