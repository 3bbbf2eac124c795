import math

import pytest

from isthmus.errors import Terminal
from isthmus.model.slurm import Number
from isthmus.slurm.auth import EnvironmentToken
from isthmus.slurm.errors import Unsupported
from isthmus.slurm.transport import Transport
from isthmus.slurm.versions import Feature, Server


def test_a_call_that_the_server_lacks_names_both_versions() -> None:
    with pytest.raises(
        Unsupported, match=r"external jobs needs Slurm 25\.11 .* this is Slurm 24\.11\.5 \(API v0\.0\.42\)"
    ):
        Server(api=42, release="24.11.5").require(Feature.EXTERNAL_JOBS)


def test_newer_servers_have_everything() -> None:
    for feature in Feature:
        Server(api=45).require(feature)
        assert not Server(api=40).has(feature)


@pytest.mark.parametrize(
    "endpoint", ["", "host:6820", "ftp://host", "http://", "unix://", "http://user:secret@host:6820", "/run/socket"]
)
def test_an_address_is_checked_before_it_is_used(endpoint: str) -> None:
    with pytest.raises(Terminal, match="not a valid slurmrestd address"):
        Transport([endpoint], EnvironmentToken({"SLURM_JWT": "a.b.c"}))


def test_there_must_be_an_address() -> None:
    with pytest.raises(Terminal, match="no slurmrestd is configured"):
        Transport([], EnvironmentToken({"SLURM_JWT": "a.b.c"}))


def test_numbers_may_be_missing_or_infinite() -> None:
    assert Number().value is None
    assert Number(set=True, number=5).value == 5
    assert Number(infinite=True).value == math.inf
    assert Number.of(5).value == 5
    assert Number.of(math.inf).value == math.inf
