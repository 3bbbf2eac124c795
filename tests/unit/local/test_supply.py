"""Images for another architecture: those that cannot be made here are named, and the others are made."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from isthmus.errors import Terminal
from isthmus.local import supply
from isthmus.local.architecture import ARCHITECTURES, Architecture, native
from isthmus.local.images import emulation
from isthmus.local.images.build import Image
from isthmus.local.progress import PlainProgress

OTHER = next(each for each in ARCHITECTURES.values() if each != native())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is to be built; nothing is."""
    wanted: list[str] = []

    def images(names: Iterable[str], _: object, **__: Any) -> list[Image]:
        wanted.extend(names)
        return []

    monkeypatch.setattr(supply, "images", images)
    return wanted


@pytest.fixture
def no_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Architecture) -> AbstractContextManager[None]:
        raise Terminal("the kernel says no", remedy="use another")

    monkeypatch.setattr(emulation, "needed", lambda _: {})
    monkeypatch.setattr(emulation, "lent", refuse)


@pytest.mark.usefixtures("no_emulator")
def test_what_must_run_its_own_programs_is_named_and_the_rest_is_made(made: list[str]) -> None:
    _, left_out = supply.images_for(["coredns", "pause", "lws", "slurm-24.11"], PlainProgress(), OTHER)
    assert made == ["coredns", "lws"]
    assert left_out
    assert "    pause: debian-trixie, catatonit\n" in left_out.what
    assert "    slurm-24.11: debian-trixie, slurm-24.11, spank-tools-24.11, spank-24.11\n" in left_out.what
    assert "coredns" not in left_out.what
    assert left_out.what.endswith("the kernel says no")
    assert left_out.remedy == "use another"


@pytest.mark.usefixtures("no_emulator")
def test_programs_alone_need_no_emulator(made: list[str]) -> None:
    assert supply.images_for(["coredns", "lws"], PlainProgress(), OTHER) == ([], None)
    assert made == ["coredns", "lws"]


def test_images_for_this_machine_need_no_emulator(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert supply.images_for(["pause", "isthmus"], PlainProgress(), native()) == ([], None)
    assert made == ["pause", "isthmus"]


def test_an_image_that_there_is_not_is_refused_before_anything_is_made(made: list[str]) -> None:
    with pytest.raises(Terminal, match="no image 'slrum'"):
        supply.images_for(["coredns", "slrum"], PlainProgress(), OTHER)
    assert made == []
