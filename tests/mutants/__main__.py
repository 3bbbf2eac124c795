"""`python -m tests.mutants`: chooses faults, asks the tests about each, and reports."""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.mutants import report
from tests.mutants.copies import Copy
from tests.mutants.gathering import Gathering
from tests.mutants.judging import FLOWS, UNITS, Judge, Verdict, unjudged
from tests.mutants.reach import UNIT, Reach
from tests.mutants.sample import readers, sample


def run(root: Path, options: argparse.Namespace) -> list[Verdict]:
    """Judge a sample of faults of the checkout at `root`."""
    mutants, names = sample(root, options.seed, options.count), readers(root)

    def tell(verdict: Verdict) -> None:
        sys.stderr.write(f"{report.line(verdict)}\n")

    with ExitStack() as stack:
        copies = [stack.enter_context(Copy(root, options.tests)) for _ in range(options.jobs)]
        gathering = Gathering(root, copies)
        units = Reach(gathering.reach(UNIT))
        judge = Judge(copies, names, tell)
        verdicts = judge.ask(UNITS, units, mutants, [unjudged(it) for it in mutants])
        flows = Reach(gathering.reach(options.flows) if options.flows else [])
        for test in sorted(units.failed | flows.failed):
            sys.stderr.write(f"not asked, since it fails without a fault, or under coverage: {test}\n")
        return judge.ask(FLOWS, flows, mutants, verdicts)


def _options(root: Path) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="other seeds choose other faults")
    parser.add_argument("--count", type=int, default=60, help="how many faults")
    parser.add_argument("--jobs", type=int, default=2, help="how many faults at a time")
    parser.add_argument(
        "--flows", nargs="*", default=["tests/flows"], help="which flows are asked; none: unit alone"
    )
    parser.add_argument("--tests", type=Path, default=root / "tests", help="`tests` of another checkout")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    return parser.parse_args()


def main() -> None:
    root = Path(__file__).parents[2]
    options = _options(root)
    verdicts = run(root, options)
    sys.stdout.write((report.as_json(options.seed, verdicts) if options.json else report.text(verdicts)) + "\n")


if __name__ == "__main__":
    main()
