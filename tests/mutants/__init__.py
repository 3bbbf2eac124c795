"""Measures the tests: puts one small fault at a time into a copy of `src` and looks whether a test fails.

    python -m tests.mutants --seed 1 --count 60

See docs/testing.md for what the result means.
"""
