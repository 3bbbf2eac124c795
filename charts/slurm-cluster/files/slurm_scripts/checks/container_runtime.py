#!/usr/bin/env python3
"""Fails when a container runtime that is on this node does not answer: container_runtime.py SECONDS."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

SOCKETS = ("run/docker.sock", "run/podman/podman.sock", "run/containerd/containerd.sock", "run/crio/crio.sock")
SPEAK_HTTP = ("docker", "podman")


def answer(path: Path, seconds: float) -> str:
    """Say what is wrong with the daemon behind a socket; nothing if it answers."""
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(seconds)
        try:
            end.connect(str(path))
            if path.name.startswith(SPEAK_HTTP):
                end.sendall(b"GET /_ping HTTP/1.0\r\nHost: x\r\n\r\n")
                head = end.recv(64).decode(errors="replace").split()
                if head[1:2] != ["200"]:
                    return f"answers with {' '.join(head[1:3]) or 'nothing'}"
        except TimeoutError:
            return f"does not answer within {seconds:g} s"
        except OSError as error:
            return f"does not answer: {error.strerror}"
    return ""


def main(seconds: float) -> int:
    root = Path(os.environ.get("CHECKS_ROOT", "/"))
    found = {str(it): answer(it, seconds) for name in SOCKETS if (it := root / name).is_socket()}
    if shutil.which("enroot"):
        try:
            done = subprocess.run(["enroot", "list"], check=False, capture_output=True, text=True, timeout=seconds)
            found["enroot"] = "" if done.returncode == 0 else f"fails: {done.stderr.strip()}"
        except subprocess.TimeoutExpired:
            found["enroot"] = f"does not answer within {seconds:g} s"
    bad = [f"{name} {how}" for name, how in found.items() if how]
    if not bad:
        return 0
    tell("; ".join(bad))
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
