#!/usr/bin/env python3
"""Fails when none of several other nodes of the job can be reached: network.py SECONDS [HOST[:PORT]...].

Neighbours in the list of the job's nodes are tried at slurmd's port; with hosts, those instead. That one of them
does not answer may be its own fault, and two nodes cannot tell whose fault it is: so two at least must be silent,
and no one may answer. A connection that is refused shows that the network works.
"""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

NEIGHBOURS = 3
AT_LEAST = 2
SLURMD_PORT = 6818


def neighbours(node: str, nodes: list[str]) -> list[str]:
    """Take the next ones in a ring, so that every node is somebody's neighbour."""
    if node not in nodes:
        return []
    at = nodes.index(node)
    ring = nodes[at + 1 :] + nodes[:at]
    return ring[:NEIGHBOURS]


def slurmd_port() -> int:
    for place in (os.environ.get("SLURM_CONF"), "/run/slurm/conf/slurm.conf", "/etc/slurm/slurm.conf"):
        if place and Path(place).is_file():
            found = re.search(
                r"^\s*SlurmdPort\s*=\s*([0-9]+)", Path(place).read_text(), re.MULTILINE | re.IGNORECASE
            )
            return int(found[1]) if found else SLURMD_PORT
    return SLURMD_PORT


def answers(host: str, port: int, seconds: float) -> bool | None:
    """Whether a host answers; nothing if its name is not known."""
    try:
        with socket.create_connection((host, port), timeout=seconds):
            return True
    except ConnectionRefusedError:
        return True
    except socket.gaierror:
        return None
    except OSError:
        return False


def of_the_job() -> list[str]:
    listed = os.environ.get("SLURM_JOB_NODELIST", "")
    if not listed:
        return []
    done = subprocess.run(["scontrol", "show", "hostnames", listed], check=True, capture_output=True, text=True)
    return neighbours(os.environ["CHECKS_NODE"], done.stdout.split())


def main(seconds: float, hosts: list[str]) -> int:
    kept = Path(os.environ.get("CHECKS_STATE_DIR", "/run/slurm_scripts")) / "network.json"
    hosts = hosts or of_the_job()
    if not hosts and kept.exists():
        # Without a job: whether those that were silent then are so still.
        hosts = json.loads(kept.read_text())
    port = slurmd_port()
    silent = []
    for host in hosts:
        name, _, own_port = host.partition(":")
        answered = answers(name, int(own_port or port), seconds)
        if answered:
            kept.unlink(missing_ok=True)
            return 0
        silent += [host] if answered is False else []
    if len(silent) < AT_LEAST:
        return 0
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(silent))
    tell(f"none of {', '.join(silent)} answers within {seconds:g} s")
    return 1


def tell(text: str) -> None:
    try:
        os.write(3, text.encode())
    except OSError:
        sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    try:
        code = main(float(sys.argv[1]), sys.argv[2:])
    except Exception as error:  # noqa: BLE001 - Python would end with 1, and that means failed
        sys.stderr.write(f"{error!r}\n")
        code = 2
    sys.exit(code)
