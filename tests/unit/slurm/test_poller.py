"""How the poller keeps its books; whether Slurm behaves as it thinks is for the flows to say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.model.slurm import Job, Node, Number
from isthmus.slurm.poller import Poller
from isthmus.slurm.submission import base_id

PENDING, RUNNING = ("PENDING",), ("RUNNING",)


@pytest.fixture
def poller() -> Poller:
    return quiet_poller()


def quiet_poller() -> Poller:
    """A poller that asks nobody."""
    return Poller(None, clock=lambda: 0.0)  # type: ignore[arg-type] # books need no client


def test_a_job_that_leaves_the_queue_leaves_the_stores(poller: Poller) -> None:
    poller._take_states({"1": PENDING, "2": RUNNING})
    poller._take_records(1, [Job(job_id=1)])
    poller._take_records(2, [Job(job_id=2)])
    poller._take_states({"2": RUNNING})
    assert dict(poller.states) == {"2": RUNNING}
    assert set(poller.jobs) == {2}


def test_a_record_that_comes_after_its_job_has_left_is_dropped(poller: Poller) -> None:
    poller._take_states({"1": PENDING})
    poller._take_states({})
    poller._take_records(1, [Job(job_id=1)])
    assert not poller.jobs
    assert not poller._stale


def test_an_array_that_loses_a_task_is_read_again(poller: Poller) -> None:
    tasks = [Job(job_id=job_id, array_job_id=Number.of(7)) for job_id in (7, 8)]
    poller._take_states({"7_1": PENDING, "7_2": PENDING})
    poller._take_records(7, tasks)
    poller._stale.clear()
    poller._take_states({"7_1": PENDING})
    assert poller._stale == {7}
    poller._take_records(7, tasks[:1])
    assert set(poller.jobs) == {7}


def test_a_question_about_some_says_nothing_about_others(poller: Poller) -> None:
    poller._take_states({"1": PENDING, "2": PENDING, "3": PENDING})
    poller._take_states({"1": RUNNING}, only=frozenset({1, 2}))
    assert dict(poller.states) == {"1": RUNNING, "3": PENDING}


def test_what_was_learnt_of_some_makes_the_last_full_list_old(poller: Poller) -> None:
    poller._states_text = b"[]"
    poller._take_states({"1": RUNNING}, only=frozenset({1}))
    assert poller._states_text == b""


def test_what_was_learnt_of_one_slice_leaves_the_others(poller: Poller) -> None:
    poller._slice_texts[2,] = b"[]"
    poller._take_states({"1": RUNNING}, only=frozenset({1}))
    assert poller._slice_texts


def test_what_was_learnt_of_all_makes_the_slices_old(poller: Poller) -> None:
    poller._slice_texts[1,] = b"[]"
    poller._take_states({"1": RUNNING})
    assert not poller._slice_texts


class Hands:
    """A clock that moves when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_who_is_waited_for_and_who_is_known_is_read_before_strangers() -> None:
    clock = Hands()
    poller = Poller(None, waiting=lambda: [7], refresh=None, clock=clock)  # type: ignore[arg-type] # as above
    poller._read_once["details"].set()
    poller._take_states({str(job_id): PENDING for job_id in range(1, 101)})
    poller._take_records(50, [Job(job_id=50)])
    assert poller._urgent() == {7, 50}
    poller._stale -= {7, 50}
    assert poller._urgent() == set()
    assert poller._strangers() == {1, 2, 3, 4, 5, 6, 8, 9}
    assert poller._strangers() == set(), "for a while"
    assert list(poller._dues()) == [0.25]
    clock.now = 0.25
    assert poller._strangers() != set()


def test_many_at_once_are_read_by_one_list(poller: Poller) -> None:
    poller._take_states({str(job_id): PENDING for job_id in range(1, 601)})
    assert len(poller._urgent()) == 600
    poller._stale = set(range(1, 500))
    assert poller._urgent() == set()
    poller._take_states({str(job_id): PENDING for job_id in range(1, 4001)})
    poller._stale = set(range(1, 601))
    assert poller._urgent() == set(), "600 of 4,000 cost less one by one"


