"""qemu with the guest's disks. It ends with us, however we end; what the guest writes to its disks goes with it."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from isthmus.local import host
from isthmus.local.progress import Progress

_PROGRAM: Final = "qemu-system-x86_64"
_COMMAND_LINE: Final = "root=LABEL=system rw console=ttyS0 quiet"
_DIES_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL", "--")


def ensure(progress: Progress) -> None:
    """Install qemu from Debian's packages where it is missing."""
    if not shutil.which(_PROGRAM):
        host.install(["qemu-system-x86"], progress)


@contextmanager
def running(
    system: Path, project: Path, console: Path, *, accel: str, scratch: Path
) -> Iterator["subprocess.Popen[str]"]:
    """Boot the guest; its standard output is the guest's second serial port."""
    words = [
        *(_PROGRAM, "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot"),
        *("-accel", "tcg,thread=multi" if accel == "tcg" else accel, "-cpu", "max", "-smp", "2", "-m", "6G"),
        *("-kernel", str(system / "vmlinuz"), "-initrd", str(system / "initrd.img"), "-append", _COMMAND_LINE),
        # Writes go to a file that has no name: neither disk changes, nor does anything stay.
        *("-drive", f"file={system / 'disk'},format=raw,if=virtio,snapshot=on,cache=unsafe"),
        *("-drive", f"file={project},format=raw,if=virtio,snapshot=on,cache=unsafe"),
        *("-device", "virtio-rng-pci", "-serial", f"file:{console}", "-serial", "stdio", "-nic", "none"),
    ]
    with subprocess.Popen(
        [*_DIES_WITH_US, "env", f"TMPDIR={scratch}", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as machine:
        try:
            yield machine
        finally:
            machine.kill()


def lines(machine: "subprocess.Popen[str]") -> Iterator[str]:
    """What the guest prints, until it is switched off."""
    output: IO[str] | None = machine.stdout
    assert output
    for line in output:
        yield line.rstrip()
