"""Runs `isthmus` under the profiler: profiled.py FILE WORD… writes into FILE where the processor time went.

Processor time, since a bridge waits for others most of the time, and whoever happens to be there would be blamed.
"""

import cProfile
import sys
import time

import isthmus.apps.bridge  # noqa: F401 - loaded before the clock runs: that takes a second, once
from isthmus.cli.main import main

profile = cProfile.Profile(time.process_time)
file, *words = sys.argv[1:]
sys.argv = ["isthmus", *words]
try:
    profile.runcall(main)
finally:
    profile.dump_stats(file)
