"""The plugin and `isthmus-enter`, compiled with sanitizers: nothing they do is undefined or out of bounds."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from isthmus.local.images.recipes import ENTER
from isthmus.local.images.sources import SPANK
from tests.bed import logs
from tests.bed.jail import COMPILER, JAIL, OPTIONS, READY, SANITIZER_LOG, JailBed
from tests.bed.slurm_box import wait_until
from tests.flows.sharedroot.jobs import reason, run, srun

pytestmark = pytest.mark.long


def reports(bed: JailBed) -> list[str]:
    directory, _, prefix = SANITIZER_LOG.rpartition("/")
    return [
        path.read_text()
        for place in ("", JAIL, COMPILER)
        for path in bed.path(place + directory).glob(f"{prefix}*")
    ]


@pytest.fixture(scope="module")
def beds() -> Iterator[Callable[[str], JailBed]]:
    """Give the bed of a version, whose plugin is compiled once."""
    running: dict[str, JailBed] = {}
    with ExitStack() as stack:

        def give(version: str) -> JailBed:
            if version not in running:
                running[version] = stack.enter_context(JailBed(version, sanitized=True))
            return running[version]

        yield give


@pytest.fixture
def bed(request: pytest.FixtureRequest, beds: Callable[[str], JailBed], slurm_version: str) -> Iterator[JailBed]:
    bed = beds(slurm_version)
    with logs.shown(request.config, name=f"sanitized-{slurm_version}", directory=bed.log_directory):
        yield bed
        assert reports(bed) == []


@contextmanager
def not_filled(bed: JailBed) -> Iterator[None]:
    """Let the shared root look as if nobody had filled it."""
    away = bed.path(READY).rename(bed.path(f"{JAIL}/.isthmus/away"))
    try:
        yield
    finally:
        away.rename(bed.path(READY))


def test_steps_start_and_end(bed: JailBed) -> None:
    maps = srun(bed, "grep --only-matching --max-count=1 libasan /proc/$PPID/maps", user="root")
    assert maps == "libasan\n", "slurmstepd runs with sanitizers"
    assert srun(bed, "hostname", "--nodes=2", "--ntasks=4", "--overcommit").split().count("n1") == 2
    # By name: of two nodes on which the last job ends, the other one may be free first.
    assert run(bed, "srun hostname", "--nodelist=n1") == "n1\n"


def test_a_bad_root_is_refused(bed: JailBed) -> None:
    with not_filled(bed):
        with pytest.raises(RuntimeError):
            srun(bed, "true", "--nodelist=n1")
        wait_until(lambda: reason(bed, "n1"), what="the node is drained", within=60)
    bed.scontrol("update", "nodename=n1", "state=resume")


@pytest.mark.parametrize("slurm_version", ["26.05"])
def test_all_kinds_of_words_are_read(bed: JailBed) -> None:
    long = "/x" * 2047
    for words, why in (
        ([], "plugstack.conf: isthmus_jail.so needs root="),
        ([""], "plugstack.conf:  is no option of"),
        (["root"], "plugstack.conf: root is no option of"),
        (["root="], "plugstack.conf: root= is no absolute path"),
        (["root=//"], "plugstack.conf: root=// is no absolute path"),
        (["root=/a/"], "plugstack.conf: root=/a/ is no absolute path"),
        (["root=/a/./b"], "plugstack.conf: root=/a/./b is no absolute path"),
        (["root=/a/.."], "plugstack.conf: root=/a/.. is no absolute path"),
        ([f"root=/a{long}"], "plugstack.conf: root=/a/x/x"),
        ([f"root={long}"], "shared root /x/x"),
        (["root=/...", "bind=/.hidden"], "shared root /... is missing"),
        (["root=/a", "root=/b"], "plugstack.conf: isthmus_jail.so has two roots, /a and /b"),
        (["root=/a", *["bind=/b"] * 32], "shared root /a is missing"),
        (["root=/a", *["bind=/b"] * 33], "plugstack.conf: isthmus_jail.so takes 32 times bind= at most"),
    ):
        with pytest.raises(RuntimeError, match="ended with 125") as told:
            enter(bed, *words)
        assert f"isthmus-enter: {why}" in str(told.value)


@pytest.mark.parametrize("slurm_version", ["26.05"])
def test_a_root_is_looked_at_and_entered(bed: JailBed) -> None:
    assert enter(bed, *OPTIONS) == ""
    assert enter(bed, *OPTIONS, "--", "cat", "/.isthmus/ready") == ""
    assert "/outside" not in enter(bed, *OPTIONS, "--", "find", "/", "-maxdepth", "1")
    with pytest.raises(RuntimeError, match=r"ended with 127: isthmus-enter: nonsense: No such file"):
        enter(bed, *OPTIONS, "--", "nonsense")
    with pytest.raises(RuntimeError, match="ended with 125: isthmus-enter: /dev/null/x, which jobs are to see"):
        enter(bed, *OPTIONS, "bind=/dev/null/x", "--", "true")
    with (
        not_filled(bed),
        pytest.raises(RuntimeError, match="ended with 125: isthmus-enter: shared root /mnt/jail is not filled"),
    ):
        enter(bed, *OPTIONS)


# The program that the kernel is given on arm64, printed instead: there is no such machine here. What is included
# before is this machine's, and the numbers are those that arm64 has of the kernel's common table.
ARM64 = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#undef __x86_64__
#define __aarch64__
static long shown(long number, ...)
{
	va_list given;
	va_start(given, number);
	(void)va_arg(given, int), (void)va_arg(given, unsigned long);
	struct sock_fprog *program = va_arg(given, struct sock_fprog *);
	for (int i = 0; i < program->len; i++) {
		struct sock_filter it = program->filter[i];
		printf("%u %u %u %u\n", it.code, it.jt, it.jf, it.k);
	}
	puts("");
	va_end(given);
	return 0;
}
#define syscall shown
#include "filter.c"
int main(void) { return filter_calls() && filter_bpf() ? 0 : 1; }
"""
ARM64_CALLS = r"""
#define __ARCH_WANT_RENAMEAT
#define __ARCH_WANT_NEW_STAT
#define __ARCH_WANT_SET_GET_RLIMIT
#define __ARCH_WANT_TIME32_SYSCALLS
#define __ARCH_WANT_MEMFD_SECRET
#include <asm-generic/unistd.h>
"""
ARM64_BPF = 280
# init_module, finit_module, delete_module, kexec_load, kexec_file_load, reboot, settimeofday, clock_settime,
# clock_adjtime, swapon, swapoff, quotactl, quotactl_fd, syslog, acct, vhangup, open_by_handle_at, fanotify_init,
# lookup_dcookie, nfsservctl, add_key, request_key, keyctl, userfaultfd, io_uring_setup, io_uring_enter,
# io_uring_register
ARM64_REFUSED = {105, 273, 106, 104, 294, 142, 170, 112, 266, 224, 225, 60, 443, 116, 89, 58, 265, 262} | {
    *(18, 42, 217, 218, 219, 282, 425, 426, 427)
}
ALLOW, EPERM, KILL = 0x7FFF0000, 0x00050001, 0x80000000


