#!/usr/bin/env python3
"""Fails when a process is stuck in the kernel, or many are dead and not buried: processes.py SECONDS ZOMBIES.

A busy process is often seen waiting for a disk (state D). It is stuck if it was seen waiting that long ago and has
not run since: the kernel counts how often it was switched to.
"""

import json
import os
import re
import sys
import time
from pathlib import Path


def look(proc: Path) -> tuple[dict[str, str], int]:
    """Find those that wait, by who they are and how often they ran, and count the dead."""
    waiting: dict[str, str] = {}
    dead = 0
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat, status = (entry / "stat").read_text(), (entry / "status").read_text()
        except OSError:  # it ended meanwhile
            continue
        fields = stat.rpartition(")")[2].split()
        dead += fields[0] == "Z"
        if fields[0] == "D":
            name = re.search(r"^Name:\s*(.*)", status)
            switches = ",".join(re.findall(r"ctxt_switches:\s*([0-9]+)", status))
            waiting[f"{entry.name} {fields[19]} {switches}"] = name[1] if name else "?"
    return waiting, dead


def main(seconds: float, most_dead: int) -> int:
    proc = Path(os.environ.get("CHECKS_ROOT", "/")) / "proc"
    kept = Path(os.environ.get("CHECKS_STATE_DIR", "/run/slurm_scripts")) / "waiting.json"
    waiting, dead = look(proc)
    try:
        seen = {str(it): float(at) for it, at in json.loads(kept.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        seen = {}
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    since = {it: seen.get(it, now) for it in waiting}
    if since != seen:
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(since))
        partial.replace(kept)
    stuck = [it for it, at in since.items() if now - at >= seconds]
    if stuck:
        first = min(stuck, key=lambda it: since[it])
        more = f" and {len(stuck) - 1} more" if len(stuck) > 1 else ""
        tell(f"process {first.split()[0]} ({waiting[first]}){more} is stuck in the kernel (state D)")
        return 1
    if dead > most_dead:
        tell(f"there are {dead} zombies, the limit is {most_dead}")
        return 1
    return 0


def tell(text: str) -> None:
    try:
        os.write(3, text.encode())
    except OSError:
        sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    try:
        code = main(float(sys.argv[1]), int(sys.argv[2]))
    except Exception as error:  # noqa: BLE001 - Python would end with 1, and that means failed
        sys.stderr.write(f"{error!r}\n")
        code = 2
    sys.exit(code)
