"""Tokens that a program makes."""

from pathlib import Path

import pytest

from isthmus.errors import Terminal
from isthmus.exporter.tokens import ScontrolToken
from isthmus.slurm.auth import TokenError


def _scontrol(place: Path, answer: str) -> tuple[str, str]:
    """A program that answers as scontrol does, and counts how often it was asked."""
    script = place / "scontrol"
    script.write_text(f'echo "$@" >> {place}/asked\n{answer}\n')
    return ("sh", str(script))


def _asked(place: Path) -> list[str]:
    return (place / "asked").read_text().splitlines()


def test_a_token_is_kept_until_two_thirds_of_its_life_are_over(tmp_path: Path) -> None:
    now = [0.0]
    source = ScontrolToken("slurm", program=_scontrol(tmp_path, "echo SLURM_JWT=a.b.c"), clock=lambda: now[0])
    assert [source.token(), source.token()] == ["a.b.c", "a.b.c"]
    assert _asked(tmp_path) == ["token lifespan=1800 username=slurm"]
    now[0] = 1300.0
    source.token()
    assert source.renew()
    source.token()
    assert len(_asked(tmp_path)) == 3
    assert "a.b.c" not in repr(source)


@pytest.mark.parametrize("answer", ["echo nonsense", "echo no such user >&2; exit 1"])
def test_what_is_not_a_token_is_refused(tmp_path: Path, answer: str) -> None:
    with pytest.raises(TokenError):
        ScontrolToken(program=_scontrol(tmp_path, answer)).token()


def test_where_there_is_no_scontrol_this_is_said() -> None:
    with pytest.raises(TokenError, match="scontrol token failed"):
        ScontrolToken(program=("/nowhere/scontrol",)).token()


def test_a_name_that_is_not_one_never_reaches_a_command() -> None:
    with pytest.raises(Terminal, match="not a valid user name"):
        ScontrolToken("root lifespan=infinite")
