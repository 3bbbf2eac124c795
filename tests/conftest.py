"""Fixtures for every ring of tests; each lives in the module of the part that it starts."""

pytest_plugins = [
    "tests.bed.logs",  # first: the others import it, and pytest must see a plugin before anyone else does
    "tests.bed.cluster",
    "tests.bed.control_plane",
    "tests.bed.faults",
    "tests.bed.slurm",
]
