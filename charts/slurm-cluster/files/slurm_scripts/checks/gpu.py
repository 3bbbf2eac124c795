#!/usr/bin/env python3
"""Fails when GPUs are missing or report errors, by nvidia-smi or dcgmi: gpu.py count|ecc|xid.

CHECKS_GPUS is how many Slurm counts on. Where neither program exists, nothing can be said, and it passes.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

FATAL_XIDS = frozenset({46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143})
"""Errors of the GPU, its memory, its links or its firmware; all others a program can cause."""

XID_WINDOW_S = 3600.0
"""The kernel's log stays after a GPU was reset: what is older counts no longer."""

NOT_RUN = frozenset({126, 127})
DBE, XID = 311, 230
"""Numbers of DCGM's fields: uncorrected errors since the driver was loaded, and the last XID."""


class UnknownError(Exception):
    """The program that should tell is itself broken."""


def run(*words: str) -> tuple[int, str]:
    try:
        done = subprocess.run(words, check=False, capture_output=True, text=True, errors="replace", timeout=25)
    except OSError as error:
        raise UnknownError(str(error)) from error
    if done.returncode in NOT_RUN or done.returncode < 0:
        raise UnknownError(f"{words[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return done.returncode, done.stdout or done.stderr


def last_line(text: str) -> str:
    return next((it.strip() for it in reversed(text.splitlines()) if it.strip()), "it says nothing")


def count() -> str:
    wanted = int(os.environ.get("CHECKS_GPUS") or 0)
    if not wanted:
        return ""
    if shutil.which("nvidia-smi"):
        code, text = run("nvidia-smi", "-L")
        found = len(re.findall(r"^GPU \d+:", text, re.MULTILINE))
        if code and not found:
            return f"nvidia-smi finds no GPU: {last_line(text)}"
    elif shutil.which("dcgmi"):
        code, text = run("dcgmi", "discovery", "-l")
        found = int((re.search(r"(\d+) GPUs? found", text) or ["", "0"])[1])
        if code:
            raise UnknownError(f"dcgmi ended with {code}: {last_line(text)}")
    else:
        return ""
    return "" if found >= wanted else f"{found} of {wanted} GPUs are there"


def ecc() -> str:
    if shutil.which("nvidia-smi"):
        fields = "index,ecc.errors.uncorrected.volatile.total"
        code, text = run("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits")
        if code:
            raise UnknownError(f"nvidia-smi ended with {code}: {last_line(text)}")
        for index, errors in re.findall(r"^(\d+), *(\d+)", text, re.MULTILINE):
            if int(errors):
                return f"GPU {index} has {errors} uncorrected memory errors"
        # Older drivers and GPUs do not have this.
        fields = "gpu_bus_id,remapped_rows.pending,remapped_rows.failure"
        code, text = run("nvidia-smi", f"--query-remapped-rows={fields}", "--format=csv,noheader")
        for line in text.splitlines() if code == 0 else ():
            bus, pending, failure, *_ = [*(it.strip().lower() for it in line.split(",")), "", "", ""]
            if failure in {"yes", "1"}:
                return f"GPU {bus} has no spare memory rows left"
            if pending in {"yes", "1"}:
                return f"GPU {bus} needs a reset to replace memory rows"
        return ""
    bad = [(gpu, errors) for gpu, errors in dcgm(DBE) if errors]
    return f"GPU {bad[0][0]} has {bad[0][1]} uncorrected memory errors" if bad else ""


def xid() -> str:
    bad = [(gpu, number) for gpu, number in dcgm(XID) if number in FATAL_XIDS]
    if bad:
        return f"GPU {bad[0][0]} reported XID {bad[0][1]}"
    if not shutil.which("dmesg"):
        return ""
    code, text = run("dmesg")
    if code:
        return ""  # without the right to read it, nothing can be said
    uptime = float(Path(os.environ.get("CHECKS_ROOT", "/"), "proc/uptime").read_text().split()[0])
    for at, bus, number in re.findall(r"^\[ *([0-9.]+)\].*NVRM: Xid \(([^)]*)\): (\d+)", text, re.MULTILINE):
        if int(number) in FATAL_XIDS and uptime - float(at) < XID_WINDOW_S:
            return f"GPU {bus.removeprefix('PCI:')} reported XID {number}"
    return ""


def dcgm(field: int) -> list[tuple[str, int]]:
    """Ask DCGM for a field of all GPUs; nothing where there is no DCGM or it does not run."""
    if not shutil.which("dcgmi"):
        return []
    code, text = run("dcgmi", "dmon", "-e", str(field), "-c", "1")
    rows = re.findall(r"^GPU (\d+)\s+(\d+)\s*$", text, re.MULTILINE)
    return [] if code else [(gpu, int(value)) for gpu, value in rows]


def main(what: str) -> int:
    found = {"count": count, "ecc": ecc, "xid": xid}[what]()
    if not found:
        return 0
    try:
        os.write(3, found.encode())
    except OSError:
        sys.stderr.write(f"{found}\n")
    return 1


if __name__ == "__main__":
    try:
        code = main(sys.argv[1])
    except Exception as error:  # noqa: BLE001 - Python would end with 1, and that means failed
        sys.stderr.write(f"{error!r}\n")
        code = 2
    sys.exit(code)
