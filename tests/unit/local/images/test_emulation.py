"""Which emulators of a machine serve; and that one that we register is used, and goes away, whatever happens."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.local.architecture import AMD64, ARCHITECTURES, ARM64, native
from isthmus.local.images import emulation
from tests.unit.local.conftest import eventually

OTHER = next(each for each in ARCHITECTURES.values() if each != native())
# As the kernel shows what Debian 12's qemu-user-static registers.
DEBIAN = """\
enabled
interpreter /usr/libexec/qemu-binfmt/aarch64-binfmt-P
flags: POCF
offset 0
magic 7f454c460201010000000000000000000200b700
mask ffffffffffffff00fffffffffffffffffeffffff
"""


def test_debians_emulator_serves_its_own_architecture_alone() -> None:
    assert emulation.handles(DEBIAN, ARM64)
    assert not emulation.handles(DEBIAN, AMD64)


@pytest.mark.parametrize(
    ("shown", "instead"),
    [
        ("enabled", "disabled"),
        ("flags: POCF", "flags: POC"),  # it would be looked for inside the chroot, where it is not
        ("offset 0", "offset 4"),
        ("magic 7f454c46", "magic cafebabe"),
        ("mask ffffffffffffff00fffffffffffffffffeffffff\n", ""),  # only programs for a fixed place
    ],
)
def test_an_emulator_that_would_not_be_used_in_a_chroot_does_not_serve(shown: str, instead: str) -> None:
    assert not emulation.handles(DEBIAN.replace(shown, instead), ARM64)


def test_a_machine_runs_its_own_programs_without_anything() -> None:
    assert emulation.registered(native())
    assert emulation.needed(native()) == {}


def test_what_the_machine_was_taught_serves_and_what_another_build_lent_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulation, "_REGISTRY", tmp_path)
    (tmp_path / "register").touch()
    (tmp_path / "isthmus-other-1").write_text(DEBIAN.replace(ARM64.elf, OTHER.elf))
    assert not emulation.registered(OTHER)
    assert list(emulation.needed(OTHER).values()) == ["qemu-user-static"]
    (tmp_path / "qemu-other").write_text(DEBIAN.replace(ARM64.elf, OTHER.elf))
    assert emulation.registered(OTHER)
    assert emulation.needed(OTHER) == {}


@pytest.fixture
def entries(tmp_path: Path) -> Iterator[Path]:
    """The registrations of this machine, shown for the whole test: new kernels forget what nobody has mounted."""
    home = tmp_path / "entries"
    home.mkdir()
    with subprocess.Popen(
        ["unshare", "--mount", "--", "sh", "-ec", 'mount -t binfmt_misc none "$0"; echo; exec cat', home],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"\n"
        yield Path(f"/proc/{holder.pid}/root{home}")


@pytest.fixture
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of qemu, a program that every machine has, and that prints what it is to run."""
    program = tmp_path / "bin" / f"qemu-{OTHER.machine}-static"
    program.parent.mkdir()
    shutil.copy("/bin/echo", program)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(emulation, "_REGISTRY", tmp_path / "nowhere")
    return program


@pytest.mark.usefixtures("emulator")
def test_an_emulator_is_lent_and_taken_back(entries: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_bytes(bytes.fromhex(f"7f454c46020101{'00' * 9}0300{OTHER.elf}") + bytes(200))
    foreign.chmod(0o755)
    entry = entries / f"isthmus-{OTHER.name}-{os.getpid()}"
    with emulation.lent(OTHER):
        assert emulation.handles(entry.read_text(), OTHER)
        assert subprocess.run([foreign], check=True, capture_output=True, text=True).stdout == f"{foreign}\n"
    assert not entry.exists()


@pytest.mark.usefixtures("emulator")
def test_a_killed_build_leaves_no_emulator_behind(entries: Path, tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from isthmus.local.architecture import ARCHITECTURES
from isthmus.local.images import emulation
emulation._REGISTRY = Path({str(tmp_path / "nowhere")!r})
with emulation.lent(ARCHITECTURES[{OTHER.name!r}]):
    print(os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stdout, done.stderr
    eventually(lambda: not (entries / f"isthmus-{OTHER.name}-{done.stdout.strip()}").exists(), within=30)
