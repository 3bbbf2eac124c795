#!/usr/bin/env python3
"""Fails when the shared root is not there, not filled, or does not answer: shared_root.py SECONDS.

It looks as the plugin does before each job, in a process that is left behind if the volume hangs.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

STEP_S = 0.01


def ends(child: "subprocess.Popen[str]", seconds: float) -> bool:
    """Wait for the end of a process that says little, and give up when it has waited in the kernel for so long.

    While it could run and is not let, or we are not, as on a busy machine, that says nothing of the volume.
    """
    blocked = 0.0
    while child.poll() is None:
        if blocked >= seconds:
            return False
        began = time.monotonic()
        time.sleep(STEP_S)
        try:
            state = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        blocked += min(time.monotonic() - began, 2 * STEP_S) if state in {"D", "S"} else 0.0
    return True


def main(seconds: float) -> int:
    root = os.environ.get("CHECKS_JAIL", "")
    if not root:
        return 0
    words = ["isthmus-enter", f"root={root}"] if shutil.which("isthmus-enter") else ["stat", f"{root}/usr"]
    child = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if not ends(child, seconds):
        child.send_signal(signal.SIGKILL)
        tell(f"{root} does not answer within {seconds:g} s")
        # Without waiting for the child: it may never end.
        sys.stderr.flush()
        os._exit(1)
    said = child.stderr.read() if child.stderr else ""
    if child.returncode == 0:
        return 0
    if child.returncode < 0 or child.returncode in {126, 127}:
        sys.stderr.write(f"{words[0]} ended with {child.returncode}: {said}\n")
        return 2
    tell(said.strip().removeprefix(f"{words[0]}: ") or f"{root} cannot be entered")
    return 1


def tell(text: str) -> None:
    try:
        os.write(3, text.encode())
    except OSError:
        sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    try:
        code = main(float(sys.argv[1]))
    except Exception as error:  # noqa: BLE001 - Python would end with 1, and that means failed
        sys.stderr.write(f"{error!r}\n")
        code = 2
    sys.exit(code)
