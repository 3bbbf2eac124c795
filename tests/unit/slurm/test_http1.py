import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.slurm.http1 import ProtocolError, Response, _Answer

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: application/json\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN
TWICE = (
    b"HTTP/1.1 404 NOT FOUND\r\nConnection: Close\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 404 NOT FOUND\r\n\r\n"
)
UNCHANGED = b"HTTP/1.1 304 NOT MODIFIED\r\nContent-Length: 7\r\n\r\n"


def fed(data: bytes, *, pieces: int) -> Response | None:
    answer = _Answer()
    for start in range(0, len(data), pieces):
        if response := answer.feed(data[start : start + pieces]):
            return response
    return None


@pytest.mark.parametrize("pieces", [1, 2, 7, 1000])
@pytest.mark.parametrize("data", [PLAIN, CHUNKED, INTERIM, TWICE])
def test_the_first_answer_is_read_however_it_is_cut(data: bytes, pieces: int) -> None:
    response = fed(data, pieces=pieces)
    assert response is not None
    assert response.body == b"hello"
    assert response.status in {200, 404}


def test_what_did_not_change_has_no_body() -> None:
    response = fed(UNCHANGED, pieces=1000)
    assert response is not None
    assert (response.status, response.body) == (304, b"")


@pytest.mark.parametrize("data", [PLAIN[:-1], CHUNKED[:-3], PLAIN[:20]])
def test_half_an_answer_is_none(data: bytes) -> None:
    answer = _Answer()
    assert answer.feed(data) is None
    assert answer.at_end() is None


def test_without_a_length_the_end_of_the_connection_is_the_end() -> None:
    answer = _Answer()
    assert answer.feed(b"HTTP/1.1 200 OK\r\n\r\nhel") is None
    assert answer.feed(b"lo") is None
    response = answer.at_end()
    assert response is not None
    assert response.body == b"hello"


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 200,
        b"x" * 70_000,
    ],
)
def test_what_is_not_http_is_refused_in_bounded_memory(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        _Answer().feed(data)


@given(st.binary(max_size=200), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", CHUNKED[:48]]))
def test_any_bytes_are_an_answer_or_refused(data: bytes, start: bytes) -> None:
    try:
        fed(start + data, pieces=5)
    except ProtocolError:
        return
