"""Thousands of host lists, and scontrol agrees about every one of them."""

import random
from itertools import chain

import pytest

from isthmus.domain.languages import hostlist
from isthmus.domain.languages.hostlist import HostListError
from tests.bed.slurm import SlurmBed

COUNT = 3000
PER_CALL = 200
THE_END = "the-end"
_STEMS = ("n", "rack", "gpu-a100-", "c.d", "x1y", "n0")


def some_names(pick: random.Random) -> list[str]:
    """Names in and out of order, padded or not, some again, some without a number."""
    names: list[str] = []
    while len(names) < pick.randint(1, 25):
        stem = pick.choice(_STEMS)
        width = pick.choice((0, 0, 1, 2, 3, 4))
        first = pick.choice((0, 1, 8, 9, 98, 99, 998, pick.randint(0, 10**6)))
        run = range(first, first + pick.randint(1, 6), pick.choice((1, 1, 1, 2)))
        names += [f"{stem}{number:0{width}d}" for number in run]
        if pick.random() < 0.2:
            names.append(pick.choice(("login", "x", names[-1])))
    return names


def some_list(pick: random.Random) -> str:
    """Text with up to three brackets in a name, ranges with padding, and suffixes."""

    def bracket() -> str:
        ranges = []
        for _ in range(pick.randint(1, 3)):
            low = pick.choice((0, 1, 7, 9, 98, pick.randint(0, 500)))
            high = low + pick.randint(0, 4)
            width = pick.choice((0, 0, 2, 3))
            ranges.append(f"{low:0{width}d}" if pick.random() < 0.4 else f"{low:0{width}d}-{high:0{width}d}")
        return f"[{','.join(ranges)}]"

    def token() -> str:
        parts = list(
            chain.from_iterable(
                (pick.choice(("a", "b-", "r", "n1x")), bracket()) for _ in range(pick.choice((0, 1, 1, 2, 3)))
            )
        )
        return "".join(parts) + pick.choice(("", "-ib", ".net")) if parts else f"login{pick.randint(0, 12)}"

    return pick.choice((",", ",,")).join(token() for _ in range(pick.randint(1, 3)))


def asked(bed: SlurmBed, what: str, lists: list[str]) -> list[str]:
    """Let a few scontrol answer for many lists, each followed by a host that ends its answer."""
    answers: list[str] = []
    for start in range(0, len(lists), PER_CALL):
        some = lists[start : start + PER_CALL]
        answer = bed.scontrol("show", what, "".join(f"{text},{THE_END}," for text in some)).replace("\n", ",")
        answers += [it.strip(",") for it in answer.split(THE_END)[:-1]]
    assert len(answers) == len(lists)
    return answers


def test_expanding_agrees_with_show_hostnames(slurm: SlurmBed) -> None:
    pick = random.Random(1)  # noqa: S311 - the same lists each time
    lists = [some_list(pick) for _ in range(COUNT)]
    for text, answer in zip(lists, asked(slurm, "hostnames", lists), strict=True):
        assert ",".join(hostlist.expand(text)) == answer, text


def test_folding_agrees_with_show_hostlist(slurm: SlurmBed) -> None:
    pick = random.Random(2)  # noqa: S311 - the same names each time
    names = [some_names(pick) for _ in range(COUNT)]
    for some, answer in zip(names, asked(slurm, "hostlist", [",".join(some) for some in names]), strict=True):
        assert hostlist.fold(some) == answer, some


@pytest.mark.parametrize("text", ["n[1", "n[2-1]", "n[]", "n[1,,2]", "n[a-b]", "n[0-999999999]"])
def test_what_we_refuse_slurm_refuses_too(slurm: SlurmBed, text: str) -> None:
    with pytest.raises(HostListError):
        hostlist.expand(text)
    assert slurm.scontrol("show", "hostnames", text) == ""
