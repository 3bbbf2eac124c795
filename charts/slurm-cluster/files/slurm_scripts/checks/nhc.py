#!/usr/bin/env python3
"""Checks of LBNL's Node Health Check by their names and arguments, so that an nhc.conf need not be rewritten.

    nhc.py check_fs_free /tmp 3%         0 passed, 1 failed, 2 unknown or with arguments that are not known here
    nhc.py --read nhc.conf n17           the lines that are for this node, as entries of checks.json

Lines are `hosts || check arguments`. They are words, not bash: nothing in them is expanded.
"""

import fnmatch
import getopt
import json
import os
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get("CHECKS_ROOT", "/"))
TESTS: dict[str, Callable[[str], bool]] = {
    "a": os.path.exists,
    "b": lambda it: Path(it).is_block_device(),
    "c": lambda it: Path(it).is_char_device(),
    "d": os.path.isdir,
    "e": os.path.exists,
    "f": os.path.isfile,
    "h": os.path.islink,
    "p": lambda it: Path(it).is_fifo(),
    "r": lambda it: os.access(it, os.R_OK),
    "s": lambda it: Path(it).exists() and Path(it).stat().st_size > 0,
    "w": lambda it: os.access(it, os.W_OK),
    "x": lambda it: os.access(it, os.X_OK),
    "L": os.path.islink,
    "S": lambda it: Path(it).is_socket(),
}


class Failed(Exception):  # noqa: N818 - the check failed, which is no error
    """What is wrong with the node."""


class UnsupportedError(Exception):
    """What is wrong with the line."""


