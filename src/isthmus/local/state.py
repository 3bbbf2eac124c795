"""What is known about each cluster on this machine: a directory with a settings file, and locks around changes."""

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, TextIO

import msgspec

from isthmus.errors import Terminal
from isthmus.local import files
from isthmus.local.addresses import MAX_NODES, SLOTS
from isthmus.local.paths import state_dir


class BusyError(Terminal):
    """Another command works on the cluster."""


_NAME = re.compile(r"[a-z]([-a-z0-9]{0,28}[a-z0-9])?")


class PublishedPort(msgspec.Struct, frozen=True):
    """A port of localhost that leads to a node port of the cluster."""

    host: int
    node: int


class Settings(msgspec.Struct, frozen=True):
    """What was asked for when the cluster was made."""

    name: str
    slot: Annotated[int, msgspec.Meta(ge=0, lt=SLOTS)]
    workers: Annotated[int, msgspec.Meta(ge=1, lt=MAX_NODES)]
    slurm: str
    publish: tuple[PublishedPort, ...] = ()
    binaries: str | None = None
    monitoring: bool = False
    web: bool = False


def check_name(name: str) -> str:
    """A name becomes part of paths, host names and control groups: take no other characters than these."""
    if not _NAME.fullmatch(name):
        raise Terminal(
            f"{name!r} is not a valid cluster name",
            remedy="use up to 30 lower-case letters, digits and hyphens, starting with a letter: --name demo",
        )
    return name


def directory(name: str) -> Path:
    return state_dir() / check_name(name)


def names() -> list[str]:
    """The clusters on this machine, running or not."""
    try:
        return sorted(file.parent.name for file in state_dir().glob("*/cluster.json"))
    except FileNotFoundError:  # the last one went while we looked
        return []


def load(name: str) -> Settings:
    """Read a cluster's settings."""
    settings = _read(name)
    if settings:
        return settings
    others = ", ".join(names())
    raise Terminal(
        f"there is no cluster {name!r} on this machine" + (f" (existing: {others})" if others else ""),
        remedy=f"isthmus up --name {name}" if not others else "choose one with --name, or create one: isthmus up",
    )


def _read(name: str) -> Settings | None:
    file = directory(name) / "cluster.json"
    try:
        return msgspec.json.decode(file.read_bytes(), type=Settings)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise Terminal(
            f"{file} is damaged: {error}", remedy=f"isthmus down --name {name}, then up again"
        ) from error


def save(settings: Settings) -> None:
    """Write a cluster's settings."""
    target = directory(settings.name) / "cluster.json"
    target.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    files.write_whole(target, msgspec.json.format(msgspec.json.encode(settings)))


def save_new(settings: Settings) -> Settings:
    """Write the settings of a new cluster, in a slot that is free now: others may have been made meanwhile."""
    with files.locked(state_dir()):
        placed = msgspec.structs.replace(settings, slot=free_slot())
        save(placed)
    return placed


def forget(name: str) -> None:
    """Remove a cluster's settings, and with them its slot."""
    (directory(name) / "cluster.json").unlink(missing_ok=True)


def free_slot() -> int:
    """The first range of addresses that no cluster uses."""
    taken = {settings.slot for name in names() if (settings := _read(name))}
    for slot in range(SLOTS):
        if slot not in taken:
            return slot
    raise Terminal(f"this machine has {SLOTS} clusters already, and no addresses are left", remedy="isthmus down")


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Let one command at a time change a cluster. The lock goes with its holder, however that ends."""
    path = state_dir() / f".{check_name(name)}.lock"
    with _lock(path, name):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # leave no empty directory behind when the last cluster is gone
                state_dir().rmdir()


def _lock(path: Path, name: str) -> TextIO:
    """Lock the file that `path` names. Whoever holds it removes it: if we had opened that one, take the next."""
    while True:
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o711, parents=True)
        try:
            handle = path.open("w")
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.samefile(f"/proc/self/fd/{handle.fileno()}"):
                return handle
        except BlockingIOError:
            handle.close()
            raise BusyError(
                f"another isthmus command is busy with the cluster {name!r}", remedy="wait until it has finished"
            ) from None
        except FileNotFoundError:
            pass
        handle.close()
