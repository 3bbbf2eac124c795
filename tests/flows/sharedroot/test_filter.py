"""System calls that nobody inside the shared root needs are refused there, to root and to 32-bit programs, too.

Root's jobs show it: to an ordinary user, the kernel itself refuses most of them.
"""

import json

import pytest

from tests.bed.jail import JAIL, OPTIONS, JailBed
from tests.flows.sharedroot.jobs import HOME, run, srun

# Numbers of x86-64 and of 32-bit x86. Every argument is -1, with which none of them does anything.
REFUSED = {
    "init_module": (175, 128),
    "finit_module": (313, 350),
    "delete_module": (176, 129),
    "kexec_load": (246, 283),
    "reboot": (169, 88),
    "settimeofday": (164, 79),
    "clock_settime": (227, 264),
    "clock_adjtime": (305, 343),
    "swapon": (167, 87),
    "iopl": (172, 110),
    "quotactl": (179, 131),
    "syslog": (103, 103),
    "acct": (163, 51),
    "open_by_handle_at": (304, 342),
    "fanotify_init": (300, 338),
    "add_key": (248, 286),
    "request_key": (249, 287),
    "keyctl": (250, 288),
    "bpf": (321, 357),
    "userfaultfd": (323, 374),
    "io_uring_setup": (425, 425),
    "io_uring_register": (427, 427),
}
# What containers in user namespaces, MPI, numactl, profilers and debuggers use is left to the kernel's own checks.
ALLOWED = {
    "mount": (165, 21),
    "umount2": (166, 52),
    "pivot_root": (155, 217),
    "unshare": (272, 310),
    "setns": (308, 346),
    "ptrace": (101, 26),
    "process_vm_readv": (310, 347),
    "mbind": (237, 274),
    "perf_event_open": (298, 336),
    "personality": (135, 136),
}

# Prints what each call answers: natively, by the numbers of x32, and as a 32-bit program makes it (int 0x80).
CALLS = r"""
import ctypes, errno, json, mmap, struct, sys
libc, code = ctypes.CDLL(None, use_errno=True), mmap.mmap(-1, 4096, prot=7)
minus_one_in_all_registers = bytes.fromhex("53 4831db 48ffcb 89d9 89da 89de 89df")
def named(result):
    return errno.errorcode.get(-result, str(result)) if result < 0 else "done"
def native(number):
    done = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
    return named(-ctypes.get_errno() if done == -1 else done)
def ia32(number):
    code.seek(0)
    code.write(minus_one_in_all_registers + b"\xb8" + struct.pack("<I", number) + b"\xcd\x80\x5b\xc3")
    return named(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())
for name, (ours, old) in json.loads(sys.argv[1]).items():
    print(name, native(ours), native(ours | 0x40000000), ia32(old))
"""


def answers(printed: str) -> dict[str, tuple[str, ...]]:
    return {name: tuple(words) for name, *words in map(str.split, printed.splitlines())}


def script(calls: dict[str, tuple[int, int]]) -> str:
    return f"python3 - '{json.dumps(calls)}' << 'EOF'\n{CALLS}\nEOF"


def test_what_only_the_node_has_a_use_for_is_refused_to_root_by_any_number(jail: JailBed) -> None:
    assert answers(run(jail, script(REFUSED), user="root")) == dict.fromkeys(REFUSED, ("EPERM", "ENOSYS", "EPERM"))


def test_a_node_itself_may_make_these_calls(jail: JailBed) -> None:
    """So it is the filter that refuses them: none of them is refused outside."""
    outside = answers(jail.on_node("n1", "python3", "-c", CALLS, json.dumps(REFUSED)))
    assert {name: it for name, it in outside.items() if "EPERM" in it} == {}


def test_what_users_need_is_left_to_the_kernel(jail: JailBed) -> None:
    found = answers(run(jail, script(ALLOWED), user="root"))
    assert {name: it for name, it in found.items() if "EPERM" in it or it[1] != "ENOSYS"} == {}


def test_a_user_has_containers_and_debuggers_of_his_own(jail: JailBed) -> None:
    shown = run(
        jail,
        """
        unshare --map-root-user --mount --uts bash -c 'mount -t tmpfs none /mnt && hostname own && stat -fc %T /mnt'
        sleep 60 &
        python3 -c '
import ctypes, sys
libc = ctypes.CDLL(None)
print(libc.ptrace(0x4206, int(sys.argv[1]), None, None))' $!
        kill $!""",
    )
    assert shown.split() == ["tmpfs", "0"]


def test_every_way_into_the_root_has_the_filter(jail: JailBed) -> None:
    """Two of them: slurmstepd needs bpf, which is refused to tasks by a filter of its own."""
    look = "grep ^Seccomp /proc/self/status | tr '\\n' ' '"
    filtered = "Seccomp:\t2 Seccomp_filters:\t2 "
    assert run(jail, look) == filtered
    assert srun(jail, look) == filtered
    entered = jail.on_node("n1", "isthmus-enter", *OPTIONS, "--", "bash", "-c", look)
    assert entered == filtered


def test_what_slurmstepd_runs_for_a_user_is_filtered_too(jail: JailBed) -> None:
    epilog = jail.path(f"{JAIL}{HOME}/epilog")
    epilog.write_text(f"#!/bin/bash\ngrep ^Seccomp: /proc/self/status > {HOME}/epilog.out\n")
    epilog.chmod(0o755)
    srun(jail, "true", f"--task-epilog={HOME}/epilog")
    assert jail.path(f"{JAIL}{HOME}/epilog.out").read_text() == "Seccomp:\t2\n"


@pytest.mark.parametrize("slurm_version", ["26.05"])
def test_programs_that_run_as_root_still_do(jail: JailBed) -> None:
    """The filter does without no_new_privs, which would take sudo from users."""
    shown = run(jail, "grep ^NoNewPrivs /proc/self/status; stat -c %A /usr/bin/su; su --version")
    assert shown.startswith("NoNewPrivs:\t0\n-rwsr-xr-x\n")
