"""Runs programs of another architecture while images for it are made, by qemu and the kernel's binfmt_misc.

    us ── its standard input ──▶ keeper: registers qemu with the kernel … end of file: takes it back

A registration concerns the whole machine, so it must not outlive the build. The keeper learns of our end, however
it comes, by the end of its standard input. Where an emulator is registered already, as Debian does, it is used.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.errors import Terminal
from isthmus.local.architecture import Architecture, native

_REGISTRY = Path("/proc/sys/fs/binfmt_misc")
_PACKAGE = "qemu-user-static"
_OURS = "isthmus-"

# How a program begins: ELF, 64 bits, little endian, some padding; loaded anywhere (03, or 02 for a fixed place).
_HEADER = "7f454c46" + "020101" + "00" * 9 + "0300"
_MASK = "ffffffff" + "ffffff" + "00" + "ff" * 8 + "feff" + "ffff"

# F opens qemu now, so that it serves in every chroot; C lets programs that switch users do so.
_RULE = ":{name}:M:0:{magic}:{mask}:{interpreter}:FC"
_KEEPER = """
home=$(mktemp --directory)
trap 'umount "$home"; rmdir "$home"' EXIT
mount -t binfmt_misc binfmt_misc "$home"
printf %s "$RULE" > "$home/register"
echo ready
cat > /dev/null
echo -1 > "$home/$NAME"
"""


def needed(architecture: Architecture) -> dict[str, str]:
    """The program, and the Debian package that brings it, that this machine needs for an architecture."""
    return {} if registered(architecture) else {_program(architecture): _PACKAGE}


def registered(architecture: Architecture) -> bool:
    """Whether this machine runs programs of this architecture by itself, or was taught to."""
    if architecture == native():
        return True
    try:
        # Another build's ends with that build, and cannot be counted on.
        there = [path for path in _REGISTRY.iterdir() if not path.name.startswith(("register", "status", _OURS))]
        entries = [path.read_text() for path in there]
    except OSError:
        return False
    return any(handles(entry, architecture) for entry in entries)


def handles(entry: str, architecture: Architecture) -> bool:
    """Whether an entry of binfmt_misc, as the kernel shows it, runs programs of this architecture in a chroot."""
    state, *lines = entry.splitlines()
    facts = dict(line.split(" ", 1) for line in lines if " " in line)
    if state != "enabled" or "F" not in facts.get("flags:", "") or facts.get("offset") != "0":
        return False
    program = bytes.fromhex(_HEADER + architecture.elf)
    magic = bytes.fromhex(facts.get("magic", ""))
    mask = bytes.fromhex(facts["mask"]) if "mask" in facts else b"\xff" * len(magic)
    return len(magic) == len(program) and all(
        ours & seen == theirs & seen for ours, theirs, seen in zip(program, magic, mask, strict=True)
    )


@contextmanager
def lent(architecture: Architecture) -> Iterator[None]:
    """Have this machine run programs of an architecture until the block ends."""
    if registered(architecture):
        yield
        return
    interpreter = shutil.which(_program(architecture))
    if not interpreter:
        raise Terminal(f"{_program(architecture)} is not on this machine", remedy=f"apt-get install {_PACKAGE}")
    name = f"{_OURS}{architecture.name}-{os.getpid()}"
    magic, mask = _HEADER + architecture.elf, _MASK
    rule = _RULE.format(name=name, magic=_escaped(magic), mask=_escaped(mask), interpreter=interpreter)
    with subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "--", "sh", "-euc", _KEEPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "NAME": name, "RULE": rule},
        start_new_session=True,  # Ctrl-C is for us; the keeper has to tidy up
        text=True,
    ) as keeper:
        assert keeper.stdout  # noqa: S101 - for the type checker: it is a pipe
        said = keeper.stdout.readline()
        if said != "ready\n":
            raise Terminal(
                f"the kernel does not let qemu run {architecture.name} programs: {said.strip()}",
                remedy=f"use a kernel with binfmt_misc, or build on an {architecture.name} machine",
            )
        yield


def _program(architecture: Architecture) -> str:
    return f"qemu-{architecture.machine}-static"


def _escaped(hexadecimal: str) -> str:
    return "".join(rf"\x{byte:02x}" for byte in bytes.fromhex(hexadecimal))
