import pytest

from isthmus.errors import IsthmusError, Retry, Terminal, Wait
from isthmus.slurm import errors
from isthmus.slurm.errors import Problem, failure


@pytest.mark.parametrize(
    ("status", "number", "kind"),
    [
        (200, 2017, errors.NotFound),
        (500, 2002, errors.Denied),
        (422, 2021, errors.AlreadyDone),
        (422, 2168, errors.AlreadyExists),
        (422, 2050, errors.NotNow),
        (502, 1800, errors.ControllerUnreached),
        (504, 5004, errors.ControllerAway),
        (500, -1, errors.ControllerAway),
        (403, 1, errors.ControllerAway),
        (500, 7000, errors.DatabaseAway),
        (500, 1804, errors.Overloaded),
        (500, 6010, errors.Unauthorized),
        (500, 9202, errors.Refused),
        (422, 2025, errors.Refused),
        (401, None, errors.Unauthorized),
        (403, None, errors.Denied),
        (404, None, errors.NotFound),
        (405, None, errors.Unsupported),
        (429, None, errors.Overloaded),
        (503, None, errors.AnswerLost),
        (504, None, errors.AnswerLost),
        (500, None, errors.Garbled),
        (418, None, errors.Refused),
    ],
)
def test_number_and_status_decide_the_class(status: int, number: int | None, kind: type[IsthmusError]) -> None:
    problems = [] if number is None else [Problem(error_number=number, error="Slurm's own sentence")]
    error = failure("doing it", status=status, problems=problems)
    assert type(error) is kind
    assert str(error).startswith("doing it failed: ")
    assert (number is None) == ("Slurm's own sentence" not in str(error))


def test_success_is_no_error() -> None:
    assert failure("doing it", status=200, problems=[]) is None


def test_what_says_no_error_and_yet_stands_among_the_errors_is_one() -> None:
    error = failure("x", status=200, problems=[Problem(error="No error", description="Failure to query node zz")])
    assert isinstance(error, errors.Refused)
    assert "Failure to query node zz" in str(error)


def test_the_first_problem_that_we_know_decides() -> None:
    problems = [Problem(error_number=9207, error="invalid flag"), Problem(error_number=2002, error="denied")]
    error = failure("x", status=500, problems=problems)
    assert isinstance(error, errors.Denied)
    assert "denied (Slurm error 2002)" in str(error)


def test_each_sentence_is_told_once() -> None:
    assert str(Problem(error_number=7, error="Same.", description="Same")) == "Same (Slurm error 7)"


def test_every_class_says_what_the_caller_does_next() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, IsthmusError)]
    assert len(kinds) > 15
    assert all(kind is IsthmusError or issubclass(kind, Retry | Wait | Terminal) for kind in kinds)


def test_waiting_has_a_time() -> None:
    error = failure("x", status=422, problems=[Problem(error_number=2105, error="closed")])
    assert isinstance(error, Wait)
    assert error.after > 0
