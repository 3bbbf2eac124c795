#!/usr/bin/env python3
"""Fails when files in memory or shared memory of users are left on a node without jobs: leftovers.py MEBIBYTES.

Files of /dev/shm and of other tmpfs that users write to are memory that no job can have.
"""

import os
import sys
from pathlib import Path

FIRST_USER = 1000
PLACES = (Path("/dev/shm"), Path("/mnt/memory"))  # noqa: S108 - where users leave files in memory


def files(place: Path) -> int:
    total = 0
    for directory, _, names in os.walk(place):
        for name in names:
            try:
                found = os.lstat(f"{directory}/{name}")
            except OSError:
                continue
            total += found.st_blocks * 512 if found.st_uid >= FIRST_USER else 0
    return total


def segments(table: str) -> int:
    """Bytes of System V shared memory of users that no process is attached to."""
    head, *lines = [line.split() for line in table.splitlines()] or [[]]
    rows = [dict(zip(head, line, strict=False)) for line in lines]
    return sum(int(it["size"]) for it in rows if int(it["uid"]) >= FIRST_USER and int(it["nattch"]) == 0)


def main(limit: int) -> int:
    state = set(os.environ.get("CHECKS_NODE_STATE", "").split(","))
    if "IDLE" not in state or "COMPLETING" in state:
        return 0
    root = Path(os.environ.get("CHECKS_ROOT", "/"))
    found = {str(it): files(root / it.relative_to("/")) for it in PLACES}
    table = root / "proc/sysvipc/shm"
    if table.exists():
        found["System V shared memory"] = segments(table.read_text())
    total = sum(found.values())
    if total <= limit * 1024 * 1024:
        return 0
    largest = max(found, key=lambda it: found[it])
    tell(f"jobs left {total >> 20} MiB in memory, most of it in {largest}; the limit is {limit} MiB")
    return 1


def tell(text: str) -> None:
    try:
        os.write(3, text.encode())
    except OSError:
        sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    try:
        code = main(int(sys.argv[1]))
    except Exception as error:  # noqa: BLE001 - Python would end with 1, and that means failed
        sys.stderr.write(f"{error!r}\n")
        code = 2
    sys.exit(code)
