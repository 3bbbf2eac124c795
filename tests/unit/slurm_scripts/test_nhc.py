"""Lines of an nhc.conf as checks."""

import importlib.util
import re
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.slurm_scripts.node import SCRIPTS, Node


@pytest.fixture(scope="module")
def nhc() -> ModuleType:
    """checks/nhc.py in this process: what many lines mean is asked without three programs for each."""
    spec = importlib.util.spec_from_file_location("nhc", SCRIPTS / "checks" / "nhc.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)  # the chart takes along whatever lies in its directories
        spec.loader.exec_module(module)
    return module


def configured(node: Node, *lines: str) -> None:
    node.checks()
    (node.scripts / "nhc.conf").write_text("".join(f"{line}\n" for line in lines))


def drained(node: Node, **environ: str) -> str:
    """Run the health check; for which reason it drained."""
    before = len(node.calls)
    node.health_check(**environ)
    calls = node.calls[before:]
    assert len(calls) <= 1
    return calls[0].partition("Reason=")[2] if calls else ""


def test_a_line_is_a_check_that_drains_and_undrains(node: Node) -> None:
    configured(node, "# Filesystem checks", "", "* || check_file_test -r -x /no/such/file")
    reason = "[node_problem] nhc_check_file_test: /no/such/file does not pass -r [hc_program]"
    assert drained(node) == reason
    assert node.prolog().returncode == 0, "NHC is a health check"
    node.is_said_to_be("IDLE", "DRAIN", reason=reason)
    configured(node, "* || check_file_test -d /")
    node.health_check()
    assert node.calls[-1] == "update NodeName=n1 State=UNDRAIN"


def checks_for(nhc: ModuleType, directory: Path, hosts: str) -> list[str]:
    """The checks that n1 reads from a line for these hosts, which is read without complaint."""
    file = directory / "nhc.conf"
    file.write_text(f"{hosts} || check_file_test /no/such/file\n")
    found = nhc.read(file, "n1")
    assert found["problems"] == []
    return [it["name"] for it in found["checks"]]


@pytest.mark.parametrize("hosts", ["*", "n1", "n*", "/^n[0-9]$/", "{n[1-4]}", "{m1,n[0-1]}", "!m1"])
def test_a_line_is_for_its_hosts(nhc: ModuleType, tmp_path: Path, hosts: str) -> None:
    assert checks_for(nhc, tmp_path, hosts) == ["nhc_check_file_test"]


@pytest.mark.parametrize("hosts", ["m*", "/x/", "{n[2-4,7]}", "!n1"])
def test_a_line_is_not_for_other_hosts(nhc: ModuleType, tmp_path: Path, hosts: str) -> None:
    assert checks_for(nhc, tmp_path, hosts) == []


def test_a_line_for_other_hosts_is_not_run(node: Node) -> None:
    configured(node, "!n1 || check_file_test /no/such/file", "m1 || check_file_test /no/such/file")
    assert drained(node) == ""


def test_what_is_not_known_is_named_and_left_out(node: Node) -> None:
    configured(
        node,
        "* || check_moon_phase full",
        "* || check_fs_mount_rw -Z /",
        "nonsense",
        "@group || check_hw_eth eth0",
        '* || check_cmd_status "unclosed',
        "* || check_file_test /no/such/file",
    )
    assert drained(node).startswith("[node_problem] nhc_check_file_test:")
    assert "nhc.conf, line 1: 'check_moon_phase full' is not supported, and is left out" in node.log
    assert "nhc_check_fs_mount_rw: error: it ended with 2" in node.log
    assert "nhc.conf, line 3: it is not `hosts || check arguments`" in node.log
    assert "nhc.conf, line 4: hosts by @group are not supported" in node.log
    assert "nhc.conf, line 5: No closing quotation" in node.log


def test_settings_of_nhc(node: Node) -> None:
    configured(
        node,
        "* || export MARK_OFFLINE=0",
        "* || TIMEOUT=1",
        "* || check_file_test /no/such/file",
        "* || check_cmd_status -t 60 -r 0 sleep 60",
    )
    assert drained(node) == ""
    assert "nhc_check_file_test: failed" in node.log
    assert "nhc_check_cmd_status: error: it was killed, as it did not end within 1 s" in node.log


def test_the_same_check_twice_has_two_names(node: Node) -> None:
    configured(node, "* || check_file_test /", "* || check_file_test /no/such/file", "* || check_file_test /bin")
    assert drained(node).startswith("[node_problem] nhc_check_file_test_2: ")
    assert node.check("nhc_check_file_test").returncode == 0
    assert node.check("nhc_check_file_test_2").returncode == 1
    assert node.check("nhc_check_file_test_3").returncode == 0


MOUNTS = "/dev/sda1 / ext4 rw,relatime 0 0\nnas:/home /home nfs4 ro,hard 0 0\n"
CPUINFO = "\n\n".join(f"processor\t: {n}\nphysical id\t: {n // 4}\ncore id\t: {n // 2}" for n in range(8)) + "\n"
FILES = {
    "proc/mounts": MOUNTS,
    "proc/cpuinfo": CPUINFO,
    "proc/meminfo": "MemTotal: 67108864 kB\nMemAvailable: 1048576 kB\nSwapTotal: 0 kB\n",
    "proc/loadavg": "3.50 2.00 1.00 1/2 3\n",
    "proc/12/cmdline": "/usr/sbin/sshd\0-D\0",
    "proc/12/comm": "sshd\n",
    "sys/class/net/eth0/operstate": "up\n",
    "sys/class/net/eth1/operstate": "down\n",
    "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("check_fs_mount_rw /", ""),
        ("check_fs_mount_rw -t ext4 -f /", ""),
        ("check_fs_mount_rw /home", "/home is mounted without rw: ro,hard"),
        ("check_fs_mount_ro /home", ""),
        ("check_fs_mount -t lustre -f /home", "/home has the type nfs4, not lustre"),
        ("check_fs_mount -s 'nas:*' -f /home", ""),
        ("check_fs_mount /scratch", "/scratch is not mounted"),
        ("check_fs_free / 0%", ""),
        ("check_fs_free / 101%", "/ has"),
        ("check_fs_free / 1k", ""),
        ("check_fs_used / 100%", ""),
        ("check_fs_ifree / 0", ""),
        ("check_hw_cpuinfo 2 4 8", ""),
        ("check_hw_cpuinfo 2 4 16", "there are 8 threads, not 16"),
        ("check_hw_cpuinfo 4", "there are 2 sockets, not 4"),
        ("check_hw_physmem 64GB 64GB", ""),
        ("check_hw_physmem 65GB 65GB", "there are 65536 MiB, fewer than 65GB"),
        ("check_hw_physmem 65GB 65GB 5%", ""),
        ("check_hw_physmem 1024 1073741824", ""),
        ("check_hw_physmem_free 2GB", "there are 1024 MiB, fewer than 2GB"),
        ("check_hw_eth eth0", ""),
        ("check_hw_eth eth1", "the interface eth1 is down"),
        ("check_hw_eth eth2", "there is no interface eth2"),
        ("check_hw_ib 400", ""),
        ("check_hw_ib 200 mlx5_0:1", "no active port with 200 Gb/s on mlx5_0:1"),
        ("check_ps_daemon sshd", ""),
        ("check_ps_service -u no-such-user munged", "no process munged of no-such-user runs"),
        ("check_ps_daemon crond", "no process crond runs"),
        ("check_ps_loadavg 4 3 2", ""),
        ("check_ps_loadavg 3", "the load of 1 min is 3.50, more than 3"),
        ("check_cmd_status -r 0 true", ""),
        ("check_cmd_status -t 1 -r 0 sleep 60", "sleep 60 takes longer than 1 s"),
        ("check_cmd_status -r 1 true", "true ended with 0, not 1"),
        ("check_cmd_output -m '*b*' echo abc", ""),
        ("check_cmd_output -m '/^b/' -e 'echo abc'", "prints no line '/^b/'"),
        ("check_cmd_output -m '!*b*' echo abc", "prints a line '*b*'"),
        ("check_file_test -f -s /etc/passwd", ""),
        ("check_file_test -d /etc/passwd", "/etc/passwd does not pass -d"),
        ("check_net_ping 192.0.2.9", "192.0.2.9 does not answer: nothing came"),
    ],
)
def test_checks_find_what_nhc_would(
    nhc: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, told: str
) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ping = tmp_path / "bin" / "ping"
    ping.parent.mkdir()
    ping.write_text("#!/bin/sh\necho nothing came\nexit 1\n")
    ping.chmod(0o755)
    monkeypatch.setenv("PATH", str(ping.parent), prepend=":")
    monkeypatch.setattr(nhc, "ROOT", tmp_path)
    check, *words = shlex.split(line)
    with pytest.raises(nhc.Failed, match=re.escape(told)) if told else nullcontext():
        nhc.CHECKS[check](words)


def test_a_check_sees_the_root_that_it_is_given(node: Node) -> None:
    (node.directory / "root" / "proc").mkdir(parents=True)
    (node.directory / "root" / "proc" / "mounts").write_text(MOUNTS)
    configured(node, "* || check_fs_mount -s 'nas:*' -f /home", "* || check_fs_mount_rw /home")
    environ = {"CHECKS_ROOT": str(node.directory / "root")}
    assert node.check("nhc_check_fs_mount", **environ).stdout == "nhc_check_fs_mount: passed\n"
    failed = node.check("nhc_check_fs_mount_rw", **environ)
    assert (failed.returncode, failed.stdout) == (
        1,
        "nhc_check_fs_mount_rw: failed: /home is mounted without rw: ro,hard\n",
    )


def test_a_broken_file_is_no_finding(node: Node) -> None:
    node.checks()
    Path(node.scripts / "nhc.conf").mkdir()
    assert drained(node) == ""
    assert "nhc.conf" in node.log
