"""Fixtures for every ring of tests; each lives in the module of the part that it starts."""

pytest_plugins = ["tests.bed.faults"]
