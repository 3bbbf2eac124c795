import pytest

from isthmus.domain.languages.tres import (
    Gres,
    TresError,
    parse_gres,
    parse_memory,
    parse_tres,
)


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [
        ("100", 100),
        ("100M", 100),
        ("4G", 4096),
        ("4gn", 4096),
        ("1.5G", 1536),
        ("1K", 1),
        ("1025K", 2),
        ("2T", 2 << 20),
    ],
)
def test_memory_is_megabytes_rounded_up(text: str, megabytes: int) -> None:
    assert parse_memory(text) == megabytes


@pytest.mark.parametrize("text", ["", "G", "-1", "1e3", "4X", "1 G", "\u0661", "1" * 20])
def test_refuses_what_is_no_memory(text: str) -> None:
    with pytest.raises(TresError):
        parse_memory(text)


def test_reads_tres_of_a_job() -> None:
    assert parse_tres("cpu=4,mem=16G,node=2,billing=4,gres/gpu=2,gres/gpu:a100=2,license/matlab=3") == {
        "cpu": 4,
        "mem": 16384,
        "node": 2,
        "billing": 4,
        "gres/gpu": 2,
        "gres/gpu:a100": 2,
        "license/matlab": 3,
    }
    assert parse_tres("") == {}


@pytest.mark.parametrize("text", ["cpu", "cpu=x", "cpu=-1", "=1", "a b=1", "cpu=1\n"])
def test_refuses_what_is_no_tres(text: str) -> None:
    with pytest.raises(TresError):
        parse_tres(text)


@pytest.mark.parametrize(
    ("text", "gres"),
    [
        ("", ()),
        ("(null)", ()),
        ("gpu", (Gres("gpu"),)),
        ("gpu:4", (Gres("gpu", 4),)),
        ("gpu:a100:4", (Gres("gpu", 4, "a100"),)),
        ("gres/gpu:2", (Gres("gpu", 2),)),
        ("gres:gpu:a100:2", (Gres("gpu", 2, "a100"),)),
        ("gres/gpu:a100=2", (Gres("gpu", 2, "a100"),)),
        ("gpu:a100:4(S:0-1),nic:2", (Gres("gpu", 4, "a100", "S:0-1"), Gres("nic", 2))),
        ("gpu:a100:2(IDX:0,3)", (Gres("gpu", 2, "a100", "IDX:0,3"),)),
        ("shard:2K", (Gres("shard", 2048),)),
    ],
)
def test_reads_gres_of_nodes_and_jobs(text: str, gres: tuple[Gres, ...]) -> None:
    assert parse_gres(text) == gres


@pytest.mark.parametrize("text", [":", "gpu:", "gpu:a:b:c", "gpu (x)", "1gpu", "gpu:4,,nic:1"])
def test_refuses_what_is_no_gres(text: str) -> None:
    with pytest.raises(TresError):
        parse_gres(text)


def test_gres_reads_back_what_it_prints() -> None:
    for gres in (Gres("gpu", 4), Gres("gpu", 1, "a100")):
        assert parse_gres(str(gres)) == (gres,)