def test_jobs_that_have_not_begun_are_read_again_in_turn() -> None:
    clock = Hands()
    poller = Poller(None, wants=lambda job_id: job_id != 2, refresh=1, clock=clock)  # type: ignore[arg-type]
    poller._take_states({"1": PENDING, "2": PENDING, "3": RUNNING, "4": PENDING, "5": PENDING})
    for job_id in (1, 3, 4, 5):
        poller._take_records(job_id, [Job(job_id=job_id)])
    read: list[int] = []
    for clock.now in range(30):
        read += poller._waits_for_long()
        if clock.now == 5:
            poller._take_states({"1": PENDING, "4": PENDING})
    assert read[:5] == [1, 4, 1, 4, 1]
    assert not poller._stale & {5}


def test_nothing_is_read_again_unless_asked_for() -> None:
    poller = Poller(None, refresh=None, clock=lambda: 0.0)  # type: ignore[arg-type] # as above
    poller._take_states({"1": PENDING})
    poller._take_records(1, [Job(job_id=1)])
    assert poller._waits_for_long() == set()


def test_contact_is_lost_with_the_first_failure_and_found_with_the_last_success(poller: Poller) -> None:
    poller._read_once["states"].set()
    seen: list[tuple[bool, str]] = []
    for loop, trouble in (
        ("states", ""),
        ("nodes", "no route"),
        ("states", "no route either"),
        ("nodes", ""),
        ("states", ""),
    ):
        poller._note(loop, trouble)
        seen.append((poller.contact.in_touch, poller.contact.trouble))
    lost = [(False, "no route"), (False, "no route either"), (False, "no route either")]
    assert seen == [(True, ""), *lost, (True, "")]


KEYS = st.sampled_from(["1", "2", "3", "7_1", "7_2", "9+0", "10+1"])
LISTS = st.dictionaries(KEYS, st.sampled_from([PENDING, RUNNING]))


@given(st.lists(LISTS))
def test_changes_add_up_to_what_slurm_said_last(lists: list[dict[str, tuple[str, ...]]]) -> None:
    poller = quiet_poller()
    mirror: dict[str, tuple[str, ...]] = {}

    def follow(key: str, old: tuple[str, ...] | None, new: tuple[str, ...] | None) -> None:
        assert mirror.get(key) == old
        assert old != new
        if new is None:
            del mirror[key]
        else:
            mirror[key] = new

    poller.states.on_change(follow)
    for states in lists:
        poller._take_states(states)
        assert mirror == states == dict(poller.states)
        assert {base_id(key) for key in states} == set(poller._entries)
        assert poller._stale <= set(poller._entries)


@pytest.mark.parametrize(("nodes", "quick", "idle"), [(50, 0.5, 2.0), (2_000, 2.0, 2.0), (100_000, 5.0, 5.0)])
def test_lists_of_many_nodes_are_asked_for_less_often(
    poller: Poller, nodes: int, quick: float, idle: float
) -> None:
    for number in range(nodes):
        poller.nodes.put(f"n{number}", Node(f"n{number}"))
    poller._nodes_changed = True
    assert poller._pauses_of_nodes() == (quick, idle)
    poller._nodes_changed = False
    assert poller._pauses_of_nodes() == (0.5, 2.0), "a question that finds nothing new costs nothing"


def test_a_reason_that_changes_lets_jobs_of_its_kind_come_next(poller: Poller) -> None:
    poller._take_states({str(job_id): PENDING for job_id in range(1, 5)})
    for job_id, partition in ((1, "a"), (2, "b"), (3, "b"), (4, "a")):
        waiting = Job(job_id=job_id, job_state=PENDING, partition=partition, state_reason="Priority")
        poller._take_records(job_id, [waiting])
    poller._stale.clear()
    assert poller._waits_for_long() == {1}
    poller._refresh_due = 0.0
    assert poller._waits_for_long() == {2}
    poller._take_records(2, [Job(job_id=2, job_state=PENDING, partition="b", state_reason="Resources")])
    poller._refresh_due = 0.0
    assert poller._waits_for_long() == {3}
