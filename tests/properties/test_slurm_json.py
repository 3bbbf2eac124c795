"""Answers of slurmrestd, bent and broken: they are read, or they are an error of ours, and an empty list is one."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from isthmus.domain.languages import slurmtime, tres
from isthmus.errors import IsthmusError
from isthmus.model.slurm import JobState
from isthmus.slurm import client
from isthmus.slurm.calls import Answer, Calls
from isthmus.slurm.errors import Garbled, failure
from isthmus.slurm.submission import base_id, key_of

KINDS = [
    kind
    for kind in vars(client).values()
    if isinstance(kind, type) and issubclass(kind, Answer) and kind is not Answer
]
NUMBER = st.fixed_dictionaries({"set": st.booleans(), "infinite": st.booleans(), "number": st.integers(0, 2**32)})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
JOB = st.fixed_dictionaries(
    {"job_id": st.integers(1, 2**26), "job_state": st.lists(st.sampled_from(["PENDING", "RUNNING", "NEW_STATE"]))},
    optional={
        "comment": st.none() | st.text(),
        "time_limit": NUMBER,
        "exit_code": JSON,
        "a_field_of_tomorrow": JSON,
    },
)
ANSWER = st.fixed_dictionaries(
    {},
    optional={
        "jobs": st.lists(JOB) | JSON,
        "nodes": st.lists(st.fixed_dictionaries({"name": st.text()}, optional={"state": JSON})) | JSON,
        "errors": st.lists(st.fixed_dictionaries({"error_number": st.integers(-1, 9999), "error": st.text()}))
        | JSON,
        "last_update": NUMBER | JSON,
        "statistics": JSON,
        "meta": JSON,
    },
)


def read(body: bytes, kind: type[Answer]) -> Answer | None:
    try:
        return Calls(None)._decode(body, kind, what="reading")  # type: ignore[arg-type] # decoding needs no transport
    except Garbled:
        return None


@given(ANSWER, st.sampled_from(KINDS))
def test_a_bent_answer_is_read_or_garbled(answer: Any, kind: type[Answer]) -> None:
    decoded = read(json.dumps(answer).encode(), kind)
    if decoded is not None:
        assert failure("x", status=500, problems=decoded.errors) is not None


@given(st.binary(max_size=300), st.sampled_from(KINDS))
def test_bytes_are_read_or_garbled(body: bytes, kind: type[Answer]) -> None:
    read(body, kind)


@given(ANSWER, st.sampled_from(KINDS), st.data())
def test_a_cut_answer_is_garbled(answer: Any, kind: type[Answer], data: st.DataObject) -> None:
    body = json.dumps(answer).encode()
    assert read(body[: data.draw(st.integers(0, len(body) - 1))], kind) is None


def test_nesting_does_not_exhaust_the_stack() -> None:
    for kind in KINDS:
        assert read(b'{"x":' * 100_000, kind) is None
        assert read(b'{"errors":' + b"[" * 100_000, kind) is None


@given(st.lists(JOB))
def test_jobs_keep_what_slurm_said(jobs: list[dict[str, Any]]) -> None:
    plain = [{key: job[key] for key in ("job_id", "job_state")} for job in jobs]
    decoded = read(json.dumps({"jobs": plain}).encode(), client._Jobs)
    assert isinstance(decoded, client._Jobs)
    assert [(job.job_id, list(job.job_state)) for job in decoded.jobs or ()] == [
        (job["job_id"], job["job_state"]) for job in plain
    ]


@given(st.text())
def test_small_parsers_end_in_a_value_or_an_error_of_ours(text: str) -> None:
    assert base_id(text) >= 0
    key_of(text)
    for parse in (slurmtime.parse_duration, tres.parse_memory, tres.parse_tres, tres.parse_gres):
        try:
            parse(text)
        except IsthmusError:
            continue


@given(st.integers(0, 10**5), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_durations_read_back(days: int, hours: int, minutes: int, seconds: int) -> None:
    written = f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}"
    assert slurmtime.parse_duration(written) == ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@given(
    st.dictionaries(st.sampled_from(["cpu", "mem", "node", "gres/gpu", "gres/gpu:a100"]), st.integers(0, 10**12))
)
def test_tres_read_back(counts: dict[str, int]) -> None:
    amounts = {name: f"{count}M" if name == "mem" else count for name, count in counts.items()}
    assert tres.parse_tres(",".join(f"{name}={amount}" for name, amount in amounts.items())) == counts


def test_states_decode_as_the_poller_reads_them() -> None:
    decode = msgspec.json.Decoder(list[JobState]).decode
    assert decode(b'[{"job_id":"12_3","state":["RUNNING"],"new":1}]') == [JobState("12_3", ("RUNNING",))]
