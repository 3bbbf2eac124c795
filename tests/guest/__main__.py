"""Boot the guest, show its steps, and end as they ended: python -m tests.guest [--accel kvm]

--accel   `tcg`, emulation, works everywhere; `kvm` where this machine can run virtual ones by its processor
--within  how many minutes it may take
"""

import argparse
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from isthmus.errors import Terminal
from isthmus.local import files, host
from isthmus.local.progress import PlainProgress
from tests.guest import disks, emulator
from tests.guest.steps import PASSED


def main() -> int:
    """Make the disks, boot, and follow the steps."""
    parser = argparse.ArgumentParser(prog="python -m tests.guest")
    parser.add_argument("--accel", choices=("tcg", "kvm"), default="tcg")
    parser.add_argument("--within", type=float, default=120, metavar="MINUTES")
    options = parser.parse_args()
    # So that all that was begun is ended, as Ctrl-C has it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    progress = PlainProgress()
    host.check_system()
    host.ensure_packages(progress)
    emulator.ensure(progress)
    logs = disks.ROOT / "build" / "logs" / "guest"
    logs.mkdir(parents=True, exist_ok=True)
    with files.locked(disks.home() / "lock"):
        scratch = disks.home() / "run"
        shutil.rmtree(scratch, ignore_errors=True)  # of one that was killed
        scratch.mkdir()
        try:
            system = disks.system(progress)
            with disks.project(scratch, progress) as project:
                return _follow(system, project, logs, scratch, options)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _follow(system: Path, project: Path, logs: Path, scratch: Path, options: argparse.Namespace) -> int:
    console, last, began = logs / "console.log", "", time.monotonic()
    print(f"… Booting the guest ({options.accel}); its console: {console}", flush=True)
    with (
        emulator.running(system, project, console, accel=options.accel, scratch=scratch) as machine,
        (logs / "steps.log").open("w") as kept,
    ):
        end = threading.Timer(options.within * 60, machine.kill)
        end.daemon = True
        end.start()
        for line in emulator.lines(machine):
            stamped = f"{time.monotonic() - began:6.0f} s  {line}"
            print(stamped, flush=True)
            print(stamped, file=kept, flush=True)
            last = line or last
        late = not end.is_alive()
        end.cancel()
    if last == PASSED:
        return 0
    why = f"not within {options.within:.0f} minutes" if late else "see above"
    print(f"make guest failed: {why}; the guest's console: {console}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Terminal as error:
        sys.exit(f"make guest: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