@pytest.mark.parametrize("slurm_version", ["26.05"])
def test_the_filter_of_arm64_refuses_by_the_numbers_of_arm64(bed: JailBed) -> None:
    place = "/tmp/arm64"  # noqa: S108 - in the bed
    for name, text in (("asm/unistd.h", ARM64_CALLS), ("shown.c", ARM64)):
        file = bed.path(f"{COMPILER}{place}/{name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    compile_ = ("gcc", f"-I{place}", f"-I/{SPANK}", f"{place}/shown.c", "-o", f"{place}/shown")
    bed.command("chroot", COMPILER, *compile_)
    printed = bed.command("chroot", COMPILER, f"{place}/shown").split("\n\n")
    calls, bpf = ([tuple(map(int, line.split())) for line in it.strip().splitlines()] for it in printed[:2])
    arm64, arm, x86_64 = 0xC00000B7, 0x40000028, 0xC000003E
    for number in range(600):
        assert answer(calls, arm64, number) == (EPERM if number in ARM64_REFUSED else ALLOW), number
        assert answer(bpf, arm64, number) == (EPERM if number == ARM64_BPF else ALLOW), number
        assert {answer(calls, it, number) for it in (arm, x86_64)} == {KILL}


def answer(program: list[tuple[int, ...]], architecture: int, number: int) -> int:
    """Do what the kernel does with such a program."""
    at, held = 0, 0
    while True:
        match program[at]:
            case (0x20, _, _, offset):
                held = {0: number, 4: architecture}[offset]
                at += 1
            case (0x15, yes, no, value):
                at += 1 + (yes if held == value else no)
            case (0x06, _, _, said):
                return said
            case instruction:
                raise AssertionError(f"{instruction} is no instruction of ours")


def enter(bed: JailBed, *words: str) -> str:
    """Run the sanitized isthmus-enter."""
    program = f"{COMPILER}/{SPANK}/{ENTER.rpartition('/')[2]}"
    libraries = f"{COMPILER}/usr/lib/x86_64-linux-gnu"
    options = (f"ASAN_OPTIONS=log_path={SANITIZER_LOG}", f"UBSAN_OPTIONS=log_path={SANITIZER_LOG}")
    return bed.command("env", f"LD_LIBRARY_PATH={libraries}", *options, program, *words)
