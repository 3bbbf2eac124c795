#!/usr/bin/env python3
"""Fails when an InfiniBand port is down that was active before, or does not get active: infiniband.py [PORTS].

With a number, so many ports have to be active. Without, a port that never was may have no cable.
"""

import json
import os
import sys
from pathlib import Path


def main(wanted: int) -> int:
    root = Path(os.environ.get("CHECKS_ROOT", "/"))
    kept = Path(os.environ.get("CHECKS_STATE_DIR", "/run/slurm_scripts")) / "infiniband.json"
    try:
        before = set(json.loads(kept.read_text()))
    except (OSError, ValueError):
        before = set()
    states: dict[str, str] = {}
    linked: set[str] = set()
    for port in sorted(root.glob("sys/class/infiniband/*/ports/*")):
        name = f"{port.parent.parent.name}/{port.name}"
        states[name] = (port / "state").read_text().partition(":")[2].strip()
        if (port / "phys_state").read_text().startswith("5:"):
            linked.add(name)
    active = {it for it, state in states.items() if state == "ACTIVE"}
    trouble = ""
    for name in sorted(before | set(states)):
        if name in before and name not in states:
            trouble = trouble or f"{name} is gone"
        elif name not in active and (name in before or name in linked):
            trouble = trouble or f"{name} is {states[name]}"
    if len(active) < wanted:
        trouble = trouble or f"{len(active)} of {wanted} ports are active"
    if trouble:
        tell(trouble)
        return 1
    if active - before:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(sorted(active | before)))
    return 0


def tell(text: str) -> None:
    try:
        os.write(3, text.encode())
    except OSError:
        sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    try:
        code = main(int((sys.argv[1:] or ["0"])[0]))
    except Exception as error:  # noqa: BLE001 - Python would end with 1, and that means failed
        sys.stderr.write(f"{error!r}\n")
        code = 2
    sys.exit(code)
