"""What every benchmark has in common: figures beside their bars, as a table for people or as JSON for machines.

A subject is an executable `bench/NAME.py`. It names its measurements and hands them to `main`:

    bench/clients.py                 measure everything of this subject
    bench/clients.py lists watches   only these measurements
    bench/clients.py --json          nothing but a JSON list on standard output
    bench/clients.py --quick         with a tenth of the load: to try a benchmark out, not to judge by
    bench/clients.py --profile       also where our own code spends its time, on standard error

Run as a program itself (`scripts/bench`), this module runs the subjects one after the other and prints one table.
A missed bar is a result, not a failure: the exit code tells only whether everything could be measured.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.stopwatch import PROFILE
from isthmus.errors import IsthmusError

_HERE = Path(__file__).parent
_BAR = re.compile(r"(?P<comparison>[≤≥]) (?P<limit>[0-9.]+) ?(?P<unit>.*)")


class Figure(msgspec.Struct, frozen=True):
    """One number and the bar it is measured against, such as "≤ 20 s": a comparison, a limit, a unit."""

    figure: str
    bar: str
    measured: float
    met: bool

    @property
    def text(self) -> str:
        """The number as people write it, with the bar's unit."""
        match = _parsed(self.bar)
        digits = 3 if self.measured < 1 else 2 if self.measured < 10 else 1 if self.measured < 100 else 0
        return f"{self.measured:,.{digits}f} {match['unit']}".rstrip()


Options = argparse.Namespace
Measurement = Callable[[Options], Iterable[Figure]]


def figure(name: str, bar: str, measured: float) -> Figure:
    """Hold a number against its bar."""
    match = _parsed(bar)
    limit = float(match["limit"])
    met = measured <= limit if match["comparison"] == "≤" else measured >= limit
    return Figure(name, bar, float(f"{measured:.4g}"), met)


def _parsed(bar: str) -> re.Match[str]:
    match = _BAR.fullmatch(bar)
    if match is None:
        raise ValueError(f"{bar!r} is no bar: write a comparison, a limit and a unit, as in '≤ 20 s'")
    return match


def note(text: str) -> None:
    """Say what is going on, or what a ratio consists of."""
    print(f"  {text}", file=sys.stderr, flush=True)


def main(measurements: Mapping[str, Measurement], *, about: str, flags: Mapping[str, str] | None = None) -> int:
    """Run the measurements that the command line asks for; `flags` are those that this subject adds."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ", ".join(measurements)
    parser.add_argument("only", nargs="*", metavar="MEASUREMENT", help=f"some of {known}; all unless given")
    parser.add_argument("--json", action="store_true", help="print a JSON list and nothing else")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load: to try it out, not to judge by")
    parser.add_argument("--profile", action="store_true", help="show where our own code spends its time")
    for flag, text in (flags or {}).items():
        parser.add_argument(flag, action="store_true", help=text)
    options = parser.parse_args()
    if unknown := set(options.only) - set(measurements):
        parser.error(f"there is no measurement {', '.join(sorted(unknown))}, only {known}")
    if options.profile:
        os.environ[PROFILE] = "1"
    # So that whatever a measurement started is cleaned up however the run is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    figures: list[Figure] = []
    try:
        for name, measure in measurements.items():
            if not options.only or name in options.only:
                note(f"measuring {name} …")
                figures += measure(options)
    except IsthmusError as error:
        print(f"bench: {name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(figures), indent=2).decode())
    else:
        show(figures)
    return 0


def show(figures: Iterable[Figure]) -> None:
    """Print the table."""
    table = Table()
    table.add_column("Figure")
    table.add_column("Bar", justify="right", no_wrap=True)
    table.add_column("Measured", justify="right", no_wrap=True)
    table.add_column("")
    for each in figures:
        table.add_row(each.figure, each.bar, each.text, "[green]met[/]" if each.met else "[red]missed[/]")
    Console(width=None if sys.stdout.isatty() else 116).print(table)


def run_all(chosen: Iterable[str]) -> int:
    """Run the chosen subjects, or all, and print one table of what they measured."""
    subjects = {path.stem: path for path in sorted(_HERE.glob("*.py")) if os.access(path, os.X_OK)}
    if unknown := [name for name in chosen if name not in subjects]:
        print(f"bench: there is no subject {', '.join(unknown)}, only {', '.join(subjects)}", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    broken: list[str] = []
    for name in chosen or subjects:
        note(f"subject {name}")
        done = subprocess.run([subjects[name], "--json"], check=False, stdout=subprocess.PIPE)
        if done.returncode:
            broken.append(name)
        else:
            figures += msgspec.json.decode(done.stdout, type=list[Figure])
    show(figures)
    for name in broken:
        print(f"bench: {name} could not be measured, see above", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(run_all(sys.argv[1:]))
