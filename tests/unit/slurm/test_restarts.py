"""A slurmctld that is not the one it was is told from one that is."""

from isthmus.model.slurm import Number, RpcCount, Statistics
from isthmus.slurm.restarts import Restarts


def told(requests: int, *, since: int) -> Statistics:
    return Statistics(since=Number.of(since), rpcs_by_message_type=(RpcCount("REQUEST_PING", count=requests),))


def test_one_that_goes_on_counting_is_the_same() -> None:
    restarts = Restarts()
    assert not any(restarts.noticed(told(requests, since=100)) for requests in (7, 7, 30))


def test_one_that_has_counted_less_is_another_and_is_noticed_once() -> None:
    restarts = Restarts()
    answers = [(500, 100), (0, 0), (3, 0), (9, 160), (20, 160)]
    assert [restarts.noticed(told(requests, since=since)) for requests, since in answers] == [
        False,
        True,
        False,
        False,
        False,
    ]


def test_one_that_has_counted_more_since_a_later_moment_is_another() -> None:
    restarts = Restarts()
    answers = [(20, 100), (400, 160), (500, 160)]
    assert [restarts.noticed(told(requests, since=since)) for requests, since in answers] == [False, True, False]
