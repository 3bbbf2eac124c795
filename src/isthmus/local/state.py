"""What is known about each cluster on this machine: a directory with a settings file, and locks around changes."""

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from isthmus.errors import Terminal
from isthmus.local.addresses import SLOTS
from isthmus.local.paths import state_dir

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,28}[a-z0-9])?")


class PublishedPort(msgspec.Struct, frozen=True):
    """A port of localhost that leads to a node port of the cluster."""

    host: int
    node: int


class Settings(msgspec.Struct, frozen=True):
    """What was asked for when the cluster was made."""

    name: str
    slot: int
    workers: int
    slurm: str
    publish: tuple[PublishedPort, ...] = ()
    binaries: str | None = None


def check_name(name: str) -> str:
    """A name becomes part of paths, host names and control groups: take no other characters than these."""
    if not _NAME.fullmatch(name):
        raise Terminal(
            f"{name!r} cannot be the name of a cluster",
            remedy="use up to 30 lower-case letters, digits and dashes, beginning with a letter: --name demo",
        )
    return name


def directory(name: str) -> Path:
    """Everything of one cluster."""
    return state_dir() / check_name(name)


def names() -> list[str]:
    """The clusters on this machine, running or not."""
    return sorted(file.parent.name for file in state_dir().glob("*/cluster.json"))


def load(name: str) -> Settings:
    """Read a cluster's settings."""
    try:
        return msgspec.json.decode((directory(name) / "cluster.json").read_bytes(), type=Settings)
    except FileNotFoundError:
        others = ", ".join(names())
        raise Terminal(
            f"there is no cluster {name!r} on this machine" + (f" (there is: {others})" if others else ""),
            remedy=f"isthmus up --name {name}" if not others else "choose one with --name, or make one: isthmus up",
        ) from None


def save(settings: Settings) -> None:
    """Write a cluster's settings, whole or not at all."""
    target = directory(settings.name) / "cluster.json"
    target.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(settings)))
    unfinished.rename(target)


def free_slot() -> int:
    """The first range of addresses that no cluster uses."""
    taken = {load(name).slot for name in names()}
    for slot in range(SLOTS):
        if slot not in taken:
            return slot
    raise Terminal(f"{SLOTS} clusters are on this machine, and there are no more addresses", remedy="isthmus down")


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Let one command at a time change a cluster. The lock goes with its holder, however that ends."""
    path = state_dir() / f".{check_name(name)}.lock"
    state_dir().mkdir(mode=0o711, parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Terminal(
                f"another isthmus command is busy with the cluster {name!r}", remedy="wait until it has ended"
            ) from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            forget_if_empty()


def forget_if_empty() -> None:
    """Leave no empty directory behind when the last cluster is gone."""
    try:
        state_dir().rmdir()
    except OSError:
        return
