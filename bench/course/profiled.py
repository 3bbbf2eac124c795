"""Runs `isthmus` under the profiler: profiled.py FILE WORD… writes into FILE where the processor time went.

Processor time, since a controller waits for others most of the time, and whoever is there would be blamed.
"""

import cProfile
import sys
import time

import isthmus.processes.bridge
import isthmus.processes.operator  # noqa: F401 - likewise
from isthmus.cli.main import main

profile = cProfile.Profile(time.process_time)
file, *words = sys.argv[1:]
sys.argv = ["isthmus", *words]
try:
    profile.runcall(main)
finally:
    profile.dump_stats(file)
