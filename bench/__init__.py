"""Benchmarks. A package, so that no module here is taken for one of Python's own: `operator`, for one."""
