import msgspec
import pytest

from isthmus.domain.exporter.pulse import pulse
from isthmus.model.slurm import RpcCount, Statistics

_BEFORE = Statistics(
    jobs_submitted=5, rpcs_by_message_type=(RpcCount("REQUEST_NODE_INFO", 7), RpcCount("REQUEST_UPDATE_NODE", 1))
)


@pytest.mark.parametrize(
    "question",
    [
        "REQUEST_NODE_INFO",
        "REQUEST_PARTITION_INFO",
        "REQUEST_JOB_INFO_SINGLE",
        "REQUEST_STATS_INFO",
        "REQUEST_PING",
        "REQUEST_JOB_STATE",
        "REQUEST_CONFIG",
    ],
)
def test_questions_change_nothing(question: str) -> None:
    after = msgspec.structs.replace(
        _BEFORE, rpcs_by_message_type=(*_BEFORE.rpcs_by_message_type, RpcCount(question, 3))
    )
    assert pulse(after) == pulse(_BEFORE)


@pytest.mark.parametrize(
    "request_type",
    [
        "REQUEST_SUSPEND",
        "REQUEST_UPDATE_JOB",
        "REQUEST_UPDATE_NODE",
        "MESSAGE_EPILOG_COMPLETE",
        "REQUEST_JOB_REQUEUE",
        "REQUEST_CREATE_NODE",
        "MESSAGE_NODE_REGISTRATION_STATUS",
    ],
)
def test_whatever_else_is_asked_for_may_change_something(request_type: str) -> None:
    after = msgspec.structs.replace(
        _BEFORE, rpcs_by_message_type=(*_BEFORE.rpcs_by_message_type, RpcCount(request_type, 1))
    )
    assert pulse(after) != pulse(_BEFORE)


@pytest.mark.parametrize(
    "field",
    [
        *("jobs_submitted", "jobs_started", "jobs_completed", "jobs_canceled", "jobs_failed"),
        *("jobs_pending", "jobs_running"),
    ],
)
def test_jobs_that_come_begin_and_end_are_counted(field: str) -> None:
    assert pulse(msgspec.structs.replace(_BEFORE, **{field: 9})) != pulse(_BEFORE)
