import pytest

from isthmus.domain.bridge import jobstates
from isthmus.domain.bridge.jobstates import Phase
from isthmus.model.slurm import ENDED, States


@pytest.mark.parametrize(
    ("states", "phase"),
    [
        (("PENDING",), Phase.WAITING),
        (("PENDING", "REQUEUED"), Phase.WAITING),
        (("PENDING", "COMPLETING"), Phase.WAITING),
        (("PENDING", "REQUEUE_HOLD"), Phase.WAITING),
        (("RUNNING",), Phase.RUNNING),
        (("RUNNING", "CONFIGURING"), Phase.RUNNING),
        (("RUNNING", "RESIZING"), Phase.RUNNING),
        (("RUNNING", "STOPPED"), Phase.SUSPENDED),
        (("SUSPENDED",), Phase.SUSPENDED),
        (("RUNNING", "COMPLETING"), Phase.ENDING),
        (("CANCELLED", "COMPLETING"), Phase.ENDING),
        (("COMPLETED", "STAGE_OUT"), Phase.ENDING),
        (("TIMEOUT",), Phase.ENDED),
        (("HIBERNATING",), Phase.UNKNOWN),
        ((), Phase.UNKNOWN),
    ],
)
def test_a_state_and_its_flags_make_a_phase(states: States, phase: Phase) -> None:
    assert jobstates.phase(states) is phase


@pytest.mark.parametrize("state", sorted(ENDED))
def test_weakness_13_every_end_is_an_end(state: str) -> None:
    assert jobstates.phase((state,)) is Phase.ENDED
    assert not jobstates.living((state,))
    end = jobstates.end((state,))
    assert end.reason.startswith("SlurmJob")
    assert end.text


def test_every_end_has_words_of_its_own() -> None:
    ends = [jobstates.end((state,)) for state in ENDED]
    assert len({end.reason for end in ends}) == len({end.text for end in ends}) == len(ENDED)


@pytest.mark.parametrize(
    "states", [("PENDING",), ("RUNNING",), ("SUSPENDED",), ("RUNNING", "CONFIGURING"), ("NEW",)]
)
def test_what_is_not_over_lives(states: States) -> None:
    assert jobstates.living(states)


def test_only_nodes_that_can_be_used_now_count_as_running() -> None:
    assert jobstates.running(("RUNNING",))
    assert not jobstates.running(("RUNNING", "CONFIGURING"))
    assert not jobstates.running(("RUNNING", "POWER_UP_NODE"))
    assert not jobstates.running(("SUSPENDED",))
    assert not jobstates.running(("COMPLETED",))
