"""A node as the scripts of the chart slurm-cluster see it: their directory, programs of the hardware, and scontrol.

scontrol is a program that notes how it was called and prints what a test wrote: what is tested here is which words
it is given. What Slurm makes of them is tested with a real one, in flows/health.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parents[3] / "charts" / "slurm-cluster" / "files" / "slurm_scripts"

_SCONTROL = """\
#!/bin/sh
[ "$1" = show ] || printf '%s\\n' "$*" >> "{0}/calls"
[ ! -e "{0}/away" ] || exit 1
[ "$1" != show ] || {{ echo >> "{0}/asked"; cat "{0}/node.json"; }}
"""


class Node:
    """The node n1."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.scripts = directory / "opt" / "slurm_scripts"
        shutil.copytree(SCRIPTS, self.scripts)
        self.programs = directory / "bin"
        self.programs.mkdir()
        self.program("scontrol", _SCONTROL.format(directory))
        (self.programs / "python3").symlink_to(Path(sys.executable).resolve())
        self.is_said_to_be()

    def program(self, name: str, text: str) -> None:
        """Put a program on the PATH."""
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)

    def is_said_to_be(self, *state: str, **fields: str) -> None:
        """Let slurmctld say this about the node."""
        found = {"name": "n1", "state": state or ["IDLE"], **fields}
        (self.directory / "node.json").write_text(json.dumps({"nodes": [found]}))

    def slurmctld_is_away(self) -> None:
        (self.directory / "away").touch()

    def checks(self, *entries: dict[str, Any]) -> None:
        """Write checks.json: checks that drain, if nothing else is said."""
        defaults = {"name": "bad", "on_fail": "drain", "on_ok": "undrain", "reason_append_details": True}
        (self.scripts / "checks.json").write_text(json.dumps([{**defaults, **it} for it in entries]))

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": f"{self.programs}:/usr/sbin:/usr/bin:/sbin:/bin",
            "SLURMD_NODENAME": "n1",
            "CHECKS_OUTPUTS_BASE_DIR": str(self.directory / "log"),
            "CHECKS_STATE_DIR": str(self.directory / "state"),
            "CHECKS_JAIL": str(self.directory / "no-jail"),
            **more,
        }

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, check=False, text=True, capture_output=True, env=self.environment(**more), cwd=self.scripts
        )

    def prolog(self, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.scripts / "prolog.sh"), SLURM_JOB_ID="7", **more)

    def epilog(self, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.scripts / "epilog.sh"), SLURM_JOB_ID="7", **more)

    def health_check(self, **more: str) -> subprocess.CompletedProcess[str]:
        done = self.run(str(self.scripts / "hc_program.sh"), **more)
        assert done.returncode == 0, "Slurm has nothing to say about a health check"
        return done

    def check(self, name: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run("python3", "-IS", str(self.scripts / "check_runner.py"), "--check", name, **more)

    @property
    def calls(self) -> list[str]:
        """How scontrol was called to change something."""
        path = self.directory / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def asked(self) -> int:
        """How often slurmctld was asked how the node is."""
        path = self.directory / "asked"
        return len(path.read_text().splitlines()) if path.exists() else 0

    @property
    def log(self) -> str:
        path = self.directory / "log" / "check_runner.log"
        return path.read_text() if path.exists() else ""
