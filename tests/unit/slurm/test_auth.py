from pathlib import Path

import jwt
import pytest

from isthmus.slurm import auth
from isthmus.slurm.auth import EnvironmentToken, FileToken, MintedTokens, TokenError

KEY = b"thirty-two bytes make a good key"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "jwt.key"
    path.write_bytes(KEY)
    return path


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def claims(token: str) -> dict[str, object]:
    return jwt.decode(token, KEY, algorithms=["HS256"], options={"verify_exp": False, "verify_iat": False})


def test_a_minted_token_names_its_user_and_its_end(key: Path) -> None:
    tokens = MintedTokens(key, user="alice", lifetime=900, clock=Clock())
    assert claims(tokens.token()) == {"iat": 1_000_000, "exp": 1_000_900, "sun": "alice"}


def test_a_key_in_memory_signs_and_is_not_shown() -> None:
    tokens = MintedTokens(KEY, user="slurm", clock=Clock())
    assert claims(tokens.token())["sun"] == "slurm"
    assert tokens.renew()
    assert repr(tokens) == "MintedTokens(user='slurm', key='in memory')"


def test_a_token_is_kept_and_renewed_well_before_it_expires(key: Path) -> None:
    clock = Clock()
    tokens = MintedTokens(key, lifetime=900, clock=clock)
    first = tokens.token()
    clock.now += 599
    assert tokens.token() == first
    clock.now += 2
    assert claims(tokens.token())["exp"] == 1_000_601 + 900


def test_a_clock_set_back_gives_a_token_of_the_new_time(key: Path) -> None:
    clock = Clock()
    tokens = MintedTokens(key, clock=clock)
    tokens.token()
    clock.now -= 3600
    assert claims(tokens.token())["iat"] == 1_000_000 - 3600


def test_a_replaced_key_is_used_after_a_refusal(key: Path) -> None:
    tokens = MintedTokens(key, clock=Clock())
    tokens.token()
    other = b"another key of at least 32 bytes!"
    key.write_bytes(other)
    assert tokens.renew()
    assert jwt.decode(
        tokens.token(), other, algorithms=["HS256"], options={"verify_exp": False, "verify_iat": False}
    )


def test_the_line_break_at_the_end_of_a_key_counts(tmp_path: Path) -> None:
    path = tmp_path / "jwt.key"
    path.write_bytes(KEY + b"\n")
    assert auth.read_key(path) == KEY + b"\n"


@pytest.mark.parametrize("content", [None, b""])
def test_a_key_that_is_missing_or_empty_says_so(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "jwt.key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TokenError, match=r"jwt\.key"):
        MintedTokens(path).token()


def test_a_file_is_read_again_when_it_is_another(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("SLURM_JWT=aa.bb.cc\n")
    source = FileToken(path)
    assert source.token() == "aa.bb.cc"
    fresh = tmp_path / "token.new"
    fresh.write_text("dd.ee.ff")
    fresh.rename(path)
    assert source.token() == "dd.ee.ff"


def test_a_file_that_is_just_being_written_changes_nothing_yet(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("aa.bb.cc")
    source = FileToken(path)
    assert source.token() == "aa.bb.cc"
    path.write_text("")
    assert source.token() == "aa.bb.cc"
    assert not source.renew()
    path.write_text("dd.ee.ff")
    assert source.token() == "dd.ee.ff"


def test_a_refused_token_is_worth_a_second_try_only_if_the_file_has_another(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("aa.bb.cc")
    source = FileToken(path)
    source.token()
    assert not source.renew()
    path.write_text("dd.ee.ff")
    assert source.renew()


@pytest.mark.parametrize("content", ["", "hello", "a.b", "a.b.c.d", "a.b.c\nX-Evil: 1", "a b.c.d"])
def test_what_is_no_token_is_refused_and_not_repeated(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(TokenError, match="does not contain a JSON Web Token") as caught:
        FileToken(path).token()
    assert not content or content not in str(caught.value)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TokenError, match="No such file"):
        FileToken(tmp_path / "none").token()


def test_the_environment_has_one_token() -> None:
    source = EnvironmentToken({"SLURM_JWT": "aa.bb.cc"})
    assert source.token() == "aa.bb.cc"
    assert not source.renew()
    with pytest.raises(TokenError, match="scontrol token"):
        EnvironmentToken({})


def test_no_repr_shows_a_token(key: Path, tmp_path: Path) -> None:
    text = "aa.bb.no-part-of-any-path"  # which is shown
    path = tmp_path / "token"
    path.write_text(text)
    for source in (MintedTokens(key), FileToken(path), EnvironmentToken({"SLURM_JWT": text})):
        token = source.token()
        assert token not in repr(source)
        assert token.split(".")[-1] not in repr(source)
