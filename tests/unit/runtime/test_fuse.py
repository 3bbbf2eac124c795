import subprocess
import sys

import pytest

from isthmus.runtime.fuse import EXIT_CODE

BURNING = "from isthmus.runtime.fuse import Fuse; Fuse().set({seconds})\nwhile True: pass"
REMOVED = "from isthmus.runtime.fuse import Fuse; f = Fuse(); f.set(0.01); f.remove(); import time; time.sleep(0.1)"


@pytest.mark.parametrize("seconds", [0.05, 0.0, -1.0])
def test_a_busy_process_is_ended_in_time(seconds: float) -> None:
    ended = subprocess.run([sys.executable, "-c", BURNING.format(seconds=seconds)], check=False, timeout=20)
    assert ended.returncode == EXIT_CODE


def test_the_first_process_of_a_container_is_ended_too() -> None:
    in_a_namespace = ["unshare", "--user", "--pid", "--fork", "--kill-child", sys.executable, "-c"]
    ended = subprocess.run([*in_a_namespace, BURNING.format(seconds=0.05)], check=False, timeout=20)
    assert ended.returncode == EXIT_CODE


def test_a_process_without_a_fuse_lives() -> None:
    assert subprocess.run([sys.executable, "-c", REMOVED], check=False, timeout=20).returncode == 0
