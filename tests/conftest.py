"""Fixtures for every ring of tests; each lives in the module of the part that it starts."""

pytest_plugins = ["tests.bed.cluster", "tests.bed.control_plane", "tests.bed.faults", "tests.bed.logs", "tests.bed.slurm"]
