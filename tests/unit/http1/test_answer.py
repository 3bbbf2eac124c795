import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.http1.answer import Answer, ProtocolError

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: application/json\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
TRAILERS = CHUNKED[:-2] + b"Digest: none\r\nOther: none\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN
FAILED = b"HTTP/1.1 404 NOT FOUND\r\nConnection: Close\r\nContent-Length: 5\r\n\r\nhello"
UNCHANGED = b"HTTP/1.1 304 NOT MODIFIED\r\nContent-Length: 7\r\n\r\n"
ALL = [PLAIN, CHUNKED, TRAILERS, INTERIM, FAILED]


def fed(data: bytes, *, pieces: int) -> tuple[Answer, bytes]:
    """Read until the answer is complete."""
    answer = Answer()
    body = b""
    for start in range(0, len(data), pieces):
        body += b"".join(answer.feed(data[start : start + pieces]))
        if answer.complete:
            break
    return answer, body


@pytest.mark.parametrize("pieces", [1, 2, 7, 1000])
@pytest.mark.parametrize("data", ALL)
def test_an_answer_is_read_however_it_is_cut(data: bytes, pieces: int) -> None:
    answer, body = fed(data, pieces=pieces)
    assert answer.complete
    assert not answer.excess
    assert body == b"hello"
    assert answer.head is not None
    assert answer.head.status == (404 if data is FAILED else 200)
    assert answer.head.last == (data is FAILED)


@pytest.mark.parametrize("data", ALL)
def test_what_comes_behind_an_answer_is_noticed_and_no_part_of_it(data: bytes) -> None:
    answer, body = fed(data + PLAIN, pieces=1000)
    assert answer.complete
    assert answer.excess
    assert body == b"hello"
    later, _ = fed(data, pieces=1000)
    assert later.feed(PLAIN) == []
    assert later.excess


@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_a_body_is_given_as_it_comes(pieces: int) -> None:
    answer = Answer()
    begun = CHUNKED[:-7]
    body = b"".join(b"".join(answer.feed(begun[at : at + pieces])) for at in range(0, len(begun), pieces))
    assert body == b"hello"
    assert not answer.complete


def test_what_did_not_change_has_no_body() -> None:
    answer, body = fed(UNCHANGED, pieces=1000)
    assert answer.complete
    assert body == b""


def test_an_open_tunnel_has_no_body() -> None:
    answer = Answer(tunnel=True)
    answer.feed(b"HTTP/1.0 200 Connection established\r\n\r\n")
    assert answer.complete
    assert answer.head is not None
    assert not answer.head.last


def test_a_server_of_old_closes_after_its_answer() -> None:
    answer, _ = fed(PLAIN.replace(b"1.1", b"1.0"), pieces=1000)
    assert answer.head is not None
    assert answer.head.last


@pytest.mark.parametrize("data", [PLAIN[:-1], CHUNKED[:-1], CHUNKED[:-3], TRAILERS[:-2], PLAIN[:20]])
def test_half_an_answer_is_none(data: bytes) -> None:
    answer = Answer()
    answer.feed(data)
    answer.end()
    assert not answer.complete


def test_without_a_length_the_end_of_the_connection_is_the_end() -> None:
    answer = Answer()
    assert answer.feed(b"HTTP/1.1 200 OK\r\n\r\nhel") == [b"hel"]
    assert answer.feed(b"lo") == [b"lo"]
    assert not answer.complete
    answer.end()
    assert answer.complete


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 200,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"x" * 70_000,
        b"x" * 70_000,
    ],
)
def test_what_is_not_http_is_refused_in_bounded_memory(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Answer().feed(data)


@given(st.binary(max_size=200), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", CHUNKED[:48]]))
def test_any_bytes_are_an_answer_or_refused(data: bytes, start: bytes) -> None:
    try:
        fed(start + data, pieces=5)
    except ProtocolError:
        return


@given(st.lists(st.binary(min_size=1, max_size=30)), st.integers(1, 40))
def test_chunks_add_up_however_they_are_cut(chunks: list[bytes], pieces: int) -> None:
    sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    answer, body = fed(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + sent + b"0\r\n\r\n", pieces=pieces
    )
    assert answer.complete
    assert body == b"".join(chunks)