def size(text: str, whole: float) -> float:
    """Read an amount as NHC does: in kilobytes unless it says otherwise, or a share of the whole."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(%|[kmgtpKMGTP]?)(i?[bB])?", text)
    if not found:
        raise UnsupportedError(f"{text!r} is not an amount such as 10%, 512M or 3GB")
    if found[2] == "%":
        return whole * float(found[1]) / 100
    return float(found[1]) * 1024.0 ** ("kmgtp".index(found[2].lower() or "k") + 1)


def options(known: str, words: list[str]) -> tuple[dict[str, str], list[str]]:
    try:
        found, rest = getopt.getopt(words, known)
    except getopt.GetoptError as error:
        raise UnsupportedError(str(error)) from error
    return {it[1:]: value for it, value in found}, rest


def at_most(count: int, words: list[str]) -> list[str]:
    if len(words) > count:
        raise UnsupportedError(f"{' '.join(words[count:])!r} is not supported")
    return [*words, *[""] * (count - len(words))]


# --- file systems ------------------------------------------------------------------------------------------------


def fs_mount(words: list[str], wanted: str = "") -> None:
    given, paths = options("t:s:o:f:", words)
    paths = [*([given["f"]] if "f" in given else []), *paths]
    if not paths:
        raise UnsupportedError("it names no mount point")
    rows = [line.split() for line in (ROOT / "proc/mounts").read_text().splitlines()]
    for path in paths:
        source, _, kind, flags, *_ = next((it for it in reversed(rows) if it[1] == path), ("", "", "", ""))
        if not kind:
            raise Failed(f"{path} is not mounted")
        have = flags.split(",")
        for option in [wanted, *given.get("o", "").split(",")]:
            if option and option not in have:
                raise Failed(f"{path} is mounted without {option}: {flags}")
        for what, told, found in (("type", "t", kind), ("source", "s", source)):
            if told in given and not matches(given[told], found):
                raise Failed(f"{path} has the {what} {found}, not {given[told]}")


def fs_space(words: list[str], *, inodes: bool, free: bool) -> None:
    path, limit = at_most(2, words)
    found = os.statvfs(path)
    unit, whole = (1, found.f_files) if inodes else (found.f_frsize, found.f_blocks)
    total, left = whole * unit, (found.f_favail if inodes else found.f_bavail) * unit
    if not total:
        return
    bound = float(limit) if inodes and limit.isdigit() else size(limit, total)
    have = left if free else total - left
    if (have < bound) if free else (have > bound):
        what = "inodes" if inodes else "bytes"
        raise Failed(
            f"{path} has {have * 100 // total:.0f} % of its {what} {'free' if free else 'in use'}, not {limit}"
        )


# --- hardware ----------------------------------------------------------------------------------------------------


def hw_cpuinfo(words: list[str]) -> None:
    wanted = at_most(3, words)
    blocks = (ROOT / "proc/cpuinfo").read_text().strip().split("\n\n")
    cpus = [dict(re.findall(r"^([\w ]+?)\s*:\s*(.*)$", block, re.MULTILINE)) for block in blocks]
    cpus = [it for it in cpus if "processor" in it]
    have = (
        len({it.get("physical id", "0") for it in cpus}),
        len({(it.get("physical id", "0"), it.get("core id", it["processor"])) for it in cpus}),
        len(cpus),
    )
    for what, told, found in zip(("sockets", "cores", "threads"), wanted, have, strict=True):
        if told and int(told) != found:
            raise Failed(f"there are {found} {what}, not {told}")


def hw_memory(words: list[str], *fields: str) -> None:
    low, high, fudge = at_most(3, words)
    table = dict(re.findall(r"^(\w+):\s*([0-9]+)", (ROOT / "proc/meminfo").read_text(), re.MULTILINE))
    have = sum(int(table[it]) for it in fields) * 1024.0
    slack = size(fudge, have) if fudge else 0.0
    if low and have < size(low, have) - slack:
        raise Failed(f"there are {have / 2**20:.0f} MiB, fewer than {low}")
    if high and have > size(high, have) + slack:
        raise Failed(f"there are {have / 2**20:.0f} MiB, more than {high}")


def hw_eth(words: list[str]) -> None:
    (device,) = at_most(1, words)
    try:
        state = (ROOT / "sys/class/net" / device / "operstate").read_text().strip()
    except FileNotFoundError:
        raise Failed(f"there is no interface {device}") from None
    if state not in {"up", "unknown"}:  # loopback and tunnels say unknown
        raise Failed(f"the interface {device} is {state}")


def hw_ib(words: list[str]) -> None:
    rate, device = at_most(2, words)
    for port in sorted((ROOT / "sys/class/infiniband").glob(f"{(device or '*').partition(':')[0]}/ports/*")):
        is_active = "ACTIVE" in (port / "state").read_text()
        if is_active and float((port / "rate").read_text().split()[0]) == float(rate):
            return
    raise Failed(f"no active port with {rate} Gb/s{f' on {device}' if device else ''}")


# --- processes, commands, files, network -------------------------------------------------------------------------


def ps_daemon(words: list[str]) -> None:
    given, rest = options("u:", words)
    name, owner = at_most(2, rest)
    owner = given.get("u", owner)
    for entry in (ROOT / "proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            called = (entry / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
            command = (entry / "comm").read_text().strip()
            uid = entry.stat().st_uid
        except OSError:
            continue
        if name in {command, called.rpartition("/")[2]} and (not owner or pwd.getpwnam(owner).pw_uid == uid):
            return
    raise Failed(f"no process {name}{f' of {owner}' if owner else ''} runs")


def ps_loadavg(words: list[str]) -> None:
    have = (ROOT / "proc/loadavg").read_text().split()[:3]
    for told, found, minutes in zip(at_most(3, words), have, (1, 5, 15), strict=True):
        if told and float(found) > float(told):
            raise Failed(f"the load of {minutes} min is {found}, more than {told}")


def run(command: list[str], timeout: str) -> tuple[int, str]:
    if not command:
        raise UnsupportedError("it names no command")
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=float(timeout or 20),
        )
    except FileNotFoundError as error:
        raise UnsupportedError(str(error)) from error
    except subprocess.TimeoutExpired:
        raise Failed(f"{shlex.join(command)} takes longer than {timeout or 20} s") from None
    return done.returncode, done.stdout


def cmd_status(words: list[str]) -> None:
    given, command = options("t:r:", words)
    code, _ = run(command, given.get("t", ""))
    if code != int(given.get("r", 0)):
        raise Failed(f"{shlex.join(command)} ended with {code}, not {given.get('r', 0)}")


def cmd_output(words: list[str]) -> None:
    wanted = [value for key, value in getopt.getopt(words, "t:r:m:e:")[0] if key == "-m"]
    given, command = options("t:r:m:e:", words)
    command = ["/bin/sh", "-c", given["e"]] if "e" in given else command
    code, text = run(command, given.get("t", ""))
    if "r" in given and code != int(given["r"]):
        raise Failed(f"{shlex.join(command)} ended with {code}, not {given['r']}")
    for pattern in wanted:
        is_not = pattern.startswith("!")
        if any(matches(pattern.removeprefix("!"), line) for line in text.splitlines()) == is_not:
            raise Failed(
                f"{shlex.join(command)} prints {'a' if is_not else 'no'} line {pattern.removeprefix('!')!r}"
            )


def file_test(words: list[str]) -> None:
    tests = [it for word in words if word.startswith("-") for it in word[1:]]
    if unknown := [it for it in tests if it not in TESTS]:
        raise UnsupportedError(f"-{unknown[0]} is not supported")
    for path in (it for it in words if not it.startswith("-")):
        for test in tests or "e":
            if not TESTS[test](path):
                raise Failed(f"{path} does not pass -{test}")


def net_ping(words: list[str]) -> None:
    given, hosts = options("I:W:c:t:s:", words)
    (host,) = at_most(1, hosts)
    more = [word for key, value in given.items() if key != "c" for word in (f"-{key}", value)]
    code, text = run(["ping", "-n", "-q", "-c", given.get("c", "1"), "-W", "3", *more, host], "")
    if code:
        raise Failed(f"{host} does not answer: {text.strip().splitlines()[-1] if text.strip() else code}")


def matches(pattern: str, text: str) -> bool:
    if pattern.startswith("/") and pattern.endswith("/") and len(pattern) > 1:
        return re.search(pattern[1:-1], text) is not None
    return fnmatch.fnmatchcase(text, pattern)


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "check_fs_mount": fs_mount,
    "check_fs_mount_rw": lambda it: fs_mount(it, "rw"),
    "check_fs_mount_ro": lambda it: fs_mount(it, "ro"),
    "check_fs_free": lambda it: fs_space(it, inodes=False, free=True),
    "check_fs_used": lambda it: fs_space(it, inodes=False, free=False),
    "check_fs_ifree": lambda it: fs_space(it, inodes=True, free=True),
    "check_fs_iused": lambda it: fs_space(it, inodes=True, free=False),
    "check_hw_cpuinfo": hw_cpuinfo,
    "check_hw_physmem": lambda it: hw_memory(it, "MemTotal"),
    "check_hw_physmem_free": lambda it: hw_memory(it, "MemAvailable"),
    "check_hw_swap": lambda it: hw_memory(it, "SwapTotal"),
    "check_hw_mem": lambda it: hw_memory(it, "MemTotal", "SwapTotal"),
    "check_hw_eth": hw_eth,
    "check_hw_ib": hw_ib,
    "check_ps_daemon": ps_daemon,
    "check_ps_service": ps_daemon,
    "check_ps_loadavg": ps_loadavg,
    "check_cmd_status": cmd_status,
    "check_cmd_output": cmd_output,
    "check_file_test": file_test,
    "check_net_ping": net_ping,
}


# --- nhc.conf ----------------------------------------------------------------------------------------------------


def is_for(hosts: str, node: str) -> bool:
    """Whether a pattern means this node: n*, /regular expression/ or {n[1-9],m2}; with ! in front, all others."""
    if hosts.startswith("!"):
        return not is_for(hosts[1:].strip(), node)
    if hosts.startswith("{") and hosts.endswith("}"):
        return any(_in_range(part, node) for part in re.split(r",(?![^\[]*\])", hosts[1:-1]))
    if hosts.startswith(("&", "@")):
        raise UnsupportedError(f"hosts by {hosts} are not supported; write a pattern")
    return matches(hosts, node)


def _in_range(expression: str, node: str) -> bool:
    parts = re.fullmatch(r"([^\[\]]*)(?:\[([0-9,-]+)\]([^\[\]]*))?", expression.strip())
    if not parts:
        raise UnsupportedError(f"{expression!r} is not a range of hosts such as n[1-9]")
    before, numbers, after = parts[1], parts[2], parts[3] or ""
    if numbers is None:
        return node == before
    middle = node.removeprefix(before).removesuffix(after)
    if f"{before}{middle}{after}" != node or not middle.isdigit():
        return False
    ranges = [it.partition("-") for it in numbers.split(",")]
    return any(int(first) <= int(middle) <= int(last or first) for first, _, last in ranges)


class Reader:
    """Reads lines one by one; some of them say what is done with those that follow."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.checks: list[dict[str, Any]] = []
        self._on_fail = "drain"
        self._timeout = 30

    def read(self, line: str) -> None:
        hosts, bars, rest = line.partition("||")
        words = shlex.split(rest, comments=True)
        if not bars or not words:
            raise UnsupportedError("it is not `hosts || check arguments`")
        if not is_for(hosts.strip(), self.node):
            return
        words = words[1:] if words[0] == "export" else words
        setting, equals, value = (words or [""])[0].partition("=")
        if equals and setting == "MARK_OFFLINE":
            self._on_fail = "none" if value in {"", "0"} else "drain"
        elif equals and setting == "TIMEOUT" and value.isdigit() and int(value):
            self._timeout = int(value)
        elif setting in CHECKS:
            self._add(words)
        else:
            raise UnsupportedError(f"{rest.strip()!r} is not supported, and is left out")

    def _add(self, words: list[str]) -> None:
        count = sum(it["command"].split()[3] == words[0] for it in self.checks)
        name = f"nhc_{words[0]}" + (f"_{count + 1}" if count else "")
        self.checks.append(
            {
                "name": name,
                "command": shlex.join(["python3", "-IS", str(Path(__file__).absolute()), *words]),
                "contexts": ["hc_program"],
                "on_fail": self._on_fail,
                "on_ok": "undrain",
                "reason_append_details": True,
                "timeout": self._timeout,
            }
        )


def read(path: Path, node: str) -> dict[str, Any]:
    reader, problems = Reader(node), []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        if line.strip() and not line.strip().startswith("#"):
            try:
                reader.read(line)
            except (UnsupportedError, ValueError, re.error) as error:
                problems.append(f"line {number}: {error}")
    return {"checks": reader.checks, "problems": problems}


def main(words: list[str]) -> int:
    if words[0] == "--read":
        sys.stdout.write(json.dumps(read(Path(words[1]), words[2])))
        return 0
    if words[0] not in CHECKS:
        raise UnsupportedError(f"{words[0]} is not supported; these are: {', '.join(CHECKS)}")
    try:
        CHECKS[words[0]](words[1:])
    except Failed as failure:
        try:
            os.write(3, str(failure).encode())
        except OSError:
            sys.stderr.write(f"{failure}\n")
        return 1
    return 0


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except Exception as error:  # noqa: BLE001 - Python would end with 1, and that means failed
        sys.stderr.write(f"{error!r}\n")
        code = 2
    sys.exit(code)
