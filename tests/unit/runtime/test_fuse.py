import subprocess
import sys

import pytest

from isthmus.runtime.fuse import EXIT_CODE

BURNING = "from isthmus.runtime.fuse import Fuse; Fuse().set({seconds})\nwhile True: pass"
# A fuse may burn down before it is removed, where a process stands still in between; then it is set once more.
REMOVED = """
import signal, time
from isthmus.runtime.fuse import Fuse
fuse, alarm = Fuse(), {signal.SIGALRM}
signal.pthread_sigmask(signal.SIG_BLOCK, alarm)
fuse.set(0.05)
fuse.remove()
while signal.sigpending() & alarm:
    signal.sigwait(alarm)
    fuse.set(0.05)
    fuse.remove()
signal.pthread_sigmask(signal.SIG_UNBLOCK, alarm)
time.sleep(0.2)
"""


@pytest.mark.parametrize("seconds", [0.05, 0.0, -1.0])
def test_a_busy_process_is_ended_in_time(seconds: float) -> None:
    ended = subprocess.run([sys.executable, "-c", BURNING.format(seconds=seconds)], check=False, timeout=120)
    assert ended.returncode == EXIT_CODE


def test_the_first_process_of_a_container_is_ended_too() -> None:
    in_a_namespace = ["unshare", "--user", "--pid", "--fork", "--kill-child", sys.executable, "-c"]
    ended = subprocess.run([*in_a_namespace, BURNING.format(seconds=0.05)], check=False, timeout=120)
    assert ended.returncode == EXIT_CODE


def test_a_process_without_a_fuse_lives() -> None:
    assert subprocess.run([sys.executable, "-c", REMOVED], check=False, timeout=120).returncode == 0
