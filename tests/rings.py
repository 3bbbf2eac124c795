"""Runs rings of tests one after the other, and says where the time went: python -m tests.rings [--quick] [RING…]

JUnit XML and figures of the last run are in build/rings. CPU time is that of the whole machine while a ring runs:
the daemons that a test starts are often nobody's children. Waiting is the rest of the processors' time.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
from rich.console import Console
from rich.table import Table

from isthmus.errors import Terminal

_ROOT = Path(__file__).parents[1]
_RESULTS = _ROOT / "build" / "rings"
_FIGURES = _RESULTS / "figures.json"
_PROGRAMS = Path(sys.executable).parent
_SLOWEST = 30
_NOT_BUSY = (3, 4)  # "idle" and "iowait" in the first line of /proc/stat


class Result(msgspec.Struct, frozen=True):
    """What a ring took."""

    ring: str
    passed: bool
    tests: int
    wall_s: float
    cpu_s: float

    @property
    def waiting(self) -> float:
        """The share of the processors' time in which nothing had to be done."""
        return max(0.0, 1 - self.cpu_s / (self.wall_s * _cores()))


@dataclass(frozen=True)
class Ring:
    """Commands that belong together; pytest's are words that say which tests, and in how many processes."""

    commands: tuple[tuple[str, ...], ...] = ()
    pytest: tuple[str, ...] = ()
    processes: int = 1
    quick: tuple[str, ...] = ()
    """What a quick run takes instead of all: enough to touch every process of ours once."""


# A module is the unit of work where its tests share servers. Servers are mostly waited for, so that there are more
# processes than processors.
RINGS = {
    "lint": Ring(
        commands=(
            ("ruff", "check"),
            ("ruff", "format", "--check"),
            ("mypy",),
            ("mypy", "bench"),
            ("mypy", "charts/slurm-cluster/files/slurm_scripts"),
            ("lint-imports",),
        )
    ),
    # Properties take longest, so they come first; who is done takes what others have before them.
    "unit": Ring(pytest=("--dist=worksteal", "tests/properties", "tests/unit"), processes=2),
    "flows": Ring(
        pytest=("--dist=loadfile", "tests/flows"),
        processes=6,
        quick=(
            "tests/flows/bridge/test_apps.py",  # scheduler, controllers, admission
            "tests/flows/bridge/test_scheduler.py",
            "tests/flows/sharedroot/test_users.py",  # the SPANK plugin
            "tests/flows/operator/test_restapis.py",
            "tests/flows/operator/test_tokens.py",
            "tests/flows/slurm/test_versions.py",
        ),
    ),
    "e2e": Ring(
        pytest=("--dist=loadfile", "tests/e2e"),
        processes=3,
        quick=(
            "tests/e2e/test_bridge.py::test_slurm_places",
            "tests/e2e/test_operator_cluster.py::test_a_job_as_the_documents_have_it",
            "tests/e2e/test_operator_cluster.py::test_ssh_and_scp",
            "tests/e2e/test_operator_cluster.py::test_our_status_and_our_doctor_find_nothing_wrong",
            # sconfigcontroller
            "tests/e2e/test_shared_root_cluster.py::test_who_writes_them_is_root_without_any_of_its_powers",
            "tests/e2e/test_shared_root_cluster.py::test_scripts_of_a_jailedconfig_run_on_every_node_and_follow_its_configmap",
        ),
    ),
}


def run(names: Iterable[str], *, quick: bool = False) -> list[Result]:
    """Run rings until one fails."""
    results: list[Result] = []
    for name in names:
        results.append(_run(name, RINGS[name], quick=quick))
        if not results[-1].passed:
            break
    return results


def _run(name: str, ring: Ring, *, quick: bool) -> Result:
    _RESULTS.mkdir(parents=True, exist_ok=True)
    report = _RESULTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    commands = list(ring.commands)
    if ring.pytest:
        chosen = (*ring.pytest[:-1], *ring.quick) if quick and ring.quick else ring.pytest
        told = (f"-n{ring.processes}", f"--durations={_SLOWEST}", f"--junitxml={report}")
        commands.append(("pytest", *told, *chosen))
    begun, busy = time.monotonic(), _busy()
    passed = all(_succeeds(words) for words in commands)
    return Result(
        ring=name,
        passed=passed,
        tests=_count(report),
        wall_s=round(time.monotonic() - begun, 1),
        cpu_s=round(_busy() - busy, 1),
    )


def last() -> list[Result]:
    """Read what the last run took."""
    if not _FIGURES.exists():
        raise Terminal(f"there is no {_FIGURES}", remedy="run make test")
    return msgspec.json.decode(_FIGURES.read_bytes(), type=list[Result])


def _succeeds(words: tuple[str, ...]) -> bool:
    sys.stderr.write(f"{' '.join(words)}\n")
    # Hundreds of processes import the same modules: they are compiled once, whatever the environment says.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # API servers and etcds spend a fifth of their time on garbage unless they may have more memory.
    environment.setdefault("GOGC", "400")
    done = subprocess.run([_PROGRAMS / words[0], *words[1:]], check=False, cwd=_ROOT, env=environment)
    return done.returncode == 0


def _count(report: Path) -> int:
    if not report.exists():
        return 0
    suites = ET.parse(report).getroot().iter("testsuite")  # noqa: S314 - pytest wrote it a moment ago
    return sum(int(suite.attrib["tests"]) for suite in suites)


def _busy() -> float:
    """For how many seconds processors have worked since the machine was started."""
    spent = [int(it) for it in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    return (sum(spent) - sum(spent[it] for it in _NOT_BUSY)) / os.sysconf("SC_CLK_TCK")


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def show(results: list[Result]) -> None:
    """Print the table."""
    table = Table("Ring", title=None)
    for heading in ("Tests", "Wall time", "CPU time", "Waiting"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for each in results:
        table.add_row(
            each.ring,
            f"{each.tests:,}" if each.tests else "",
            _clock(each.wall_s),
            _clock(each.cpu_s),
            f"{each.waiting:.0%}",
            "[green]passed[/]" if each.passed else "[red]failed[/]",
        )
    table.add_section()
    wall, cpu = sum(it.wall_s for it in results), sum(it.cpu_s for it in results)
    tests = sum(it.tests for it in results)
    table.add_row("all", f"{tests:,}", _clock(wall), _clock(cpu), f"{1 - cpu / (wall * _cores()):.0%}", "")
    Console(width=None if sys.stdout.isatty() else 116).print(table)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def _main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("rings", nargs="*", metavar="RING", help=f"some of {', '.join(RINGS)}; all unless given")
    parser.add_argument("--quick", action="store_true", help="a selection of flow and end-to-end tests")
    options = parser.parse_args()
    if unknown := [it for it in options.rings if it not in RINGS]:
        parser.error(f"{', '.join(unknown)}: not a ring; the rings are {', '.join(RINGS)}")
    results = run(options.rings or RINGS, quick=options.quick)
    _FIGURES.write_bytes(msgspec.json.encode(results))
    show(results)
    return 0 if all(it.passed for it in results) else 1


if __name__ == "__main__":
    sys.exit(_main())
