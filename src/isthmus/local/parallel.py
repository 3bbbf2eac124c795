"""Several things at once, in threads: what we wait for are other programs."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def together(jobs: Iterable[Callable[[], object]]) -> None:
    """Do all jobs at the same time. The first error is raised when all have ended."""
    with ThreadPoolExecutor(max_workers=32) as pool:
        for future in [pool.submit(job) for job in jobs]:
            future.result()


def for_each(items: Iterable[T], job: Callable[[T], object]) -> None:
    """Do a job for all items at the same time."""
    together(partial(job, item) for item in items)
