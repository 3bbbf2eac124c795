"""What containers wait for before their daemons start: who is told to go meanwhile goes at once."""

import os
import subprocess
from pathlib import Path
from signal import Signals

import pytest

from isthmus.domain.manifests import accounting, controller_scripts, jail, login, worker

SCRIPTS = {
    "slurmctld": controller_scripts.START,
    "slurmd": worker._START,
    "slurmdbd": accounting._START,
    "sackd": login._SACKD,
    "shared root": jail.WAIT,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_who_waits_can_be_told_to_go(script: str) -> None:
    _, trap, rest = script.partition("trap 'exit 143' TERM")
    loop, end, _ = rest.partition("done\n")
    loop = loop.replace("sleep 0.2", "echo waits; sleep 0.2")
    # As in a container: the first process there has the signals of nobody else.
    first = ["unshare", "--user", "--pid", "--fork", "--kill-child", "env", "--default-signal"]
    with subprocess.Popen(
        [*first, "bash", "-euc", f"answers() {{ return 1; }}\n{trap}{loop}{end}"], stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout
        assert shell.stdout.readline() == "waits\n"
        (child,) = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
        os.kill(int(child), Signals.SIGTERM)
        assert shell.wait(60) == 143
