"""What containers wait for before their daemons start: who is told to go meanwhile goes at once."""

import os
import re
import socket
import subprocess
from pathlib import Path
from signal import Signals

import pytest

from isthmus.domain.operator.manifests import accounting, controller_scripts, jail, login, startorder, worker

SCRIPTS = {
    "daemon": f"{startorder.AWAIT}await_one_of 127.0.0.1:1,127.0.0.1:2",
    "shared root": startorder.TRAP
    + jail.WAIT.partition(startorder.TRAP)[2],  # what is before it is not for this machine
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_who_waits_can_be_told_to_go(script: str, tmp_path: Path) -> None:
    (tmp_path / "isthmus-enter").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "isthmus-enter").chmod(0o755)
    script = re.sub(r"\bpause 0", "echo waits; pause 0", script)
    # As in a container: the first process there has the signals of nobody else.
    first = ["unshare", "--user", "--pid", "--fork", "--kill-child", "env", "--default-signal"]
    known = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen([*first, "bash", "-euc", script], stdout=subprocess.PIPE, text=True, env=known) as shell:
        assert shell.stdout
        assert shell.stdout.readline() == "waits\n"
        (child,) = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
        os.kill(int(child), Signals.SIGTERM)
        assert shell.wait(60) == 143


def test_one_that_listens_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        servers = f"127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}"
        subprocess.run(["bash", "-euc", f'{startorder.AWAIT}await_one_of "$0"', servers], check=True, timeout=120)


@pytest.mark.parametrize("script", [controller_scripts.START, worker._START, accounting._START, login._SACKD])
def test_daemons_wait_for_others_in_this_way_alone(script: str) -> None:
    assert script.count(startorder.AWAIT) == script.count("/dev/tcp/") == script.count('await_one_of "$') == 1
