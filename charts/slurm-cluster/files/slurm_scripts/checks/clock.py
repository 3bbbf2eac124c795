#!/usr/bin/env python3
"""Fails when the clock of this node is so many seconds from slurmctld's: clock.py SECONDS.

A node that is minutes off cannot even ask: nobody believes its credentials. Then it counts whether the clock jumped
since it was last right. Who is right, the node or slurmctld, a check cannot know: so it should not drain.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path


def slurmctld_time() -> float | None:
    """Read slurmctld's clock from its statistics, between our own before and after."""
    before = time.time()
    try:
        done = subprocess.run(["sdiag"], check=False, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"sdiag output at .*\(([0-9]+)\)", done.stdout)
    if done.returncode or not found:
        return None
    # It is told in whole seconds, and anywhere within the time that the answer took.
    said, after = float(found[1]), time.time()
    return 0.0 if before - 1 <= said <= after else min(said - before, said + 1 - after, key=abs)


def main(limit: float) -> int:
    kept = Path(os.environ.get("CHECKS_STATE_DIR", "/run/slurm_scripts")) / "clock.json"
    # Of the time since the machine was started, and not of the clock, nothing jumps.
    base = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    off = slurmctld_time()
    if off is None:
        try:
            jump = base - float(json.loads(kept.read_text()))
        except (OSError, ValueError, TypeError):
            sys.stderr.write("slurmctld does not tell its time\n")
            return 2
        if abs(jump) > limit:
            tell(f"the clock jumped by {jump:+.0f} s, and slurmctld does not answer")
            return 1
        sys.stderr.write("slurmctld does not tell its time\n")
        return 2
    if abs(off) > limit:
        tell(f"the clock is {-off:+.0f} s from slurmctld's, the limit is {limit:g} s")
        return 1
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(base))
    return 0


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
