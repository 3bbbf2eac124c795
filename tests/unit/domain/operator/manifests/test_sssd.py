"""SSSD beside login nodes: an image without it says so once, and is in nobody's way."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from isthmus.domain.operator.manifests import sssd
from isthmus.model.pod import Pod


def pod(**status: Any) -> Pod:
    statuses = [{"name": "sackd", "ready": True}, {"name": sssd.CONTAINER, **status}]
    return msgspec.convert({"metadata": {"name": "login-0"}, "status": {"initContainerStatuses": statuses}}, Pod)


CRASHED = {"terminated": {"exitCode": 1, "message": "no such domain"}}
ABSENT = {"terminated": {"exitCode": 1, "message": f"{sssd.NOT_THERE}\n"}}


@pytest.mark.parametrize(
    ("pods", "told"),
    [
        ([pod(ready=True)], ("True", "Running")),
        ([pod(ready=True, lastState=ABSENT)], ("False", "NotInImage")),
        ([pod(ready=False, state=ABSENT)], ("False", "NotInImage")),
        ([pod(ready=True), pod(ready=False)], None),
        (
            [pod(ready=True, lastState={"terminated": {"exitCode": 1, "message": "no such domain"}})],
            ("True", "Running"),
        ),
        ([], None),
    ],
)
def test_whether_it_runs_is_a_condition_of_its_own(pods: list[Pod], told: tuple[str, str] | None) -> None:
    found = sssd.condition(pods)
    assert (found and (found.status, found.reason)) == told


def test_without_sssd_it_ends_once_so_that_kubelet_tells_and_is_idle_then(tmp_path: Path) -> None:
    """The real script, with the places of the container in a directory; no machine of ours has sssd."""
    script = sssd.sidecar("image")["command"][-1]
    script = script.replace(sssd.STATE, str(tmp_path)).replace("/dev/termination-log", f"{tmp_path}/said")
    command = ["bash", "-euc", script]
    first = subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert first.returncode == 1
    assert (tmp_path / "said").read_text().strip() == sssd.NOT_THERE
    with subprocess.Popen(command, env={"PATH": "/usr/bin:/bin"}, start_new_session=True) as second:
        try:
            deadline = time.monotonic() + 60
            while "sleep" not in children(second.pid):
                assert second.poll() is None, "it ended a second time"
                assert time.monotonic() < deadline
                time.sleep(0.01)
            second.terminate()
            assert second.wait(timeout=60) == 143
        finally:
            os.killpg(second.pid, signal.SIGKILL)  # what a container's end does to what is left in it


def children(process: int) -> list[str]:
    """Name the programs that a process has started."""
    found = []
    for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        with suppress(OSError):
            found.append(Path(f"/proc/{child}/comm").read_text().strip())
    return found
